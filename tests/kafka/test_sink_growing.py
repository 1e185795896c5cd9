"""Topics and partitions that appear while the sink runs: they are read from their first record on."""

from __future__ import annotations

import time

import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from connector.errors import GapError
from connector.runtime.monitoring.listeners import BatchReport
from tests.clients.topics import TIMEOUT_S, Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink, run_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

FIRST, LATER = "grow.public.first", "grow.public.later"


def events(topic: str, partition: int, *ids: int) -> list[Record]:
    """Flattened events."""
    return [
        Record(topic, partition, offset, orjson.dumps({"id": i}), orjson.dumps({"id": i, "v": f"v{i}"}))
        for offset, i in enumerate(ids)
    ]


def dated(topic: str, partition: int, offset: int, op: str, lsn: int) -> Record:
    """A flattened event of the row 1 at a place in PostgreSQL's log, which is its value."""
    told = {"__op": op, "__source_lsn": lsn, "__source_ts_ns": lsn * 1_000_007, "__deleted": str(op == "d").lower()}
    return Record(topic, partition, offset, orjson.dumps({"id": 1}), orjson.dumps({"id": 1, "v": lsn, **told}))


DATED = {"debezium.transforms.unwrap.add.fields": "op,source.ts_ns,source.lsn"}
PLAIN = {"debezium.sink.iceberg.upsert-keep-deletes": "false", "debezium.sink.batch.interval-ms": "200"}


def test_what_appears_while_the_sink_runs_is_read_from_its_start(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A partition that is added and a topic that is made lose none of their records, in this run and after it."""
    topics.create({FIRST: 1})
    topics.replay(events(FIRST, 0, 1, 2), create=False)
    inside = InProcessSink(spark, plain_workspace("grow", {"topics.regex": r"grow\..*", **PLAIN}))
    reports: list[BatchReport] = []

    def grow(report: BatchReport) -> None:
        reports.append(report)
        if len(reports) == 1:
            admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
            for future in admin.create_partitions([NewPartitions(FIRST, 2)]).values():
                future.result(30)
            topics.create({LATER: 1})
            topics.replay([*events(FIRST, 1, 3, 4, 5), *events(LATER, 0, 6, 7)], create=False)

    run_until(inside.sink(told=grow), lambda: sum(report.metrics.events for report in reports) >= 7)
    found = {name: sorted(r["id"] for r in inside.lake.many(f"grow_public_{name}")) for name in ("first", "later")}
    assert found == {"first": [1, 2, 3, 4, 5], "later": [6, 7]}
    topics.replay(events(LATER, 0, 8, 9), create=False)
    inside.run()
    assert sorted(r["id"] for r in inside.lake.many("grow_public_later")) == [6, 7, 8, 9]


def test_topics_are_read_by_their_whole_names(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A topic whose name holds a listed one, or fits an expression in part, is no table: at the start and later."""
    for number, given in enumerate(({"topics": "n0.a,n0.c"}, {"topics.regex": r"n1\.a|n1.c"})):
        near = [f"n{number}.a", f"my.n{number}.a", f"n{number}.ab", f"n{number}-a"]
        for topic in near:
            topics.replay(events(topic, 0, 1))
        inside = InProcessSink(spark, plain_workspace(f"whole{number}", {**given, **PLAIN}))
        reports: list[BatchReport] = []
        sink = inside.sink(told=reports.append)
        for topic in (f"n{number}.c", f"n{number}.cc", f"xn{number}.c"):
            topics.replay(events(topic, 0, 1, 2))
        run_until(sink, lambda: sum(report.metrics.events for report in reports) >= 3)  # noqa: B023 - run at once
        assert inside.sink().close() is None
        assert {at[0] for report in reports for at in report.end} == {f"n{number}.a", f"n{number}.c"}
        assert inside.lake.names() == {f"n{number}_a", f"n{number}_c"}


def test_what_appears_while_the_sink_starts_is_picked_up(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Topics and partitions that a source makes between the sink's first look and its stream are just read."""
    topics.replay(events("start.first", 0, 1))
    inside = InProcessSink(spark, plain_workspace("starts", {"topics.regex": r"start\..*", **PLAIN}))
    reports: list[BatchReport] = []
    sink = inside.sink(told=reports.append)
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions("start.first", 2)]).values():
        future.result(30)
    topics.create({"start.second": 1})
    topics.replay([*events("start.first", 1, 2), *events("start.second", 0, 3, 4)], create=False)
    run_until(sink, lambda: sum(report.metrics.events for report in reports) >= 4)
    found = {name: sorted(r["id"] for r in inside.lake.many(f"start_{name}")) for name in ("first", "second")}
    assert found == {"first": [1, 2], "second": [3, 4]}


