"""An application -> a port that answers, in a thread of its own that no batch holds up."""

from __future__ import annotations

import socket
import threading
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

import attrs
import structlog
import uvicorn
from starlette.types import ASGIApp

from connector.errors import ConfigError, FatalError
from connector.runtime.lifecycle import start_thread
from connector.server.http.certificate import Certificate
from connector.server.http.handshakes import TlsHandshake
from connector.server.http.protocol import BoundedProtocol

CONNECTIONS = 256
_KEEP_ALIVE_S = 30
_START_S = 10.0


@attrs.frozen
class Address:
    """Where a server is bound; port 0 is any free one. `key` is a PEM file with certificate and private key."""

    host: str
    port: int
    key: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def of_listener(cls, url: str, key: str | None, key_password: str | None) -> Address:
        """Read a listener as Kafka Connect writes it; without a host it is bound to all addresses."""
        parts = urlsplit(url)
        is_https = parts.scheme.lower() == "https"
        return cls(parts.hostname or "0.0.0.0", parts.port or 0, key if is_https else None, key_password)  # noqa: S104

    @property
    def is_loopback(self) -> bool:
        """Whether nothing but this host reaches it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


class HttpServer:
    """A running server; usable as a context manager. `port` is the one that it got."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        """Bind the port, so that one that is taken is known before anything starts.

        Raises:
            OSError: it is taken, or there is no such address.
            ConfigError: the certificate cannot be read.
        """
        self._address = address
        protocol: Any = BoundedProtocol
        if address.key is not None:
            protocol = partial(TlsHandshake, Certificate(address.key, address.key_password).context)
        self._socket = _bind(address)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",  # what strangers send that is no HTTP is answered, and not logged
            access_log=False,
            server_header=False,
            lifespan="off",
            loop="asyncio",
            http=protocol,
            ws="none",
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where clients on this host find it."""
        scheme = "https" if self._address.key else "http"
        host = "127.0.0.1" if self._address.host in {"0.0.0.0", ""} else self._address.host  # noqa: S104
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread = start_thread(lambda: self._server.run(sockets=[self._socket]), f"http-{self.port}")
        deadline = threading.Event()
        for _ in range(int(_START_S / 0.02)):
            if self._server.started:
                return self
            if not self._thread.is_alive():
                break
            deadline.wait(0.02)
        raise FatalError(f"the HTTP server of port {self.port} did not start; see the log")

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5)
        self._socket.close()


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
    except OSError:
        bound.close()
        raise
    return bound


def open_server(app: ASGIApp, address: Address, *, is_given: bool) -> HttpServer | None:
    """Bind a server; one whose address is a default is given up with a warning where the port is taken.

    Raises:
        ConfigError: the address was asked for, and cannot be had.
    """
    try:
        return HttpServer(app, address)
    except OSError as error:
        if is_given:
            raise ConfigError(
                f"port {address.port} of {address.host} cannot be opened: {error.strerror}; stop the process that "
                "has it, or name another in listeners or quarkus.http.port (0 for any)"
            ) from error
        structlog.get_logger().warning(
            "no HTTP server: another process has its port; set listeners or quarkus.http.port",
            port=address.port,
            reason=error.strerror,
        )
        return None
