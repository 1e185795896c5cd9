"""Tables at places that stores' clients read as another one -> no rows there."""

from __future__ import annotations

from unittest.mock import Mock

import attrs
import pyarrow as pa
import pytest

from connector.errors import DataFault, FatalError
from connector.settings import load
from connector.sink.destinations.iceberg.tables.checks import check_location
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.model.plan import SchemaChange
from tests.unit.sink_plans import layout

BASE = {"bootstrap.servers": "h:1", "topics.regex": "x.*", "debezium.sink.iceberg.warehouse": "/w"}
PLAIN = layout({"id": pa.int64()})
NEED = SchemaChange("t", pa.struct([("id", pa.int64())]), None, {}, table="c#")


def _tables(*, is_there: bool) -> tuple[IcebergTables, Mock]:
    """A sink's tables over a catalog that has a table at such a place, or makes it there."""
    catalog, table = Mock(), Mock()
    catalog.full_name.side_effect = lambda name: f"default.{name}"
    table.layout.return_value = attrs.evolve(PLAIN, location="s3://lake/default/c#")
    catalog.load.return_value = table if is_there else None
    catalog.create.return_value = table
    return IcebergTables(load([], BASE, {}), catalog), catalog


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("s3://lake/default/c#", {}),
        ("gs://lake/default/a?b", {}),
        ("file:/lake/a#b/c", {}),
        ("s3://lake/default/c", {"write.data.path": "s3://lake/#1"}),
    ],
)
def test_a_place_that_a_store_cuts_off_is_refused(location: str, properties: dict[str, str]) -> None:
    """What stands behind # or ? is no part of a key for the clients of stores: all files would be one object."""
    with pytest.raises(DataFault, match=r"# or \?"):
        check_location(attrs.evolve(PLAIN, location=location, properties=properties))


@pytest.mark.parametrize("location", ["/lake/default/c#", "s3://lake/default/c%23", "s3://lake/a b/ü$"])
def test_any_other_place_is_taken(location: str) -> None:
    """Paths of the local file system are read whole."""
    check_location(attrs.evolve(PLAIN, location=location))


@pytest.mark.parametrize("is_there", [True, False])
def test_events_that_name_such_a_table_are_dead_letters(*, is_there: bool) -> None:
    """The other tables' events go on, after a restart too."""
    tables, catalog = _tables(is_there=is_there)
    tables.apply_schema_changes([NEED])
    assert "# or ?" in tables.refused_tables["c#"]
    assert catalog.create.called is not is_there


def test_a_topic_of_such_a_table_stops_the_start() -> None:
    """Somebody has to move the table."""
    tables, _ = _tables(is_there=True)
    with pytest.raises(FatalError, match=r"# or \?"):
        tables.find(["x"])
