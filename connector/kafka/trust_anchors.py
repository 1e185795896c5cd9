"""Authorities that are trusted -> a file in which each is trusted by itself, as in Java, whoever has signed it.

OpenSSL goes on to look for the authority of an authority, up to one that has signed itself, unless the file says what a
certificate is trusted for ("TRUSTED CERTIFICATE"). librdkafka has no other way to tell it.
Source: OpenSSL's manual, openssl-verification-options ("Trust Anchors"), openssl-x509 ("Trust Settings").
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

_FILE, _TEXT = "ssl.ca.location", "ssl.ca.pem"
_AS_SERVER = bytes.fromhex("300c300a06082b06010505070301")
"""What stands behind a certificate that is trusted to vouch for servers: a list of one purpose, in DER."""

_LINE = 64


@contextmanager
def use_anchors(settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Give settings, as librdkafka names them, that trust the same authorities; they hold while a client is made."""
    anchors = _list_anchors(settings)
    if all(one.issuer == one.subject for one in anchors):
        yield settings
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write("".join(map(_as_trusted, anchors)))
        file.flush()
        yield {**{name: text for name, text in settings.items() if name != _TEXT}, _FILE: file.name}


def _list_anchors(settings: Mapping[str, str]) -> list[x509.Certificate]:
    """Return the authorities that settings name; none where they are those of the machine, or cannot be read."""
    try:
        pem = settings[_TEXT].encode() if _TEXT in settings else Path(settings[_FILE]).read_bytes()
        return x509.load_pem_x509_certificates(pem)
    except (KeyError, OSError, ValueError):
        return []  # whoever makes a client of them says why


def _as_trusted(certificate: x509.Certificate) -> str:
    text = base64.b64encode(certificate.public_bytes(Encoding.DER) + _AS_SERVER).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join(["-----BEGIN TRUSTED CERTIFICATE-----", *lines, "-----END TRUSTED CERTIFICATE-----", ""])
