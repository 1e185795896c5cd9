"""events that name their tables -> those tables: a file of Iceberg Kafka Connect, its operations, keys and routes.

Three runs over the same topics: the first makes tables, the second meets known and new ones after a restart, the third
may neither make tables nor change them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record
from tests.reading import Lake
from tests.running import Run
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

TOPICS = ("route.events", "route.more")
FILE = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": ",".join(TOPICS),
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "table",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.tables.cdc-field": "op",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.tables.default-partition-by": "bucket(id, 2)",
    "iceberg.tables.auto-create-props.write.parquet.compression-codec": "gzip",
    "iceberg.control.commit.interval-ms": "1000",
}
FIXED = {"iceberg.tables.auto-create-enabled": "false", "iceberg.tables.evolve-schema-enabled": "false"}


def _record(topic: str, offset: int, value: dict[str, Any]) -> Record:
    return Record(topic, 0, offset, None, json.dumps(value).encode(), (), 1_700_000_000_000)


def _event(table: str, key: int, op: str, **more: Any) -> dict[str, Any]:
    return {"table": table, "id": key, "op": op, **more}


FIRST = [
    *(_event("Lake.Orders", key, "insert", amount=key) for key in range(10)),
    *(_event("lake.people", key, "I", name=f"n{key}") for key in range(5)),
    _event("lake.orders", 3, "Update", amount=33),
    _event("lake.orders", 4, "delete"),
    _event("lake.orders", 5, "truncate"),
    {"id": 1, "op": "c"},
]
SECOND = [
    _event("lake.orders", 0, "d"),
    _event("lake.orders", 1, "u", amount=11, note="new column"),
    _event("other.fresh", 1, "c", x=1.5),
    _event("lake.people", 0, "index", name="again"),
]
THIRD = [
    _event("lake.nowhere", 1, "c"),
    _event("lake.orders", 2, "u", amount="not a number", colour="red"),
    _event("lake.orders", 6, "u", amount="66"),
]


@pytest.fixture(scope="module")
def runs(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> tuple[list[Run], Lake, list[Record]]:
    """The three runs, the tables after them, and the dead letters."""
    space = make_workspace("routes", FILE)
    done = []
    for number, (events, extra) in enumerate(((FIRST, {}), (SECOND, {}), (THIRD, FIXED))):
        # Events of one table come by one topic: between topics there is no order.
        records = [_record(TOPICS["people" in e.get("table", "")], i, e) for i, e in enumerate(events)]
        topics.replay(records, create=number == 0)
        done.append(space.run(extra))
    return done, lake(space), topics.read("routes-dead-letters")


def test_each_event_is_in_the_table_that_it_names(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """Inserts, updates and deletes by word end in the named tables, over restarts, keyed by id-columns."""
    done, tables, _ = runs
    assert [run.code for run in done] == [0, 0, 0], done[-1].text[-6000:]
    orders = {row["id"]: row["amount"] for row in tables.rows("orders", "lake")}
    assert orders == {1: 11, 2: None, 3: 33, 5: 5, 6: 66, 7: 7, 8: 8, 9: 9}
    people = {row["id"]: row["name"] for row in tables.rows("people", "lake")}
    assert people == {0: "again", **{key: f"n{key}" for key in range(1, 5)}}
    assert [(row["id"], row["x"]) for row in tables.rows("fresh", "other")] == [(1, 1.5)]


def test_what_cannot_be_routed_or_named_is_dead(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """An unknown operation, no route field, a table that may not be made: one dead letter each, with its reason."""
    reasons = [dict(letter.headers)["__connect.errors.exception.message"] or b"" for letter in runs[2]]
    assert sorted(reason.split(b" ")[0] for reason in reasons) == [b"field", b"table", b"the"]
    assert any(b"does not exist" in reason for reason in reasons)


def test_drift_is_counted(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """A column that was added, and one that was left out, count as drift of their table; a lost value is counted."""
    _, second, third = runs[0]
    assert second.batches[-1]["iceberg_schema_drift_count"] == {"lake.orders": 1}
    assert third.batches[-1]["iceberg_schema_drift_count"] == {"lake.orders": 1}
    assert third.batches[-1]["nulled"] == 1
