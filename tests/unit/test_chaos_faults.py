"""Faults of `make chaos` -> what was killed starts again, what was disturbed is right again, and counts are honest."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from attrs import Factory, define

from tests.chaos import kills as kills_module
from tests.chaos.acts import Acts
from tests.chaos.disturbances import Disturbances
from tests.chaos.faults import Faults
from tests.chaos.kills import Kills
from tests.chaos.process import ConnectorProcess, is_alive, send
from tests.harness.waiting import wait_until
from tests.servers.relay import Relay
from tests.unit.chaos_scene import SLEEP, Scene, Script, Servers, Sleeper, Start, start_and_kill


@pytest.fixture
def started() -> Iterator[Start]:
    """Start connectors, which are killed after the test."""
    yield from start_and_kill()


@define
class Diligent:
    """A connector that is not there, but commits whenever it is looked at."""

    name: str = "diligent"
    is_running: bool = False
    clock: None = None
    done: int = 0

    def steps(self) -> int:
        return 0

    def all_steps(self) -> int:
        self.done += 1
        return self.done


def test_whatever_is_done_is_undone(tmp_path: Path) -> None:
    """Servers that were killed or stopped run again once all is settled, and the disk is free."""
    with Relay(1) as relay:
        servers = {name: Sleeper(tmp_path / name) for name in ("one", "two")}
        first = {name: server.pid for name, server in servers.items()}
        world: Any = Servers(servers, {"catalog": [relay]})
        connectors: Any = [Diligent()]
        faults = Faults(world, lambda: connectors, Random(5), pace=0.002)
        wanted = {f"{what} {name}" for what in ("SIGKILL", "SIGSTOP") for name in servers} | {"disk full"}

        def strike() -> bool:
            faults.strike()
            return wanted <= faults.counts.keys()

        wait_until(strike, 60, "not all of it came", step_s=0.002)
        faults.settle(60)
        states = [psutil.Process(server.pid).status() for server in servers.values()]
        assert all(state in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING) for state in states), states
        assert {name: server.pid for name, server in servers.items()}.items().isdisjoint(first.items())
        kinds = {what.split(" to ")[0].split(" one")[0].split(" two")[0] for what in faults.counts}
        assert {"SIGKILL", "SIGSTOP", "connections", "disk full"} <= kinds
        assert world.disk.filled == faults.counts["disk full"] == world.disk.freed
        assert 0 < faults.kills < sum(faults.counts.values())
        assert not relay.delay_s
        for server in servers.values():
            server.kill()


@define
class Steps:
    """A clock that takes note of how far off it was."""

    seen: list[int] = Factory(list)

    def shift(self, seconds: int) -> None:
        self.seen.append(seconds)


def test_leaders_are_elected_and_clocks_are_stepped_where_that_is_asked_for() -> None:
    """Several brokers elect their leaders anew; a connector's clock is off by less than a minute, and right again."""
    world: Any = Servers({}, {"broker": []}, is_cluster=True)
    connector: Any = SimpleNamespace(name="one", clock=Steps(), is_running=False)
    acts = Acts(pace=0.0)
    disturbances = Disturbances(world, lambda: [connector], Random(5), acts)
    for _ in range(20):
        disturbances.elect()
        disturbances.step_clock()
        acts.finish(60)
    assert world.elections == acts.counts["leaders elected"] == 20
    assert acts.counts["clock of one stepped"] == 20
    assert all(5 <= abs(seconds) <= 50 for seconds in connector.clock.seen[::2])
    assert connector.clock.seen[1::2] == [0] * 20


def with_jvm(home: Path, program: str, then: str) -> str:
    """A program that starts another one by the name of Java's, its input a pipe, and does something then."""
    (home / "java").symlink_to(f"/bin/{program}")
    words = [str(home / "java"), *(["600"] if program == "sleep" else [])]
    return (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({words!r}, stdin=subprocess.PIPE)\nprint('up', flush=True)\n{then}"
    )


def test_a_kill_counts_only_where_the_process_ran(tmp_path: Path, started: Start) -> None:
    """A connector that had ended by itself before it was killed is a failure, and no kill."""
    ran, ended = started(Script(tmp_path, SLEEP)), started(Script(tmp_path, "import sys; sys.exit(3)", "two"))
    assert ended.await_end(60) == 3
    scene = Scene([ran, ended])
    for one in (ran, ended):
        scene.kills()._kill(one, "")
    assert scene.acts.counts == {"SIGKILL one": 1}
    assert scene.acts.kills == 1
    assert ["two had ended by itself with code 3" in one for one in scene.failures] == [True]


