"""When batches begin: the wait strategy of Debezium Server, on a running sink."""

from __future__ import annotations

import time

import pytest

from tests.conftest import MakeWorkspace
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
