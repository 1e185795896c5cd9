"""Bytes of a connection -> requests for the application, as uvicorn reads them; no client holds a place by being slow.

A request's head has to arrive in time, an answer has to be taken, and where there is no room the connection that has
waited longest without a request makes it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S = 10.0
"""How long the head of a request may take, from the connection or from its first byte."""
ANSWER_TIMEOUT_S = 30.0
"""How long a client may leave an answer unread."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with bounds on time; `limit_concurrency` bounds the connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin without a connection."""
        super().__init__(*args, **kwargs)
        self.since = 0.0
        self._head: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; make room first."""
        self.make_room()
        super().connection_made(transport)
        self.since = self.loop.time()
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        _cancel(self._head)
        _cancel(self._answer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        """Go on with the next request of the connection, or with what nobody reads of this one."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch_head()

    def pause_writing(self) -> None:
        """Take note that the client does not read."""
        super().pause_writing()
        self._answer = self.loop.call_later(ANSWER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Take note that it reads again."""
        _cancel(self._answer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in Connect's JSON."""
        body = orjson.dumps({"error_code": 400, "message": msg})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request has arrived, not its whole head, or more of a body than was asked for."""
        theirs = self.conn.their_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and self.conn.our_state is h11.DONE)

    def _watch_head(self) -> None:
        if not self.is_idle or self.transport.is_closing():
            _cancel(self._head)
            self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def make_room(self) -> None:
        """Let the connection go that has waited longest for a request, if there are too many for one more."""
        limit = self.limit_concurrency
        if limit is None or len(self.connections) + 1 < limit:
            return
        waiting: list[Any] = [one for one in self.connections if getattr(one, "is_idle", False)]
        if waiting:
            oldest = min(waiting, key=lambda one: one.since)
            self.connections.discard(oldest)
            oldest.let_go()

    def let_go(self) -> None:
        """Cut the connection."""
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
