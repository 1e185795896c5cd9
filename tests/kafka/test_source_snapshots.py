"""Signals -> snapshots on demand beside changes, into a topic: no stale row wins, and none is missing.

The test's turns are a listener's: after a step of the source it changes the table, so that every interleaving is the
same in each run. A crash is an error after a chunk is published and before its progress is stored.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import define, field
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.runtime.monitoring.listeners import SnapshotReport, StepReport
from connector.source.destinations.kafka import KafkaPublisher
from connector.source.factory import build_source
from connector.source.signals.queue_channel import SignalQueue
from tests.clients.topics import Topics
from tests.harness.rounds import seeded
from tests.model.recordings import Record
from tests.runs.processes import Sink
from tests.runs.sources import SourceWorkspace, in_order, make_source_workspace, payload, replica

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PROPERTIES = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
ROWS, FILES = 40, 6


@define
class Turns:
    """A listener that does something after each chunk, and keeps what it hears."""

    after_chunk: dict[int, Callable[[], object]] = field(factory=dict)
    steps: list[StepReport] = field(factory=list)
    reports: list[SnapshotReport] = field(factory=list)
    over: Callable[[], object] = field(default=lambda: None)

    def on_step(self, report: StepReport) -> None:
        self.steps.append(report)
        if report.kind == "chunk read":
            self.after_chunk.pop(self.chunks, lambda: None)()

    def on_snapshot(self, report: SnapshotReport) -> None:
        self.reports.append(report)
        if report.stage == "COMPLETED":
            self.over()

    @property
    def chunks(self) -> int:
        return sum(step.kind == "chunk read" for step in self.steps)

    def stages(self, aggregate: str = "Incremental Snapshot") -> list[str]:
        return [report.stage for report in self.reports if report.aggregate == aggregate]


def make_table(source: SourceWorkspace, table: str, version: int, files: int = FILES, rows: int = ROWS) -> None:
    """A table of several files in one snapshot, keyed by `id`."""
    source.sql(
        f"CREATE TABLE T.{table} (id BIGINT NOT NULL, v STRING, n INT) USING iceberg TBLPROPERTIES "
        f"('format-version'='{version}','write.delete.mode'='merge-on-read','write.update.mode'='copy-on-write')"
    )
    source.identify(table, "id")
    made = source.spark.range(0, files * rows, 1, files).selectExpr("id", "concat('v', id) AS v", "0 AS n")
    made.writeTo(f"{source.name}.db.{table}").option("distribution-mode", "none").append()


def run(
    source: SourceWorkspace, turns: Turns, extra: dict[str, str] | None = None, signals: SignalQueue | None = None
) -> None:
    """Run the source to its end."""
    build_source(source.spark, source.settings(extra), [turns], [turns], signals).run(once=True)


def run_until_over(source: SourceWorkspace, turns: Turns) -> None:
    """Run the source, which sees each change as it is made, until a snapshot is over; then to its end."""
    loop = build_source(source.spark, source.settings(), [turns], [turns])
    turns.over = loop.stop
    loop.run(once=False)
    run(source, turns)


def execute(*tables: str, signal: str = "1", **data: Any) -> dict[str, Any]:
    """A signal for snapshots of tables."""
    return {"id": signal, "type": "execute-snapshot", "data": {"data-collections": [*tables], **data}}


def tail(records: Sequence[Record], begun: Counter[int]) -> list[Record]:
    """The records behind those that were there at the beginning, by partition."""
    left = Counter(begun)
    kept = []
    for record in records:
        left[record.partition] -= 1
        if left[record.partition] < 0:
            kept.append(record)
    return kept


def expected(source: SourceWorkspace, table: str) -> dict[str, Any]:
    """What a consumer should hold."""
    return {json.dumps({"id": row["id"]}): row for row in source.rows(table)}


@pytest.mark.thorough
def test_changed_rewritten_and_crashed_meanwhile_the_replica_equals_the_source(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signalled by topic: rows are updated, deleted, compacted between chunks, one chunk crashes, and all are right."""
    extra = {**PROPERTIES, "signal.kafka.topic": "resnap.signals", "incremental.snapshot.chunk.size": str(ROWS)}
    source = make_source_workspace(spark, topics, tmp_path_factory.mktemp("resnap"), "resnap", extra)
    make_table(source, "t", 2)
    topics.create({"resnap.signals": 1})
    source.publish()
    begun = Counter(record.partition for record in source.records("t"))
    topics.replay(
        [
            Record("resnap.signals", 0, 0, b"someone-else", json.dumps(execute("db.t", signal="x")).encode()),
            Record("resnap.signals", 0, 1, b"resnap", b"not json"),
            Record("resnap.signals", 0, 2, b"resnap", json.dumps(execute(r"db\.t")).encode()),
        ],
        create=False,
    )
    publish, calls = KafkaPublisher.publish, []

    def crash(self: KafkaPublisher, changes: Any, table: Any) -> dict[str, int]:
        counts = publish(self, changes, table)
        calls.append(table.marker)
        if calls.count("incremental") == 3:
            raise ZeroDivisionError
        return counts

    monkeypatch.setattr(KafkaPublisher, "publish", crash)
    turns = Turns(
        {
            # Copy-on-write: two files are rewritten, whether they were read or not.
            1: lambda: source.sql("UPDATE T.t SET v = 'u1', n = n + 1 WHERE id BETWEEN 100 AND 140"),
            2: lambda: source.sql(
                "DELETE FROM T.t WHERE id BETWEEN 150 AND 170", "INSERT INTO T.t VALUES (999, 'x', 1)"
            ),
        }
    )
    with pytest.raises(FatalError, match="ZeroDivisionError"):
        run_until_over(source, turns)
    monkeypatch.setattr(KafkaPublisher, "publish", publish)
    again = Turns(
        {
            1: lambda: source.sql(
                "CALL resnap.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
                "UPDATE T.t SET v = 'u2' WHERE id % 7 = 0",
                "INSERT INTO T.t VALUES (160, 'back', 5)",
            )
        }
    )
    run_until_over(source, again)
    records = source.records("t")
    assert replica(records) == expected(source, "t")
    assert replica(tail(records, begun)) == expected(source, "t")
    assert in_order(records)
    markers = {payload(r.value)["source"]["snapshot"] for r in tail(records, begun) if r.value is not None}
    assert markers == {"false", "incremental"}
    assert turns.stages()[0] == "STARTED"
    assert again.stages()[-2:] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    # The signal is not followed again.
    before = len(source.records("t"))
    run(source, Turns())
    assert len(source.records("t")) == before


