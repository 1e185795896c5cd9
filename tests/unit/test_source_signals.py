"""Texts of signals -> what they ask for; what is none is passed over; channels are read once, whatever is killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest
import structlog
from attrs import define, evolve, field
from confluent_kafka import KafkaError
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, NestedField, TimestampType, TimestamptzType, TimeType
from pyspark.errors import PySparkException

from connector.errors import CommitUnknown, ConfigError, ConnectorError, FatalError, GapError, RetriableError
from connector.runtime.monitoring.listeners import SnapshotReport
from connector.settings.source.settings import load_source
from connector.source import factory, table_capture
from connector.source.changes import row_filter
from connector.source.changes.row_filter import to_condition
from connector.source.signals import kafka_channel, table_channel
from connector.source.signals.channel import ReceivedSignals
from connector.source.signals.file_channel import FileChannel
from connector.source.signals.kafka_channel import KafkaChannel
from connector.source.signals.processor import SignalProcessor, _Turn
from connector.source.signals.queue_channel import SignalQueue
from connector.source.signals.table_channel import TableChannel, has_expired_parts
from connector.source.snapshots.chunks import ChunkProgress
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.signal import (
    ExecuteSnapshot,
    InvalidSignal,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SignalText,
    SnapshotKind,
    StopSnapshot,
    parse_filter,
    parse_signal,
    read_document,
)
from connector.source.snapshots.snapshot_queue import MAX_QUEUED, QueuedSnapshot, SnapshotQueue, apply_signal
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_capture import TableCapture

SOURCE = {"bootstrap.servers": "h:1", "topic.prefix": "p", "iceberg.catalog.warehouse": "/w"}
TABLES = ("db.items", "db.orders", "other.orders")


def parsed(text: object) -> Any:
    """What a signal's JSON asks for."""
    return parse_signal(read_document(json.dumps(text), "made"))


def execute(signal: str = "1", **data: Any) -> Any:
    """A signal for snapshots of `db.orders`, unless it says otherwise."""
    return parsed({"id": signal, "type": "execute-snapshot", "data": {"data-collections": ["db.orders"], **data}})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (
            {"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["db.a", r"db\..*"]}},
            ExecuteSnapshot("1", ("db.a", r"db\..*")),
        ),
        (
            {"type": "execute-snapshot", "data": {"data-collections": ["db.a"], "type": "BLOCKING"}},
            ExecuteSnapshot("made", ("db.a",), SnapshotKind.BLOCKING),
        ),
        (
            {"id": "1", "type": "execute-snapshot", "data": json.dumps({"data-collections": ["a"], "type": None})},
            ExecuteSnapshot("1", ("a",)),
        ),
        (
            {
                "id": "1",
                "type": "execute-snapshot",
                "data": {
                    "data-collections": ["a"],
                    "additional-conditions": [
                        {"data-collection": "a", "filter": "SELECT * FROM db.a WHERE color = 'blue'"}
                    ],
                },
            },
            ExecuteSnapshot("1", ("a",), conditions=(("a", "color = 'blue'"),)),
        ),
        (
            {
                "id": "1",
                "type": "execute-snapshot",
                "data": {"data-collections": ["a"], "additional-condition": "n > 3"},
            },
            ExecuteSnapshot("1", ("a",), conditions=((".*", "n > 3"),)),
        ),
        ({"id": "2", "type": "stop-snapshot"}, StopSnapshot("2")),
        (
            {"id": "2", "type": "stop-snapshot", "data": {"type": "incremental", "data-collections": ["a"]}},
            StopSnapshot("2", ("a",), SnapshotKind.INCREMENTAL),
        ),
        ({"id": "3", "type": "pause-snapshot", "data": ""}, PauseSnapshot("3")),
        ({"id": "4", "type": "resume-snapshot", "data": None}, ResumeSnapshot("4")),
        ({"id": "5", "type": "log", "data": {"message": "at {}"}}, LogMessage("5", "at {}")),
    ],
    ids=["execute", "blocking", "text", "query", "older", "stop", "stop-some", "pause", "resume", "log"],
)
def test_signals_are_read_as_debezium_writes_them(text: object, asked: object) -> None:
    """A signal's data is an object or its JSON as text; a condition is a filter, or a query that ends with one."""
    assert parsed(text) == asked


