"""events and crashes at which other sinks lose or double rows -> the right tables (peers: Debezium Server Iceberg, KC).

Holes that have tests of their own elsewhere: creates that come again (test_sink_replays), two sinks and conflicts
(test_sink_rivals), expired offsets, recreated topics, clusters and tables (test_sink_offsets), rows that move partition
(test_sink_partitioned), processes that are killed (test_sink_kill).
"""

from __future__ import annotations

import json
from datetime import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.commit import commit
from connector.sink.model.micro_batch import MicroBatch
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

HARD = {"debezium.sink.iceberg.upsert-keep-deletes": "false"}
FIELDS: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "int64", "optional": True, "field": "n"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "field": "at"},
    {"type": "array", "optional": True, "items": {"type": "int32", "optional": True}, "field": "many"},
    {"type": "string", "optional": True, "field": "__op"},
    {"type": "string", "optional": True, "field": "__deleted"},
    {"type": "int64", "optional": True, "field": "__source_ts_ns"},
]


def _event(topic: str, op: str, key: int | None, n: int, ts_ns: int) -> Record:
    row = {"id": key or 0, "n": n, "at": n, "many": [n, None], "__op": op, "__source_ts_ns": ts_ns}
    row["__deleted"] = "true" if op == "d" else "false"
    value = {"schema": {"type": "struct", "fields": FIELDS}, "payload": row}
    block = {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": {"id": key}}
    return Record(topic, 0, 0, None if key is None else json.dumps(block).encode(), json.dumps(value).encode())


def _rows(inside: InProcessSink, table: str) -> dict[int, Any]:
    rows = inside.lake.rows(table)
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["n"] for r in rows}


def test_changes_of_one_key_in_one_batch(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """Deleted and inserted again in one batch or at one time, read and then created: one row, the last one.

    Holes: a2 2 (the old row stays beside the new), a2 3 (at equal times the delete wins), a2 6 (a null key fails the
    batch), a2 7 (times become numbers), Kafka Connect's snapshot row and insert that become two rows (c 4).
    """
    inside = InProcessSink(spark, plain_workspace("holes", {"topics": "holes", **HARD}))
    topics.replay([_event("holes", "r", key, 1, 10) for key in (1, 2, 3)])
    inside.run()
    later = [
        *(_event("holes", op, 1, n, 20) for op, n in (("d", 0), ("c", 2))),
        *(_event("holes", op, 2, n, n) for op, n in (("d", 30), ("c", 31))),
        _event("holes", "c", 3, 3, 10),
        _event("holes", "c", None, 4, 40),
    ]
    topics.replay(later, create=False)
    (report,) = inside.run()
    assert (report.dead_letters, _rows(inside, "holes")) == (1, {1: 2, 2: 31, 3: 3})
    (one,) = [r for r in inside.lake.rows("holes") if r["id"] == 1]
    assert (one["at"], one["many"]) == (time(microsecond=2), [2, None])


def test_a_crash_between_two_tables(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When only one of two tables was committed, what comes again goes to the other alone; every commit has its place.

    Holes: a2 4 (tables and offsets part in a crash), a2 5 (a failed commit sends all again), Kafka Connect's files of
    one table that are committed twice (c 4).
    """
    inside = InProcessSink(spark, plain_workspace("two", {"topics": "two_a,two_b", **HARD}))
    topics.replay([_event(topic, "c", None, n, n) for topic in ("two_a", "two_b") for n in range(3)])
    real = commit._build_update

    def not_b(table: Any, *rest: Any) -> Any:
        if table.name.endswith("two_b"):
            raise FatalError("the process ends here")
        return real(table, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(commit, "_build_update", not_b)
        with pytest.raises(FatalError):
            inside.run()
    assert (len(inside.lake.rows("two_a")), len(inside.lake.rows("two_b"))) == (3, 0)
    inside.run()
    for table in ("two_a", "two_b"):
        assert sorted(r["n"] for r in inside.lake.rows(table)) == [0, 1, 2]
        (summary,) = inside.lake.summaries(table)
        assert json.loads(summary["icebridge.kafka.offsets"]) == {table: {"0": 3}}


def test_a_table_does_not_grow_with_its_commits(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that the sink makes keep few metadata files and no old snapshots, commits no connections; what the
    settings say of it wins.
    """
    # Else up to which snapshot sources have read is looked up once a minute, and all commits of here are younger.
    monkeypatch.setattr("connector.sink.destinations.iceberg.tables.needed_snapshots.INTERVAL_S", 0.0)
    kept = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "4"}
    told = {f"iceberg.tables.auto-create-props.{key}": value for key, value in kept.items()}
    space = plain_workspace("grown", {"topics": "grown", **told})
    inside, topic = InProcessSink(spark, space), "grown"
    topics.replay(_event(topic, "c", None, n, n) for n in range(16))
    sink = inside.sink()
    connections = spark.sparkContext._gateway._gateway_client.deque
    for n in range(16):
        sink.batches.process(MicroBatch(n, {(topic, 0): n}, {(topic, 0): n + 1}))
        if n == 3:
            few = len(connections)
    sink.close()
    assert len(connections) <= few + 2
    assert sorted(r["n"] for r in inside.lake.rows(topic)) == list(range(16))
    assert len(inside.lake.summaries(topic)) <= 5
    files = list((space.warehouse / "default" / topic / "metadata").glob("*.metadata.json"))
    assert len(files) <= 11
    properties = dict(inside.lake.java(topic).properties())
    assert {key: properties[key] for key in kept} == kept


def test_from_latest_means_from_the_first_start(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """What comes between a first start at the latest offsets and its crash is read after it.

    Hole: Kafka Connect's coordinator begins at latest again, and passes over what was not committed (c 3).
    """
    extra = {"topics": "latest", "consumer.override.auto.offset.reset": "latest"}
    inside = InProcessSink(spark, plain_workspace("latest", extra))
    topics.replay([_event("latest", "c", 1, 1, 1)])
    inside.sink().close()
    topics.replay([_event("latest", "c", 2, 2, 2)], create=False)
    inside.run()
    assert _rows(inside, "latest") == {2: 2}
