"""Rows -> Avro data files: what fastavro reads of them, what manifests say, what is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import evolve
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.file_key_bounds import widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, build_table_schema
from connector.iceberg.write.formats.avro_schema import build_file_schema
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.tables import checks as table_checks
from serde.avro.object_file import BLOCK_BYTES
from tests.model import avro_files
from tests.unit.sink_plans import layout

NOW = datetime(2026, 11, 22, 1, 2, 3, 456789, tzinfo=UTC)
AVRO = {"write.format.default": "avro"}
POINT = pa.struct([pa.field("x", pa.float64()), pa.field("at", pa.timestamp("us", "UTC"))])
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, None, False]),
    "int": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "float": (pa.float32(), [0.5, None, float("-inf")]),
    "double": (pa.float64(), [0.1, None, -1e300]),
    "string": (pa.string(), ["", None, "ü\U0001f9ca" * 100]),
    "binary": (pa.binary(), [b"", None, b"\x00\xff"]),
    "fixed": (pa.binary(4), [b"abcd", None, b"\x00" * 4]),
    "uuid": (pa.uuid(), [UUID(int=1), None, UUID(int=2**128 - 1)]),
    "date": (pa.date32(), [date(1, 1, 1), None, date(2024, 2, 29)]),
    "time": (pa.time64("us"), [time(0), None, time(23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us"), [datetime(1969, 12, 31, 23), None, datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [datetime(1900, 1, 1, tzinfo=UTC), None, datetime(2100, 1, 1, tzinfo=UTC)],
    ),
    "timestamp_ns": (pa.timestamp("ns"), [datetime(2024, 1, 1), None, datetime(1969, 1, 1)]),
    "timestamptz_ns": (pa.timestamp("ns", "UTC"), [NOW, None, datetime(1969, 1, 1, tzinfo=UTC)]),
    "decimal": (pa.decimal128(4, 2), [Decimal("-99.99"), None, Decimal("0.01")]),
    "wide decimal": (pa.decimal128(38, 0), [Decimal(-(10**38) + 1), None, Decimal(10**38 - 1)]),
    "again decimal": (pa.decimal128(4, 2), [Decimal("1.00"), None, Decimal("2.00")]),
    "struct": (POINT, [{"x": 1.0, "at": None}, None, {"x": None, "at": datetime(2024, 1, 1, tzinfo=UTC)}]),
    "list": (pa.list_(pa.decimal128(4, 2)), [[Decimal("1.10"), None], None, []]),
    "list of structs": (pa.list_(POINT), [[{"x": 1.0, "at": None}, None], None, []]),
    "map": (pa.map_(pa.string(), pa.date32()), [[("a", date(2024, 1, 1)), ("b", None)], None, []]),
    "map by number": (pa.map_(pa.int64(), POINT), [[(1, {"x": 1.0, "at": None}), (2, None)], None, []]),
}


def _layout(columns: dict[str, pa.DataType], place: Path, **more: str) -> TableLayout:
    schema = build_table_schema(pa.schema(list(columns.items())), (), frozenset(), nanoseconds=True)
    properties = {**AVRO, **more}
    return evolve(layout({}), location=str(place), properties=properties, schema_json=schema.model_dump_json())


def _written(table: TableLayout, *parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Write rows, each part a batch, and give the one file's description."""
    writer = TableWriter(table, "x")
    for part in parts:
        writer.write_rows(pa.RecordBatch.from_pylist(part, table.columns))
    (made,) = (json.loads(text.json) for text in writer.close())
    return made


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_of_each_type_is_read_back(kind: str, tmp_path: Path) -> None:
    """Values and nulls of every type of Iceberg's that Avro has a form for are what fastavro reads."""
    arrow, values = TYPES[kind]
    table = _layout({"v": arrow}, tmp_path)
    made = _written(table, [{"v": value} for value in values])
    assert avro_files.rows(made["file-path"]) == [{"v": avro_files.expected(value, arrow)} for value in values]