def test_a_connector_is_killed_and_starts_again(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come as far as was drawn; what had committed nothing is told from the others; it starts again."""
    one = started(Script(tmp_path, SLEEP))
    scene = Scene([one])
    kills = scene.kills()
    monkeypatch.setattr(Kills, "_depth", lambda *_: 1)
    assert scene.do(kills.kill_connector) == {}
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    assert scene.do(kills.kill_connector) == {"SIGKILL one as it starts": 1}
    assert (one.starts, one.is_running, scene.failures) == (2, True, [])


def test_a_server_that_ended_by_itself_is_no_kill(tmp_path: Path) -> None:
    """Only a server that runs is killed, and it is started again; the other is left to who watches it."""
    server, connectors = Sleeper(tmp_path / "log"), cast("list[ConnectorProcess]", [Diligent()])
    scene = Scene(connectors, Servers({"postgres": server}, {}))
    first = server.pid
    assert scene.do(scene.kills().kill_server) == {"SIGKILL postgres": 1}
    assert server.pid not in (None, first)
    server.kill()
    assert scene.do(scene.kills().kill_server) == {"SIGKILL postgres": 1}
    assert server.pid is None


@pytest.mark.parametrize("kind", ["kill_server", "kill_everything"])
def test_a_server_counts_only_where_the_kill_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One that ended between the look at it and the kill is a failure, and no kill; it is started again."""
    monkeypatch.setattr(kills_module, "_is_up", lambda _: True)
    server, acts = Sleeper(tmp_path / "log"), {"steps": lambda: 1, "family": list, "kill": lambda: -9, "start": int}
    working: Any = SimpleNamespace(name="one", is_running=True, all_steps=lambda: 1, **acts)
    psutil.Process(server.pid).terminate()
    wait_until(lambda: server.pid is None, 60, "it never ended")
    scene = Scene([working], Servers({"postgres": server}, {}))
    assert not [what for what in scene.do(getattr(scene.kills(), kind)) if "postgres" in what]
    assert scene.failures == ["postgres had ended by itself with code -15 when it was to be killed"]
    assert server.pid is not None
    server.kill()


def test_a_signal_to_who_is_gone_goes_nowhere() -> None:
    """Of processes that are asked to be killed those count that were there."""
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        there = psutil.Process(process.pid)
        assert send([there], signal.SIGKILL) == 1
    assert send([there], signal.SIGKILL) == 0


def test_a_server_is_killed_again_only_after_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was committed since, a kill would hit what nobody has worked with, unless it ran for long."""
    server, one = Sleeper(tmp_path / "log"), Diligent(done=0)
    scene = Scene(cast("list[ConnectorProcess]", [one]), Servers({"postgres": server}, {}))
    kills = scene.kills()
    for done, served_s, count in ((2, 60.0, 1), (2, 60.0, 1), (5, 0.0, 2), (5, 60.0, 3), (5, 60.0, 3)):
        one.done = done
        monkeypatch.setattr(kills_module, "_SERVED_S", served_s)
        assert scene.do(kills.kill_server).get("SIGKILL postgres", 0) == count
    server.kill()


def test_everything_is_killed_at_once_and_starts_again(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all connectors are at work each of them, and each server that runs, is a kill; all run afterwards."""
    servers = {name: Sleeper(tmp_path / name) for name in ("postgres", "connect")}
    servers["connect"].kill()
    connectors = [started(Script(tmp_path, SLEEP, name)) for name in ("one", "two")]
    scene = Scene(connectors, Servers(servers, {}))
    assert scene.do(scene.kills().kill_everything) == {}, "they have done nothing yet"
    monkeypatch.setattr(Script, "steps", lambda _: 1)
    names = ("one", "two", "postgres")
    expected = {"everything at once": 1, **{f"SIGKILL {name} with everything": 1 for name in names}}
    assert scene.do(scene.kills().kill_everything) == expected
    assert scene.acts.kills == 3
    assert all(one.is_running and one.starts == 2 for one in connectors)
    assert servers["postgres"].pid is not None
    assert scene.failures == []
    servers["postgres"].kill()


@pytest.mark.parametrize(
    ("then", "end_s", "failure"),
    [
        ("sys.exit(child.wait() != 0)", 60, None),
        ("child.wait()", 60, "one ended with code 0 after its JVM was killed"),
        ("child.wait()\nsys.exit(3)", 60, "one ended with code 3 after its JVM was killed"),
        ("child.wait()\ntime.sleep(600)", 1, "one still runs"),
    ],
    ids=["ends", "as if all was well", "as if its configuration was wrong", "stays"],
)
def test_python_ends_when_its_jvm_is_killed(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch, then: str, end_s: float, failure: str | None
) -> None:
    """A connector whose JVM is gone ends with an exit code that says so, or it is a failure; it starts again."""
    monkeypatch.setattr(kills_module, "_END_S", end_s)
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    one = Script(tmp_path, with_jvm(tmp_path, "sleep", then))
    started(one)
    wait_until(lambda: "up" in one.say(), 60, "it never began")
    scene = Scene([one])
    assert scene.do(scene.kills().kill_jvm) == {"SIGKILL the JVM of one": 1}
    assert [text.startswith(str(failure)) for text in scene.failures] == ([] if failure is None else [True])
    assert (one.starts, one.is_running) == (2, True)


@pytest.mark.parametrize(("program", "outlives"), [("cat", False), ("sleep", True)], ids=["ends", "stays"])
def test_a_jvm_ends_when_its_driver_is_killed(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch, program: str, outlives: bool
) -> None:
    """Of a driver that is killed alone nothing is left after a while, or it is a failure, and gone."""
    monkeypatch.setattr(kills_module, "_END_S", 1 if outlives else 60)
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    one = Script(tmp_path, with_jvm(tmp_path, program, "time.sleep(600)"))
    started(one)
    wait_until(lambda: "up" in one.say(), 60, "it never began")
    (jvm,) = one.family()[1:]
    scene = Scene([one])
    assert scene.do(scene.kills().kill_driver) == {"SIGKILL one without its JVM": 1}
    assert bool(scene.failures) is outlives
    wait_until(lambda: not is_alive(jvm), 60, "it was left behind")
    assert (one.starts, one.is_running) == (2, True)


@pytest.mark.parametrize(
    ("on_term", "counts", "is_wrong"),
    [
        ("signal.SIG_IGN", {"SIGKILL one as it stops": 1}, False),
        ("lambda *_: os._exit(0)", {"SIGTERM one": 1}, False),
        ("lambda *_: os._exit(3)", {}, True),
    ],
    ids=["slow", "stopped", "failed"],
)
def test_a_connector_is_killed_as_it_stops(
    tmp_path: Path,
    started: Start,
    monkeypatch: pytest.MonkeyPatch,
    on_term: str,
    counts: dict[str, int],
    is_wrong: bool,
) -> None:
    """What has not ended some time after SIGTERM gets SIGKILL; what ended with an error is a failure."""
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    program = f"import os, signal, time\nsignal.signal(signal.SIGTERM, {on_term})\nprint('up', flush=True)\n"
    one = Script(tmp_path, f"{program}while True: time.sleep(1)")
    started(one)
    wait_until(lambda: "up" in one.say(), 60, "it never began")
    scene = Scene([one])
    one.patience_s = 60 if "_exit" in on_term else 0
    assert scene.do(scene.kills().kill_as_it_stops) == counts
    assert bool(scene.failures) is is_wrong
    assert (one.starts, one.is_running) == (2, True)


@pytest.mark.parametrize("works", [True, False], ids=["at work", "idle"])
def test_only_a_worker_with_a_task_is_killed(tmp_path: Path, started: Start, works: bool) -> None:
    """A worker that takes no CPU has nothing to lose: it is left alone, and nothing counts."""
    does = "while True: pass" if works else SLEEP
    words = ["-c", f"print('up', flush=True)\n{does}", "worker_daemon"]
    one = Script(tmp_path, f"import subprocess, sys\nsubprocess.Popen([sys.executable, *{words!r}])\n{SLEEP}")
    started(one)
    wait_until(lambda: "up" in one.say(), 60, "it never began")
    (worker,) = one.workers()
    scene = Scene([one])
    kills = scene.kills()
    assert scene.do(kills.kill_worker) == ({"SIGKILL a worker of one": 1} if works else {})
    assert kills._progress == ({"workers of one": 0} if works else {}), "the next one comes after a commit"
    wait_until(lambda: is_alive(worker) is not works, 60, "nothing became of it")
    assert one.starts == 1


def test_each_life_has_a_depth_of_its_own(tmp_path: Path, started: Start) -> None:
    """How far a connector may come is drawn anew with each start, and stays."""
    one = started(Script(tmp_path, SLEEP))
    kills = Scene([one]).kills()
    drawn = []
    for number in range(40):
        one.starts = number
        drawn.append(kills._depth(one))
        assert kills._depth(one) == drawn[-1]
    assert set(drawn) == {0, 1, 2, 4}


def test_what_goes_wrong_while_something_is_done_is_told() -> None:
    """An error in a fault is a failure of the run, and its target is free again."""
    failures: list[str] = []
    acts = Acts(0.0, failures.append)

    def act() -> None:
        raise OSError("no port")

    acts.do(["one"], "SIGKILL of one", act)
    acts.finish(60)
    assert failures == ["SIGKILL of one: OSError('no port')"]
    assert not acts.is_busy("one")
