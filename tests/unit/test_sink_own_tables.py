"""Events that would go to a table in which the sink stores its own -> dead letters with the reason."""

from __future__ import annotations

from unittest.mock import Mock

import pyarrow as pa
import pytest

from connector.errors import ConfigError
from connector.settings import load
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.model.plan import SchemaChange

BASE = {"bootstrap.servers": "h:1", "topics.regex": "x.*", "debezium.sink.iceberg.warehouse": "/w"}
ROW = pa.struct([("id", pa.int64())])


def _tables() -> tuple[IcebergTables, Mock]:
    catalog = Mock()
    catalog.full_name.side_effect = lambda name: name if "." in name else f"default.{name}"
    return IcebergTables(load([], BASE, {}), catalog), catalog


@pytest.mark.parametrize(
    "name",
    ["_debezium_offset_storage", "default._debezium_deleted_keys", "_DEBEZIUM_Offset_storage", "_icebridge_connectors"],
)
def test_no_event_goes_to_a_table_of_the_sinks_own(name: str) -> None:
    """Whatever an event names: rows beside its offsets would end the sink at its next start."""
    tables, catalog = _tables()
    tables.apply_schema_changes([SchemaChange("t", ROW, None, {}, table=name)])
    assert "one of the sink's own" in tables.refused_tables[name]
    assert not catalog.load.called and not catalog.create.called


def test_no_topic_has_a_table_of_the_sinks_own() -> None:
    """A topic of such a name is read, and its records are dead letters."""
    tables, catalog = _tables()
    assert tables.find(["_debezium_offset_storage"]) == {}
    tables.apply_schema_changes([SchemaChange("_debezium_offset_storage", ROW, None, {})])
    assert "one of the sink's own" in tables.refused["_debezium_offset_storage"]
    assert not catalog.load.called and not catalog.create.called


@pytest.mark.parametrize(
    "given",
    [
        {"debezium.source.offset.storage.iceberg.table-name": "_debezium_deleted_keys"},
        {"deleted.keys.table.name": "default._debezium_offset_storage"},
        {"debezium.source.schema.history.internal.iceberg.table-name": "_debezium_offset_storage"},
    ],
)
def test_two_things_that_the_sink_stores_are_not_in_one_table(given: dict[str, str]) -> None:
    """A file that says so is refused: the columns of one are not those of the other."""
    with pytest.raises(ConfigError, match="have one table"):
        load([], BASE | given, {})
