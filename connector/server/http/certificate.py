"""A PEM file with certificate and key -> how a port speaks TLS; a renewed file counts from the next connection on.

Certificates live for weeks, processes for longer: what cert-manager, certbot or a Secret of Kubernetes puts in the
file's place needs no restart.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from connector.errors import ConfigError

_Seen = tuple[int, int, int, int]
_GONE: _Seen = (0, 0, 0, 0)


class Certificate:
    """The certificate of one port; asked for each connection, it costs a look at the file's times."""

    def __init__(self, path: str, password: str | None) -> None:
        """Read it.

        Raises:
            ConfigError: the certificate cannot be used.
        """
        self._path, self._password = path, password
        try:
            self._seen = self._look()
            self._context = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"listeners.https.ssl.keystore.location: no certificate with its key ({type(error).__name__}); give a "
                "PEM file with both, and listeners.https.ssl.key.password where the key has one"
            ) from None

    def context(self) -> ssl.SSLContext:
        """Return how TLS is spoken now; one that is renewed and cannot be used is told, and the one before stays."""
        seen = self._look()
        if seen == self._seen:
            return self._context
        self._seen = seen
        try:
            self._context = self._load()
            structlog.get_logger().info("the certificate of the listeners was renewed", path=self._path)
        except (OSError, ValueError) as error:
            structlog.get_logger().warning(
                "the renewed certificate of the listeners cannot be used, the one before stays",
                path=self._path,
                reason=type(error).__name__,
            )
        return self._context

    def _look(self) -> _Seen:
        try:
            found = Path(self._path).stat()
        except OSError:
            return _GONE  # told once, as one that cannot be used
        # Rights on it that come after it (chmod, chown) are a change of its state alone.
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size

    def _load(self) -> ssl.SSLContext:
        """Load it; nobody is asked for a password, as OpenSSL would."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._path, password=lambda: self._password or "")
        return context
