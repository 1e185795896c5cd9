"""topics that are told their tables -> those tables: two in one of another namespace, a third by the naming rule."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.events import START_NS
from tests.model.recordings import Record
from tests.runs.host import Host
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
ONE, TWO, OTHER = "mapped.one", "mapped.two", "mapped.other"


def _event(topic: str, offset: int, key: int, moment: int) -> Record:
    """A row with a key, named after its topic and moment."""
    source = {"name": topic, "db": "db", "schema": "public", "table": "t", "ts_ns": START_NS + moment * 10**9 + 1}
    after = {"id": key, "name": f"{topic[7:]} {moment}"}
    value = {"before": None, "after": after, "source": source, "op": "c"}
    return Record(topic, 0, offset, json.dumps({"id": key}).encode(), json.dumps(value).encode())


def test_two_topics_keep_one_table_each_in_its_own_order(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, host: Host
) -> None:
    """Of equal keys in a batch the latest event counts; what one topic sends again undoes nothing of either, and holds
    back nothing of the other."""
    mapping = f"{ONE}:lake.all,{TWO}:lake.all"
    told = {"topics": f"{ONE},{TWO},{OTHER}", "iceberg.tables.topic-to-table-mapping": mapping}
    space = plain_workspace("mapped", told)
    sink = InProcessSink(spark, space)

    def rows() -> dict[int, str]:
        return {row["id"]: row["name"] for row in sink.lake.rows("all", "lake")}

    again = [_event(ONE, 2, 1, 5), _event(ONE, 3, 2, 6)]
    topics.replay([_event(ONE, 0, 1, 5), _event(ONE, 1, 2, 6), _event(TWO, 0, 1, 7), _event(OTHER, 0, 1, 9)])
    sink.run()
    assert rows() == {1: "two 7", 2: "one 6"}
    assert [(row["id"], row["name"]) for row in sink.lake.rows("mapped_other")] == [(1, "other 9")]
    topics.replay(again, create=False)
    assert sum(report.metrics.late for report in sink.run()) == 1  # the other is the row that is there
    assert rows() == {1: "two 7", 2: "one 6"}
    topics.replay([_event(TWO, 1, 1, 8), _event(TWO, 2, 3, 8), _event(ONE, 4, 2, 20)], create=False)
    assert sum(report.metrics.late for report in sink.run()) == 0
    assert rows() == {1: "two 8", 2: "one 20", 3: "two 8"}
    said = host.call("offsets", "show", str(space.file({})))
    assert "lake.all: 5" in said.out and "default.mapped_other: 1" in said.out, said.out
    spark.sql(f"ALTER TABLE {space.name}.lake.`all` RENAME TO lake.every")
    mapping = {"iceberg.tables.topic-to-table-mapping": f"{ONE}:lake.every,{TWO}:lake.every,{OTHER}:default.others"}
    topics.replay([_event(TWO, 3, 2, 15), _event(OTHER, 1, 2, 30)], create=False)
    sink.run(mapping)
    # With equal keys in several batches, what is read last stays.
    found = {row["id"]: row["name"] for row in sink.lake.rows("every", "lake")}
    assert found == {1: "two 8", 2: "two 15", 3: "two 8"}
    assert "all" not in sink.lake.names("lake")
    assert [row["name"] for row in sink.lake.rows("others")] == ["other 30"]
