"""Rows -> ORC data files: what Arrow reads of them, what manifests say, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from pyarrow import orc

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, build_table_schema
from connector.iceberg.types.values.orc_values import find_early_fractions
from connector.iceberg.write.formats.orc_schema import build_file_columns, to_file_column
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.tables import checks as table_checks
from tests.unit.sink_plans import layout
from tests.unit.test_avro_files import TYPES

ORC = {"write.format.default": "orc"}
EARLY = datetime(1969, 12, 31, 23, 59, 58, 500_000)


def _layout(columns: dict[str, pa.DataType], place: Path, **more: str) -> TableLayout:
    schema = build_table_schema(pa.schema(list(columns.items())), (), frozenset(), nanoseconds=True)
    properties = {**ORC, **more}
    return evolve(layout({}), location=str(place), properties=properties, schema_json=schema.model_dump_json())


def _write(table: TableLayout, rows: list[dict[str, Any]]) -> dict[str, Any]:
    writer = TableWriter(table, "x")
    writer.write_rows(pa.RecordBatch.from_pylist(rows, table.columns))
    (made,) = (json.loads(text.json) for text in writer.close())
    return made


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_of_each_type_is_read_back(kind: str, tmp_path: Path) -> None:
    """Values and nulls of every type are what Arrow reads, in the type that the file has for it."""
    arrow, values = TYPES[kind]
    table = _layout({"v": arrow}, tmp_path)
    made = _write(table, [{"v": value} for value in values])
    assert (made["file-format"], made["record-count"]) == ("orc", len(values))
    (field,) = build_file_columns(table.schema_json, table.columns)
    wanted = to_file_column(pa.array(values, arrow), field.type)
    found = orc.read_table(made["file-path"]).column("v")
    readable = pa.timestamp("ns", found.type.tz) if pa.types.is_timestamp(found.type) else wanted.type
    assert found.combine_chunks().cast(readable).to_pylist() == wanted.cast(readable).to_pylist()


def test_columns_tell_what_iceberg_has_them_for(tmp_path: Path) -> None:
    """Each column of a file, at any depth, has its field id, and what ORC's own type does not say."""
    inner = pa.struct([pa.field("u", pa.uuid()), pa.field("f", pa.binary(4))])
    table = _layout(
        {"t": pa.time64("us"), "l": pa.list_(inner), "m": pa.map_(pa.string(), pa.timestamp("us"))}, tmp_path
    )
    columns = build_file_columns(table.schema_json, table.columns)
    ids, told = [], {}
    for field in _walk(columns):
        metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
        ids.append(int(metadata.pop("iceberg.id")))
        assert metadata.pop("iceberg.required") == str(not field.nullable).lower()
        told[field.name] = metadata
    assert sorted(ids) == sorted(table.schema._lazy_id_to_name)
    assert {name: each for name, each in told.items() if each} == {
        "t": {"iceberg.long-type": "TIME"},
        "u": {"iceberg.binary-type": "UUID"},
        "f": {"iceberg.binary-type": "FIXED", "iceberg.length": "4"},
        "value": {"iceberg.timestamp-unit": "MICROS"},
    }


def _walk(fields: Any) -> list[pa.Field]:
    found = []
    for field in fields:
        kind = field.type
        inner = list(kind) if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
        found += [field, *_walk([kind.key_field, kind.item_field] if pa.types.is_map(kind) else inner)]
    return found


def test_a_slice_of_nested_columns_is_written_as_such() -> None:
    """Lists and maps of a slice, with nulls, keep their rows."""
    kind = pa.struct([pa.field("l", pa.list_(pa.time64("us"))), pa.field("m", pa.map_(pa.string(), pa.time64("us")))])
    rows = [{"l": None, "m": [("a", None)]}, None, {"l": [time(1), None], "m": None}, {"l": [], "m": [("b", None)]}]
    schema = build_table_schema(pa.schema([("v", kind)]), (), frozenset(), nanoseconds=True)
    table = evolve(layout({}), schema_json=schema.model_dump_json())
    (field,) = build_file_columns(table.schema_json, table.columns)
    made = to_file_column(pa.array(rows, table.columns.field("v").type).slice(1), field.type)
    assert made.to_pylist() == [None, {"l": [3_600_000_000, None], "m": None}, rows[3]]
    made.validate(full=True)


