"""The round of a source's tables: which are taken, who has a turn, who is given up, and when a run ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from attrs import define, evolve, field

from connector.errors import FatalError, GapError, RetriableError
from connector.iceberg.catalog.snapshots import NoBranchError
from connector.runtime.stop_flag import StopFlag
from connector.settings.source.capture import CaptureSettings
from connector.settings.source.settings import load_source
from connector.source import poll_loop
from connector.source.poll_loop import PolledTable, PollLoop
from connector.source.snapshots.discovery import find_in_other_case, find_tables, plain_names
from connector.source.snapshots.table_history import TableGoneError
from connector.source.snapshots.table_schedule import TableSchedule, after_failure
from tests.runs.publishers import InMemoryPublisher, unconnected


@define
class Script:
    """A table that does what it is told, step by step: True, False, or raise; then nothing more."""

    does: list[bool | Exception]
    steps: int = 0
    abandoned: int = 0

    def step(self, *, pinned: bool) -> bool:
        self.steps += 1
        done = self.does.pop(0) if self.does else False
        if isinstance(done, Exception):
            raise done
        return done

    def abandon(self) -> None:
        self.abandoned += 1


@define
class Round:
    """Tables with scripts, and the heartbeats that were sent."""

    tables: PollLoop
    scripts: dict[str, Script]
    beats: list[int] = field(factory=list)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Round]:
    """make(name=[...steps]) gives a round of tables in namespace `db`."""

    def build(extra: str = "", **does: list[bool | Exception] | None) -> Round:
        file = tmp_path / "s.properties"
        file.write_text(
            "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
            f"poll.interval.ms=1\nerrors.retry.delay.max.ms=1\n{extra}"
        )
        scripts = {name: Script(list(steps)) for name, steps in does.items() if steps is not None}
        found = {f"db.{name}": (("db",), name) for name in does}
        settings = load_source([file], environ={})
        publisher = InMemoryPublisher(unconnected(settings).target)

        def open_table(_: tuple[str, ...], name: str) -> PolledTable | None:
            return scripts.get(name)

        tables = PollLoop(settings, lambda: found, open_table, publisher)
        return Round(tables, scripts, publisher.heartbeats)

    return build


def test_a_run_to_now_ends_when_no_table_has_work(make: Callable[..., Round]) -> None:
    """With `once` every table goes on until it has nothing to do, turn by turn."""
    made = make(a=[True, True, True], b=[True])
    made.tables.run(once=True)
    assert {name: script.does for name, script in made.scripts.items()} == {"a": [], "b": []}
    # b is asked again in each round that a needs.
    assert made.scripts["b"].steps == 4


def test_what_may_pass_is_tried_again_and_the_rest_is_given_up(make: Callable[..., Round]) -> None:
    """A failing table is tried again while that may help; one that cannot go on is named at the end."""
    made = make(a=[RetriableError("away"), RetriableError("away"), True], b=[True, GapError("gone")], c=[True] * 5)
    with pytest.raises(GapError, match="gone"):
        made.tables.run(once=True)
    assert [script.does for script in made.scripts.values()] == [[], [], []]
    assert made.scripts["b"].steps == 2
    assert {name: script.abandoned for name, script in made.scripts.items()} == {"a": 0, "b": 1, "c": 0}


def test_a_catalog_that_is_away_at_the_start_is_asked_again(make: Callable[..., Round]) -> None:
    """Tables that cannot be listed when a source starts are listed later; only `errors.retry.timeout` ends that."""
    made = make(a=[True])
    answers = iter([RetriableError("away"), {"db.a": (("db",), "a")}])

    def find_tables() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made.tables.find_tables = find_tables
    made.tables.run(once=True)
    assert made.scripts["a"].does == []


def test_a_catalog_that_refuses_to_be_listed_later_stops_no_table(
    make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New tables are looked for again; a namespace that others made or dropped meanwhile ends no run."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.0)
    made = make(a=[True, True])
    answers = iter([{"db.a": (("db",), "a")}, FatalError("namespace scratch: Forbidden")])
    seen: dict[str, Any] = {"db.a": (("db",), "a"), "db.b": (("db",), "b")}

    def find_tables() -> Any:
        answer = next(answers, seen)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made.scripts["b"] = Script([True])
    made.tables.find_tables = find_tables
    with structlog.testing.capture_logs() as lines:
        made.tables.run(once=True)
    assert [script.does for script in made.scripts.values()] == [[], []]
    assert [line["reason"] for line in lines if line["event"] == "cannot look for new tables"] == [
        "namespace scratch: Forbidden"
    ]


def test_a_catalog_that_refuses_to_be_listed_ends_a_run_that_knows_no_table(
    make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing that could go on."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.0)
    made = make()
    made.tables.find_tables = Mock(side_effect=[{}, FatalError("the JVM is gone")])
    with pytest.raises(FatalError, match="the JVM is gone"):
        made.tables.run(once=False)


def test_a_table_that_stops_is_told_with_its_reason(make: Callable[..., Round]) -> None:
    """Of each table that its turns begin, and of one that gets no more why, while the others continue."""
    told: list[tuple[str, str]] = []
    source = make(a=[FatalError("no access")], b=[True])
    source.tables.on_stop = lambda table, reason: told.append((table, reason))
    with pytest.raises(FatalError):
        source.tables.run(once=True)
    assert told == [("db.a", ""), ("db.b", ""), ("db.a", "FatalError: no access")]


def test_several_that_failed_are_all_named(make: Callable[..., Round]) -> None:
    """Two tables that stop are one error with both reasons, also without `once`: nothing is left to go on with."""
    made = make(a=[GapError("no a")], b=[FatalError("no b")])
    with pytest.raises(FatalError, match=r"2 tables stopped: db\.a: no a; db\.b: no b"):
        made.tables.run(once=False)


def _messages(lines: list[Any], table: str) -> list[str]:
    return [line["event"] for line in lines if line.get("table") == table and line["log_level"] != "info"]


def _run_until(made: Round, done: Callable[[], bool], prepare: Callable[[], object] = lambda: None) -> list[Any]:
    """Run the loop until something is so, and return what was logged; `prepare` comes before the third round."""
    rounds = itertools.count(1)

    def on_round() -> None:
        if next(rounds) == 3:
            prepare()
        if done():
            made.tables.stop()

    made.tables.on_round = on_round
    with structlog.testing.capture_logs() as lines:
        made.tables.run(once=False)
    return lines


def test_a_missing_table_is_waited_for(make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is not there is looked for again and again, told once, and read once it is there."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.001)
    made = make(a=[True], b=None)
    lines = _run_until(
        made,
        lambda: "b" in made.scripts and not made.scripts["b"].does,
        lambda: made.scripts.setdefault("b", Script([True])),
    )
    assert _messages(lines, "db.b") == ["there is no such table yet, it is waited for"]
    assert made.scripts["a"].does == []


@pytest.mark.parametrize("once", [True, False])
def test_a_missing_table_that_is_there_in_other_letters(make: Callable[..., Round], once: bool) -> None:
    """A name that differs from a table's by the case of its letters alone is told with that table."""
    made = make(a=[True], b=None)
    made.tables.find_in_other_case = lambda namespace, name: ".".join((*namespace, name.upper()))
    if once:
        with pytest.raises(FatalError, match=r"table db\.b is not in catalog .*; did you mean db\.B\?"):
            made.tables.run(once=True)
    else:
        lines = _run_until(made, lambda: not made.scripts["a"].does)
        assert [line["did_you_mean"] for line in lines if line.get("table") == "db.b"] == ["db.B"]


