"""SIGTERM, SIGINT and SIGHUP at any moment of a process, once and twice: one line, exit code 0, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, cast

import attrs
import pytest

from connector.cli.maintain import rounds
from connector.errors import RetriableError, TimeOver
from connector.runtime import retry, stop_signals
from connector.runtime.retry import call_with_retries
from connector.runtime.stop_flag import StopFlag
from connector.runtime.stop_signals import NUMBERS, leave_on_signals, stop_on_signals
from connector.server import serving
from connector.settings.kafka.error_handling import NO_RETRIES
from connector.sink.microbatch.stream import Stream
from connector.source.poll_loop import PollLoop
from tests.harness.tiers import crossed, tiered
from tests.runs.processes import PROJECT

pytestmark = [pytest.mark.unit, pytest.mark.timeout(120)]

# A process as the command line's `run`: it starts, a run goes on until it is stopped, and it ends. It says where it is.
SCRIPT = """
import signal, sys, threading, time
# Whoever runs the tests may have it ignored.
signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in sys.argv else signal.SIG_DFL)
from connector.runtime.spark.python_workers import leave_pandas_out
leave_pandas_out()
from connector.cli.arguments import report_errors
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.stop_signals import leave_on_signals, stop_on_signals

def say(where):
    sys.stdout.write(where + "\\n"); sys.stdout.flush()

class Lost:
    def __del__(self):
        say("starting")
        time.sleep(60)

class Run:
    def __init__(self):
        self.stopping = threading.Event()
    def run(self):
        say("running")
        while not self.stopping.wait(0.01):
            pass
        say("finishing")
        time.sleep(0.5 if "slow" in sys.argv else 0)
    def stop(self):
        self.stopping.set()

with report_errors(), leave_on_signals(resumes=True):
    if "start" in sys.argv:
        try:
            say("starting")
            time.sleep(60)
        finally:
            if "stuck" in sys.argv:
                say("stuck")
                time.sleep(60)
    if "lost" in sys.argv:
        Lost()
    if "taken" in sys.argv:
        try:
            say("starting")
            time.sleep(60)
        except BaseException:
            pass
    if "PySpark's" in sys.argv:
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, interrupt)
        say("starting")
        time.sleep(60)
    lifecycle = Lifecycle()
    lifecycle.live(Run, survives=False, guard=lambda: stop_on_signals(lifecycle))
    say("ending")
    time.sleep(0.5 if "end" in sys.argv else 0)
if "behind" in sys.argv:
    say("behind")
    time.sleep(60)
"""

# The command line, whose modules take so long to be imported that a signal comes meanwhile.
COMMAND_LINE = """
import sys, time
from connector.__main__ import main
from connector.runtime.stop_signals import _REQUEST

class SlowFinder:
    @staticmethod
    def find_spec(name, *_):
        if name == "connector.cli.arguments":
            sys.stdout.write("importing\\n"); sys.stdout.flush()
            while not _REQUEST.asked:
                time.sleep(0.01)

sys.meta_path.insert(0, SlowFinder)
sys.argv = ["icebridge", sys.argv[1], "none.properties"]
main()
"""

# Where the process is slow -> what it says before each of the signals that it gets.
MOMENTS: dict[str, tuple[list[str], list[str]]] = {
    "at the start": (["start"], ["starting"]),
    "twice at the start": (["start", "stuck"], ["starting", "stuck"]),
    "in a run": ([], ["running"]),
    "twice in a run": (["slow"], ["running", "finishing"]),
    "once more at the end": (["end"], ["running", "ending"]),
    "once more behind the end": (["behind"], ["running", "behind"]),
    "in a destructor at the start": (["lost"], ["starting"]),
    "where any exception is taken": (["taken"], ["starting"]),
    "where PySpark handles it": (["PySpark's"], ["starting"]),
}


CASES = [
    *((moment, "SIGTERM") for moment in MOMENTS if "PySpark" not in moment),
    *((moment, "SIGINT") for moment in MOMENTS if "twice" not in moment),
    ("twice in a run", "SIGINT"),
    ("at the start", "SIGHUP"),
    ("in a run", "SIGHUP"),
]
# One handler serves both signals; SIGINT alone raises where Python or PySpark have one of their own for it.
IN_EVERY_RUN = [case for case in CASES if case[1] == "SIGTERM" or case[0] in ("in a run", "where PySpark handles it")]


@pytest.mark.parametrize(("moment", "name"), tiered(CASES, IN_EVERY_RUN))
def test_a_stop_is_one_line(moment: str, name: str) -> None:
    """Whenever it is asked to stop, the process says so in one line and exits with 0."""
    slow, says = MOMENTS[moment]
    check_stop([SCRIPT, *slow], says, name)


@pytest.mark.parametrize(
    ("command", "name"),
    crossed(["run", "serve", "maintain"], ["SIGTERM", "SIGINT"], [("run", "SIGTERM"), ("serve", "SIGINT")]),
)
def test_a_stop_while_the_command_is_imported(command: str, name: str) -> None:
    """What comes while the command's modules are imported stops it too: nothing else is looked at."""
    check_stop([COMMAND_LINE, command], ["importing"], name)


