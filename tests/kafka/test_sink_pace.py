"""When and where reading begins: the wait strategy of Debezium Server, and the group of a connector before us."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conftest import MakeWorkspace, OpenLake
from tests.host import Host
from tests.model.recordings import Record
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "pace.t"


def _more(topics: Topics, first: int, count: int, *, create: bool = False) -> None:
    records = [Record(TOPIC, 0, i, b'{"id":%d}' % i, b'{"id":%d}' % i, (), 1) for i in range(first, first + count)]
    topics.replay(records, create=create)


def test_max_batch_size_wait(topics: Topics, make_workspace: MakeWorkspace) -> None:
    """MaxBatchSizeWait: fewer events than max.batch.size wait, as many begin a batch at the next look."""
    _more(topics, 0, 10, create=True)
    space = make_workspace(
        "pace",
        {
            "topics": TOPIC,
            "debezium.sink.batch.batch-size-wait": "MaxBatchSizeWait",
            "debezium.source.max.batch.size": "100",
            "debezium.sink.batch.batch-size-wait.max-wait-ms": "600000",
            "debezium.sink.batch.batch-size-wait.wait-interval-ms": "300",
        },
    )
    sink = space.start()
    try:
        assert sink.wait_until(lambda: sink.commits() == 1, 120), sink.text()[-4000:]
        _more(topics, 10, 60)
        time.sleep(4)
        assert sink.commits() == 1
        _more(topics, 70, 60)
        assert sink.wait_until(lambda: sink.commits() == 2, 60), sink.text()[-4000:]
        run = sink.terminate()
    finally:
        sink.kill()
    assert [line["events"] for line in run.batches] == [10, 120]


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
