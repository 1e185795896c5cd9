"""Stored offsets -> the destination's cleanup, in a thread beside the batches: one at a time, and none waits for it.

To merge the files of the deleted keys takes longer than a small batch, every fifty batches.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from connector.errors import ConnectorError


class BackgroundCleanup:
    """Cleans up whenever it is asked to and not at it already; `begin` is called by one thread at a time."""

    def __init__(self, clean_up: Callable[[], None]) -> None:
        """Describe what to do; nothing is done yet."""
        self._clean_up = clean_up
        self._thread = ThreadPoolExecutor(1, "cleanup")
        self._current: Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether none goes on."""
        return self._current is None or self._current.done()

    def begin(self) -> None:
        """Begin, unless the last one goes on; raise what nobody foresaw of the last one."""
        if not self.is_idle:
            return
        if self._current is not None:
            self._current.result()
        self._current = self._thread.submit(self._work)

    def close(self) -> None:
        """Wait for the end of what goes on, and begin nothing more; raise what nobody foresaw of it."""
        current, self._current = self._current, None
        try:
            if current is not None:
                current.result()
        finally:
            self._thread.shutdown()

    def _work(self) -> None:
        try:
            self._clean_up()
        except ConnectorError as error:
            structlog.get_logger().warning("cleanup is postponed", reason=str(error))
