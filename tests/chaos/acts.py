"""What is done to targets -> threads that do it and undo it, one for a target at a time, and counts of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from attrs import define, field

AT_ONCE = 4
KILL = "SIGKILL"


@define(eq=False)
class Acts:
    """All that goes on at the same time."""

    pace: float = 1.0
    """What all waits are multiplied by."""
    fail: Callable[[str], object] = lambda _: None
    """Hears of what must not be."""
    counts: Counter[str] = field(factory=Counter)
    _busy: set[str] = field(factory=set)
    _threads: list[threading.Thread] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def kills(self) -> int:
        """How many processes got SIGKILL while they ran; one with all that came from it is one."""
        with self._lock:
            return sum(count for name, count in self.counts.items() if name.startswith(KILL))

    def is_busy(self, name: str) -> bool:
        """Whether something is done to it right now."""
        with self._lock:
            return name in self._busy

    def count(self, what: str) -> None:
        """Something was done."""
        with self._lock:
            self.counts[what] += 1

    def do(self, targets: Iterable[str], what: str, act: Callable[[], object]) -> None:
        """Do it, unless something is done to one of the targets, or to enough of others."""
        wanted = set(targets)
        self._threads = [one for one in self._threads if one.is_alive()]
        with self._lock:
            if wanted & self._busy or len(self._threads) >= AT_ONCE:
                return
            self._busy |= wanted
        thread = threading.Thread(target=self._run, args=(wanted, what, act), name=what, daemon=True)
        self._threads.append(thread)
        thread.start()

    def rest(self, seconds: float) -> None:
        """Wait."""
        time.sleep(self.pace * seconds)

    def finish(self, timeout_s: float) -> None:
        """Wait until all that was done is undone. TimeoutError where something is not."""
        limit = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(limit - time.monotonic(), 0))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        self._threads.clear()
        if alive:
            raise TimeoutError(f"after {timeout_s:.0f} s this was not undone: {', '.join(alive)}")

    def _run(self, targets: set[str], what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            self.fail(f"{what}: {error!r}")
        finally:
            with self._lock:
                self._busy -= targets
