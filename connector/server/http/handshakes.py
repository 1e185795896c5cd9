"""Connections to a TLS port -> connections whose bytes are readable, for `http.protocol`.

A connection counts from its first packet on, and makes room as one that has sent no request: whoever opens connections
and says nothing takes nobody's place, and no more handles than there are connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from connector.server.http import protocol
from connector.server.http.protocol import BoundedProtocol

_GOODBYE_TIMEOUT_S = 5.0
"""How long a client may take to say goodbye too."""


class TlsHandshake(asyncio.Protocol):
    """A connection until both sides have agreed on TLS."""

    is_idle = True

    def __init__(self, read_context: Callable[[], ssl.SSLContext], **uvicorns: Any) -> None:
        """Begin without a connection.

        Args:
            read_context: gives how TLS is spoken now.
            uvicorns: what uvicorn makes a protocol of.
        """
        self._read_context = read_context
        self._http = BoundedProtocol(**uvicorns)
        self._loop = self._http.loop
        self._early: list[bytes] = []
        self.since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Agree on TLS; make room first."""
        transport.pause_reading()  # What comes is for TLS.
        self._transport = transport
        self._http.make_room()
        self._http.connections.add(self)  # type: ignore[arg-type]
        self.since = self._loop.time()
        self._agreeing = self._loop.create_task(self._agree())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Give it up."""
        self._agreeing.cancel()

    def data_received(self, data: bytes) -> None:
        """Keep what comes before anybody can read it."""
        self._early.append(data)

    def let_go(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    shutdown = let_go

    async def _agree(self) -> None:
        try:
            secured = await self._loop.start_tls(
                self._transport,
                self,
                self._read_context(),
                server_side=True,
                ssl_handshake_timeout=protocol.HEAD_TIMEOUT_S,
                ssl_shutdown_timeout=_GOODBYE_TIMEOUT_S,
            )
        except OSError:
            secured = None
        finally:
            self._http.connections.discard(self)
        if secured is None:
            self._transport.abort()
            return
        secured.set_protocol(self._http)
        self._http.connection_made(secured)
        if self._early:
            self._http.data_received(b"".join(self._early))
