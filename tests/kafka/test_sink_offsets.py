"""what can happen to offsets, topics and tables between two runs -> the sink goes on, or stops and says what to do.

Every way out that a message names is taken here, by `icebridge offsets` itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from connector.cli.offsets import sink as sink_offsets
from connector.errors import ConnectorError, GapError
from connector.iceberg.state.offset_rows import OffsetRows
from tests.clients.topics import TIMEOUT_S, Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

Story = Callable[[str], InProcessSink]


def _records(topic: str, keys: Iterable[int], n: int, ts_ns: int) -> list[Record]:
    """Flattened events of keys, each with the value `n`."""
    made = []
    for place, key in enumerate(keys):
        value = {"id": key, "n": n, "__op": "c", "__deleted": "false", "__source_ts_ns": ts_ns + place}
        made.append(Record(topic, key % 2, 0, json.dumps({"id": key}).encode(), json.dumps(value).encode()))
    return made


@pytest.fixture
def story(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> Story:
    """A sink that has taken in keys 0 to 5 in one batch, and then 0, 1, 6 and 7 in another."""

    def told(name: str) -> InProcessSink:
        sink = InProcessSink(
            spark, plain_workspace(name, {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": "false"})
        )
        topics.replay(_records(name, range(6), 1, 1000))
        sink.run()
        topics.replay(_records(name, (0, 1, 6, 7), 2, 2000), create=False)
        sink.run()
        return sink

    return told


def _found(sink: InProcessSink, table: str) -> dict[int, int]:
    rows = sink.lake.many(table)
    found = {r["id"]: r["n"] for r in rows}
    assert len(found) == len(rows)
    return found


ALL = {0: 2, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2}


def _reset(sink: InProcessSink, to: Any) -> None:
    """Run `offsets reset --execute`, in the JVM that is there."""
    sink_offsets.reset(sink.settings(), to=to, topics=(), execute=True)


def _stops(sink: InProcessSink, *words: str) -> None:
    with pytest.raises(ConnectorError) as stopped:
        sink.run()
    assert isinstance(stopped.value, GapError), stopped.value
    for word in (*words, "icebridge offsets"):
        assert word in str(stopped.value)


def test_offsets_survive_the_expiry_of_their_snapshots(story: Story, topics: Topics) -> None:
    """With other writers' snapshots on top and our own expired, the offsets table takes over: nothing lost or doubled.

    Hole: Kafka Connect's sink loses its offsets silently when the snapshot that holds them expires (A2 table).
    """
    sink = story("expiry")
    table = sink.lake.java("expiry")
    for _ in range(2):  # another writer; the summary of none of these is ours
        table.newFastAppend().set("other", "x").commit()
    table.expireSnapshots().retainLast(1).expireOlderThan(2**53).commit()
    assert not [s for s in sink.lake.summaries("expiry") if s.get("icebridge.name")]
    topics.replay(_records("expiry", (2, 8), 3, 3000), create=False)
    # An old event too: watermarks are taken over with the offsets.
    topics.replay(_records("expiry", (0, 1), 9, 1), create=False)
    (report,) = sink.run()
    assert (report.metrics.events, report.metrics.late) == (4, 2)
    assert _found(sink, "expiry") == {**ALL, 2: 3, 8: 3}
    assert _group(sink, "expiry") == dict(report.end)


def _group(sink: InProcessSink, topic: str) -> dict[tuple[str, int], int]:
    """The offsets of the consumer group, as lag tools read them."""
    settings = sink.settings().kafka
    client = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": settings.group_id})
    try:
        found = client.committed([TopicPartition(topic, p) for p in range(2)], timeout=TIMEOUT_S)
    finally:
        client.close()
    return {(one.topic, one.partition): one.offset for one in found}


def test_a_lost_offsets_table_loses_nothing(story: Story, topics: Topics) -> None:
    """Without its offsets table the sink goes on where its tables stand."""
    sink = story("lostoffsets")
    sink.spark.sql(f"DROP TABLE {sink.space.name}.`default`.`_debezium_offset_storage`")
    topics.replay(_records("lostoffsets", (8,), 3, 3000), create=False)
    (report,) = sink.run()
    assert (report.metrics.events, _found(sink, "lostoffsets")) == (1, {**ALL, 8: 3})


LOSSES = [("back", "tables"), ("back", "stored"), ("before us", "tables"), ("again", "tables"), ("dropped", "stored")]


@pytest.mark.parametrize(("how", "to"), tiered(LOSSES, LOSSES[3:4]))
def test_a_table_that_lost_rows_stops_the_sink(how: str, to: str, story: Story, topics: Topics) -> None:
    """A table rolled back, dropped, or dropped and made again stops; `--to tables` reads again, `stored` goes on.

    Hole: Kafka Connect skips a recreated table with a warning, so its rows are lost silently (c 22).
    """
    name = f"lost_{how}_{to}".replace(" ", "_")
    sink = story(name)
    left = _lose(sink, name, how)
    topics.replay(_records(name, (8,), 3, 3000), create=False)
    _stops(sink, name, {"dropped": "dropped", "again": "made again"}.get(how, "rolled back"))
    _reset(sink, to)
    sink.run()
    assert _found(sink, name) == ({**ALL, 8: 3} if to == "tables" else {**left, 8: 3})
    assert sum(report.metrics.events for report in sink.run()) == 0


def _lose(sink: InProcessSink, name: str, how: str) -> dict[int, int]:
    """Take rows from the table; gives what is left."""
    full = f"{sink.space.name}.`default`.`{name}`"
    table = sink.lake.java(name)
    schema = sink.spark.table(full).schema
    if how == "back":
        table.manageSnapshots().rollbackTo(table.currentSnapshot().parentId()).commit()
        return dict.fromkeys(range(6), 1)
    if how == "before us":
        # Another writer's snapshot that is no descendant of ours.
        sink.spark.createDataFrame([], schema).writeTo(full).using("iceberg").tableProperty(
            "format-version", "2"
        ).replace()
        _identify(sink, name)
        return {}
    sink.spark.sql(f"DROP TABLE {full}")
    if how == "again":
        sink.spark.createDataFrame([], schema).writeTo(full).using("iceberg").tableProperty(
            "format-version", "2"
        ).create()
        _identify(sink, name)
    return {}


def _identify(sink: InProcessSink, name: str) -> None:
    """Make `id` the table's key."""
    jvm: Any = sink.spark._jvm
    update = sink.lake.java(name).updateSchema().allowIncompatibleChanges().requireColumn("id")
    update.setIdentifierFields(jvm.java.util.Collections.singletonList("id")).commit()