def test_all_types_share_a_file(tmp_path: Path) -> None:
    """A schema may have each type more than once: a named one is defined once; every id of Iceberg's is in it."""
    columns = {name: arrow for name, (arrow, _) in TYPES.items()}
    table = _layout(columns, tmp_path)
    made = _written(table, [{name: values[0] for name, (_, values) in TYPES.items()}])
    path = made["file-path"]
    (row,) = avro_files.rows(path)
    assert list(row.values()) == [avro_files.expected(values[0], arrow) for arrow, values in TYPES.values()]
    document = avro_files.schema_of(path)
    assert sorted(avro_files.ids(document)) == sorted(table.schema._lazy_id_to_name)
    named = {field.get("iceberg-field-name", field["name"]): field["name"] for field in document["fields"]}
    assert list(named) == list(columns)
    assert named["map by number"] == "map_x20by_x20number"


def test_uuids_inside_of_others(tmp_path: Path) -> None:
    """Nested uuids are their bytes; decimals, of a slice and with nulls, too."""
    ids = pa.array([UUID(int=1).bytes, None, UUID(int=3).bytes], pa.uuid())
    prices = pa.array([Decimal("1.00"), Decimal("-2.50"), None, Decimal("9.99")], pa.decimal128(4, 2)).slice(1)
    table = _layout({"s": pa.struct([pa.field("u", pa.uuid()), pa.field("p", prices.type)])}, tmp_path)
    made = pa.StructArray.from_arrays([ids, prices], fields=list(table.columns.field("s").type))
    writer = TableWriter(table, "x")
    writer.write_rows(pa.RecordBatch.from_arrays([made], schema=table.columns))
    (told,) = (json.loads(text.json) for text in writer.close())
    assert [row["s"] for row in avro_files.rows(told["file-path"])] == [
        {"u": UUID(int=1).bytes, "p": Decimal("-2.50")},
        {"u": None, "p": None},
        {"u": UUID(int=3).bytes, "p": Decimal("9.99")},
    ]


def test_a_required_column_is_no_union(tmp_path: Path) -> None:
    """Only what may be null is a union, null first, as Iceberg's spec has it."""
    schema = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "b", StringType(), required=False))
    fields = json.loads(build_file_schema(schema.model_dump_json()).text)["fields"]
    assert [field["type"] for field in fields] == ["long", ["null", "string"]]