def filtered(text: str) -> bytes:
    """A signal with a filter."""
    data = {"data-collections": ["a"], "additional-conditions": [{"data-collection": "a", "filter": text}]}
    return json.dumps({"type": "execute-snapshot", "data": data}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not json",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"{}",
        b'{"type": 7}',
        b'{"id": 7, "type": "log"}',
        b'{"type": "drop-table"}',
        b'{"type": "schema-changes", "data": {"database": "db", "changes": [{"type": "ALTER", "id": "db.a"}]}}',
        b'{"type": "log", "data": {}}',
        b'{"type": "log", "data": "no json"}',
        b'{"type": "log", "data": [1]}',
        b'{"type": "execute-snapshot"}',
        b'{"type": "execute-snapshot", "data": {"data-collections": []}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": "db.a"}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": [1]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["("]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "type": "sideways"}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-conditions": "x = 1"}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-conditions": [{}]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-conditions":'
        b' [{"data-collection": "a", "filter": "x = (select 1)"}]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-conditions":'
        b' [{"data-collection": "a", "filter": "reflect(\'java.lang.System\', \'exit\', 0) = 1"}]}}',
        b'{"type": "stop-snapshot", "data": {"data-collections": {}}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a{99999999999999999999}"]}}',
        b"[" * 100_000,
        filtered("(" * 9000),
        filtered(f"{'(' * 101}a = 1{')' * 101}"),
        b'{"type": "execute-snapshot", "data": {"data-collections": ["(?=a)a"]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["' + b"(" * 5000 + b'"]}}',
        b'{"type": "execute-snapshot", "data": {"data-collections": ["a"], "additional-conditions": ['
        + b",".join([b"{}"] * 1001)
        + b"]}}",
        b'{"type": "log", "data": "' + b"x" * 2**20 + b'"}',
    ],
    ids=range(32),
)
def test_what_is_no_signal_says_why_and_shows_nothing(text: bytes) -> None:
    """Malformed signals, functions and queries in filters are refused, with words of ours and none of the sender's."""
    with pytest.raises(InvalidSignal) as caught:
        parse_signal(read_document(text, "made"))
    assert str(caught.value)
    assert "reflect" not in str(caught.value)


def test_a_change_of_schema_is_refused_with_the_reason() -> None:
    """An Iceberg source keeps no schemas that Debezium's signal could repair, also where its data is no such change."""
    for data in ({"database": "db", "changes": []}, None, "no json"):
        with pytest.raises(InvalidSignal, match=r"schema-changes has no effect here: .* change the table"):
            parse_signal(SignalText("1", "schema-changes", data))
    with pytest.raises(InvalidSignal, match="has no effect here"):
        SignalQueue().put({"id": "1", "type": "schema-changes", "data": {}})


@pytest.mark.parametrize("pattern", [r"(.*)*x", r"([a-z_.]+)+\\d", r"(\\w+\\.?)+!", r"(a|a?)+$"])
def test_an_expression_that_others_never_end_on_is_answered(pattern: str) -> None:
    """Whoever can send a signal may write one: it holds up neither the source nor its probes."""
    text = b'{"type": "execute-snapshot", "data": {"data-collections": ["%s"]}}' % pattern.encode()
    signal = parse_signal(read_document(text, "made"))
    assert not apply_signal(SnapshotQueue(), signal, ["default.customer_orders_history_archive"]).queue.snapshots


def test_a_filter_of_many_parts_is_one() -> None:
    """A hundred comparisons behind each other, and brackets within each other, are read."""
    for text in (" and ".join(["a = 1"] * 900), f"{'(' * 100}a = 1{')' * 100}", "not " * 90 + "a = 1"):
        assert parse_filter(text)


def test_names_match_whole_in_any_case() -> None:
    """Expressions are for whole names with namespace; the tables that match are read in the order of their names."""
    found = apply_signal(SnapshotQueue(), execute(**{"data-collections": [r"DB\..*", "orders"]}), TABLES)
    assert [one.table for one in found.queue.snapshots] == ["db.items", "db.orders"]
    assert found.reports == (SnapshotReport("Incremental Snapshot", "STARTED", "1", tables=("db.items", "db.orders")),)
    assert apply_signal(SnapshotQueue(), execute(**{"data-collections": ["orders"]}), TABLES).notes