@pytest.mark.parametrize("codec", ["zlib", "zstd", "snappy", "lz4", "none"])
def test_stripes_are_compressed_as_the_table_says(codec: str, tmp_path: Path) -> None:
    """Each codec is the file's, and read back."""
    table = _layout({"v": pa.string()}, tmp_path, **{"write.orc.compression-codec": codec})
    made = _write(table, [{"v": "x" * 1000}, {"v": None}])
    file = orc.ORCFile(made["file-path"])
    assert file.compression.lower() == ("uncompressed" if codec == "none" else codec)
    assert file.read().column("v").to_pylist() == ["x" * 1000, None]
    assert made["file-size-in-bytes"] == Path(made["file-path"]).stat().st_size


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    """A codec that is not written is an error that names the property."""
    with pytest.raises(FatalError, match=r"write\.orc\.compression-codec is lzo"):
        table_checks.check_layout(
            _layout({"v": pa.int64()}, tmp_path, **{"write.orc.compression-codec": "LZO"}), upsert=False
        )


@pytest.mark.parametrize(
    ("kind", "early", "fine"),
    [
        (pa.timestamp("us"), EARLY, datetime(1969, 12, 31, 23, 59, 58)),
        (pa.timestamp("ns", "UTC"), EARLY.replace(tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (pa.struct([pa.field("at", pa.timestamp("us"))]), {"at": EARLY}, {"at": None}),
        (pa.list_(pa.timestamp("us")), [None, EARLY], []),
        (pa.map_(pa.string(), pa.timestamp("us")), [("a", EARLY)], [("a", None)]),
        (pa.list_(pa.struct([pa.field("at", pa.timestamp("us"))])), [{"at": EARLY}], [None]),
    ],
    ids=str,
)
def test_early_fractions_are_found(kind: pa.DataType, early: Any, fine: Any, tmp_path: Path) -> None:
    """Times before 1970 with a fraction, at any depth, are told by row; what wrote them would shift them silently."""
    column = pa.array([fine, fine, None, early, fine], kind)
    found = find_early_fractions(column.slice(1))
    assert found is not None
    assert found.tolist() == [False, False, True, False]
    assert find_early_fractions(column.slice(0, 3)) is None
    table = _layout({"v": kind}, tmp_path)
    told = table.find_unwritable_values(column)
    assert told is not None
    assert told[0].tolist() == [False, False, False, True, False]
    assert evolve(table, properties={}).find_unwritable_values(column) is None
    with pytest.raises(FatalError, match="column v: a timestamp before 1970"):
        _write(table, [{"v": fine}, {"v": early}])


def test_dates_of_any_year_are_written() -> None:
    """Dates have no fraction."""
    assert find_early_fractions(pa.array([date(1, 1, 1)])) is None


@pytest.mark.parametrize("kind", [pa.list_(pa.timestamp("ns")), pa.timestamp("ns", "UTC")])
def test_nanoseconds_are_not_upserted(kind: pa.DataType, tmp_path: Path) -> None:
    """Nanoseconds are appended as ORC; tables that look rows up are refused, there or to be made."""
    table = _layout({"v": kind}, tmp_path)
    table_checks.check_layout(table, upsert=False)
    with pytest.raises(FatalError, match=r"ORC files with columns like v.*set write\.format\.default to parquet"):
        table_checks.check_layout(table, upsert=True)
    with pytest.raises(DataFault, match=r"d\.n: .*set write\.format\.default to parquet"):
        table_checks.check_new_table("d.n", table.columns, "ORC", version=3, upsert=True)


def test_variants_are_not_written() -> None:
    """A variant column, at any depth, is refused for ORC files, appended or not."""
    with pytest.raises(DataFault, match=r"not written to ORC files \(a\)"):
        table_checks.check_new_table("d.n", pa.schema([("a", VARIANT_ARROW_TYPE)]), "orc", version=3, upsert=False)