def test_a_missing_table_is_an_error_of_a_run_to_now(make: Callable[..., Round]) -> None:
    """With `once` it is named at the end, and the others are read."""
    made = make(a=[True], b=None)
    with pytest.raises(FatalError, match=r"table db\.b is not in catalog"):
        made.tables.run(once=True)
    assert made.scripts["a"].does == []


def test_a_table_that_was_published_and_is_missing_is_told_so(make: Callable[..., Round]) -> None:
    """A table with a stored offset that is not there at the start is told as one that is gone, named or not."""
    made = make("table.include.list=db.a,db.b,db.x.*\n", a=[True], b=None)
    made.tables.stored_tables = lambda: ("db.a", "db.b", "db.x1", "db.other")
    lines = _run_until(made, lambda: True)
    gone = ["a table that was published before is gone, another one of its name is waited for"]
    assert [_messages(lines, f"db.{name}") for name in ("a", "b", "x1", "other")] == [[], gone, gone, []]


def test_a_missing_branch_is_waited_for(make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without the branch, as one that a sink has just created, is looked at again and again, told once each
    time that the branch is gone, and read once it is there.
    """
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.001)
    gone = NoBranchError("no branch audit")
    made = make(a=[gone, gone, True, gone, gone, True], b=[True])
    lines = _run_until(made, lambda: not made.scripts["a"].does)
    assert _messages(lines, "db.a") == ["the branch is waited for"] * 2
    assert made.scripts["a"].abandoned == 0


def test_a_missing_branch_is_an_error_of_a_run_to_now(make: Callable[..., Round]) -> None:
    """With `once` it ends its table, and the others are read."""
    made = make(a=[NoBranchError("no branch audit"), True], b=[True])
    with pytest.raises(FatalError, match="no branch audit"):
        made.tables.run(once=True)
    assert (len(made.scripts["a"].does), made.scripts["b"].does) == (1, [])


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
@pytest.mark.parametrize("back", [True, False])
def test_a_table_that_is_dropped_while_it_is_read(
    make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch, mode: str, back: bool
) -> None:
    """Another one of its name is opened at once; without one the table stops, or is waited for with `when_needed`."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.001)
    made = make(f"snapshot.mode={mode}\n", a=[])
    first, second = Script([True, TableGoneError("dropped")]), Script([True])
    answers: list[Script | None] = [first, *([] if back else [None]), second]
    made.tables.open_table = lambda *_: answers.pop(0)
    if back or mode == "when_needed":
        _run_until(made, lambda: not second.does)
        assert (first.abandoned, second.abandoned, answers) == (1, 0, [])
    else:
        with pytest.raises(FatalError, match="dropped"):
            made.tables.run(once=False)
        assert (first.abandoned, second.does) == (1, [True])


@pytest.mark.parametrize("error", [ValueError("a worker exited"), FatalError("a task failed"), RetriableError("away")])
def test_a_step_that_fails_while_the_source_stops_comes_again(make: Callable[..., Round], error: Exception) -> None:
    """Who stops all processes of a source stops Spark's workers too: that is no error of a table, and ends none."""
    made = make(a=[True, error], b=[True] * 9)
    step = made.scripts["a"].step

    def stop_then_step(*, pinned: bool) -> bool:
        if made.scripts["a"].steps == 1:
            made.tables.stop()
        return step(pinned=pinned)

    made.tables.open_table = lambda _, name: Mock(step=stop_then_step) if name == "a" else made.scripts[name]
    with structlog.testing.capture_logs() as lines:
        made.tables.run(once=False)
    assert [line["log_level"] for line in lines if line.get("table") == "db.a"] == ["info", "warning"]
    assert (made.scripts["a"].abandoned, len(made.scripts["b"].does)) == (0, 8)


def test_time_for_retries_runs_out(make: Callable[..., Round]) -> None:
    """A table whose troubles last longer than errors.retry.timeout is given up."""
    made = make("errors.retry.timeout=20\n", a=[RetriableError("away")] * 1000)
    with pytest.raises(RetriableError, match="away"):
        made.tables.run(once=True)


def test_two_tables_never_share_a_topic(tmp_path: Path, make: Callable[..., Round]) -> None:
    """Of two tables whose names come to one topic, the second is refused with both names."""
    made = make(**{"a_b": [True], "a b": [True]})
    with pytest.raises(FatalError, match=r"topic p\.db\.a_b is also that of table db\.a b"):
        made.tables.run(once=True)
    assert made.scripts["a b"].steps
    assert not made.scripts["a_b"].steps


def test_two_tables_never_share_an_index(make: Callable[..., Round]) -> None:
    """Names of topics that differ may be one name of an index: there the second table is refused with both names."""
    made = make("debezium.sink.type=opensearch\nconnection.url=http://h:1\n", T=[True], t=[True], u=[True])
    with pytest.raises(FatalError, match=r"table db\.t: its index p\.db\.t is also that of table db\.T"):
        made.tables.run(once=True)
    assert [name for name, script in made.scripts.items() if script.steps] == ["T", "u"]


def test_heartbeats_are_sent_when_wanted(make: Callable[..., Round]) -> None:
    """Heartbeats go out at their interval, and none by default."""
    silent, beating = make(a=[True]), make("heartbeat.interval.ms=1\n", a=[True, True])
    for made in (silent, beating):
        made.tables.run(once=True)
    assert not silent.beats
    assert beating.beats


@pytest.fixture(name="waits")
def simulated_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the loop has waited each time; a clock moves by that, and by nothing else."""
    waits = [1000.0]

    def wait(_: StopFlag, timeout_s: float) -> bool:
        waits.append(timeout_s)
        return False

    monkeypatch.setattr(StopFlag, "wait", wait)
    monkeypatch.setattr("connector.source.poll_loop.time.monotonic", lambda: sum(waits))
    return waits


def test_a_long_time_between_polls_holds_up_nothing_else(make: Callable[..., Round], waits: list[float]) -> None:
    """Heartbeats, the sign of life and the looks for signals have their own intervals; tables are polled by theirs."""
    made = make("poll.interval.ms=600000\nheartbeat.interval.ms=5000\nsignal.poll.interval.ms=2000\n", a=[])
    looked, lived = list[float](), list[float]()
    made.tables.signals = Mock(poll=lambda _: looked.append(sum(waits)))
    made.tables.beat = lambda: lived.append(sum(waits))
    _run_until(made, lambda: sum(waits) >= 1600)
    assert (made.scripts["a"].steps, len(made.beats)) == (2, 121)
    assert max(after - before for before, after in itertools.pairwise(looked)) <= 2
    assert max(after - before for before, after in itertools.pairwise(lived)) <= 2


def test_a_failure_that_may_pass_waits_for_no_poll(make: Callable[..., Round], waits: list[float]) -> None:
    """Tables are tried again after the time that doubles from try to try, however long `poll.interval.ms` is."""
    made = make("poll.interval.ms=600000\nerrors.retry.delay.max.ms=60000\n", a=[RetriableError("away")] * 3)
    _run_until(made, lambda: made.scripts["a"].steps == 4)
    assert [round(wait, 3) for wait in waits[1:4]] == [0.2, 0.4, 0.8]


def test_a_signal_wakes_the_tables(make: Callable[..., Round], waits: list[float]) -> None:
    """What a signal asks for is begun at once, although the next poll of its table is far."""
    made = make("poll.interval.ms=600000\n", a=[False, True])
    answers = iter([False, False, True])
    made.tables.signals = Mock(poll=lambda _: next(answers, False))
    _run_until(made, lambda: not made.scripts["a"].does)
    assert sum(waits) <= 1002


def test_heartbeats_that_nobody_takes_stop_no_table(
    make: Callable[..., Round], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that is not delivered is said in the log; tables go on, and the next one is tried as ever."""
    errors = [RetriableError("the broker is away"), FatalError("no rights")]
    made = make("heartbeat.interval.ms=1\n", a=[True, True, True, True])
    beat = made.tables.publisher.heartbeat
    tried = list[int]()

    def heartbeat(ts_ms: int) -> None:
        tried.append(ts_ms)
        if errors:
            raise errors.pop(0)
        beat(ts_ms)

    made.tables.publisher = Mock(wraps=made.tables.publisher, heartbeat=heartbeat)
    monkeypatch.setattr("connector.source.poll_loop.time.monotonic", itertools.count(1).__next__)
    with structlog.testing.capture_logs() as lines:
        made.tables.run(once=True)
    assert made.scripts["a"].does == []
    assert [line["reason"] for line in lines if line["event"] == "heartbeat not sent"] == [
        "the broker is away",
        "no rights",
    ]
    assert len(tried) > 2 and made.beats == tried[2:]


def test_an_unforeseen_error_stops_its_table_alone(make: Callable[..., Round]) -> None:
    """An exception that is none of ours ends one table, with its class and place, and tells no value."""
    made = make(odd=[True, ValueError("a secret value"), True], good=[True, True, True])
    with pytest.raises(FatalError, match=r"table db\.odd: ValueError in test_source_run\.py, line \d+") as caught:
        made.tables.run(once=True)
    assert "secret" not in str(caught.value)
    assert made.scripts["good"].does == []
    assert made.scripts["odd"].does == [True]


def capture(**changed: object) -> CaptureSettings:
    given = CaptureSettings((), (), (), (), (), "initial", 1000, 1000, "main", False, "offsets")
    return evolve(given, **changed)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (("db.t", r"a\.b\.c"), ("db.t", "a.b.c")),
        ((r"db\..*",), None),
        (("db.t", "db.(x|y)"), None),
        ((), None),
    ],
)
def test_plain_names_need_no_listing(tables: tuple[str, ...], expected: tuple[str, ...] | None) -> None:
    """Only a list of plain names spares the listing of the catalog; a dot in one is a dot, escaped or not."""
    assert plain_names(capture(tables=tables)) == expected


