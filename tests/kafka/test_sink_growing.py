"""Topics and partitions that appear while the sink runs: they are read from their first record on."""

from __future__ import annotations

import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

FIRST, LATER = "grow.public.first", "grow.public.later"


def events(topic: str, partition: int, *ids: int) -> list[Record]:
    """Flattened events."""
    return [
        Record(topic, partition, offset, orjson.dumps({"id": i}), orjson.dumps({"id": i, "v": f"v{i}"}))
        for offset, i in enumerate(ids)
    ]


def test_what_appears_while_the_sink_runs_is_read_from_its_start(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """A partition that is added and a topic that is made lose none of their records, in this run and after it."""
    topics.create({FIRST: 1})
    topics.replay(events(FIRST, 0, 1, 2), create=False)
    space = make_workspace("grow", {"topics.regex": r"grow\..*", "debezium.sink.iceberg.upsert-keep-deletes": "false"})
    sink = space.start({"debezium.sink.batch.interval-ms": "200"})
    assert sink.wait_until(lambda: sink.commits() == 1, 120), sink.text()[-6000:]
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(FIRST, 2)]).values():
        future.result(30)
    topics.create({LATER: 1})
    topics.replay([*events(FIRST, 1, 3, 4, 5), *events(LATER, 0, 6, 7)], create=False)

    def through() -> bool:
        return sum(line.get("events", 0) for line in sink.lines() if line.get("event") == "batch committed") == 7

    assert sink.wait_until(through, 60), sink.text()[-6000:]
    ended = sink.terminate()
    assert ended.code == 0, ended.text[-6000:]
    found = {name: sorted(r["id"] for r in lake(space).many(f"grow_public_{name}")) for name in ("first", "later")}
    assert found == {"first": [1, 2, 3, 4, 5], "later": [6, 7]}
    topics.replay(events(LATER, 0, 8), create=False)
    assert space.run().code == 0
    assert sorted(r["id"] for r in lake(space).many("grow_public_later")) == [6, 7, 8]