def test_a_recreated_topic_stops_the_sink(story: Story, topics: Topics) -> None:
    """A topic that was deleted and made again stops the sink, and does not stall it; `reset` reads the new one.

    Hole: Kafka Connect's sink stalls silently after Kafka was recreated (c 5).
    """
    sink = story("anew")
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.delete_topics(["anew"], request_timeout=TIMEOUT_S)["anew"].result(TIMEOUT_S)
    _until_made(topics, "anew")
    topics.replay(_records("anew", (0, 9), 3, 3000), create=False)
    _stops(sink, "anew", "deleted and made again")
    _reset(sink, "earliest")
    sink.run()
    assert _found(sink, "anew") == {**ALL, 0: 3, 9: 3}


def _until_made(topics: Topics, name: str) -> None:
    """A broker deletes a topic's files a moment after its name."""
    for attempt in range(50):
        try:
            topics.create({name: 2})
        except Exception:
            if attempt == 49:
                raise
        else:
            return


def test_another_cluster_stops_the_sink(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of another cluster are never applied to this one; `reset` takes this one's topics from their start."""
    sink = story("moved")
    opened = OffsetRows.connector_row.fget
    assert opened is not None

    def of_another(rows: OffsetRows) -> str | None:
        text = opened(rows)
        return None if text is None else json.dumps({**json.loads(text), "cluster-id": "another"})

    with monkeypatch.context() as patched:
        patched.setattr(OffsetRows, "connector_row", property(of_another))
        _stops(sink, "cluster another")
    _reset(sink, "earliest")
    sink.run()
    assert _found(sink, "moved") == ALL


@pytest.mark.thorough
def test_a_source_whose_clock_went_back(story: Story, topics: Topics) -> None:
    """Events of a restored source are late, and counted, until `reset --to stored` forgets how far the old one was."""
    sink = story("clock")
    topics.replay(_records("clock", (0, 1, 2), 5, 10), create=False)
    (report,) = sink.run()
    assert (report.metrics.late, _found(sink, "clock")) == (3, ALL)
    _reset(sink, "stored")
    topics.replay(_records("clock", (0, 1, 2), 6, 20), create=False)
    (report,) = sink.run()
    assert (report.metrics.late, _found(sink, "clock")) == (0, {**ALL, 0: 6, 1: 6, 2: 6})


def test_events_without_a_date_are_applied_in_order(story: Story, topics: Topics) -> None:
    """A dedup column that is null says nothing of age: such events are applied as they come, and move no watermark."""
    sink = story("undated")
    records = []
    for record in _records("undated", (0, 1), 5, 0):
        value = {**json.loads(record.value or b""), "__source_ts_ns": None}
        records.append(Record("undated", record.partition, 0, record.key, json.dumps(value).encode()))
    topics.replay(records, create=False)
    topics.replay(_records("undated", (2,), 9, 5), create=False)
    (report,) = sink.run()
    assert (report.metrics.late, _found(sink, "undated")) == (1, {**ALL, 0: 5, 1: 5})


@pytest.mark.thorough
def test_a_position_behind_an_open_transaction_stays(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """What was read of a transaction that is open, before read_committed was asked for, is read once, and kept."""
    name = "openlater"
    space = plain_workspace(name, {"topics": name, "debezium.sink.iceberg.upsert": "false"})
    sink, dirty = InProcessSink(spark, space), {"consumer.override.isolation.level": "read_uncommitted"}
    topics.replay(_records(name, range(4), 1, 1000))
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for record in _records(name, (4, 6), 1, 2000):
        producer.produce(name, record.value, record.key, record.partition)
    producer.flush(TIMEOUT_S)
    sink.run(dirty)
    assert sorted(row["id"] for row in sink.lake.many(name)) == [0, 1, 2, 3, 4, 6]
    topics.replay(_records(name, (5,), 1, 3000), create=False)
    sink.run()
    assert sorted(row["id"] for row in sink.lake.many(name)) == [0, 1, 2, 3, 4, 5, 6]
    producer.commit_transaction(TIMEOUT_S)
    topics.replay(_records(name, (8,), 1, 4000), create=False)
    sink.run()
    assert sorted(row["id"] for row in sink.lake.many(name)) == [0, 1, 2, 3, 4, 5, 6, 8]
