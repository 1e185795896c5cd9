"""A snapshot's schema -> how its files are read, and the columns that events describe."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.types import GeographyType, GeometryType, LongType, TimeType, UnknownType

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.envelope import row_schema
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.type_mapping import HandlingModes

pytestmark = pytest.mark.unit


def _schema(*fields: tuple[str, object]) -> SnapshotSchema:
    listed = [{"id": i, "name": n, "required": False, "type": t} for i, (n, t) in enumerate(fields, start=1)]
    document = {"type": "struct", "schema-id": 3, "fields": listed}
    return SnapshotSchema(json.dumps(document))


def test_types_that_spark_lacks_are_carried_as_numbers() -> None:
    """Times and nanosecond timestamps are read as longs, at any depth, under names by place and the same ids."""
    nested = {"type": "list", "element-id": 9, "element": "timestamp_ns", "element-required": False}
    carried = _schema(("a b", "timestamptz_ns"), ("l", nested), ("u", "uuid")).to_carrier(lambda place: f"c{place}")
    assert [(f["id"], f["name"], f["type"]) for f in carried["fields"]] == [
        (1, "c0", "long"),
        (2, "c1", {**nested, "element": "long"}),
        (3, "c2", "uuid"),
    ]
    assert _schema(("t", "time")).to_carrier(str)["fields"][0]["type"] == "long"


def test_times_beside_nested_columns_are_refused() -> None:
    """Iceberg's row reader has no times: the error names the column."""
    struct = {"type": "struct", "fields": [{"id": 7, "name": "t", "required": False, "type": "time"}]}
    with pytest.raises(ValueError, match=r"column s\.t is of type time"):
        _schema(("s", struct)).to_carrier(str)


def test_excluded_columns_that_cannot_be_read_are_not() -> None:
    """Shapes are left out of what is read where nobody wants them, and nested columns beside a time; others stay."""
    nested = {"type": "struct", "fields": [{"id": 7, "name": "g", "required": False, "type": "geography"}]}
    items = {"type": "list", "element-id": 9, "element": "int", "element-required": False}
    columns: list[tuple[str, object]] = [("id", "long"), ("g", "geometry(srid:4326)"), ("s", nested), ("t", "time")]
    plain = _schema(*columns, ("at", "timestamp"))
    assert plain.leave_out(()) is plain
    assert plain.leave_out({"id", "g", "s", "t", "at"}).names == ("id", "t", "at")
    beside = _schema(*columns, ("l", items))
    assert beside.leave_out({"g", "s", "t"}).names == ("id", "t", "l")
    left = beside.leave_out({"g", "s", "l"})
    assert left.names == ("id", "t")
    assert left.document["schema-id"] == 3
    assert [field["name"] for field in left.to_carrier(str)["fields"]] == ["0", "1"]
    assert _schema(("id", "long"), ("v", "variant")).leave_out({"v"}).names == ("id", "v")


def test_schema_for_interpreting() -> None:
    """The PyIceberg schema keeps the real types; variants, which it lacks, are unknown and named apart."""
    schema = _schema(("t", "time"), ("v", "variant"))
    assert [type(field.field_type) for field in schema.iceberg.fields] == [TimeType, UnknownType]
    assert schema.variants == {2}
    assert not schema.flat
    assert isinstance(_schema(("id", "long")).iceberg.find_field("id").field_type, LongType)


@pytest.mark.parametrize("kind", ["geometry(srid:4326)", "geography(OGC:CRS84, spherical)"])
def test_a_reference_system_does_not_matter(kind: str) -> None:
    """PyIceberg reads shapes whose reference system is written as Iceberg's Java does; at any depth."""
    nested = {"type": "list", "element-id": 9, "element": kind, "element-required": False}
    schema = _schema(("id", "long"), ("g", kind), ("l", nested)).iceberg
    assert isinstance(schema.find_field("g").field_type, GeometryType | GeographyType)


