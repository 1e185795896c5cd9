"""Rounds of `make chaos` over servers that are none -> which kills count as compared, and what ends a run."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos.acts import KILL
from tests.chaos.comparison import Difference
from tests.chaos.connectors import GROUPS
from tests.chaos.faults import Faults
from tests.chaos.quiet import QuietPoint, Stalled
from tests.chaos.report import Report, tell_kills
from tests.chaos.run import Plan, Run
from tests.chaos.world import World

COUNTS = {"SIGKILL a worker of copy": 2, "SIGKILL connect": 1, "SIGKILL broker 1 with everything": 3, "disk full": 4}


def test_the_report_tells_what_is_wrong() -> None:
    """Faults that killed are the kills; keys that differ are counted, and stand on the page."""
    report = Report(7, 1, faults=Counter(COUNTS), kills_compared=5)
    assert not report.is_wrong
    report.differences.append(Difference("copy, people", missing=(("1",), ("2",))))
    assert report.is_wrong
    line = report.line()
    assert (line["kills"], line["kills_compared"], line["differences"]) == (6, 5, 2)
    assert (line["kills_of_connectors"], line["kills_of_servers"]) == (2, 4)
    assert "copy, people: 2 missing: 1, 2" in report.page()
    assert "# 6 kills (5 compared) in" in report.page()
    assert "| kills of servers | 4 |" in report.page()


def test_every_server_is_told_from_connectors() -> None:
    """Whatever may be killed is a server or a connector, by the name of its fault."""
    there = SimpleNamespace(_brokers=[0, 1, 2], is_searched=True, search=0, postgres=0, worker=0)
    for name in World.killable.fget(there):  # type: ignore[attr-defined]
        for what in (name, f"{name} with everything"):
            assert Report(7, 1, faults=Counter({f"{KILL} {what}": 1})).kills_of_servers == 1
    for name in (one.name for group in GROUPS for one in group):
        for what in (name, f"{name} as it starts", f"the JVM of {name}", f"a worker of {name}"):
            assert Report(7, 1, faults=Counter({f"{KILL} {what}": 1})).kills_of_servers == 0


class _Process:
    """A connector that is none."""

    starts = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None: ...

    def ended(self) -> None: ...

    def all_steps(self) -> int:
        return 0

    def log_end(self) -> str:
        return ""

    def stop(self, _: float) -> int:
        return 0


class _World(SimpleNamespace):
    """Servers that are none."""

    is_cluster, is_searched, healed, servers, killable = False, True, False, "", {}
    worker = SimpleNamespace(restart_failed=lambda: False)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def heal(self) -> None:
        self.healed = True

    def lost_answers(self) -> int:
        return 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> _World:
    """A world without servers, in which each fault is a kill, and whose tables are empty."""
    there = _World(postgres=SimpleNamespace(port=1, rows=lambda _: [], run_script=lambda _: None))
    reader = SimpleNamespace(rows=lambda *_: [], events=lambda _: Counter())
    for place, instead in {
        "World": lambda *_: there,
        "open_reader": lambda *_: nullcontext(reader),
        "share_spark_home": lambda: None,
        "read_sent": lambda _: Counter(),
        "_WATCH_S": 0.0,
        "Run._rows": lambda *_: [],
        "Run._describe_connectors": lambda run, _: run._processes.update(
            (one.name, _Process(one.name)) for group in GROUPS for one in group
        ),
        "Faults.strike": lambda faults: faults.acts.count("SIGKILL postgres"),
        "QuietPoint.ends": lambda _: {},
        "QuietPoint.wait_for": lambda *_: None,
    }.items():
        monkeypatch.setattr(f"tests.chaos.run.{place}", instead)
    return there


def plan(kills: int | None = None, minutes: float | None = None) -> Plan:
    return Plan(7, minutes, kills, pace=0.01)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def kill_and_interrupt(faults: Faults) -> None:
    faults.acts.count("SIGKILL postgres")
    if faults.kills == 3:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("world")
def test_a_run_ends_when_so_many_kills_were_compared(tmp_path: Path) -> None:
    """All groups come to the end once more, and every kill lies before a comparison."""
    report = Run(plan(kills=5), tmp_path).run()
    assert report.line()["kills"] == report.line()["kills_compared"] == 5
    assert (report.quiet_points, report.is_wrong) == (2 * len(GROUPS), False)
    assert "cut_off" not in report.line()


@pytest.mark.parametrize(("kind", "step"), [(Faults, "strike"), (Faults, "settle"), (QuietPoint, "wait_for")])
def test_a_run_that_is_cut_off_compares_what_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: _World, kind: type, step: str
) -> None:
    """Ctrl-C ends a run with a comparison behind its kills, whatever it interrupts, and its line says so."""
    steps = iter([kill_and_interrupt] * 3 if step == "strike" else [interrupt])
    as_ever = getattr(kind, step)

    def go_on(*args: object) -> object:
        return next(steps, as_ever)(*args)

    monkeypatch.setattr(kind, step, go_on)
    report = Run(plan(kills=3), tmp_path).run()
    line = report.line()
    assert (line["cut_off"], line["kills"], line["kills_compared"], line["quiet_points"]) == (True, 3, 3, 1)
    assert not report.is_wrong
    assert world.healed, "what was done must be undone before"


def stall(*_: object) -> None:
    raise Stalled("copy did not come to the end")


def end(world: _World) -> None:
    world.killable = {"postgres": SimpleNamespace(pid=None)}


@pytest.mark.parametrize("why", ["it is slow", "its replica is slow", "the signal reached a server"])
def test_what_is_not_compared_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: _World, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """Kills do not count as compared where the group does not come to the end; that alone is no failure."""
    monkeypatch.setattr(Faults, "strike", kill_and_interrupt)
    if why == "it is slow":
        monkeypatch.setattr(QuietPoint, "wait_for", stall)
    elif why == "its replica is slow":
        monkeypatch.setattr(QuietPoint, "wait_until", stall)
    else:
        monkeypatch.setattr(QuietPoint, "ends", lambda quiet: end(world) or quiet._watch())
    report = Run(plan(minutes=5), tmp_path).run()
    assert (report.kills, report.kills_compared, report.quiet_points, report.failures) == (3, 0, 0, [])
    assert f"cut off; {tell_kills(3, 0)}, 0 differences, 0 failures" in capsys.readouterr().out


@pytest.mark.usefixtures("world")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals are for the main thread")
def test_who_asks_twice_does_not_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second Ctrl-C ends the last comparison, too; the line is there all the same."""

    def ask_again(quiet: QuietPoint, *_: object) -> None:
        time.sleep(0.5)  # who asks is to wait by then
        os.kill(os.getpid(), signal.SIGINT)
        quiet.wait_until("one", lambda: False)

    monkeypatch.setattr(Faults, "strike", kill_and_interrupt)
    monkeypatch.setattr(QuietPoint, "wait_for", ask_again)
    began = time.monotonic()
    report = Run(plan(minutes=5), tmp_path).run()
    assert (report.line()["cut_off"], report.kills, report.kills_compared) == (True, 3, 0)
    assert time.monotonic() - began < 60


