"""A table that refuses a commit, beside others that do not."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from connector.errors import ConnectorError
from connector.runtime.monitoring.listeners import BatchReport
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink, run_until
from tests.runs.processes import Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC, TABLES = "refused.t", ("good", "other", "taken")


def _more(topics: Topics, first: int, count: int, *, create: bool = False) -> None:
    values = [
        (f'{{"id":{key},"table":"lake.{table}"}}').encode() for key in range(first, first + count) for table in TABLES
    ]
    topics.replay([Record(TOPIC, 0, i, None, value, (), 1) for i, value in enumerate(values)], create=create)


def _taken(space: Workspace) -> None:
    """Commit to one table as a second sink of the same name would."""
    properties = {"uri": f"sqlite:///{space.home / 'catalog.db'}", "warehouse": str(space.warehouse)}
    table = SqlCatalog(space.name, **properties).load_table(("lake", "taken"))
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    said = {**snapshot.summary.additional_properties, "icebridge.commit-id": uuid.uuid4().hex}
    ours = {key: value for key, value in said.items() if key.startswith("icebridge.")}
    table.append(table.scan().to_arrow().slice(0, 0), snapshot_properties=ours)


def test_a_table_that_refuses_its_commit_holds_up_no_other(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """The others get the batch, the sink ends with the table's name, and goes on without loss or double rows."""
    _more(topics, 0, 3, create=True)
    routes = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "table"}
    space = plain_workspace("refused", {"topics": TOPIC, "debezium.sink.iceberg.upsert": "false", **routes})
    inside = InProcessSink(spark, space)

    def interfere(report: BatchReport) -> None:
        assert report.metrics.events == 9
        _taken(space)
        _more(topics, 3, 2)

    with pytest.raises(ConnectorError, match=r"lake\.taken"):
        run_until(inside.sink(told=interfere), lambda: False)
    ids = {name: sorted(row["id"] for row in inside.lake.rows(name, "lake")) for name in TABLES}
    assert ids == {"good": [0, 1, 2, 3, 4], "other": [0, 1, 2, 3, 4], "taken": [0, 1, 2]}
    _more(topics, 5, 1)
    inside.run()
    assert {name: sorted(row["id"] for row in inside.lake.rows(name, "lake")) for name in TABLES} == {
        name: [0, 1, 2, 3, 4, 5] for name in TABLES
    }
