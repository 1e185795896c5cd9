"""SIGTERM and SIGINT -> what is at hand is finished, or nothing was at hand: one line, and exit code 0.

Supervisors and terminals send them to every process of a group, at any moment, and more than once. While a run goes on
it is told to stop (`stop_on_signals`); before that the process leaves at once, and afterwards it is leaving anyhow.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import attrs
import structlog

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """Something that runs until it is told to stop."""

    def stop(self) -> None:
        """Finish what is at hand, then leave; safe to call from a signal handler."""


class _StopRequested(BaseException):
    """A signal came while nothing was at hand."""


@attrs.define
class _Request:
    """Whether this process was asked to stop, and before anything was at hand."""

    asked: bool = False
    early: bool = False

    def leave(self, _: int, __: FrameType | None) -> None:
        """Handle a signal outside of runs."""
        if self.early:
            # Something does not let go, a broker that does not answer for example.
            os.write(2, b"stopped at once: asked to twice before anything was at hand\n")
            os._exit(0)
        if not self.asked:
            self.asked = self.early = True
            raise _StopRequested


_REQUEST = _Request()


@contextmanager
def leave_on_signals() -> Iterator[None]:
    """Leave with exit code 0 when a signal comes while no run goes on; a second one does not wait for anybody.

    Raises:
        SystemExit: it came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _REQUEST.asked = _REQUEST.early = False
    before = {number: signal.signal(number, _REQUEST.leave) for number in NUMBERS}
    try:
        yield
    except _StopRequested:
        structlog.get_logger().info("stopped as asked, before anything was at hand")
        raise SystemExit(0) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(running: Stoppable) -> Iterator[None]:
    """Let signals finish what is at hand; only the main thread can have them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        _REQUEST.asked = True
        running.stop()

    before = {number: signal.signal(number, stop) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