def field(name: str, kind: Any, *, required: bool = False) -> dict[str, Any]:
    return {"id": 1, "name": name, "type": kind, "required": required}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("id", "long", required=True),
        field("amount", "decimal(9, 2)"),
        field("raw", "fixed[16]"),
        field("list", {"type": "list", "element-id": 2, "element": "timestamptz_ns", "element-required": True}),
        field(
            "map",
            {"type": "map", "key-id": 3, "key": "int", "value-id": 4, "value": "variant", "value-required": False},
        ),
        field("inner", {"type": "struct", "fields": [field("code", "string", required=True)]}),
        field("inner.code", "int"),
        field("shape", "geometry(srid:4326)"),
    ],
}


def test_every_type_is_described() -> None:
    """Parameters, nesting and optionality of Iceberg's JSON all arrive in the description."""
    assert row_schema.describe_row(SCHEMA) == RowStruct(
        (
            RowField("id", Primitive("long"), False),
            RowField("amount", Primitive("decimal", 9, 2)),
            RowField("raw", Primitive("fixed")),
            RowField("list", RowList(Primitive("timestamptz_ns"), False)),
            RowField("map", RowMap(Primitive("int"), Primitive("variant"))),
            RowField("inner", RowStruct((RowField("code", Primitive("string"), False),))),
            RowField("inner.code", Primitive("int")),
            RowField("shape", Primitive("geometry")),
        )
    )


def test_a_key_is_found_inside_structs() -> None:
    """A dotted key column is a field of a struct, unless a column has that very name."""
    row = row_schema.describe_row(SCHEMA)
    assert row_schema.describe_key(row, ("id", "inner.code")).paths == (("id",), ("inner.code",))
    without = RowStruct(row.members[:-2])
    made = row_schema.describe_key(without, ("inner.code",))
    assert made.paths == (("inner", "code"),)
    assert made.record.members == (RowField("inner.code", Primitive("string"), False),)
    dotted = RowStruct((RowField("a", RowStruct(())), RowField("a.s", RowStruct((RowField("x.y", Primitive("int")),)))))
    assert row_schema.describe_key(dotted, ("a.s.x.y",)).paths == (("a.s", "x.y"),)


def test_a_column_without_form_is_named() -> None:
    """A column that no Debezium type fits stops its table, with its name and the way out."""
    with pytest.raises(FatalError, match=r"table a\.b: .*shape \(geometry\).*column\.exclude\.list"):
        row_schema.check_columns("a.b", row_schema.describe_row(SCHEMA), HandlingModes())


def test_columns_of_one_name_are_refused() -> None:
    """Columns that an adjustment mode gives one name stop their table, with their names and the way out."""
    row = RowStruct((RowField("a b", Primitive("int")), RowField("a_b", Primitive("int"))))
    row_schema.check_columns("t", row, HandlingModes())
    row_schema.check_columns("t", row, HandlingModes(fields="avro_unicode"))
    with pytest.raises(FatalError, match=r"columns a b, a_b have one name with field\.name\.adjustment\.mode=avro;"):
        row_schema.check_columns("t", row, HandlingModes(fields="avro"))


@pytest.mark.parametrize("around", [lambda kind: kind, RowList, lambda kind: RowMap(Primitive("string"), kind)])
def test_fields_of_one_name_are_refused_within_columns(around: Any) -> None:
    """One of both would be gone from the schema, and both values stand under one name."""
    fields = RowStruct((RowField("x-y", Primitive("int")), RowField("x_y", Primitive("int"))))
    row = RowStruct((RowField("s", around(fields)), RowField("x_y", Primitive("int"))))
    row_schema.check_columns("t", row, HandlingModes(fields="avro_unicode"))
    with pytest.raises(FatalError, match=r"columns s\.x-y, s\.x_y have one name"):
        row_schema.check_columns("t", row, HandlingModes(fields="avro"))
