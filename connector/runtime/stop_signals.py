"""SIGTERM, SIGINT, SIGHUP -> the work in progress is finished, or nothing was in progress: one line, and exit code 0.

Supervisors and terminals send them to every process of a group, at any moment, and more than once; a terminal that is
closed sends SIGHUP, which `nohup` has ignored. While a run is going
it is told to stop (`stop_on_signals`); before that the process leaves at once, and afterwards it is leaving anyhow.

Nothing heavy is imported here: the command line's first imports, which take a second, are to be guarded already.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE_S = 5.0
"""So long what is in progress when a stop is asked for tries again what fails: a conflict is over by then, and for a
broker or catalog that is away no supervisor would wait."""


class Stoppable(Protocol):
    """Something that runs until it is told to stop."""

    def stop(self) -> None:
        """Finish the work in progress, then leave; safe to call from a signal handler."""


class _StopRequested(BaseException):
    """A signal came while nothing was in progress."""


class _Request:
    """Whether this process was asked to stop, and before any work had begun."""

    asked = early = False
    asked_at: float | None = None
    """When a run was asked to stop."""

    def note(self, _: int, __: FrameType | None) -> None:
        """Handle a signal while modules are imported: an exception would come out of whichever is being imported."""
        self.asked = True

    def leave(self, _: int, __: FrameType | None) -> None:
        """Handle a signal outside of runs."""
        if self.early:
            # Something does not let go, a broker that does not answer for example.
            os.write(2, b"stopped at once: asked to twice before any work had begun\n")
            os._exit(0)
        if not self.asked:
            self.asked = self.early = True
            raise _StopRequested


_REQUEST = _Request()


def note_signals() -> None:
    """Keep signals from now on for `leave_on_signals`, which the command that is imported will enter."""
    for number in _find_heeded():
        signal.signal(number, _REQUEST.note)


def _find_heeded() -> tuple[signal.Signals, ...]:
    """Return the signals to heed: all but a SIGHUP that whoever started this process had ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in NUMBERS if number is not signal.SIGHUP or not is_ignored)


@contextmanager
def leave_on_signals() -> Iterator[None]:
    """Leave with exit code 0 when a signal comes while no run is going; a second one does not wait for anybody.

    Behind it a further one ends what is left of the process.

    Raises:
        SystemExit: it came, here or since `note_signals`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came, hook, before = _REQUEST.asked, sys.unraisablehook, dict[signal.Signals, Any]()
    _REQUEST.asked = _REQUEST.early = has_failed = False
    sys.unraisablehook = _hush(hook)
    try:
        for number in _find_heeded():
            before[number] = signal.signal(number, _REQUEST.leave)
        if came:
            raise _StopRequested
        yield
    except BaseException as error:
        has_failed = not _is_stop(error)
        if has_failed:
            raise
        _REQUEST.asked = True
        _say_stopped()
        raise SystemExit(0) from None
    finally:
        is_stopped, _REQUEST.asked = _REQUEST.asked and not has_failed, True
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, _end_at_once if is_stopped else handler)
        _REQUEST.asked = _REQUEST.early = False


def _is_stop(error: BaseException) -> bool:
    """Whether what came out is how a stop ends: ours, the exception of PySpark's handler, or one in our one's place.

    Whoever asked us asked Spark's JVM too: what fails without it is no news.
    """
    return isinstance(error, (_StopRequested, KeyboardInterrupt)) or (_REQUEST.early and isinstance(error, Exception))


def _end_at_once(_: int, __: FrameType | None) -> None:
    """Handle one more signal: all is done and told, only the interpreter has not ended yet."""
    os._exit(0)


def _say_stopped() -> None:
    import structlog

    structlog.get_logger().info("stopped as asked, before any work had begun")


def _hush(hook: Any) -> Any:
    """Return a hook for exceptions that nobody can get, but not for ours: `stop_on_signals` finds that it was asked."""

    def tell(unraisable: Any) -> None:
        if unraisable.exc_type is not _StopRequested:
            hook(unraisable)

    return tell


@contextmanager
def stop_on_signals(running: Stoppable) -> Iterator[None]:
    """Let signals finish the work in progress; only the main thread can have them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        _REQUEST.asked, _REQUEST.asked_at = True, _REQUEST.asked_at or time.monotonic()
        running.stop()

    _REQUEST.asked_at = None
    before = {number: signal.signal(number, stop) for number in _find_heeded()}
    try:
        if _REQUEST.early:
            # The exception was lost in a destructor, or in a library that takes any.
            _REQUEST.early = False
            running.stop()
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_overdue() -> bool:
    """Tell whether a run was asked to stop some time ago, so that what fails in it now is not to be tried again."""
    asked_at = _REQUEST.asked_at
    return asked_at is not None and time.monotonic() - asked_at >= PATIENCE_S


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Put handlers back that a library replaces meanwhile: PySpark takes SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
