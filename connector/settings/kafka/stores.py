"""Java's stores of keys and certificates (JKS, PKCS12) -> PEM, which every client of ours takes from memory.

So a store has to be where the driver runs, and nowhere else. Which of the two formats a file has is told by its first
bytes, as Java's own reader of JKS takes both.
Sources: RFC 7292 (PKCS12); the JKS format as OpenJDK's sun.security.provider.JavaKeyStore reads and writes it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import attrs
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from cryptography.x509 import load_der_x509_certificate

from connector.errors import ConfigError

KINDS = frozenset({"JKS", "PKCS12"})
TRUSTSTORE, TRUSTSTORE_PASSWORD = "icebridge.truststore.location", "icebridge.truststore.password"
KEYSTORE, KEYSTORE_PASSWORD = "icebridge.keystore.location", "icebridge.keystore.password"
"""Names that stand in a translation for what is read only when a client is made."""

_NAMES = frozenset({TRUSTSTORE, TRUSTSTORE_PASSWORD, KEYSTORE, KEYSTORE_PASSWORD})

_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSIONS = (1, 2)
_KEY_TAG, _CERTIFICATE_TAG = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_DER_LONG, _DER_SEQUENCE, _DER_OCTETS = 0x80, 0x30, 0x04


@attrs.frozen
class StoreContents:
    """What a store holds, as PEM: certificates that are trusted, and a key with its chain, if there is one."""

    trusted: str = ""
    key: str = attrs.field(default="", repr=False)
    chain: str = ""


def read_stores(native: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings with PEM in place of stores.

    Raises:
        ConfigError: a store cannot be read; it is named with the reason, never its password.
    """
    settings = {key: text for key, text in native.items() if key not in _NAMES}
    if TRUSTSTORE in native:
        held = _read_store("ssl.truststore.location", native[TRUSTSTORE], native.get(TRUSTSTORE_PASSWORD, ""), "")
        if not held.trusted:
            raise ConfigError(
                f"ssl.truststore.location: {native[TRUSTSTORE]} holds no certificate that is trusted; import the "
                "authority of the brokers into it"
            )
        settings["ssl.ca.pem"] = held.trusted
    if KEYSTORE in native:
        password = native.get(KEYSTORE_PASSWORD, "")
        key_password = settings.pop("ssl.key.password", password)
        held = _read_store("ssl.keystore.location", native[KEYSTORE], password, key_password)
        if not held.key:
            raise ConfigError(
                f"ssl.keystore.location: {native[KEYSTORE]} holds no key with its certificate; import both under "
                "one alias"
            )
        settings |= {"ssl.key.pem": held.key, "ssl.certificate.pem": held.chain}
    return settings


_read_before: dict[tuple[str, str, str], StoreContents] = {}
"""What each store held when it was last read: while another one is put in its place, it may be no store."""


def _read_store(option: str, location: str, password: str, key_password: str) -> StoreContents:
    asked = (location, password, key_password)
    try:
        changed_ns = Path(location).stat().st_mtime_ns
        contents = _read_before[asked] = _parse_file(location, changed_ns, password, key_password)
    except (OSError, UnsupportedAlgorithm, ValueError, struct.error, IndexError) as error:
        if asked in _read_before:
            return _read_before[asked]
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{option}: {location} cannot be read: {reason or 'it is no store'}; check the path, its rights, the "
            "store's type and its password"
        ) from None
    return contents


@lru_cache(16)
def _parse_file(location: str, _changed_ns: int, password: str, key_password: str) -> StoreContents:
    data = Path(location).read_bytes()
    if data[:4] == struct.pack(">I", _JKS_MAGIC):
        return parse_jks(data, password, key_password)
    return parse_pkcs12(data, password)


def parse_pkcs12(data: bytes, password: str) -> StoreContents:
    """Read a PKCS12 store. ValueError for another password, or what is none."""
    store = load_pkcs12(data, password.encode() if password else None)
    others = [one.certificate.public_bytes(Encoding.PEM).decode() for one in store.additional_certs]
    if store.key is None or store.cert is None:
        return StoreContents(trusted="".join(others))
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = store.cert.certificate.public_bytes(Encoding.PEM).decode()
    return StoreContents(trusted="".join(others), key=key, chain="".join([own, *others]))


def parse_jks(data: bytes, password: str, key_password: str) -> StoreContents:
    """Read a JKS store; of several keys the first. ValueError for another password, or what is none."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    wide = password.encode("utf-16-be")
    if password and not hmac.compare_digest(hashlib.sha1(wide + _WHITENER + body).digest(), digest):  # noqa: S324
        raise ValueError("the password does not fit, or the store was changed")
    fields = _JksFields(body)
    _, version, entries = fields.numbers(">III")
    if version not in _JKS_VERSIONS:
        raise ValueError(f"JKS version {version} is not known")
    contents = StoreContents()
    for _ in range(entries):
        (tag,) = fields.numbers(">I")
        fields.take(">H")  # alias
        fields.numbers(">Q")  # date
        if tag == _CERTIFICATE_TAG:
            contents = attrs.evolve(contents, trusted=contents.trusted + fields.certificate(version))
        elif tag == _KEY_TAG:
            locked = fields.take(">I")
            chain = "".join(fields.certificate(version) for _ in range(fields.numbers(">I")[0]))
            if not contents.key and key_password:
                contents = attrs.evolve(contents, key=_unlock_key(locked, key_password), chain=chain)
        else:
            raise ValueError(f"an entry of kind {tag} in a JKS store")
    return contents


class _JksFields:
    """Fields of a JKS store in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def take(self, layout: str) -> bytes:
        """Return bytes behind their length."""
        (size,) = self.numbers(layout)
        if size > len(self._data) - self._at:
            raise ValueError("the store is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def certificate(self, version: int) -> str:
        """Return a certificate as PEM."""
        if version > _JKS_VERSIONS[0]:
            self.take(">H")  # the kind, X.509
        return load_der_x509_certificate(self.take(">I")).public_bytes(Encoding.PEM).decode()


def _unlock_key(locked: bytes, password: str) -> str:
    """Undo JKS's own lock: bytes mixed with a chain of SHA-1 over password and salt."""
    _, body = _der_value(locked, _DER_SEQUENCE)
    end_of_algorithm, _ = _der_value(body, _DER_SEQUENCE)
    _, sealed = _der_value(body[end_of_algorithm:], _DER_OCTETS)
    salt, mixed, check = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    wide, stream, link = password.encode("utf-16-be"), bytearray(), salt
    while len(stream) < len(mixed):
        link = hashlib.sha1(wide + link).digest()  # noqa: S324 - the format's own
        stream += link
    plain = bytes(a ^ b for a, b in zip(mixed, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(wide + plain).digest(), check):  # noqa: S324
        raise ValueError("the key's password does not fit (ssl.key.password, else ssl.keystore.password)")
    key = load_der_private_key(plain, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _der_value(data: bytes, tag: int) -> tuple[int, bytes]:
    """Return where an element ends, and what it holds."""
    if data[0] != tag:
        raise ValueError("the key's lock is not JKS's")
    size, at = data[1], 2
    if size & _DER_LONG:
        count = size & ~_DER_LONG
        size, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    return at + size, data[at : at + size]
