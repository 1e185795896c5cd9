"""A sink that maintains its tables, beside a maintainer apart and another engine -> the rows of the model."""

from __future__ import annotations

import json
import os
import time
from random import Random
from typing import Any

import pytest
from attrs import define
from pyspark.sql import SparkSession

from connector.iceberg.java import jvm
from connector.maintenance.spark_actions import activate_session
from connector.maintenance.tasks import MAINTENANCE_TASK
from connector.sink.destinations.iceberg.destination import IcebergDestination
from connector.sink.factory import Sink
from tests.conftest import MakeWorkspace
from tests.inside import Inside
from tests.model.recordings import Record
from tests.tiers import tiered
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(3600)]

SECONDS = float(os.environ.get("ICEBRIDGE_MAINTENANCE_S", "0"))
"""For how long the law is tried; without it a few rounds."""
ROUNDS, KEYS = 6, 30

MAINTAINED = {
    "debezium.sink.iceberg.upsert-keep-deletes": "false",
    "iceberg.maintenance.enabled": "true",
    "iceberg.maintenance.rate-limit-seconds": "0",
    "iceberg.maintenance.convert-equality-deletes.schedule.eq-delete-file-count": "2",
    "iceberg.maintenance.rewrite.schedule.data-file-count": "8",
    "iceberg.maintenance.rewrite.min-input-files": "2",
    "iceberg.maintenance.rewrite-manifests.schedule.manifest-count": "5",
}


@define
class Story:
    """Random changes of a table, and the rows that they leave."""

    topic: str
    rng: Random
    topics: Topics
    rows: dict[int, int]
    made: int = 0

    def events(self) -> None:
        """Produce changes of some keys: each newer than all before."""
        events = []
        for _ in range(self.rng.randint(1, 12)):
            self.made += 1
            key, gone = self.rng.randrange(KEYS), self.rng.random() < 0.3
            op = "d" if gone else "u"
            value = {"id": key, "n": self.made, "p": key % 2, "__op": op, "__deleted": str(gone).lower()}
            value["__source_ts_ns"] = 1000 + self.made
            events.append(Record(self.topic, 0, 0, json.dumps({"id": key}).encode(), json.dumps(value).encode()))
            if gone:
                self.rows.pop(key, None)
            else:
                self.rows[key] = self.made
        self.topics.replay(events, create=self.made == len(events))


def _maintenance(sink: Sink) -> None:
    assert isinstance(sink.destination, IcebergDestination) and sink.destination.maintenance is not None
    sink.destination.maintenance.wait()


def _rows(inside: Inside, table: str) -> dict[int, int]:
    rows = inside.lake.many(table)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def _compact(spark: SparkSession, table: Any) -> None:
    """Merge files as another engine does."""
    activate_session(spark)
    actions = jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    actions.rewriteDataFiles(table).option("min-input-files", "2").execute()


CASES = [(2, ""), (2, "p"), (3, ""), (3, "p")]


@pytest.mark.parametrize(("version", "by"), tiered(CASES, [(3, "p")], lambda case: f"v{case[0]}_{case[1] or 'none'}"))
def test_rows_are_those_of_the_model(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, version: int, by: str
) -> None:
    """Batches, maintenance inside of the sink, another engine's compaction: no row is lost or comes back."""
    name = f"tended_v{version}_{by or 'none'}"
    story = Story(name, Random(name), topics, {})
    story.events()
    settings = {**MAINTAINED, "topics": name, "debezium.sink.iceberg.format-version": str(version)}
    if by:
        settings["debezium.sink.iceberg.partition-by"] = by
    inside = Inside(spark, plain_workspace(name, settings))
    lake, sink, ends = inside.lake, inside.sink(), time.monotonic() + SECONDS
    turn = 0
    while turn < ROUNDS or time.monotonic() < ends:
        turn += 1
        sink.stream.run(once=True)
        if story.rng.random() < 0.2:
            sink.close()
            sink = inside.sink()
        if story.rng.random() < 0.2:
            _maintenance(sink)
            _compact(spark, lake.java(name))
        if turn % 3 == 0:
            assert _rows(inside, name) == story.rows
        if turn < ROUNDS or time.monotonic() < ends:
            story.events()
    sink.close()
    _maintenance(sink)
    assert _rows(inside, name) == story.rows
    tasks = {summary.get(MAINTENANCE_TASK) for summary in lake.summaries(name)}
    assert "convert" in tasks