@pytest.mark.usefixtures("world")
def test_what_is_cut_off_while_it_starts_has_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before there was a round, too, whoever ends a run is told what it came to."""
    monkeypatch.setattr(_World, "__enter__", interrupt)
    report = Run(plan(minutes=5), tmp_path).run()
    assert (report.line()["cut_off"], report.kills, report.failures) == (True, 0, [])


def test_a_quiet_point_can_be_told_to_hurry() -> None:
    """However long it was to wait for each step, it gives up when no time is left."""
    world: Any = _World()
    quiet = QuietPoint(world, lambda: None, 600)
    quiet.hurry(0)
    quiet.wait_until("one", lambda: True)
    with pytest.raises(Stalled, match="one did not come to the end within 0 s"):
        quiet.wait_until("one", lambda: False)


@pytest.mark.parametrize("place", ["load", "comparison", "start"])
def test_whatever_goes_wrong_is_a_failure_with_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: _World, place: str
) -> None:
    """An error that nobody expected ends the run, which tells it; kills behind the last comparison do not count."""

    def go_wrong(*_: object) -> None:
        raise OSError("no such thing")

    if place == "load":
        world.postgres.run_script = go_wrong
    else:
        monkeypatch.setattr(*((QuietPoint, "wait_for") if place == "comparison" else (_Process, "start")), go_wrong)
    report = Run(plan(minutes=5) if place == "load" else plan(kills=3), tmp_path).run()
    assert ["OSError: no such thing" in one for one in report.failures] == [True]
    assert (report.line()["failures"], report.kills_compared, report.quiet_points) == (1, 0, 0)
    assert report.kills or place != "comparison"


@pytest.mark.parametrize(("quiet_points", "code"), [(0, 1), (1, 0)])
def test_a_run_that_compared_nothing_is_not_green(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet_points: int, code: int
) -> None:
    """One that was cut off before its first comparison has shown nothing, and its exit code says so."""
    cut_off = Report(7, 1, faults=Counter(COUNTS), quiet_points=quiet_points, is_cut_off=True)
    monkeypatch.setattr(Run, "__init__", lambda *_: None)
    monkeypatch.setattr(Run, "run", lambda _: cut_off)
    assert chaos.main(["--home", str(tmp_path), "--tally", str(tmp_path / "tally")]) == code
    (line,) = map(json.loads, (tmp_path / "tally").read_text(encoding="utf-8").splitlines())
    assert (line["kills"], line["kills_compared"], line["kills_of_servers"]) == (6, 0, 4)