def test_a_topic_that_was_made_again_between_two_looks_stops_the_sink(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """However long the new topic is, it is not taken for the old one: nothing lands, and nothing is skipped."""
    topics.replay(events("remade", 0, 1, 2))
    inside = InProcessSink(spark, plain_workspace("remade", {"topics": "remade", **PLAIN}))
    inside.run()
    sink = inside.sink()
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.delete_topics(["remade"], request_timeout=TIMEOUT_S)["remade"].result(TIMEOUT_S)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            topics.create({"remade": 1})
            break
        except Exception:  # noqa: BLE001 - the broker deletes its files a moment after its name
            time.sleep(0.2)
    topics.replay(events("remade", 0, 11, 12, 13, 14, 15), create=False)
    with pytest.raises(GapError, match="remade was deleted"):
        sink.stream.run(once=True)
    sink.close()
    assert sorted(r["id"] for r in inside.lake.many("remade")) == [1, 2]


def test_a_topic_that_is_deleted_stops_the_sink_by_name(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """What it held unread is gone: the sink says which topic it was, and goes on without it when started again."""
    topics.replay([*events("fewer.a", 0, 1), *events("fewer.b", 0, 2)])
    inside = InProcessSink(spark, plain_workspace("fewer", {"topics.regex": r"fewer\..*", **PLAIN}))
    reports: list[BatchReport] = []
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})

    def told(report: BatchReport) -> None:
        reports.append(report)
        if len(reports) == 1:
            admin.delete_topics(["fewer.b"], request_timeout=TIMEOUT_S)["fewer.b"].result(TIMEOUT_S)

    with pytest.raises(GapError, match=r"fewer\.b was deleted"):
        run_until(inside.sink(told=told), lambda: False)
    topics.replay(events("fewer.a", 0, 3), create=False)
    inside.run()
    assert sorted(r["id"] for r in inside.lake.many("fewer_a")) == [1, 3]


def test_latest_skips_nothing_that_came_after_the_first_start(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Partitions and topics that are added while the sink is down are read from their beginning, also from latest."""
    topics.replay(events("newest.a", 0, 1))
    extra = {"topics.regex": r"newest\..*", "consumer.override.auto.offset.reset": "latest", **PLAIN}
    inside = InProcessSink(spark, plain_workspace("newest", extra))
    assert sum(report.metrics.events for report in inside.run()) == 0
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions("newest.a", 2)]).values():
        future.result(30)
    topics.create({"newest.b": 1})
    topics.replay([*events("newest.a", 1, 2, 3), *events("newest.b", 0, 4)], create=False)
    inside.run()
    found = {name: sorted(r["id"] for r in inside.lake.many(f"newest_{name}")) for name in "ab"}
    assert found == {"a": [2, 3], "b": [4]}


@pytest.mark.thorough
def test_keys_that_move_keep_their_newest_rows(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A topic grows while its old partition holds more than a batch, and a restarted connector sends all of it again in
    the new one: what comes first there is no measure of what the old one has, and no delete of it takes a newer row.
    """
    topic = "moved.rows"
    extra = {"topics": topic, "debezium.sink.batch.max-events": "2", **DATED}
    inside = InProcessSink(spark, plain_workspace("moved", {**PLAIN, **extra}))
    topics.replay([dated(topic, 0, 0, "c", 30)])
    inside.run()
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    first = [("d", 40), ("c", 50), ("d", 60), ("c", 70)]
    topics.replay([dated(topic, 0, 1 + at, op, lsn) for at, (op, lsn) in enumerate(first)], create=False)
    topics.replay([dated(topic, 1, 0, "c", 30)], create=False)
    # Records of one millisecond wait until they are as many as a batch may have: the first may have none, or three.
    assert next(found for report in inside.run() if (found := report.metrics.events)) < len(first), "not all at once"
    again = [("d", 40), ("c", 50), ("d", 60)]
    for at, (op, lsn) in enumerate(again):
        topics.replay([dated(topic, 1, 1 + at, op, lsn)], create=False)
        inside.run()
        assert [row["v"] for row in inside.lake.many("moved_rows")] == [70], f"behind the repeated {op} at {lsn}"
    topics.replay([dated(topic, 1, 4, "c", 70), dated(topic, 1, 5, "u", 80)], create=False)
    inside.run()
    assert [row["v"] for row in inside.lake.many("moved_rows")] == [80]
