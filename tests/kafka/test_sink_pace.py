"""When and where reading begins: the wait strategy of Debezium Server, and the group of a connector before us."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from connector.runtime.monitoring.listeners import BatchReport
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record
from tests.runs.host import Host
from tests.runs.in_process import InProcessSink, run_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "pace.t"


def _more(topics: Topics, first: int, count: int, *, create: bool = False) -> None:
    records = [Record(TOPIC, 0, i, b'{"id":%d}' % i, b'{"id":%d}' % i, (), 1) for i in range(first, first + count)]
    topics.replay(records, create=create)


def test_max_batch_size_wait(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """MaxBatchSizeWait: fewer events than max.batch.size wait, as many begin a batch at the next look."""
    _more(topics, 0, 10, create=True)
    space = plain_workspace(
        "pace",
        {
            "topics": TOPIC,
            "debezium.sink.batch.batch-size-wait": "MaxBatchSizeWait",
            "debezium.source.max.batch.size": "100",
            "debezium.sink.batch.batch-size-wait.max-wait-ms": "600000",
            "debezium.sink.batch.batch-size-wait.wait-interval-ms": "300",
        },
    )
    reports, since = list[BatchReport](), list[float]()

    def through() -> bool:
        if len(reports) == 1 and not since:
            _more(topics, 10, 60)
            since.append(time.monotonic())
        elif len(since) == 1 and time.monotonic() - since[0] > 5 * 0.3:
            assert len(reports) == 1
            _more(topics, 70, 60)
            since.append(time.monotonic())
        return len(reports) == 2

    run_until(InProcessSink(spark, space).sink(told=reports.append), through)
    assert [report.metrics.events for report in reports] == [10, 120]


def test_going_on_where_another_connector_stood(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, host: Host
) -> None:
    """`offsets reset --to group`: a table that is appended to gets only what the group of that name had not read.

    It is cut into batches of max-bytes, the first as well.
    """
    values = [b'{"id":%d,"v":"%s"}' % (i, b"x" * 700) for i in range(6)]
    topics.replay([Record("pace.before", 0, i, None, value, (), 1) for i, value in enumerate(values)])
    group = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": "connect-before"})
    group.commit(offsets=[TopicPartition("pace.before", 0, 4)], asynchronous=False)
    group.close()
    space = make_workspace("before", {"topics": "pace.before"})
    done = host.call("offsets", "reset", str(space.file({})), "--to", "group", "--execute")
    assert done.code == 0, done.log[-4000:]
    run = space.run({"debezium.sink.batch.max-bytes": "1000"})
    assert run.code == 0, run.text[-4000:]
    assert sorted(row["id"] for row in lake(space).rows("pace_before")) == [4, 5]
    assert [line["events"] for line in run.batches] == [1, 1]
