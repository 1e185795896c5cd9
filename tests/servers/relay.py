"""An address of a server -> another one of the same, which can be away, slow, or lose the answer to a request.

While it is away connections end, and new ones are refused, as they are while nobody listens at the server's own port.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from attrs import define, field

from connector.demo.servers.ports import LOOPBACK

_REQUEST = b" HTTP/1.1\r\n"


@define(eq=False)
class Relay:
    """Passes bytes on to a port; `on_request` hears how many requests of HTTP have come."""

    target: int
    on_request: Callable[[int], object] = lambda _: None
    requests: int = 0
    lost_answers: int = 0
    """So often a request was passed on, and its connection ended instead of the answer."""
    delay_s: float = 0.0
    """For how long each piece of data is held back."""
    port: int = 0
    _away: threading.Event = field(factory=threading.Event)
    _open: set[socket.socket] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)
    _server: socket.socket | None = None
    _losing: bytes | None = None
    _listeners: tuple[Callable[[bytes], object], ...] = ()

    def __enter__(self) -> Relay:
        self._server = socket.create_server((LOOPBACK, self.port))
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

    def lose_answer(self, request: bytes | None) -> None:
        """Lose the answer to the next request that has these bytes in it; None takes that back."""
        with self._lock:
            self._losing = request

    @contextmanager
    def heard_by(self, listener: Callable[[bytes], object]) -> Iterator[None]:
        """Have a listener hear each piece of data of clients before it is passed on, while the block lasts."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                if self._away.is_set():
                    client.close()
                    continue
                try:
                    there = socket.create_connection((LOOPBACK, self.target))
                except OSError:
                    client.close()
                    continue
                answered = threading.Event()
                answered.set()
                with self._lock:
                    self._open |= {client, there}
                for one, other, counted in ((client, there, True), (there, client, False)):
                    arguments = (one, other, answered, counted)
                    threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, answered: threading.Event, counted: bool) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if self.delay_s:
                    time.sleep(self.delay_s)
                if counted:
                    for listener in self._listeners:
                        listener(data)
                    self._look_at(data, answered)
                elif not answered.is_set():  # what the server says to it, its client never hears
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(one)

    def _look_at(self, data: bytes, answered: threading.Event) -> None:
        with self._lock:
            if self._losing is not None and self._losing in data:
                self._losing = None
                self.lost_answers += 1
                answered.clear()
        if _REQUEST in data:
            with self._lock:
                self.requests += data.count(_REQUEST)
            self.on_request(self.requests)
