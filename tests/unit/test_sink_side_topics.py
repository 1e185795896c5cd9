"""Records of Debezium's side topics are no rows: told by their fields without a schema, whatever of them is empty."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from tests.unit import sink_plans
from tests.unit.json_messages import framed

SOURCE = {"version": "3.5.0.Final", "connector": "mysql", "name": "s", "ts_ms": 1, "db": "d", "table": "t"}
TABLES = [{"type": "CREATE", "id": '"d"."t"', "table": {"primaryKeyColumnNames": ["id"], "columns": []}}]
SCHEMA_CHANGE = {
    "source": SOURCE,
    "ts_ms": 1,
    "databaseName": "d",
    "schemaName": None,
    "ddl": "x",
    "tableChanges": TABLES,
}
NOTIFICATION = {
    "id": "c485",
    "aggregate_type": "Incremental Snapshot",
    "type": "STARTED",
    "additional_data": {"connector_name": "s"},
    "timestamp": 1_700_000_000_000,
}
SIDE: dict[str, tuple[Any, Any]] = {
    "DDL with tables": ({"databaseName": "d"}, SCHEMA_CHANGE),
    "DDL without tables, as SET": ({"databaseName": ""}, {**SCHEMA_CHANGE, "databaseName": "", "tableChanges": []}),
    "tables without DDL, as of SQL Server": ({"databaseName": "d"}, {**SCHEMA_CHANGE, "schemaName": "s", "ddl": None}),
    "notification": ({"id": "c485"}, NOTIFICATION),
    "notification without more": (None, {**NOTIFICATION, "additional_data": {}}),
    "notification of older versions": (None, {k: v for k, v in NOTIFICATION.items() if k != "timestamp"}),
    "heartbeat": ({"serverName": "s"}, {"ts_ms": 1}),
    "begin": (
        {"id": "5:1"},
        {"status": "BEGIN", "id": "5:1", "ts_ms": 1, "event_count": None, "data_collections": None},
    ),
    "end": ({"id": "5:1"}, {"status": "END", "id": "5:1", "ts_ms": 1, "event_count": 0, "data_collections": []}),
    "message": (
        {"prefix": "p"},
        {"op": "m", "ts_ms": 1, "source": SOURCE, "message": {"prefix": "p", "content": "eA=="}},
    ),
}


@pytest.mark.parametrize("name", SIDE)
def test_records_of_side_topics_make_no_table(name: str) -> None:
    """A topic of such records makes no table, and nothing of it is a dead letter."""
    key, value = SIDE[name]
    outcome = decode(sink_plans.run(value, value, keys=[key, key]), sink_plans.plan())
    assert (outcome.needs, outcome.faults, outcome.metrics.ignored) == ((), (), 2)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "source": "shop", "ddl": "x"},
        {"id": "1", "aggregate_type": "order", "type": "created", "payload": "{}"},
        {"source": {"a": 1}, "ddl": "x"},
    ],
    ids=["ddl", "outbox", "source"],
)
def test_rows_of_like_names_are_rows(row: Any) -> None:
    """A table may have columns of the same names."""
    events = EventSettings("auto", "auto", (), "__")
    outcome = decode(sink_plans.run(row), sink_plans.plan(events=events))
    assert [need.row.names for need in outcome.needs] == [list(row)] and not outcome.metrics.ignored


@pytest.mark.parametrize("name", ["com.acme.Notification", "Heartbeat", "shop.MessageValue"])
def test_rows_whose_schema_has_the_last_name_of_a_side_topics_are_rows(name: str) -> None:
    """An application's record may be called as one of Debezium's own schemas ends: it is a row by its fields."""
    fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "text", "type": "string"}]
    row = json.loads(framed(fields, {"id": 1, "text": "x"}, name))
    outcome = decode(sink_plans.run(row), sink_plans.plan())
    assert [need.row.names for need in outcome.needs] == [["id", "text"]] and not outcome.metrics.ignored


@pytest.mark.parametrize("name", ["io.debezium.connector.common.Heartbeat", "renamed.Heartbeat"])
def test_heartbeats_with_schema_are_no_rows(name: str) -> None:
    """Debezium's heartbeat is none of a table, also where a transform renamed its schema."""
    value = json.loads(framed([{"field": "ts_ms", "type": "int64", "optional": False}], {"ts_ms": 1}, name))
    outcome = decode(sink_plans.run(value), sink_plans.plan())
    assert (outcome.needs, outcome.faults, outcome.metrics.ignored) == ((), (), 1)


LIKE: list[dict[str, Any]] = [
    {"ts_ms": 1, "other": None},
    {"id": "1", "aggregate_type": "order", "type": "created", "timestamp": 1_700_000_000_000},
    {"id": "1", "aggregate_type": "order", "type": "created", "additional_data": None, "more": None},
    {"source": {"connector": "c"}, "ddl": "x", "other": None},
    {"op": "m", "source": {"a": 1}, "message": "hello"},
]


@pytest.mark.parametrize("row", LIKE, ids=" ".join)
def test_rows_with_another_field_or_one_less_are_rows(row: dict[str, Any]) -> None:
    """A message is none of a side topic's by the fields that have values in its batch: alone, it is the same row."""
    table = sink_plans.append(
        0, {name: KINDS_OF_COLUMNS.get(name, pa.string()) for name in row} | {"extra": pa.int64()}
    )
    for some in (
        [row],
        [row, {**row, "extra": 1}],
        [row, *(value for _, value in SIDE.values() if "message" not in value)],
    ):
        outcome = decode(sink_plans.run(*some), sink_plans.plan(table, evolve=False))
        assert sink_plans.rows(outcome)[0].keys() >= row.keys() and 0 not in sink_plans.dead(outcome)
        assert outcome.metrics.ignored == max(0, len(some) - 2 if len(some) == 2 else len(some) - 1)


KINDS_OF_COLUMNS = {
    "ts_ms": pa.int64(),
    "timestamp": pa.int64(),
    "source": pa.struct([("a", pa.int64()), ("connector", pa.string())]),
}


@pytest.mark.parametrize("name", SIDE)
def test_records_of_side_topics_are_told_beside_rows(name: str) -> None:
    """What is of a side topic is so beside rows too, whatever their types."""
    row = {"key": 5, "extra": 1}
    outcome = decode(sink_plans.run(SIDE[name][1], row, SIDE[name][1]), sink_plans.plan())
    (need,) = outcome.needs
    assert (need.row.names, outcome.metrics.ignored, outcome.faults) == (list(row), 2, ())