def test_a_signal_that_comes_twice_is_followed_once_and_others_wait_their_turn() -> None:
    """The same id while it is under way changes nothing; another id is read after it, up to a bound."""
    once = apply_signal(SnapshotQueue(), execute("1"), TABLES).queue
    twice = apply_signal(once, execute("1"), TABLES)
    assert (twice.queue, twice.reports) == (once, ())
    queue = once
    for number in range(2, 40):
        queue = apply_signal(queue, execute(str(number)), TABLES).queue
    assert [one.id for one in queue.snapshots] == [str(number) for number in range(1, MAX_QUEUED + 1)]


def test_pause_holds_incremental_snapshots_only_and_ends_with_them() -> None:
    """A paused queue has no turn for incremental ones, blocking ones go on; nothing is paused when all are over."""
    queue = apply_signal(SnapshotQueue(), execute("1"), TABLES).queue
    queue = apply_signal(queue, execute("2", type="blocking", **{"data-collections": ["db.items"]}), TABLES).queue
    paused = apply_signal(queue, PauseSnapshot("3"), TABLES)
    assert paused.queue.first("db.orders") is None
    assert paused.queue.first("db.items") is not None
    assert [report.stage for report in paused.reports] == ["PAUSED"]
    assert apply_signal(paused.queue, PauseSnapshot("3"), TABLES).notes
    resumed = apply_signal(paused.queue, ResumeSnapshot("4"), TABLES)
    assert resumed.queue.first("db.orders") is not None
    over = apply_signal(paused.queue, StopSnapshot("5"), TABLES).queue
    assert over == SnapshotQueue()
    assert apply_signal(over, PauseSnapshot("6"), TABLES).notes
    kind = {"type": "incremental"}
    left = apply_signal(paused.queue, parsed({"type": "stop-snapshot", "data": kind}), TABLES).queue
    assert ([one.id for one in left.snapshots], left.paused) == (["2"], False)
    assert apply_signal(over, StopSnapshot("6"), TABLES).notes


def test_a_blocking_snapshot_passes_one_that_is_paused() -> None:
    """It has its turn while an older incremental one of its table is held up, and until it is over."""
    queue = apply_signal(SnapshotQueue(), execute("1"), TABLES).queue
    queue = apply_signal(queue, execute("2", type="blocking"), TABLES).queue
    assert queue.first("db.orders") == queue.snapshots[0]
    paused = apply_signal(queue, PauseSnapshot("3"), TABLES).queue
    blocking = paused.first("db.orders")
    assert blocking is not None and blocking.id == "2"
    begun = paused.advance(blocking, ChunkProgress("u", 7, 0, 100))
    resumed = apply_signal(begun, ResumeSnapshot("4"), TABLES).queue
    assert [one and one.id for one in (resumed.first("db.orders"), resumed.without(blocking).first("db.orders"))] == [
        "2",
        "1",
    ]


def test_stop_takes_the_tables_and_the_kind_that_it_names() -> None:
    """Of the snapshots under way those are given up that match; each signal of theirs is told so."""
    queue = apply_signal(SnapshotQueue(), execute("1", **{"data-collections": [".*"]}), TABLES).queue
    queue = apply_signal(queue, execute("2", type="blocking"), TABLES).queue
    stop = parsed(
        {"id": "3", "type": "stop-snapshot", "data": {"data-collections": [".*orders"], "type": "incremental"}}
    )
    found = apply_signal(queue, stop, TABLES)
    assert [(one.id, one.table) for one in found.queue.snapshots] == [("1", "db.items"), ("2", "db.orders")]
    assert [(report.id, report.tables) for report in found.reports] == [("1", ("db.orders", "other.orders"))]


def test_a_table_that_is_read_no_more_holds_up_no_signal() -> None:
    """At a start its snapshots are given up and told so; where all tables are read nothing is stored."""
    queue = apply_signal(SnapshotQueue(), execute("1", **{"data-collections": [".*"]}), TABLES).queue
    told, stored = list[SnapshotReport](), list[SnapshotQueue]()
    offsets: Any = SimpleNamespace(queue=queue, put_queue=stored.append)
    listeners: Any = [SimpleNamespace(on_snapshot=told.append)]

    def start(*left_out: str) -> None:
        settings = load_source([], {**SOURCE, "table.exclude.list": ",".join(left_out)})
        factory._give_up_excluded(offsets, settings, listeners)

    start("db.others")
    assert not stored and not told
    start("db.items", "other.*")
    assert [one.table for one in stored[0].snapshots] == ["db.orders"]
    assert [(one.stage, one.id, one.tables) for one in told] == [("ABORTED", "1", ("db.items", "other.orders"))]


