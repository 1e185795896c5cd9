"""A question to the brokers -> its newest answer, asked now and then in a thread: nobody waits while they are away."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from connector.runtime.lifecycle import start_call

T = TypeVar("T")

_INTERVAL_S, _MAX_INTERVAL_S, _SHARE = 1.0, 30.0, 0.05
"""How often is asked: less often where that takes more than this share of time."""


class BackgroundLook(Generic[T]):
    """Asks one question at a time; `poll` is called by one thread."""

    def __init__(self, look: Callable[[], T]) -> None:
        """Begin after the first interval."""
        self._look = look
        self._asked: Future[T] | None = None
        self._began_s = 0.0
        self._due_s = time.monotonic() + _INTERVAL_S

    def poll(self) -> T | None:
        """Return an answer that has come, once, or raise what it raised; begin to ask again when that is due."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._due_s:
                self._asked, self._began_s = start_call(self._look, "look"), now
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        self._due_s = now + min(max(_INTERVAL_S, (now - self._began_s) / _SHARE), _MAX_INTERVAL_S)
        return asked.result()
