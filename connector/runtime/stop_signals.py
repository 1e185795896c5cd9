"""SIGTERM, SIGINT, SIGHUP -> the work in progress is finished or given up: one line, and the exit code that says so.

Supervisors and terminals send them to every process of a group, at any moment, and more than once; a terminal that is
closed sends SIGHUP, which `nohup` has ignored.

    a run (`stop_on_signals`)                            ends after its current batch or step
    a step of a command's work (`finish_first`)          is finished, and no other one begins
    all else within a command (`leave_on_signals`)       is left at once

Nothing heavy is imported here: the command line's first imports, which take a second, are to be guarded already.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Protocol

from connector.runtime.closed_outputs import drop_closed_terminals

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE_S = 5.0
"""So long what is in progress when a stop is asked for tries again what fails: a conflict is over by then, and for a
broker or catalog that is away no supervisor would wait. So long a process that leaves waits for what it has begun."""
_SIGNALLED = 128
"""With a signal's number behind it, the exit code of what a signal ended."""


class Stoppable(Protocol):
    """Something that runs until it is told to stop."""

    def stop(self) -> None:
        """Finish the work in progress, then leave; safe to call from a signal handler."""


class _StopRequested(BaseException):
    """A signal came while nothing was in progress that has to be finished."""


class _Request:
    """Whether this process was asked to stop, and what it is doing about it."""

    asked = early = held = False
    """Asked at all; asked while it can be left at once; asked while a step is to be finished first."""
    asked_at: float | None = None
    """When a run, or a step, was asked to stop."""
    number = 0
    """The first signal."""
    resumes = True
    """Whether the next run goes on where this one ends, so that a stop is as good an end as any other."""
    is_own = is_leaving = is_told = False
    """The process is the command and nothing else; it is leaving; its line is written."""

    @property
    def exit_code(self) -> int:
        return 0 if self.resumes else _SIGNALLED + (self.number or signal.SIGINT)

    @property
    def missed(self) -> str:
        return "any work had begun" if self.resumes else "the command had finished"

    def note(self, number: int, _: FrameType | None) -> None:
        """Handle a signal while modules are imported: an exception would come out of whichever is being imported."""
        self.asked = True
        self.take(number)

    def hold(self, number: int, _: FrameType | None) -> None:
        """Handle a signal within a step that is to be finished."""
        self.held, self.asked_at = True, self.asked_at or time.monotonic()
        self.take(number)

    def leave(self, number: int, _: FrameType | None) -> None:
        """Handle a signal outside of runs and steps."""
        if self.early:
            # Something does not let go, a broker that does not answer for example.
            self.end_at_once("asked to twice")
        if not self.asked:
            self.take(number)
            self.begin_leaving()

    def take(self, number: int) -> None:
        self.number = self.number or number
        drop_closed_terminals()

    def begin_leaving(self) -> NoReturn:
        self.asked = self.early = self.is_leaving = True
        if self.is_own:
            # Not by `threading`, whose locks the code that is interrupted may hold.
            _thread.start_new_thread(self._end_late, ())
        raise _StopRequested

    def _end_late(self) -> None:
        """End a process that waits for a thread, or for a server, when it has waited long enough."""
        time.sleep(PATIENCE_S)
        if self.is_leaving:
            self.end_at_once("with something still at work")

    def end_at_once(self, why: str) -> NoReturn:
        if not self.is_told:
            with suppress(OSError):
                os.write(2, f"stopped at once: {why}, before {self.missed}\n".encode())
        os._exit(self.exit_code)


_REQUEST = _Request()


def note_signals() -> None:
    """Keep signals from now on for `leave_on_signals`, which the command that is imported will enter."""
    _REQUEST.is_own = True
    for number in _find_heeded():
        signal.signal(number, _REQUEST.note)