def test_nohup_is_heeded() -> None:
    """A process for which SIGHUP is ignored runs on behind it."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "slow", "nohup"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().strip() == "running"
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read()


class _Outage:
    """A run that somebody stops while it tries a call again, to a catalog that stays away."""

    def __init__(self, at: int = 2) -> None:
        self.at, self.tries, self.is_stopped = at, 0, False

    def stop(self) -> None:
        self.is_stopped = True

    def call(self) -> None:
        self.tries += 1
        if self.tries == self.at:
            signal.raise_signal(signal.SIGTERM)
        raise RetriableError("the catalog is away")


def test_a_run_that_was_stopped_does_not_wait_for_a_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are tried again for a moment only, however long they would be else; the next run has all of its time."""
    endless = attrs.evolve(NO_RETRIES, retry_timeout_ms=-1, retry_delay_max_ms=1)
    monkeypatch.setattr(stop_signals, "PATIENCE_S", 0.05)
    outage = _Outage()
    with stop_on_signals(outage), pytest.raises(TimeOver, match="the catalog is away"):
        call_with_retries(outage.call, endless)
    assert outage.is_stopped and outage.tries >= 2
    with stop_on_signals(outage):
        assert not stop_signals.is_overdue()


@pytest.mark.parametrize(("at", "first_s"), [(1, 30.0), (2, 0.01)], ids=["first", "later"])
def test_a_run_that_was_stopped_does_not_wait_for_the_next_try(
    monkeypatch: pytest.MonkeyPatch, at: int, first_s: float
) -> None:
    """A wait that is longer than a stop may take ends with it (`errors.retry.delay.max.ms` of a minute, say)."""
    patient = attrs.evolve(NO_RETRIES, retry_timeout_ms=-1, retry_delay_max_ms=3_600_000)
    monkeypatch.setattr(stop_signals, "PATIENCE_S", 0.05)
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", first_s)
    monkeypatch.setattr(retry, "double_wait_s", lambda *_: 30.0)
    outage, began = _Outage(at), time.monotonic()
    with stop_on_signals(outage), pytest.raises(TimeOver, match="the catalog is away"):
        call_with_retries(outage.call, patient)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("asked", [True, False])
def test_what_fails_behind_a_stop_is_no_error(asked: bool) -> None:
    """Spark's JVM is asked to stop as we are, and calls to it fail; a failure that nobody asked for stays one."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        with pytest.raises(SystemExit if asked else ConnectionRefusedError) as ended, leave_on_signals(resumes=True):
            _call_jvm(asked=asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert getattr(ended.value, "code", 0) == 0


def _call_jvm(*, asked: bool) -> None:
    """Fail as a call does whose JVM ends, in a library that takes the signal's exception for its own."""
    with suppress(BaseException):
        if asked:
            signal.raise_signal(signal.SIGTERM)
    raise ConnectionRefusedError


def check_stop(script: list[str], says: list[str], name: str, code: int = 0) -> list[str]:
    """Send a process a signal whenever it says one of these words; it ends with one line. Return all that it said."""
    with subprocess.Popen(
        [sys.executable, "-c", *script], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        said = list[str]()
        try:
            for awaited in says:
                while (line := process.stdout.readline().strip()) != awaited:
                    assert line, process.stderr.read()
                    said.append(line)
                said.append(awaited)
                process.send_signal(signal.Signals[name])
            log = process.stderr.read()
            said += process.stdout.read().splitlines()
            assert process.wait(60) == code, log
        finally:
            process.kill()
    assert "Traceback" not in log
    assert sum("stopped a" in line for line in log.splitlines()) == 1, log
    return said


@pytest.mark.parametrize(
    "running",
    [
        Stream(*[cast("Any", None)] * 6),
        PollLoop(*[cast("Any", None)] * 4),
        rounds._Waiting(),
        serving._Stop(),
    ],
    ids=lambda running: type(running).__name__,
)
def test_a_signal_within_a_stop_or_a_wait_for_one_ends_both(running: Any) -> None:
    """Its handler interrupts the main thread at any line, while a lock is held that a second stop would wait for."""
    flag = running.event if isinstance(running, serving._Stop) else running._stopping

    def interrupt(_: FrameType, event: str, __: Any) -> Any:
        if event == "line":
            running.stop()
        return interrupt

    def work() -> None:
        sys.settrace(interrupt)
        flag.wait(0.01)
        running.stop()
        sys.settrace(None)

    working = threading.Thread(target=work, daemon=True)
    working.start()
    working.join(10)
    assert not working.is_alive()
    assert flag.is_set()


def test_all_who_wait_for_a_stop_wake() -> None:
    """Whoever waits for it, and whoever comes later."""
    flag, woken = StopFlag(), list[bool]()
    waiting = [threading.Thread(target=lambda: woken.append(flag.wait(20))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert not flag.wait(0.01)
    flag.set()
    for thread in waiting:
        thread.join(20)
    assert woken == [True] * 3
    assert flag.wait()
