"""TLS settings, as librdkafka names them -> Python's: authorities, and the client's own certificate."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from connector.errors import FatalError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.trust_anchors import use_anchors

_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_AUTHORITIES = {"ssl.ca.location", "ssl.ca.pem"}
_MAX_CONTEXTS = 64
_contexts: dict[ClusterAddress, tuple[ssl.SSLContext, tuple[int, ...]]] = {}
"""The context that was last made of each cluster's settings, and when their files had last changed then."""


def find_ssl_context(address: ClusterAddress) -> ssl.SSLContext:
    """Return a client's context as its files are now; the one before where they cannot be used as they are.

    Key and certificate may be two files, of which one is still to be written.

    Raises:
        FatalError: a store that cannot be read, with none before; the message names the setting.
    """
    stamp, (kept, kept_stamp) = stamp_files(address.by_name), _contexts.get(address, (None, ()))
    if kept is not None and stamp == kept_stamp:
        return kept
    try:
        made = build_ssl_context(address.by_name)
    except FatalError:
        if kept is None:
            raise
        return kept
    while len(_contexts) >= _MAX_CONTEXTS:
        _contexts.pop(next(iter(list(_contexts))), None)  # the oldest: of certificates that were replaced since, mostly
    _contexts[address] = made, stamp
    return made


def stamp_files(settings: Mapping[str, str]) -> tuple[int, ...]:
    """Return when each file of keys and certificates that settings name last changed; 0 where there is none.

    Without authorities of their own those of the machine count.
    """
    named = [settings[name] for name in _FILES if name in settings]
    if not settings.keys() & _AUTHORITIES and settings.get("security.protocol", "").upper().endswith("SSL"):
        named.append(ssl.get_default_verify_paths().openssl_cafile)
    return tuple(map(_find_change_ns, named))


def _find_change_ns(location: str) -> int:
    try:
        return Path(location).stat().st_mtime_ns
    except OSError:
        return 0


def build_ssl_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a client.

    Raises:
        FatalError: a store that cannot be read; the message names the setting.
    """
    try:
        with use_anchors(settings) as given:
            context = _trust_authorities(given)
        # Python 3.13 asks for what Java and librdkafka do not, and trusts what librdkafka does not.
        context.verify_flags &= ~(ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN)
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
