"""An address of a server -> another one of the same, which can be away: connections end, and new ones are refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from attrs import define, field

from connector.demo.servers.ports import LOOPBACK

_REQUEST = b" HTTP/1.1\r\n"


@define(eq=False)
class Relay:
    """Passes bytes on to a port; `on_request` hears how many requests of HTTP have come."""

    target: int
    on_request: Callable[[int], object] = lambda _: None
    requests: int = 0
    port: int = 0
    _away: threading.Event = field(factory=threading.Event)
    _open: set[socket.socket] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)
    _server: socket.socket | None = None

    def __enter__(self) -> Relay:
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.leave()

    def leave(self) -> None:
        """Be away from now on."""
        self._away.set()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        """Be there again."""
        self._away.clear()

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                if self._away.is_set():
                    client.close()
                    continue
                there = socket.create_connection((LOOPBACK, self.target))
                with self._lock:
                    self._open |= {client, there}
                for one, other, counted in ((client, there, True), (there, client, False)):
                    threading.Thread(target=self._pass_on, args=(one, other, counted), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if counted and _REQUEST in data:
                    with self._lock:
                        self.requests += data.count(_REQUEST)
                    self.on_request(self.requests)
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
