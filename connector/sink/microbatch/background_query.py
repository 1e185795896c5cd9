"""A query to the brokers -> its newest answer, repeated in a thread: nothing waits while they are unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from connector.runtime.lifecycle import start_call

T = TypeVar("T")

_INTERVAL_S, _MAX_INTERVAL_S, _SHARE = 1.0, 30.0, 0.05
"""The interval between queries; it grows if they take more than this share of the time."""


class BackgroundQuery(Generic[T]):
    """Runs one query at a time; `poll` is called by one thread."""

    def __init__(self, query: Callable[[], T]) -> None:
        """Begin after the first interval."""
        self._query = query
        self._pending: Future[T] | None = None
        self._began_s = 0.0
        self._due_s = time.monotonic() + _INTERVAL_S

    def poll(self) -> T | None:
        """Return a new answer once, or raise its error; start the next query when it is due."""
        now = time.monotonic()
        if self._pending is None:
            if now >= self._due_s:
                self._pending, self._began_s = start_call(self._query, "query"), now
            return None
        if not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        self._due_s = now + min(max(_INTERVAL_S, (now - self._began_s) / _SHARE), _MAX_INTERVAL_S)
        return pending.result()