def test_a_failure_that_may_pass_is_tried_later_and_later_until_time_is_over() -> None:
    """Waits double up to the longest; when the time is over, or nothing can help, the table has no more turns."""
    turn, now, waits = TableSchedule(), 100.0, []
    for _ in range(8):
        turn = after_failure(turn, RetriableError("away"), now, timeout_s=60, longest_s=3)
        waits.append(round(turn.at - now, 3))
        now = turn.at
    assert waits == [0.2, 0.4, 0.8, 1.6, 3, 3, 3, 3]
    assert turn.waiting
    assert not turn.is_due(now - 0.1)
    over = after_failure(turn, RetriableError("away"), 161.0, timeout_s=60, longest_s=3)
    assert isinstance(over.failed, RetriableError)
    assert not over.is_due(1e9)
    endless = after_failure(turn, RetriableError("away"), 1e6, timeout_s=None, longest_s=3)
    assert endless.failed is None
    hours = evolve(turn, tries=5_000)
    assert after_failure(hours, RetriableError("away"), 1e6, timeout_s=None, longest_s=3).at == 1e6 + 3
    assert after_failure(TableSchedule(), GapError("gone"), 0.0, timeout_s=None, longest_s=3).failed


def test_tables_of_positions_and_signals_are_not_read_unless_named() -> None:
    """Of what a catalog lists a source leaves out the tables that are its own; named ones it takes, there or not."""
    catalog = Mock()
    catalog.full_name = lambda name: f"db.{name}"
    catalog.list_tables.return_value = [(("db",), name) for name in ("t", "offsets", "signals")]
    signals = Mock(table="db.signals")
    assert list(find_tables(catalog, Mock(capture=capture(), signals=signals))) == ["db.t"]
    assert list(find_tables(catalog, Mock(capture=capture(tables=("db.signals",)), signals=signals))) == ["db.signals"]
    mixed = capture(tables=("db.signals", r"db\.lat-er", "db.T", "db.t.*"))
    assert find_tables(catalog, Mock(capture=mixed, signals=signals)) == {
        "db.signals": (("db",), "signals"),
        "db.lat-er": (("db",), "lat-er"),
        "db.t": (("db",), "t"),
    }


def test_a_table_in_other_letters_is_a_hint() -> None:
    """It is looked for in the namespace alone; where that cannot be listed there is none."""
    catalog = Mock()
    catalog.list_tables.return_value = [(("db",), "Orders"), (("db",), "orders2")]
    assert find_in_other_case(catalog, ("db",), "orders") == "db.Orders"
    assert find_in_other_case(catalog, ("db",), "Orders") is None
    catalog.list_tables.side_effect = FatalError("not allowed")
    assert find_in_other_case(catalog, ("db",), "orders") is None


def test_a_name_without_a_namespace_is_told_with_the_table_that_it_means() -> None:
    """No table has such a name; one of some namespace that is called so is the hint, in any case of letters."""
    catalog = Mock()
    catalog.list_tables.return_value = [(("db",), "items"), (("sales", "eu"), "Orders"), (("sales", "us"), "orders")]
    assert find_in_other_case(catalog, (), "orders") == "sales.eu.Orders"
    assert find_in_other_case(catalog, (), "other") is None