def test_the_queue_is_stored_as_text() -> None:
    """What is written is read again, with progress, filter and positions of channels."""
    queue = SnapshotQueue(
        (
            QueuedSnapshot("1", "db.a", SnapshotKind.BLOCKING, "x = 1", ChunkProgress("u", 7, 3, 100, 12, 1)),
            QueuedSnapshot("2", "db.b"),
        ),
        paused=True,
        channels={"kafka": {"topic": "t", "offset": 9}},
    )
    assert SnapshotQueue.parse(queue.json()) == queue
    assert SnapshotQueue.parse(None) == SnapshotQueue()


def test_a_filter_must_fit_the_table() -> None:
    """A column that is not there, and a value of another type, are refused when the table is known."""
    schema = Schema(NestedField(1, "n", IntegerType(), required=False))
    for text in ("m = 1", "n = 'x'"):
        with pytest.raises(ConfigError, match="does not fit the table"):
            to_condition(parse_filter(text), schema, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["at > 1764000000000000000", "at > 12345678901234567890123", "tz > 12345678901234567890123", f"t in (1, {2**63})"],
)
def test_a_number_that_is_no_time_does_not_fit_the_table(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Nanoseconds where microseconds are meant, for one: such a filter ends its snapshot, and never its table."""
    schema = Schema(
        NestedField(1, "at", TimestampType(), required=False),
        NestedField(2, "tz", TimestamptzType(), required=False),
        NestedField(3, "t", TimeType(), required=False),
    )
    monkeypatch.setattr(row_filter._ToColumn, "_column", MagicMock())
    monkeypatch.setattr(row_filter, "F", Mock())
    with pytest.raises(ConfigError, match="does not fit the table: OverflowError"):
        to_condition(parse_filter(text), schema, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "written"),
    [("d = 1.5", "1.50"), ("d in (1.5, 1.5)", "1.50"), ("d = 1.555", None), ("n = 1.0", 1), ("n > 1.5", None)],
)
def test_a_number_in_a_filter_is_never_rounded(
    monkeypatch: pytest.MonkeyPatch, text: str, written: object | None
) -> None:
    """It has as many digits as it needs, whatever its column has; with finer ones the filter does not fit."""
    schema = Schema(
        NestedField(1, "d", DecimalType(10, 2), required=False), NestedField(2, "n", IntegerType(), required=False)
    )
    column, functions = MagicMock(), Mock()
    column.__gt__.return_value = functions
    monkeypatch.setattr(row_filter._ToColumn, "_column", lambda *_: column)
    monkeypatch.setattr(row_filter, "F", functions)
    if written is None:
        with pytest.raises(ConfigError, match="does not fit the table"):
            to_condition(parse_filter(text), schema, None)  # type: ignore[arg-type]
        return
    to_condition(parse_filter(text), schema, None)  # type: ignore[arg-type]
    functions.lit.assert_called_once_with(written)


def test_a_file_is_followed_once(tmp_path: Path) -> None:
    """Lines are signals; the file is gone when they are stored, and not followed again if that was cut short."""
    path = tmp_path / "signals.txt"
    channel = FileChannel(path)
    assert channel.read(None) == ReceivedSignals((), None)
    path.write_text('{"id": "1", "type": "log"}\n\nbroken\n')
    first = channel.read(None)
    assert [isinstance(one, SignalText) for one in first.signals] == [True, False]
    # Killed before it was stored: read again; killed after that: not.
    assert FileChannel(path).read(None).position == first.position
    assert FileChannel(path).read(first.position).signals == ()
    assert list(tmp_path.iterdir()) == []
    # The same text written once more is meant once more.
    path.write_text('{"id": "1", "type": "log"}\n\nbroken\n')
    again = channel.read(first.position)
    assert len(again.signals) == 2
    path.write_text('{"id": "2", "type": "log"}\n')
    channel.acknowledge()
    assert [one.id for one in channel.read(again.position).signals if isinstance(one, SignalText)] == ["2"]


def test_a_byte_order_mark_is_no_part_of_a_signal(tmp_path: Path) -> None:
    """Some editors and shells begin each file of UTF-8 with one, as those of properties may."""
    path = tmp_path / "signals.txt"
    path.write_text('{"id": "1", "type": "log"}\n', "utf-8-sig")
    (signal,) = FileChannel(path).read(None).signals
    assert isinstance(signal, SignalText) and signal.id == "1"


def test_what_is_added_while_a_file_is_read_is_not_lost(tmp_path: Path) -> None:
    """Who had it open when it was renamed writes into what was taken: the next read has that, and not the rest."""
    path = tmp_path / "signals"
    with path.open("a", encoding="utf-8") as kept:
        kept.write('{"id":"1","type":"log","data":{"message":"m"}}\n')
        kept.flush()
        channel = FileChannel(path)
        first = channel.read(None)
        kept.write('{"id":"2","type":"log","data":{"message":"m"}}\n')
    channel.acknowledge()
    second = channel.read(first.position)
    assert [cast("Any", one).id for one in (*first.signals, *second.signals)] == ["1", "2"]
    channel.acknowledge()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """A signal file of a size that no person writes is an error of the channel."""
    path = tmp_path / "signals.txt"
    with path.open("wb") as file:
        file.truncate(2**25)
    with pytest.raises(FatalError, match="more than"):
        FileChannel(path).read(None)


def test_what_a_server_puts_in_is_checked_at_once() -> None:
    """A malformed signal is the caller's error; one that waits comes until it is stored; too many are refused."""
    queue = SignalQueue()
    for wrong in ({}, [], {"type": "x"}, "x", {"type": "log"}):
        with pytest.raises(InvalidSignal):
            queue.put(wrong)
    assert queue.put({"id": "7", "type": "log", "data": '{"message": "m"}'}) == "7"
    assert queue.read(None) == queue.read(None)
    queue.acknowledge()
    assert queue.read(None).signals == ()
    for _ in range(1000):
        assert queue.put('{"type": "stop-snapshot"}')
    with pytest.raises(RetriableError):
        queue.put({"type": "stop-snapshot"})


@define
class Stored:
    """An offset store in memory."""

    queue: SnapshotQueue = SnapshotQueue()
    writes: int = 0
    fails: bool = False

    def put_queue(self, queue: SnapshotQueue) -> None:
        if self.fails:
            raise RetriableError("away")
        self.queue, self.writes = queue, self.writes + 1

    def tables(self) -> tuple[str, ...]:
        return ()


@define
class Channel:
    """A channel that has what it is given."""

    gives: list[ReceivedSignals | Exception]
    name: str = "kafka"
    acknowledged: int = 0
    seen: list[Any] = field(factory=list)

    def read(self, position: Any) -> ReceivedSignals:
        self.seen.append(position)
        given = self.gives.pop(0) if self.gives else ReceivedSignals((), position)
        if isinstance(given, Exception):
            raise given
        return given

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def close(self) -> None:
        pass


@define
class Heard:
    """A listener that keeps what it hears."""

    reports: list[SnapshotReport] = field(factory=list)

    def on_snapshot(self, report: SnapshotReport) -> None:
        self.reports.append(report)


def signal(number: int, kind: str = "execute-snapshot") -> SignalText:
    """A signal of a number."""
    return SignalText(str(number), kind, {"data-collections": ["db.orders"], "message": "m"})


def test_a_bad_signal_is_passed_over_and_those_beside_it_are_followed() -> None:
    """One commit stores what the good ones ask for, with how far the channel was read; listeners hear of it after."""
    given = ReceivedSignals((signal(1), InvalidSignal("no JSON"), signal(2, "nonsense"), signal(3, "log")), 4)
    channel, stored, heard = Channel([given]), Stored(), Heard()
    processor = SignalProcessor([channel], stored, 1, [heard])  # type: ignore[arg-type]
    assert processor.poll(TABLES)
    assert [one.id for one in stored.queue.snapshots] == ["1"]
    assert (stored.queue.channels, stored.writes, channel.acknowledged) == ({"kafka": 4}, 1, 1)
    assert [report.stage for report in heard.reports] == ["STARTED"]
    assert not processor.poll(TABLES)
    assert channel.seen == [None, 4]
    assert stored.writes == 1


def test_signals_that_cannot_be_stored_are_read_again() -> None:
    """While the catalog is away a channel is not told that its signals are stored, and nobody hears of them."""
    channel, stored, heard = Channel([ReceivedSignals((signal(1),), 4)]), Stored(fails=True), Heard()
    with pytest.raises(RetriableError):
        SignalProcessor([channel], stored, 1, [heard]).poll(TABLES)  # type: ignore[arg-type]
    assert (channel.acknowledged, heard.reports, stored.queue) == (0, [], SnapshotQueue())


def test_a_channel_that_is_away_does_not_hold_up_the_others() -> None:
    """An error of one channel is logged; the others are read, and it is not asked at once."""
    away, there = Channel([RetriableError("away"), ReceivedSignals((signal(9),), 1)], "kafka"), Channel([], "file")
    there.gives.append(ReceivedSignals((signal(1),), "x"))
    stored = Stored()
    processor = SignalProcessor([away, there], stored, 60_000)  # type: ignore[arg-type]
    processor.poll(TABLES)
    processor.poll(TABLES)
    assert [one.id for one in stored.queue.snapshots] == ["1"]
    assert len(away.seen) == 1


@pytest.mark.parametrize("error", [GapError("snapshot 1 is gone"), ValueError("row content"), KeyError("k")], ids=repr)
def test_a_channel_that_cannot_be_read_stops_nothing(error: Exception) -> None:
    """Whatever a channel raises, the source goes on, and of what nobody foresaw the log shows no content."""
    broken, there = Channel([error]), Channel([ReceivedSignals((signal(1),), "x")], "file")
    stored = Stored()
    with structlog.testing.capture_logs() as lines:
        SignalProcessor([broken, there], stored, 60_000).poll(TABLES)  # type: ignore[arg-type]
    assert [one.id for one in stored.queue.snapshots] == ["1"]
    (reason,) = (line["reason"] for line in lines if line["event"] == "signals cannot be read")
    assert (str(error) in reason) == isinstance(error, ConnectorError)


def test_a_table_of_signals_whose_files_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark raises over its files is an error of the channel, which names table and file."""
    gone = "java.io.FileNotFoundException: File file:/w/db/signals/data/a.parquet does not exist"
    frame = Mock(limit=lambda _: Mock(collect=Mock(side_effect=PySparkException(f"Caused by: {gone}"))))
    for name, answer in {
        "read_file_changes": None,
        "load_snapshot_schema": SimpleNamespace(names=("id", "type", "data")),
        "TableReader": None,
        "_find_inserts": frame,
        "release_reads": None,
    }.items():
        monkeypatch.setattr(table_channel, name, lambda *_, answer=answer: answer)
    table = Mock()
    table.name = "db.signals"
    with pytest.raises(FatalError, match=r"table db\.signals, snapshot 3: file .*a\.parquet is gone"):
        TableChannel(Mock(), Mock(), "db.signals")._read_inserts(table, 3)


@define
class TransactionalTopic:
    """A consumer of a topic with one signal, behind it the end of its transaction, and what an open one holds back."""

    config: dict[str, Any]
    at: int = 0
    assigned: int = 0
    is_told: bool = False

    def get_watermark_offsets(self, _: Any, timeout: float) -> tuple[int, int]:
        return 0, 3

    def assign(self, places: list[Any]) -> None:
        self.at, self.is_told, self.assigned = places[0].offset, False, self.assigned + 1

    def consume(self, _: int, timeout: float) -> list[Any]:
        if self.at == 0:
            self.at = 1
            value = b'{"id": "1", "type": "pause-snapshot"}'
            return [Mock(error=lambda: None, offset=lambda: 0, key=lambda: b"p", value=lambda: value)]
        if self.is_told or not self.config.get("enable.partition.eof"):
            time.sleep(timeout)
            return []
        self.is_told = True  # once, until it is assigned again
        end = KafkaError(KafkaError._PARTITION_EOF)
        return [Mock(error=lambda: end, offset=lambda: 2)]

    def position(self, _: Any) -> list[Any]:
        return [SimpleNamespace(offset=self.at)]  # what ends a transaction is none that a client has consumed

    def close(self) -> None:
        pass


def test_a_topic_of_signals_that_come_in_transactions_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the end of a transaction, and before an open one, nothing is waited for, in this look and the next."""
    monkeypatch.setattr(kafka_channel, "Consumer", TransactionalTopic)
    settings = Mock(topic="t", poll_timeout_ms=100, from_beginning=True)
    settings.kafka.client = lambda _: {}
    channel, began = KafkaChannel(settings, "p"), time.monotonic()
    first = channel.read(None)
    again = channel.read(first.position)
    took_s = time.monotonic() - began
    assert [one.id for one in first.signals if isinstance(one, SignalText)] == ["1"]
    assert (first.position, again) == ({"topic": "t", "offset": 2}, ReceivedSignals((), first.position))
    assert took_s < 4


def test_a_channel_that_is_away_for_days_is_asked_again() -> None:
    """The wait for the next look has an end, however often it failed."""
    away = Channel([RetriableError("away")])
    processor = SignalProcessor([away], Stored(), 5_000)  # type: ignore[arg-type]
    processor._turns["kafka"] = _Turn(0.0, 5_000)
    processor.poll(TABLES)
    assert 0 < processor._turns["kafka"].at - time.monotonic() <= 60


def test_channels_are_those_of_debezium(tmp_path: Path) -> None:
    """Channels by default are read once their own options are set; a listed one has what it needs, or a fault."""
    common = "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"

    def load(text: str) -> Any:
        file = tmp_path / "s.properties"
        file.write_text(common + text)
        return load_source([file], environ={})

    assert (load("").signals.topic, load("").signals.table, load("").signals.file) == (None, None, None)
    topic = load("signal.kafka.topic=t\nsignal.consumer.security.protocol=ssl\n").signals.topic
    assert (topic.topic, topic.kafka.bootstrap_servers, topic.from_beginning) == ("t", "h:1", True)
    assert topic.kafka.client("consumer")["security.protocol"] == "SSL"
    listed = load("signal.enabled.channels=kafka,file\nsignal.kafka.bootstrap.servers=o:1\n").signals
    assert (listed.topic.topic, listed.topic.kafka.bootstrap_servers) == ("p-signal", "o:1")
    assert listed.file == Path("file-signals.txt")
    assert load("signal.data.collection=db.s\n").signals.table == "db.s"
    assert load("signal.data.collection=a.b.s\n").signals.table == "a.b.s"
    for name in ("signals", "db.", ".signals", "db..signals", "db:a.signals"):
        told = rf"s.properties:5: signal.data.collection: '{name}' is no table with its namespace; write <namespace>"
        with pytest.raises(ConfigError, match=told):
            load(f"signal.data.collection={name}\n")
    for wrong in ("signal.enabled.channels=source\n", "signal.enabled.channels=smoke\n", "signal.kafka.topics=t\n"):
        with pytest.raises(ConfigError):
            load(wrong)
    with pytest.raises(ConfigError, match="sink has no topic"):
        load("notification.enabled.channels=sink\n")
    assert load("topic.heartbeat.name=beat\n").outgoing.heartbeat_topic == "beat"
    assert load("").outgoing.heartbeat_topic == "__debezium-heartbeat.p"
    assert evolve(load("").signals, chunk_rows=5).chunk_rows == 5


def test_a_table_whose_first_snapshots_expired_has_lost_signals() -> None:
    """The oldest snapshot that is left tells that there were others; a table's first one, and an empty table do not."""
    first, second = {"snapshot-id": 1}, {"snapshot-id": 2, "parent-snapshot-id": 1}
    assert [has_expired_parts(some) for some in ([second], [first, second], [])] == [True, False, False]


_SOURCE = {
    "connector.class": "IcebergSource",
    "topic.prefix": "p",
    "bootstrap.servers": "h:1",
    "iceberg.catalog.warehouse": "/w",
}


class _Rows:
    """The rows of an offsets table that others write to as well; `answer` is what comes of the next commit."""

    def __init__(self) -> None:
        self.stored: str | None = None
        self.connector_row: str | None = None
        self.by_table: dict[str, str] = {}
        self.lands, self.stale = True, False
        self.answer: ConnectorError | None = None

    def put(self, own: str | None, _: Any) -> None:
        # As `OffsetRows` does, it keeps what it was given, whatever becomes of the commit.
        self.connector_row = own or self.connector_row
        if self.lands:
            self.stored = self.connector_row
        if self.answer is not None:
            answer, self.answer = self.answer, None
            raise answer

    def is_stale(self) -> bool:
        return self.stale

    def reload(self) -> None:
        self.connector_row = self.stored


@pytest.mark.parametrize("answer", [CommitUnknown("no answer"), RetriableError("away")])
def test_what_was_stored_without_an_answer_is_this_source_s(answer: ConnectorError) -> None:
    """The catalog is away while signals are stored, and more of them have come until it is back: what landed late, or
    went with the offset of a table, is no other source's.
    """
    rows, errors = (
        _Rows(),
        load_source([], _SOURCE, {}).errors,
    )
    store = TableOffsetStore(cast("Any", rows), "s", evolve(errors, retry_timeout_ms=0))
    first, second = (SnapshotQueue().read_to("kafka", {"topic": "t", "offset": n}) for n in (1, 2))
    rows.answer, rows.lands = answer, isinstance(answer, CommitUnknown)
    with pytest.raises(type(answer)):
        store.put_queue(first)
    rows.lands = True
    store._store(None, {})
    rows.stale = True
    store.put_queue(second)
    assert (rows.stored, store.queue) == (second.json(), second)
    rows.stored = first.json()
    with pytest.raises(FatalError, match="another source named s is running"):
        store.put_queue(SnapshotQueue())


def test_an_index_is_not_put_in_place_where_the_source_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that runs while its index is built again has published to the old one: what it published since is not in
    the new one, and would not come.
    """
    rows, done = _Rows(), list[str]()
    rows.by_table = {"db.t": "there"}
    store = TableOffsetStore(cast("Any", rows), "s", load_source([], _SOURCE, {}).errors)
    snapshot = SimpleNamespace(snapshot_id=7, ts_ns=1)
    access: Any = SimpleNamespace(
        name="db.t",
        offsets=store,
        table=SimpleNamespace(uuid="u"),
        spark=None,
        describe=lambda *_: SimpleNamespace(snapshot=snapshot, schema=SimpleNamespace(document={})),
        snapshot_info=lambda *_: snapshot,
        summary=lambda _: {},
        publisher=SimpleNamespace(target_id=lambda _: ""),
    )
    capture = TableCapture.__new__(TableCapture)
    capture.access, capture._parts = access, cast("Any", Mock(plan=lambda *_: []))
    monkeypatch.setattr(TableCapture, "_look", lambda _: SimpleNamespace(snapshot_id=7))
    monkeypatch.setattr(table_capture, "TableReader", Mock())
    monkeypatch.setattr(TableOffset, "parse", lambda _: TableOffset(SnapshotOffset("u", 5)))
    rows.stale = True
    rows.by_table = {"db.t": "later"}
    with pytest.raises(FatalError, match="another source named s is running"):
        capture.reload(Mock(), lambda: done.append("in place"))
    assert done == []
    rows.by_table = {"db.t": "there"}
    capture.reload(Mock(), lambda: done.append("in place"))
    assert done == ["in place"]


def test_a_table_of_signals_that_is_not_there_is_told_once() -> None:
    """Its name may be wrong; one that is made later is read from its beginning."""
    channel = TableChannel(Mock(), Mock(find=Mock(return_value=None)), "ops.eu.signals")
    with structlog.testing.capture_logs() as lines:
        position = channel.read(None).position
        assert channel.read(position).position == position == {"uuid": None, "snapshot-id": None}
    assert [(line["event"], line["table"]) for line in lines] == [
        ("the table of signals is not there yet", "ops.eu.signals")
    ]


def test_an_empty_table_has_an_index_to_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a snapshot without rows nothing is published, and its index is made all the same."""
    done, publisher = list[str](), Mock()
    publisher.schema_changed.side_effect = lambda *_, **__: done.append("made")
    capture = TableCapture.__new__(TableCapture)
    offsets = SimpleNamespace(of=lambda _: None, check_unmoved=lambda _: None)
    access = SimpleNamespace(
        name="db.t",
        offsets=offsets,
        table=SimpleNamespace(uuid="u"),
        spark=None,
        describe=lambda *_: SimpleNamespace(schema=None),
        snapshot_info=Mock(),
        summary=lambda _: {},
        publisher=SimpleNamespace(target_id=lambda _: ""),
    )
    capture.access, capture._parts = cast("Any", access), cast("Any", Mock(plan=lambda *_: []))
    monkeypatch.setattr(TableCapture, "_look", lambda _: SimpleNamespace(snapshot_id=7))
    monkeypatch.setattr(TableCapture, "_store_published", lambda *_: None)
    monkeypatch.setattr(table_capture, "TableReader", Mock())
    capture.reload(publisher, lambda: done.append("in place"))
    assert done == ["made", "in place"]
