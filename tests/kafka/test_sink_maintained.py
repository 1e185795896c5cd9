"""A sink beside maintenance of others, and after it -> deleted rows stay deleted, also over a restart."""

from __future__ import annotations

import json
import threading

import pytest
import structlog
from pyspark.sql import SparkSession

from connector.maintenance.lease import MaintenanceRun
from connector.maintenance.tasks import REWRITE
from connector.sink.destinations.iceberg.destination import IcebergDestination
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.histories.maintained import rewrite_held
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink, run_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

WAITS = "the next batch waits until its tables are maintained"


def _event(topic: str, key: int, n: int, op: str = "c") -> Record:
    gone = "true" if op == "d" else "false"
    value = {"id": key, "n": n, "__op": op, "__deleted": gone, "__source_ts_ns": 1000 + n}
    return Record(topic, 0, 0, json.dumps({"id": key}).encode(), json.dumps(value).encode())


def test_a_sink_waits_until_its_table_is_maintained(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Above its limit of snapshots no batch begins, and the log says why; once others expired some it goes on; a sink
    that waits can be stopped.
    """
    limits = {"iceberg.backpressure.max-snapshots": "2", "iceberg.backpressure.check-interval-ms": "50"}
    settings = {"topics": "backlogged", **limits, "debezium.sink.batch.interval-ms": "0"}
    topics.replay([_event("backlogged", 0, 1)])
    inside = InProcessSink(spark, plain_workspace("backlogged", settings))
    for key in (1, 2):
        inside.run()
        topics.replay([_event("backlogged", key, 1)], create=False)
    inside.run()
    topics.replay([_event("backlogged", 3, 1)], create=False)
    with structlog.testing.capture_logs() as lines:
        run_until(inside.sink(), lambda: any(line["event"] == WAITS for line in lines))
    (reason,) = (line["reason"] for line in lines if line["event"] == WAITS)
    assert reason == "default.backlogged has 3 snapshots (iceberg.backpressure.max-snapshots=2)"
    assert sorted(_rows(inside, "backlogged")) == [0, 1, 2]
    expired = list[bool]()

    def goes_on() -> bool:
        if not expired and any(line["event"] == WAITS for line in lines):
            inside.lake.java("backlogged").expireSnapshots().retainLast(1).expireOlderThan(2**62).commit()
            expired.append(True)
        return bool(expired) and 3 in _rows(inside, "backlogged")

    with structlog.testing.capture_logs() as lines:
        run_until(inside.sink(), goes_on)
    assert sorted(_rows(inside, "backlogged")) == [0, 1, 2, 3]


def test_with_nothing_configured_a_sink_maintains_the_tables_that_it_has_created(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """At the end of a run the equality deletes of its own table are converted; a table of others keeps its deletes."""
    settings = {
        "topics": "made,found",
        "iceberg.maintenance.enabled": "auto",
        "iceberg.maintenance.convert-equality-deletes.schedule.eq-delete-file-count": "1",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    }
    inside = InProcessSink(spark, plain_workspace("by_itself", settings))
    found = f"{inside.space.name}.`default`.found"
    assert inside.lake
    spark.sql(f"CREATE NAMESPACE {inside.space.name}.`default`")
    spark.sql(f"CREATE TABLE {found} (id BIGINT NOT NULL, n BIGINT) TBLPROPERTIES ('format-version'='2')")
    inside.lake.java("found").updateSchema().setIdentifierFields(["id"]).commit()
    for turn in range(2):
        topics.replay([_event(topic, key, turn) for topic in ("made", "found") for key in range(3)], create=not turn)
        sink = inside.sink()
        sink.stream.run(once=True)
        sink.destination.finish()
        sink.close()
    deletes = {table: _equality_deletes(inside, table) for table in ("made", "found")}
    assert deletes["made"] == 0 < deletes["found"]
    assert _rows(inside, "made") == _rows(inside, "found") == dict.fromkeys(range(3), 1)


def test_small_files_are_merged_though_batches_are_faster(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of batches that come right before each commit of the merged file the first wins, the next waits, none is lost."""
    settings = {"topics": "merging", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    inside = InProcessSink(spark, plain_workspace("merging", {**settings, "iceberg.maintenance.enabled": "true"}))
    batches, holds = list[threading.Thread](), MaintenanceRun.is_held
    topics.create({"merging": 1})
    sink = inside.sink()

    def batch(*events: Record) -> threading.Thread:
        topics.replay(events, create=False)
        beside = threading.Thread(target=sink.stream.run, kwargs={"once": True})
        beside.start()
        return beside

    def is_held(run: MaintenanceRun) -> bool:
        if len(batches) < 2:
            turn = len(batches)
            batches.append(batch(_event("merging", turn, 10 + turn, "u"), _event("merging", 5, 10 + turn, "d")))
            batches[-1].join(1 if turn else 60)
            assert batches[-1].is_alive() == bool(turn)
        return holds(run)

    for n in range(5):
        batch(*(_event("merging", key, n) for key in range(6))).join()
    monkeypatch.setattr(MaintenanceRun, "is_held", is_held)
    destination = sink.destination
    assert isinstance(destination, IcebergDestination)
    assert destination.maintenance is not None
    maintainer = destination.maintenance.maintainer
    table = maintainer.load("default.merging")
    assert table is not None
    table.turn = destination.tables.turn(table.name)
    (outcome,) = maintainer.run(table, (REWRITE,))
    for beside in batches:
        beside.join(60)
    sink.close()
    assert (outcome.failure, len(batches)) == (None, 2)
    assert outcome.counts["removed"] >= 5
    assert _rows(inside, "merging") == {0: 10, 1: 11, 2: 4, 3: 4, 4: 4}


def _equality_deletes(inside: InProcessSink, table: str) -> int:
    return int(inside.lake.java(table).currentSnapshot().summary()["total-equality-deletes"])


def _rows(inside: InProcessSink, table: str) -> dict[int, int]:
    rows = inside.lake.many(table)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


@pytest.mark.parametrize("down", tiered([False, True], [True], lambda down: "down" if down else "running"))
def test_a_rewrite_that_a_batch_overtook_brings_nothing_back(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, down: bool
) -> None:
    """`rewrite_data_files` begins, the sink commits deletes and then rows, the rewrite ends: what it brought back is
    deleted again before the sink's next commit, of the same process or of the next.
    """
    name = f"overtaken_{'down' if down else 'running'}"
    settings = {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    topics.replay([_event(name, key, 1) for key in range(6)])
    inside = InProcessSink(spark, plain_workspace(name, settings))
    sink = inside.sink()

    def batch(*events: Record) -> None:
        nonlocal sink
        topics.replay(events, create=False)
        sink.stream.run(once=True)

    def meanwhile() -> None:
        batch(_event(name, 1, 2, "d"), _event(name, 2, 2, "d"))
        batch(_event(name, 9, 3))

    batch()
    rewrite_held(spark, inside.lake.java(name), meanwhile)
    assert {1, 2} < _rows(inside, name).keys()
    if down:
        sink.close()
        sink = inside.sink()
        assert not {1, 2} & _rows(inside, name).keys()
    batch(_event(name, 3, 4, "u"))
    sink.close()
    assert _rows(inside, name) == {0: 1, 3: 4, 4: 1, 5: 1, 9: 3}
