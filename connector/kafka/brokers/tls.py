"""TLS settings, as librdkafka names them -> Python's: authorities, and the client's own certificate."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from connector.errors import FatalError


def build_ssl_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a client.

    Raises:
        FatalError: a store that cannot be read; the message names the setting.
    """
    try:
        context = _trust_authorities(settings)
        if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
            context.check_hostname = False
        _load_client_certificate(context, settings)
    except (OSError, ValueError) as error:
        raise FatalError(
            f"the TLS settings of the Kafka client cannot be used: {error}; check ssl.truststore.* and ssl.keystore.*, "
            "their files, types and passwords"
        ) from error
    return context


def _trust_authorities(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the authorities that are named, and no other; those of the machine where none is."""
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    folder = location is not None and Path(location).is_dir()
    return ssl.create_default_context(
        cafile=None if folder else location, capath=location if folder else None, cadata=pem
    )


def _load_client_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    # An empty password, not none: OpenSSL would ask the terminal for one.
    password = settings.get("ssl.key.password", "")
    if "ssl.certificate.location" in settings:
        context.load_cert_chain(settings["ssl.certificate.location"], settings.get("ssl.key.location"), password)
    elif "ssl.certificate.pem" in settings:
        _load_pem(context, settings["ssl.certificate.pem"] + "\n" + settings.get("ssl.key.pem", ""), password)


def _load_pem(context: ssl.SSLContext, pem: str, password: str) -> None:
    # Python's ssl reads certificates from files only; this one is its owner's alone, and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)
