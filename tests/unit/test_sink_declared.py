"""Tables declared in the settings: Data Prepper's `schema.columns`, `table_location`, `auto_create`."""

from __future__ import annotations

import pyarrow as pa

from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.settings import load
from connector.sink.destinations.table_schema import build_declared_schema

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}


def test_declared_columns_become_the_tables() -> None:
    """Row "schema.columns": name, Iceberg type and required of each column, in their order."""
    text = (
        "id long required, name string, price decimal(9, 2), at timestamptz, u uuid REQUIRED, f fixed[4],"
        "at_home struct<City: string, at: list<decimal(9, 6)>> required, tags map<string, struct<n: long>>"
    )
    settings = load([], GOOD | {"schema.columns": text, "table.location": "/lake/t"}, {}).table.new_tables
    columns = build_declared_schema(settings.columns)
    required = frozenset(column.name for column in settings.columns if column.required)
    made = build_table_schema(columns, ("id",), required, nanoseconds=False)
    assert [(f.name, str(f.field_type), f.required) for f in made.fields] == [
        ("id", "long", True),
        ("name", "string", False),
        ("price", "decimal(9, 2)", False),
        ("at", "timestamptz", False),
        ("u", "uuid", True),
        ("f", "fixed[4]", False),
        ("at_home", "struct<9: City: optional string, 10: at: optional list<decimal(9, 6)>>", True),
        ("tags", "map<string, struct<14: n: optional long>>", False),
    ]
    assert columns.field("price").type == pa.decimal128(9, 2)
    assert settings.location == "/lake/t"


def test_one_named_table_may_be_declared() -> None:
    """A sink whose events all go to one table of `iceberg.tables` may declare it, whatever its topics are."""
    given = {"topics": "a,b", "iceberg.tables": "lake.one", "schema.columns": "id long"}
    assert [str(column) for column in load([], GOOD | given, {}).table.new_tables.columns] == ["id long"]