@pytest.mark.parametrize(
    ("codec", "named"), [("gzip", "deflate"), ("zstd", "zstandard"), ("snappy", "snappy"), ("uncompressed", "null")]
)
def test_blocks_are_compressed_as_the_table_says(codec: str, named: str, tmp_path: Path) -> None:
    """Each codec is read back; blocks are cut between rows, one that is larger than a block is a block of its own."""
    table = _layout({"v": pa.string()}, tmp_path, **{"write.avro.compression-codec": codec})
    rows = [{"v": letter * (BLOCK_BYTES // 3)} for letter in "abcdefg"] + [{"v": "x" * (2 * BLOCK_BYTES)}, {"v": None}]
    path = _written(table, rows)["file-path"]
    assert avro_files.metadata(path)["avro.codec"] == named
    assert avro_files.blocks(path) == [2, 2, 2, 1, 1, 1]
    assert avro_files.rows(path) == rows


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    """A codec that is not written is an error that names the property."""
    with pytest.raises(FatalError, match=r"write\.avro\.compression-codec is lz4"):
        table_checks.check_layout(
            _layout({"v": pa.int64()}, tmp_path, **{"write.avro.compression-codec": "LZ4"}), upsert=False
        )


def test_a_manifest_tells_counts_and_bounds(tmp_path: Path) -> None:
    """Bounds hold every value of all batches: text is cut outwards, zeros have both signs, NaN is counted apart."""
    columns = {
        "id": pa.int64(),
        "t": pa.string(),
        "f": pa.float64(),
        "at": pa.date32(),
        "l": pa.list_(pa.int64()),
    }
    table = _layout(columns, tmp_path, **{"write.metadata.metrics.column.at": "counts"})
    first = [{"id": 5, "t": "z" * 20, "f": 0.0}, {"id": 9, "t": None, "f": math.nan}]
    made = _written(table, first, [{"id": -7, "t": "a" * 20, "f": None, "at": date(2024, 1, 1)}])
    assert (made["file-format"], made["record-count"]) == ("avro", 3)
    assert made["file-size-in-bytes"] == Path(made["file-path"]).stat().st_size
    assert "split-offsets" not in made
    assert _by_id(made["null-value-counts"]) == {1: 0, 2: 1, 3: 1, 4: 2}
    assert _by_id(made["nan-value-counts"]) == {3: 1}
    low, high = (
        {i: from_bytes(table.schema.find_type(i), bytes.fromhex(text)) for i, text in _by_id(made[side]).items()}
        for side in ("lower-bounds", "upper-bounds")
    )
    assert (low[1], low[2], high[1], high[2]) == (-7, "a" * 16, 9, "z" * 15 + "{")
    assert (math.copysign(1, low[3]), math.copysign(1, high[3])) == (-1, 1)
    assert set(low) == {1, 2, 3}


def test_keys_are_known_by_avro_files(tmp_path: Path) -> None:
    """Bounds of key columns prune look-ups; without them every key may be there."""
    keyed = evolve(layout({"id": pa.int64()}, ("id",)), location=str(tmp_path), properties={**AVRO})
    made = FileDescription.of(_written(keyed, [{"id": 3}, {"id": 8}]))
    assert widen_bounds(KeyBounds.nothing(), keyed, [made]).bounds == {"id": (3, 8)}
    blind = evolve(keyed, properties={**AVRO, "write.metadata.metrics.default": "none"})
    made = FileDescription.of(_written(blind, [{"id": 3}]))
    assert not widen_bounds(KeyBounds.nothing(), keyed, [made]).is_complete


def test_delete_files_stay_parquet(tmp_path: Path) -> None:
    """Equality deletes of a table of Avro files are Parquet, and told so."""
    keyed = evolve(layout({"id": pa.int64()}, ("id",)), location=str(tmp_path), properties={**AVRO})
    writer = TableWriter(keyed, "x")
    rows = pa.RecordBatch.from_pylist([{"id": 1}], keyed.columns)
    writer.write_rows(rows)
    writer.write_equality_deletes(rows)
    assert [json.loads(text.json)["file-format"] for text in writer.close()] == ["avro", "parquet"]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    """A table whose property asks for a format that is none is refused with the property that would win over it."""
    table = evolve(layout({"id": pa.int64()}), location=str(tmp_path), properties={"write.format.default": "LANCE"})
    with pytest.raises(FatalError, match=r"d\.t: write\.format\.default is lance.*iceberg\.tables\.write-props"):
        table_checks.check_layout(table, upsert=False)


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.list_(pa.timestamp("ns")), pa.timestamp("ns", "UTC")])
def test_what_spark_does_not_read_is_not_upserted(kind: pa.DataType, tmp_path: Path) -> None:
    """Times and nanoseconds are appended as Avro; tables that look rows up are refused, there or to be made."""
    table = _layout({"v": kind}, tmp_path)
    table_checks.check_layout(table, upsert=False)
    with pytest.raises(FatalError, match=r"like v.*set write\.format\.default to parquet"):
        table_checks.check_layout(table, upsert=True)
    with pytest.raises(DataFault, match=r"d\.n: .*set write\.format\.default to parquet"):
        table_checks.check_new_table("d.n", table.columns, "AVRO", version=3, upsert=True)
    table_checks.check_new_table("d.n", table.columns, "parquet", version=3, upsert=True)


def test_nanoseconds_are_none_in_version_2() -> None:
    """Tables of version 2 have microseconds for them, which Spark reads from Avro files."""
    table_checks.check_new_table("d.n", pa.schema([("v", pa.timestamp("ns"))]), "avro", version=2, upsert=True)


def test_variants_are_not_written() -> None:
    """A variant column, at any depth, is refused for Avro files, appended or not."""
    with pytest.raises(DataFault, match=r"not written to Avro files \(a\)"):
        table_checks.check_new_table("d.n", pa.schema([("a", VARIANT_ARROW_TYPE)]), "avro", version=3, upsert=False)
    there = {"id": 1, "name": "a", "required": False, "type": {"type": "list", "element-id": 2, "element": "variant"}}
    table = evolve(layout({}), properties=AVRO, schema_json=json.dumps({"type": "struct", "fields": [there]}))
    with pytest.raises(FatalError, match=r"not written to Avro files \(a\.element\)"):
        table_checks.check_layout(table, upsert=False)
    with pytest.raises(TypeError, match="no Avro type"):
        build_file_schema('{"type":"struct","fields":[{"id":1,"name":"a","required":false,"type":"unknown"}]}')


def _by_id(told: dict[str, list[Any]]) -> dict[int, Any]:
    return dict(zip(told["keys"], told["values"], strict=True))
