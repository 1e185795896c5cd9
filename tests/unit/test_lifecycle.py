"""A connector's life: what is asked for, when, and what becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from attrs import define, field

from connector.errors import FatalError
from connector.runtime.lifecycle import Lifecycle, describe_error
from tests.servers.connectors import IdleRun


@define
class Runs:
    """Runs that were begun; `fails` is what the next one ends with."""

    lifecycle: Lifecycle
    fails: Exception | None = None
    begun: list[IdleRun] = field(factory=list)
    ended: threading.Event = field(factory=threading.Event)

    def begin(self) -> IdleRun:
        self.begun.append(IdleRun(self.fails))
        return self.begun[-1]

    def live(self) -> None:
        self.lifecycle.live(self.begin, survives=True)
        self.ended.set()


@pytest.fixture
def runs() -> Runs:
    """Runs of a connector that lives in a thread."""
    living = Runs(Lifecycle())
    threading.Thread(target=living.live, daemon=True).start()
    _await(lambda: living.lifecycle.state == "RUNNING")
    return living


def _await(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_pause_and_resume(runs: Runs) -> None:
    """A pause ends the run, and the next one begins when it is asked for, whatever was asked twice."""
    lifecycle = runs.lifecycle
    lifecycle.pause()
    lifecycle.pause()
    assert lifecycle.wait_for("PAUSED", 20)
    assert runs.begun[0].stopped.is_set()
    lifecycle.halt()
    assert lifecycle.wait_for("STOPPED", 20)
    lifecycle.resume()
    assert lifecycle.wait_for("RUNNING", 20)
    assert len(runs.begun) == 2
    lifecycle.stop()
    assert runs.ended.wait(20)


def test_a_pause_gives_up_what_a_run_waits_for() -> None:
    """A run that cannot begin, as its brokers are away, is given up by a pause, and begun anew by the next resume."""
    lifecycle, waits, here = Lifecycle(), threading.Event(), threading.Event()

    def begin() -> IdleRun:
        while not here.is_set():
            waits.set()
            time.sleep(0.005)
            lifecycle.check_wanted()
        return IdleRun()

    threading.Thread(target=lambda: lifecycle.live(begin, survives=False), daemon=True).start()
    for _ in range(2):
        assert waits.wait(20)
        lifecycle.pause()
        assert lifecycle.wait_for("PAUSED", 20)
        waits.clear()
        lifecycle.resume()
    here.set()
    assert lifecycle.wait_for("RUNNING", 20)
    assert lifecycle.failures == 0
    lifecycle.stop()


def test_a_failed_run_waits_for_a_restart(runs: Runs) -> None:
    """It says why, and can be paused, resumed and stopped like any other."""
    lifecycle = runs.lifecycle
    runs.fails = FatalError("password=secret-word is wrong")
    lifecycle.restart()
    assert lifecycle.wait_for("FAILED", 20)
    assert lifecycle.error == "FatalError: password=*** is wrong"
    assert (lifecycle.starts, lifecycle.successes, lifecycle.failures) == (2, 2, 0)  # both ran
    runs.fails = None
    lifecycle.pause()
    assert lifecycle.wait_for("PAUSED", 20)
    lifecycle.resume()
    assert lifecycle.wait_for("RUNNING", 20)
    assert lifecycle.error == ""
    lifecycle.stop()
    assert runs.ended.wait(20)


def test_a_run_that_ends_by_itself_is_the_last() -> None:
    """As one with `--once` does; and one that fails raises where nobody would restart it."""
    lifecycle = Lifecycle()
    over = IdleRun()
    over.stopped.set()
    lifecycle.live(lambda: over, survives=False)
    with pytest.raises(FatalError):
        Lifecycle().live(lambda: IdleRun(FatalError("x")), survives=False)


def test_what_is_asked_while_a_run_is_put_together() -> None:
    """A pause that comes before there is anything to stop is not lost."""
    lifecycle = Lifecycle()
    begun: list[IdleRun] = []

    def begin() -> IdleRun:
        lifecycle.pause()
        begun.append(IdleRun())
        return begun[-1]

    thread = threading.Thread(target=lambda: lifecycle.live(begin, survives=False), daemon=True)
    thread.start()
    assert lifecycle.wait_for("PAUSED", 20)
    assert begun[0].stopped.is_set()
    lifecycle.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_reason_tells_no_row() -> None:
    """What another library says may hold a row's content: of its error only type and place are told."""
    try:
        raise ValueError("row content")
    except ValueError as error:
        told = describe_error(error)
    assert told.startswith("ValueError in test_lifecycle.py, line ")
    assert "row content" not in told
