"""Dead letters put through again: after their topic got more partitions, and others that are taken for others."""

from __future__ import annotations

import time
from typing import Any

import attrs
import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from connector.cli.dlq import _read_dead_letters
from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.reader import DeadLetterRecord, mark_replayed, read_dead_letters
from connector.kafka.dlq.writer import DeadLetterWriter
from connector.sink.model.plan import DeadLetterRef
from connector.sink.replay import ReplayReport
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

NEWER, UNTOUCHED, DELETED, OLDER = 1, 2, 3, 4


def _event(topic: str, partition: int, key: int, n: Any, ts_ns: int, op: str = "u") -> Record:
    row = {"id": key, "n": n, "__op": op, "__deleted": str(op == "d").lower(), "__source_ts_ns": ts_ns}
    return Record(topic, partition, 0, orjson.dumps({"id": key}), orjson.dumps(row))


@pytest.mark.thorough
@pytest.mark.parametrize("keep", tiered([False, True], [False]))
def test_a_letter_changes_no_key_that_changed_in_another_partition_since(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, keep: bool
) -> None:
    """What the key's row, or its remembered delete, is proven to be newer than stays out; the other letters go in."""
    topic = f"moved_letters_{keep}".lower()
    start = 1_700_000_000_000_000_000
    extra = {"topics": topic, "debezium.sink.iceberg.upsert-keep-deletes": str(keep).lower()}
    sink = InProcessSink(spark, plain_workspace(topic, extra))
    topics.create({topic: 1})
    keys = (NEWER, UNTOUCHED, DELETED, OLDER)
    topics.replay([_event(topic, 0, key, key, start + 1, "c") for key in keys], create=False)
    sink.run()
    topics.replay([_event(topic, 0, key, "no number", start + 20) for key in keys], create=False)
    sink.run()
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result(30)
    since = [
        _event(topic, 1, NEWER, 500, start + 30),
        _event(topic, 1, DELETED, 500, start + 30, "d"),
        _event(topic, 1, OLDER, 500, start + 10),
    ]
    topics.replay(since, create=False)
    sink.run()
    known = _read_dead_letters(sink.settings())
    assert [letter.offset for letter in known] == [4, 5, 6, 7]
    repaired = [attrs.evolve(one, value=(one.value or b"").replace(b'"no number"', b"7")) for one in known]
    planned, report = (sink.replay(repaired, known, execute=execute) for execute in (False, True))
    assert planned == report
    ids = {letter.offset - 3: letter.id for letter in known}
    assert report.overtaken == tuple(sorted((ids[NEWER], ids[DELETED])))
    assert (set(report.done), report.dead) == ({ids[UNTOUCHED], ids[OLDER]}, {})
    rows = {row["id"]: (row["n"], row["__deleted"]) for row in sink.lake.many(topic)}
    gone = {DELETED: (500, "true")} if keep else {}
    assert rows == {NEWER: (500, "false"), UNTOUCHED: (7, "false"), OLDER: (7, "false"), **gone}


def _put_through(sink: InProcessSink, letters: list[DeadLetterRecord]) -> ReplayReport:
    """Replay letters as if their number were 7, and lose the marks."""
    repaired = [attrs.evolve(one, value=(one.value or b"").replace(b'"no number"', b"7")) for one in letters]
    return sink.replay(repaired, _read_dead_letters(sink.settings()), execute=True)


def test_letters_are_told_from_others_of_their_place_and_number(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A letter that was put through, whose mark was lost, adds no second row beside one that was not; letters of a dead
    letter topic that was made again are others; those of other connectors, and of a topic that was made again, stay."""
    topic, log = "told_apart", "told_apart_letters"
    extra = {"topics": topic, "debezium.sink.iceberg.upsert": "false", "errors.deadletterqueue.topic.name": log}
    sink = InProcessSink(spark, plain_workspace("told_apart", extra))
    topics.create({topic: 1})
    topics.replay([_event(topic, 0, 0, 0, 1)], create=False)
    sink.run()

    def letters_of(*keys: int) -> list[DeadLetterRecord]:
        topics.replay([_event(topic, 0, key, "no number", key) for key in keys], create=False)
        sink.run()
        return _read_dead_letters(sink.settings())

    first = letters_of(1, 2)
    assert len({letter.topic_id for letter in first} - {""}) == 1
    assert _put_through(sink, first[:1]).done == (first[0].id,)
    assert set(_put_through(sink, first).done) == {letter.id for letter in first}
    assert sorted(row["id"] for row in sink.lake.many(topic)) == [0, 1, 2]
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.delete_topics([log])[log].result(30)
    while log in KafkaAdmin(sink.settings().kafka).names():
        time.sleep(0.1)
    second = letters_of(3, 4)
    assert [letter.id for letter in second] == [letter.id for letter in first]
    gone = [attrs.evolve(one, topic_id="another") for one in second[1:]]
    report = _put_through(sink, [second[0], *gone])
    assert report.done == (second[0].id,) and "made again" in report.dead[second[1].id]
    assert sorted(row["id"] for row in sink.lake.many(topic)) == [0, 1, 2, 3]
    settings = sink.settings()
    assert read_dead_letters(KafkaAdmin(settings.kafka), settings.kafka, log, "another") == []


def test_a_mark_has_no_value_that_the_topic_does_not_take(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A repaired value that is too large for the topic does not keep a letter from being marked."""
    sink = InProcessSink(spark, plain_workspace("large_marks", {"topics": "large_marks"}))
    settings = sink.settings()
    topics.create({settings.errors.topic: 1})
    reference = DeadLetterRef("large_marks", 0, 4, "s", "r")
    writer = DeadLetterWriter(settings.name, settings.kafka, settings.errors, KafkaAdmin(settings.kafka))
    topics.replay([Record("large_marks", 0, n, b"k", b"v") for n in range(5)])
    writer.write([reference], {"large_marks": "its-id"})
    (letter,) = _read_dead_letters(settings)
    mark_replayed(settings.kafka, settings.errors.topic, [attrs.evolve(letter, value=b"x" * 3_000_000)])
    (marked,) = _read_dead_letters(settings)
    assert (marked.replayed, marked.omitted, marked.value, marked.key) == (True, True, None, b"k")
    assert (marked.topic_id, marked.offset) == ("its-id", 4)
