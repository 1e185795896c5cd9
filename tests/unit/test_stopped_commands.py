"""SIGTERM, SIGINT and SIGHUP to commands that have an end: one line, 128 and the signal's number, nothing half done."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from connector.cli.main import RESUMED, main
from connector.runtime.stop_signals import finish_first, leave_if_asked, leave_on_signals
from tests.harness.tiers import tiered
from tests.runs.processes import PROJECT
from tests.unit.test_stop_signals import COMMAND_LINE, check_stop

pytestmark = [pytest.mark.unit, pytest.mark.timeout(120)]

FINISHED = 0
CODES = {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129}

# A command that looks first, takes two steps that are not left half done, and looks again. It says where it is.
SCRIPT = """
import signal, sys, time
from concurrent.futures import ThreadPoolExecutor
# Whoever runs the tests may have it ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from connector.runtime import stop_signals
from connector.runtime.monitoring.logs import configure_logging
from connector.runtime.stop_signals import finish_first, leave_if_asked, leave_on_signals, note_signals

stop_signals.PATIENCE_S = 0.5
slow = sys.argv[1:]

def be(where, seconds=60):
    sys.stdout.write(where + "\\n"); sys.stdout.flush()
    if where in slow:
        time.sleep(seconds)

class Lost:
    def __del__(self):
        be("destructor")

def take(step):
    leave_if_asked()
    with finish_first():
        be(step, 0.3)
        be(step + " still", 0.3)
        be("done " + step, 0)

if "own" in slow:
    note_signals()
configure_logging(terminal=False)
with leave_on_signals(resumes=False):
    try:
        be("begin")
    finally:
        be("end of begin")
    if "destructor" in slow:
        Lost()
    if "thread" in slow:
        with ThreadPoolExecutor(1) as beside:
            beside.submit(time.sleep, 600)
            be("thread")
    if "left thread" in slow:
        ThreadPoolExecutor(1).submit(time.sleep, 600)
        be("left thread")
    take("first")
    take("last")
    be("after")
be("behind")
"""

# Where the process is slow -> what it says before each of the signals that it gets, and what it does not come to.
MOMENTS: dict[str, tuple[list[str], str]] = {
    "at the start": (["begin"], "first"),
    "twice at the start": (["begin", "end of begin"], "first"),
    "in a step": (["first"], "last"),
    "twice in a step": (["first", "first still"], "last"),
    "in the last step": (["last"], ""),
    "behind the last step": (["after"], "behind"),
    "in the last step and behind it": (["last", "after"], "behind"),
    "in a destructor before a step": (["destructor"], "first"),
    "beside a thread": (["thread"], "first"),
    "beside a thread that is left": (["left thread"], "first"),
}
CASES = [(moment, name) for moment in MOMENTS for name in CODES]
IN_EVERY_RUN = [
    *((moment, "SIGTERM") for moment in MOMENTS if "left" not in moment),
    *(("at the start", name) for name in ("SIGINT", "SIGHUP")),
]


@pytest.mark.parametrize(("moment", "name"), tiered(CASES, IN_EVERY_RUN))
def test_a_stop_finishes_a_step_or_leaves(moment: str, name: str) -> None:
    """A step that is begun is done, no other one begins; the exit code tells whether all was done."""
    slow, missed = MOMENTS[moment]
    own = ["own"] if "thread" in slow[0] or "left thread" in slow else []
    said = check_stop([SCRIPT, *slow, *own], slow, name, FINISHED if moment == "in the last step" else CODES[name])
    assert missed not in said
    for step in {"first", "last"} & set(said):
        assert f"done {step}" in said


@pytest.mark.parametrize(
    ("command", "name"),
    tiered([(one, name) for one in ("repair", "demo") for name in CODES], [("repair", "SIGTERM"), ("demo", "SIGINT")]),
)
def test_a_stop_while_the_command_is_imported(command: str, name: str) -> None:
    """What comes while the command's modules are imported stops it too."""
    check_stop([COMMAND_LINE, command], ["importing"], name, CODES[name])


def _list_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _list_commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("words", [words for words, _ in _list_commands(main)], ids=" ".join)
@pytest.mark.parametrize("name", tiered(CODES, ["SIGTERM"]))
def test_every_command_heeds_signals(words: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a next one goes on with end with 0, all others with a code that says that they had not finished."""
    command = dict(_list_commands(main))[words]
    monkeypatch.setattr(command, "callback", lambda **_: signal.raise_signal(signal.Signals[name]))
    given: list[str] = []
    for one in command.params:
        if one.required:
            given += ["x"] if isinstance(one, click.Argument) else [one.opts[0], "x"]
    result = CliRunner().invoke(main, [*words, *given])
    assert result.exit_code == (0 if command in RESUMED else CODES[name])
    assert result.stderr.count("\n") == result.stderr.count("stopped as asked, before ") == 1


# A run whose batch is finished, with a line of the log and one on the terminal, when it is asked to stop.
RUN = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import structlog
from connector.runtime.monitoring.logs import configure_logging
from connector.runtime.stop_signals import leave_on_signals, stop_on_signals

class Run:
    stopping = False
    def stop(self):
        self.stopping = True

configure_logging(terminal=False)
run = Run()
with leave_on_signals(resumes=True), stop_on_signals(run):
    sys.stdout.write("running\\n"); sys.stdout.flush()
    while not run.stopping:
        time.sleep(0.01)
    structlog.get_logger().info("batch committed")
    if "terminal" in sys.argv:
        sys.stdout.write("more\\n"); sys.stdout.flush()
    Path(sys.argv[1]).write_text("finished")
"""


def test_a_terminal_that_is_closed_ends_no_batch(tmp_path: Path) -> None:
    """Nobody reads the log any more; the batch is finished, and the exit code is that of a stop."""
    ours, theirs = pty.openpty()
    finished = tmp_path / "finished"
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(finished), "terminal"],
        cwd=PROJECT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - one thread
    ) as process:
        os.close(theirs)
        assert os.read(ours, 100).startswith(b"running")
        os.close(ours)
        assert process.wait(60) == 0
    assert finished.read_text() == "finished"


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_pipe_that_nobody_reads_ends_no_batch(tmp_path: Path) -> None:
    """Ctrl-C in a pipeline ends who reads the log first; the batch is finished all the same."""
    finished = tmp_path / "finished"
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(finished)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert finished.read_text() == "finished"


def test_a_stop_is_the_one_command_s() -> None:
    """What a command was asked while it took its last step is not asked of the next one in the process."""
    with leave_on_signals(resumes=False), finish_first():
        signal.raise_signal(signal.SIGTERM)
    leave_if_asked()


def test_a_step_leaves_signals_to_whom_they_are() -> None:
    """Where nobody heeds them, as in tests and in a worker's threads, a step changes nothing."""
    before: Any = signal.getsignal(signal.SIGTERM)
    with finish_first():
        assert signal.getsignal(signal.SIGTERM) is before
