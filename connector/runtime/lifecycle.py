"""What was asked of a connector (run, pause, stop, restart) -> when its runs begin and end; its state for who looks.

A run ends between batches, or steps: nothing is cut short, and the next one begins at the stored offsets. All methods
may be called from any thread.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import structlog

from connector.errors import ConnectorError
from connector.redaction import redact

TargetState = Literal["STARTED", "PAUSED", "STOPPED"]
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]

T = TypeVar("T")

_LOOK_S = 0.1
"""How often a connector that is not to run looks whether it is."""


class Run(Protocol):
    """One run of a sink or source."""

    def run(self) -> None:
        """Run to its end; raises what ended it."""

    def stop(self) -> None:
        """Finish the work in progress, then leave; safe to call from a signal handler."""


class NotWanted(Exception):
    """Something else was asked for while a run was put together."""


class Lifecycle:
    """The life of one connector.

    `target` is what was asked for, `state` what is. `error` says why it failed. `began_at` and `beat_at` are times of a
    monotonic clock: when the current run began, and when its loop last moved. `has_task` is whether Kafka Connect would
    have tasks: not from a stop until the next run, also while it is paused. `starts` counts the runs that were put
    together, those among them that ran (`successes`), and those that an error kept from it (`failures`).
    """

    def __init__(self, target: TargetState = "STARTED", clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing that runs."""
        self.target: TargetState = target
        self.state: State = "UNASSIGNED"
        self.error = ""
        self.has_task = target != "STOPPED"
        self.began_at: float | None = None
        self.beat_at: float | None = None
        self.starts = self.successes = self.failures = 0
        self._clock = clock
        self._current: Run | None = None
        self._asked = self._begun = 0
        self._ending = False

    def beat(self) -> None:
        """Take note that the loop moves."""
        self.beat_at = self._clock()

    def pause(self) -> None:
        """End the current run, and begin none until `resume`."""
        self._ask("PAUSED")

    def halt(self) -> None:
        """The same, with no task left meanwhile, so that offsets can be changed."""
        self._ask("STOPPED")

    def resume(self) -> None:
        """Run again."""
        self._ask("STARTED")

    def restart(self) -> None:
        """End the current run, or what a failed one left, and begin another if it is to run."""
        self._asked += 1
        if self.target == "STARTED":
            self.state, self.error = "RESTARTING", ""
        self._interrupt()

    def stop(self) -> None:
        """Finish the work in progress, then leave for good; safe to call from a signal handler."""
        self._ending = True
        self._interrupt()

    def check_wanted(self) -> None:
        """Raise NotWanted if the run that is being put together is not to begin: what it waits for may never come."""
        if self._ending or self._asked != self._begun:
            raise NotWanted

    def wait_for(self, state: State, timeout_s: float) -> bool:
        """Wait until the connector has this state; False when it takes longer than `timeout_s`."""
        end = time.monotonic() + timeout_s
        while self.state != state:
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_S / 2)
        return True

    def live(
        self,
        begin: Callable[[], Run],
        *,
        survives: bool,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Begin runs as they are asked for, until `stop`, or until one ends by itself.

        A life that is over leaves no state.

        Args:
            begin: puts a run together.
            guard: entered while a run runs, or is waited for, and left while one is put together.
            survives: a run that fails leaves the connector FAILED until it is restarted; else its error is raised.

        Raises:
            ConnectorError: what ended a run.
        """
        self._live(begin, survives=survives, guard=guard)
        if self._ending:
            structlog.get_logger().info("stopped as asked")

    def _live(
        self, begin: Callable[[], Run], *, survives: bool, guard: Callable[[], AbstractContextManager[None]]
    ) -> None:
        while self._await_start(guard):
            asked = self._begun = self._asked
            try:
                self._run(begin, asked, guard)
            except NotWanted:
                continue
            except Exception as error:
                self._fail(error)
                if not survives:
                    raise
                frames = [
                    f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)
                ]
                structlog.get_logger().error("connector failed", reason=self.error, frames=frames[-10:])
                self._await_change(asked)
                continue
            if self._asked == asked:
                break
        self.state = "UNASSIGNED"

    def _ask(self, target: TargetState) -> None:
        if self.target == target and self.state != "FAILED":
            return
        self.target = target
        self._asked += 1
        self._interrupt()

    def _interrupt(self) -> None:
        current = self._current
        if current is not None:
            current.stop()

    def _await_start(self, guard: Callable[[], AbstractContextManager[None]]) -> bool:
        """Wait until a run is asked for; False when there is to be none any more."""
        with guard():
            while not self._ending and self.target != "STARTED":
                is_paused = self.target == "PAUSED"
                self.has_task = self.has_task and is_paused
                self.state = "PAUSED" if is_paused else "STOPPED"
                self.beat()
                time.sleep(_LOOK_S)
        return not self._ending

    def _await_change(self, asked: int) -> None:
        while not self._ending and self._asked == asked:
            time.sleep(_LOOK_S)

    def _run(self, begin: Callable[[], Run], asked: int, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self.starts += 1
        self.beat()
        if self.state != "RESTARTING":
            self.state = "UNASSIGNED"
        self.has_task = True
        self._current = current = self._put_together(begin)
        try:
            self.began_at, self.state, self.error = self._clock(), "RUNNING", ""
            self.successes += 1
            self.beat()
            with guard():
                if self._ending or self._asked != asked:
                    current.stop()  # What was asked while it was put together found nothing to stop.
                current.run()
        finally:
            self._current = None

    def _put_together(self, begin: Callable[[], Run]) -> Run:
        try:
            return begin()
        except NotWanted:
            raise
        except Exception:
            self.failures += 1
            raise

    def _fail(self, error: Exception) -> None:
        self.error = describe_error(error)
        self.state = "FAILED"


def describe_error(error: BaseException) -> str:
    """Say why a connector failed: our own words, and of an error that nobody foresaw its type and where it was raised.

    What another library says may hold a row's content.
    """
    if isinstance(error, ConnectorError):
        return redact(f"{type(error).__name__}: {error}")
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" in {Path(one.filename).name}, line {one.lineno}" for one in where)
    return f"{type(error).__name__}{place}; the log says more"


def start_call(call: Callable[[], T], name: str) -> Future[T]:
    """Begin a call in a thread that does not keep the process alive."""
    asked = Future[T]()

    def work() -> None:
        try:
            asked.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is asked for
            asked.set_exception(error)

    start_thread(work, name)
    return asked


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that does not keep the process alive; what it logs is of the connector that starts it."""
    bound = structlog.contextvars.get_contextvars()

    def run() -> None:
        with structlog.contextvars.bound_contextvars(**bound):
            work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