def test_paused_stopped_and_filtered(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Paused, nothing is read and changes go on; resumed, it goes on; stopped, it ends; a filter keeps rows out."""
    extra = {**PROPERTIES, "incremental.snapshot.chunk.size": str(ROWS), "signal.poll.interval.ms": "1"}
    source = make_source_workspace(
        spark, topics, tmp_path_factory.mktemp("held"), "held", {**extra, "snapshot.mode": "no_data"}
    )
    make_table(source, "t", 3, files=4)
    source.publish()
    signals = SignalQueue()
    signals.put(execute("db.t", **{"additional-conditions": [{"data-collection": "db.t", "filter": "id >= 10"}]}))
    paused = Turns({1: lambda: signals.put({"type": "pause-snapshot", "data": {"type": "incremental"}})})
    run(source, paused, signals=signals)
    assert paused.stages()[-1] == "PAUSED"
    assert paused.chunks == 1
    source.sql("UPDATE T.t SET n = 7 WHERE id = 155")
    changed = Turns()
    run(source, changed)
    assert [step.kind for step in changed.steps] == ["snapshot published"]
    signals.put({"id": "9", "type": "resume-snapshot"})
    resumed = Turns()
    run(source, resumed, signals=signals)
    assert resumed.stages()[0] == "RESUMED"
    assert resumed.stages()[-1] == "COMPLETED"
    held = replica(source.records("t"))
    assert held == {key: row for key, row in expected(source, "t").items() if row["id"] >= 10}
    signals.put(execute("db.t", signal="2"))
    stopped = Turns({1: lambda: signals.put({"type": "stop-snapshot", "data": {"data-collections": ["db.t"]}})})
    run(source, stopped, signals=signals)
    assert (stopped.chunks, stopped.stages()[-1]) == (1, "ABORTED")
    # A filter that does not fit, and a table without key, are given up; the source goes on.
    source.sql("CREATE TABLE T.k (v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    source.sql("INSERT INTO T.k VALUES ('a')")
    run(source, Turns())
    wrong = [{"data-collection": ".*", "filter": "nowhere = 1"}]
    signals.put(execute("db.t", signal="3", **{"additional-conditions": wrong}))
    signals.put(execute("db.k", signal="4"))
    given_up = Turns()
    run(source, given_up, signals=signals)
    assert Counter(given_up.stages()) == {"STARTED": 2, "ABORTED": 2, "TABLE_SCAN_COMPLETED": 1}


def test_a_blocking_snapshot_asked_for_by_a_row(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A row of the signal table asks for a full read of a table without key; changes wait until it is over."""
    name = "blocking"
    extra = {
        **PROPERTIES,
        "table.include.list": "db.t",
        "signal.data.collection": "db.signals",
        "incremental.snapshot.chunk.size": str(ROWS),
        "signal.poll.interval.ms": "1",
    }
    source = make_source_workspace(spark, topics, tmp_path_factory.mktemp(name), name, extra)
    source.sql("CREATE TABLE T.t (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    source.sql("CREATE TABLE T.signals (id STRING, type STRING, data STRING) USING iceberg")
    source.sql("INSERT INTO T.signals VALUES ('old', 'execute-snapshot', '{\"data-collections\": [\"db.t\"]}')")
    made = source.spark.range(0, 3 * ROWS, 1, 3).selectExpr("id", "concat('v', id) AS v")
    made.writeTo(f"{name}.db.t").option("distribution-mode", "none").append()
    source.publish()
    data = json.dumps({"data-collections": ["db.t"], "type": "blocking"})
    source.sql("INSERT INTO T.signals VALUES ('bad', NULL, '{')")
    source.sql(f"INSERT INTO T.signals VALUES ('7', 'execute-snapshot', '{data}')")
    source.sql("INSERT INTO T.t VALUES (1000, 'later')")
    turns = Turns({1: lambda: source.sql("INSERT INTO T.t VALUES (1001, 'meanwhile')")})
    run_until_over(source, turns)
    whats = [step.kind for step in turns.steps if step.table == "db.t"]
    first, last = whats.index("chunk read"), len(whats) - 1 - whats[::-1].index("chunk read")
    assert set(whats[first : last + 1]) == {"chunk read"}
    assert whats[-1] == "snapshot published"
    stages = turns.stages("Initial Snapshot")
    assert (stages[0], stages[-2:]) == ("STARTED", ["TABLE_SCAN_COMPLETED", "COMPLETED"])
    ids = Counter(payload(record.value)["after"]["id"] for record in source.records("t"))
    assert {count for row, count in ids.items() if row < 3 * ROWS} == {2}
    assert ids[1001] == 1


def test_an_initial_read_that_fails_is_told(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notification is ABORTED, once; the next run goes on where it was, and completes it."""
    source = make_source_workspace(
        spark, topics, tmp_path_factory.mktemp("aborted"), "aborted", {**PROPERTIES, "max.batch.size": "40"}
    )
    make_table(source, "t", 2, files=3)
    publish, parts = KafkaPublisher.publish, []

    def refuse(self: KafkaPublisher, changes: Any, table: Any) -> dict[str, int]:
        parts.append(table.marker)
        if len(parts) == 2:
            raise FatalError("the cluster refuses a record")
        return publish(self, changes, table)

    monkeypatch.setattr(KafkaPublisher, "publish", refuse)
    failed, again = Turns(), Turns()
    with pytest.raises(FatalError, match="refuses a record"):
        run(source, failed)
    assert failed.stages("Initial Snapshot") == ["STARTED", "IN_PROGRESS", "ABORTED"]
    run(source, again)
    assert again.stages("Initial Snapshot")[-2:] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert sum((Counter(step.operations) for step in (*failed.steps, *again.steps)), Counter()) == {"r": 3 * ROWS}


_PAUSE_S = 1.0
"""Between two changes: the source has to keep up with them."""


@pytest.mark.thorough
@pytest.mark.timeout(840)
def test_a_million_rows_while_updates_go_on(
    spark: SparkSession, topics: Topics, quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Paused, killed while paused and while going on, stopped: the replica of who begins at the signal is the table."""
    rng, home = random.Random(seeded()), tmp_path_factory.mktemp("million")
    signals = home / "signals.txt"
    extra = {
        **PROPERTIES,
        **quick,
        "signal.enabled.channels": "file",
        "signal.file": str(signals),
        "signal.poll.interval.ms": "200",
        "incremental.snapshot.chunk.size": "50000",
    }
    source = make_source_workspace(spark, topics, home, "million", extra)
    make_table(source, "t", 2, files=20, rows=50_000)
    source.publish()
    begun = Counter(record.partition for record in source.records("t"))
    stopping, changes = threading.Event(), Counter[str]()

    def change() -> None:
        while not stopping.wait(_PAUSE_S):
            share, base = rng.randint(200, 900), rng.randrange(1_000_000)
            fresh, last = 2_000_000 + base * 1000, base + 99_999
            # Of three files: each change rewrites those that it touches.
            statement = rng.choice(
                [
                    f"UPDATE T.t SET n = n + 1, v = 'u{base}' WHERE id % {share} = 1 AND id BETWEEN {base} AND {last}",
                    f"DELETE FROM T.t WHERE id BETWEEN {base} AND {base + 500}",
                    f"INSERT INTO T.t SELECT id, 'new', 1 FROM range({fresh}, {fresh} + 100)",
                ]
            )
            source.sql(statement)
            changes[statement.split()[0]] += 1

    changing = threading.Thread(target=change)
    changing.start()
    chunks, peaks = list[int](), list[int]()
    try:
        signals.write_text(json.dumps(execute("db.t")) + "\n")
        for end in ("killed while paused", "killed", "stopped"):
            process = Sink(source.file(), ())
            assert process.wait_until(lambda process=process: _chunks(process) >= 2, 240), process.text()[-4000:]
            if end == "killed while paused":
                signals.write_text('{"type": "pause-snapshot"}\n')
                assert process.wait_until(lambda: not any(home.glob(f"{signals.name}*")), 60), "it was not taken"
            chunks.append(_chunks(process))
            peaks.append(_peak_bytes(process))
            if end == "stopped":
                assert process.terminate().code == 0
            else:
                process.kill()
            if end == "killed while paused":
                signals.write_text('{"type": "resume-snapshot"}\n')
    finally:
        stopping.set()
        changing.join()
    source.publish()
    sys.stdout.write(f"{dict(changes)} changes, chunks {chunks}, peaks {[peak >> 20 for peak in peaks]} MiB\n")
    assert sum(chunks) < 20, "nothing was left of the snapshot for the last run"
    records, wanted = source.records("t"), expected(source, "t")
    assert replica(tail(records, begun)) == wanted
    assert replica(records) == wanted
    assert in_order(records)
    assert max(peaks) < 3 * 1024**3


def _chunks(process: Sink) -> int:
    return sum(1 for line in process.lines() if line.get("event") == "chunk read")


def _peak_bytes(process: Sink) -> int:
    """Return what the process, its JVM and Python workers have had of memory at most, each for itself."""
    tree = [psutil.Process(process.process.pid), *psutil.Process(process.process.pid).children(recursive=True)]
    text = "".join(Path(f"/proc/{one.pid}/status").read_text() for one in tree if one.is_running())
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmHWM"))