def _find_heeded() -> tuple[signal.Signals, ...]:
    """Return the signals to heed: all but a SIGHUP that whoever started this process had ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in NUMBERS if number is not signal.SIGHUP or not is_ignored)


@contextmanager
def leave_on_signals(*, resumes: bool) -> Iterator[None]:
    """Leave when a signal comes while no run is going, and no step; a second one does not wait for anybody.

    Behind it a further one ends what is left of the process.

    Args:
        resumes: the next run goes on where this one ends: the exit code is 0. Else it is 128 and the signal's number,
            unless all was done when the step that was to be finished was.

    Raises:
        SystemExit: it came, here or since `note_signals`.
    """
    if not _is_main():
        yield
        return
    came, hook, before = _REQUEST.asked, sys.unraisablehook, dict[signal.Signals, Any]()
    _REQUEST.asked = _REQUEST.early = _REQUEST.held = _REQUEST.is_told = has_failed = False
    _REQUEST.resumes, _REQUEST.asked_at, _REQUEST.number = resumes, None, _REQUEST.number if came else 0
    sys.unraisablehook = _hush(hook)
    try:
        for number in _find_heeded():
            before[number] = signal.signal(number, _REQUEST.leave)
        if came:
            _REQUEST.begin_leaving()
        yield
        if _REQUEST.held:
            _say_stopped("stopped as asked, with all of the work done")
    except BaseException as error:
        has_failed = not _is_stop(error)
        if has_failed:
            raise
        _REQUEST.asked = True
        _say_stopped(f"stopped as asked, before {_REQUEST.missed}", is_news=not resumes)
        raise SystemExit(_REQUEST.exit_code) from None
    finally:
        is_stopped, _REQUEST.asked = _REQUEST.asked and not has_failed, True
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, _end_at_once if is_stopped else handler)
        _REQUEST.asked = _REQUEST.early = _REQUEST.held = False
        _REQUEST.asked_at = None


def _is_stop(error: BaseException) -> bool:
    """Whether what came out is how a stop ends: ours, the exception of PySpark's handler, or one in our one's place.

    Whoever asked us asked Spark's JVM too: what fails without it is no news.
    """
    return isinstance(error, (_StopRequested, KeyboardInterrupt)) or (_REQUEST.early and isinstance(error, Exception))


def _end_at_once(_: int, __: FrameType | None) -> None:
    """Handle one more signal: all is done and told, only the interpreter has not ended yet."""
    os._exit(_REQUEST.exit_code)


def _say_stopped(text: str, *, is_news: bool = False) -> None:
    import structlog

    _REQUEST.is_told = True
    log = structlog.get_logger()
    (log.warning if is_news else log.info)(text)


def _hush(hook: Any) -> Any:
    """Return a hook for exceptions that nobody can get, but not for ours: `stop_on_signals` finds that it was asked."""

    def tell(unraisable: Any) -> None:
        if unraisable.exc_type is not _StopRequested:
            hook(unraisable)

    return tell


@contextmanager
def stop_on_signals(running: Stoppable) -> Iterator[None]:
    """Let signals finish the work in progress; only the main thread can have them."""
    if not _is_main():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        _REQUEST.asked, _REQUEST.asked_at = True, _REQUEST.asked_at or time.monotonic()
        _REQUEST.take(number)
        running.stop()

    _REQUEST.asked_at = None
    with _handle(stop):
        if _REQUEST.early:
            # The exception was lost in a destructor, or in a library that takes any.
            _REQUEST.early = _REQUEST.is_leaving = False
            running.stop()
        yield


@contextmanager
def finish_first() -> Iterator[None]:
    """Let a step of a command end before the command does, where half of it would be worse than all or nothing.

    After the last step the command goes on to its end; before another one, or at `leave_if_asked`, it leaves.
    """
    # Elsewhere nobody would leave afterwards: in other threads, or where nobody heeds signals.
    if signal.getsignal(signal.SIGTERM) != _REQUEST.leave or not _is_main():
        yield
        return
    leave_if_asked()
    with _handle(_REQUEST.hold):
        yield


def leave_if_asked() -> None:
    """Leave a command that was asked to stop within a step that had to be finished: call it between two of them."""
    if (_REQUEST.held or _REQUEST.early) and _is_main():
        _REQUEST.begin_leaving()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _handle(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = dict[signal.Signals, Any]()
    try:
        for number in _find_heeded():
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def is_overdue() -> bool:
    """Tell whether a run was asked to stop some time ago, so that what fails in it now is not to be tried again."""
    asked_at = _REQUEST.asked_at
    return asked_at is not None and time.monotonic() - asked_at >= PATIENCE_S


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Put handlers back that a library replaces meanwhile: PySpark takes SIGINT."""
    if not _is_main():
        yield
        return
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
