"""Whether something was asked to stop -> whoever waits for it wakes: by signal handlers too, at any moment.

A handler runs in the main thread, in the midst of whatever that does. `threading.Event` has a lock, for which its `set`
would wait for ever where the handler came within a `wait` or another `set`.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class StopFlag:
    """Is set once, and stays so."""

    def __init__(self) -> None:
        """Begin unset."""
        self._is_set = False
        # Its `put` may come within any call of the same thread.
        self._wake = SimpleQueue[None]()

    def set(self) -> None:
        """Set it, and wake who waits; safe to call from a signal handler."""
        self._is_set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Tell whether it was set."""
        return self._is_set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most so long; tell whether it is."""
        if not self._is_set:
            try:
                self._wake.get(timeout=timeout_s)
            except Empty:
                return self._is_set
            self._wake.put(None)  # others may wait too
        return self._is_set
