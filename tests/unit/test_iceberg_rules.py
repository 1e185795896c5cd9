"""Pure rules about tables: growth of columns, exact conversion, partitions, positions, key bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import find_terms
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.keys.file_key_bounds import widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import build_table_schema, to_arrow_schema
from connector.iceberg.types.schemas.schema_evolution import evolve, find_changed, union_shapes
from connector.iceberg.types.values.conversion import convert
from connector.iceberg.write.partitioning import UNPARTITIONED, split_by_partition
from connector.iceberg.write.rolling_file import FileKind, RollingFile
from connector.iceberg.write.table_writer import MAX_OPEN_FILES, TableWriter

I32, I64, TEXT, WIDE = pa.int32(), pa.int64(), pa.string(), pa.decimal128(12, 4)


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (I32, I64, I64),
        (pa.float32(), pa.float64(), pa.float64()),
        (I64, pa.float64(), pa.float64()),
        (pa.decimal128(6, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.decimal128(6, 4), pa.decimal128(12, 4)),
        (TEXT, I32, TEXT),
        (_struct(a=I32), _struct(b=TEXT), _struct(a=I32, b=TEXT)),
        (pa.list_(I32), pa.list_(I64), pa.list_(I64)),
    ],
)
def test_a_new_table_holds_every_shape_seen_before(one: pa.DataType, other: pa.DataType, both: pa.DataType) -> None:
    """Two types of one column meet in a type that holds both, whichever comes first."""
    shapes = [_struct(c=one), _struct(c=other)]
    assert union_shapes(shapes).field("c").type == both
    assert {f.name for f in union_shapes(reversed(shapes))} == {"c"}


@pytest.mark.parametrize(
    ("column", "event", "after"),
    [
        (I32, I64, I64),
        (I64, I32, I64),
        (I64, pa.float64(), I64),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(6, 2), pa.decimal128(12, 4), pa.decimal128(10, 2)),
        (pa.decimal128(12, 2), pa.decimal128(6, 4), pa.decimal128(12, 2)),
        (TEXT, I32, TEXT),
        (I32, TEXT, I32),
        (pa.date32(), pa.timestamp("us"), pa.date32()),
    ],
)
def test_a_column_grows_only_as_iceberg_allows(column: pa.DataType, event: pa.DataType, after: pa.DataType) -> None:
    """An existing column is promoted or left as it is, and its scale is never changed."""
    assert evolve(pa.schema([("c", column)]), _struct(c=event), add=True).field("c").type == after


def test_new_columns_come_last_and_unknown_types_wait() -> None:
    """A column that is null in every event so far is not made yet."""
    table = pa.schema([("a", I32)])
    after = evolve(table, _struct(b=TEXT, n=pa.null(), s=_struct(), a=I32), add=True)
    assert after.names == ["a", "b"]
    assert evolve(table, _struct(b=TEXT), add=False) == table


def test_only_what_changes_is_told_to_the_catalog() -> None:
    """A column that stays may be of a type that no event has; one that grows, or need not have a value, changes."""
    table = pa.schema([("odd", pa.null()), ("a", I32), pa.field("b", TEXT, nullable=False), ("s", _struct(x=I32))])
    grown = pa.schema([("odd", pa.null()), ("a", I64), ("b", TEXT), ("s", _struct(x=I32, y=TEXT)), ("c", TEXT)])
    assert find_changed(table, grown).names == ["a", "b", "s", "c"]
    assert not find_changed(table, table).names


@pytest.mark.parametrize(
    ("values", "source", "target", "expected", "bad"),
    [
        ([1, 2**40, None], I64, I32, [1, None, None], [1]),
        (
            [Decimal("6.1234"), Decimal("5.2500")],
            pa.decimal128(12, 4),
            pa.decimal128(6, 2),
            [None, Decimal("5.25")],
            [0],
        ),
        ([888, None], I64, TEXT, ["888", None], []),
        ([1.5, 2.0], pa.float64(), I64, [None, 2], [0]),
        ([2**53 + 1, 4], I64, pa.float64(), [None, 4.0], [0]),
        ([0.1], pa.float64(), pa.decimal128(6, 2), [Decimal("0.10")], []),
        (["x", "7"], TEXT, I32, [None, 7], [0]),
        ([19000, None], I64, pa.date32(), [None, None], [0]),
        ([True], pa.bool_(), TEXT, ["true"], []),
        ([float("inf"), 0.1], pa.float64(), TEXT, ["Infinity", "0.1"], []),
        (
            [float("nan"), float("inf"), float("-inf"), 0.5],
            pa.float64(),
            pa.decimal128(6, 2),
            [None, None, None, Decimal("0.50")],
            [0, 1, 2],
        ),
        (
            ["NaN", "Infinity", "-Infinity", "1.25"],
            TEXT,
            pa.decimal128(6, 2),
            [None] * 3 + [Decimal("1.25")],
            [0, 1, 2],
        ),
        (
            ["10:11:12.123456", "24:00:00", "10:11:12Z", None],
            TEXT,
            pa.time64("us"),
            [time(10, 11, 12, 123456), None, None, None],
            [1, 2],
        ),
        (
            ["1890-05-04T23:02:03+01:02:03", "9999-12-31T23:59:59-01:00", "0000-12-31T00:00:00Z", "infinity"],
            TEXT,
            pa.timestamp("us", "UTC"),
            [datetime(1890, 5, 4, 22, tzinfo=UTC), None, None, None],
            [1, 2, 3],
        ),
        (["0001-01-01", "0000-12-31"], TEXT, pa.date32(), [date(1, 1, 1), None], [1]),
        ([str(UUID(int=7)), "7", None], TEXT, pa.uuid(), [UUID(int=7), None, None], [1]),
    ],
)
def test_conversion_is_exact_or_names_the_row(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any], bad: list[int]
) -> None:
    """A value that the column cannot hold exactly is null there and marked; the others are converted."""
    column, mask = convert(pa.array(values, source), target)
    assert column.type == target
    assert column.to_pylist() == expected
    assert ([] if mask is None else mask.nonzero()[0].tolist()) == bad


def test_field_ids_reach_the_files() -> None:
    """Arrow fields carry their Iceberg ids, nested ones too, where Parquet writers look for them."""
    schema = build_table_schema(
        pa.schema([("id", I32), ("l", pa.list_(TEXT))]), ("id",), frozenset(), nanoseconds=False
    )
    columns = to_arrow_schema(schema)
    assert schema.identifier_field_ids == [1]
    assert not columns.field("id").nullable
    assert columns.field("l").metadata[b"PARQUET:field_id"] == b"2"
    assert columns.field("l").type.value_field.metadata[b"PARQUET:field_id"] == b"3"


def _layout(tmp_path: Any, spec: PartitionSpec, **properties: str) -> TableLayout:
    columns = pa.schema([("id", I64), ("region", TEXT), ("at", pa.timestamp("us", "UTC"))])
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=False)
    return TableLayout(
        name="d.t",
        uuid="u",
        location=str(tmp_path),
        schema_json=schema.model_dump_json(),
        spec_json=spec.model_dump_json(),
        delete_spec_id=0,
        properties=properties,
        io_properties={},
    )


def _spec(*fields: tuple[int, str, Transform[Any, Any]]) -> PartitionSpec:
    made = [PartitionField(s, 1000 + i, t, n) for i, (s, n, t) in enumerate(fields)]
    return PartitionSpec(*made, spec_id=1 if fields else 0)


def _rows(layout: TableLayout, ids: list[int], regions: list[str | None]) -> pa.RecordBatch:
    at = pa.array([0] * len(ids), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([pa.array(ids, I64), pa.array(regions, TEXT), at], schema=layout.columns)


def test_rows_are_split_by_icebergs_transforms(tmp_path: Any) -> None:
    """Partition values are those of the spec: the day as a date, buckets by murmur3, null a partition of its own."""
    spec = _spec((2, "region", IdentityTransform()), (3, "at_day", DayTransform()), (1, "b", BucketTransform(4)))
    layout = _layout(tmp_path, spec)
    parts = dict(split_by_partition(_rows(layout, [1, 1, 1], ["eu/x", None, "eu/x"]), layout.spec, layout.schema))
    assert {p.json for p in parts} == {("eu/x", "1970-01-01", 0), (None, "1970-01-01", 0)}
    assert {p.path for p in parts} == {
        "region=eu%2Fx/at_day=1970-01-01/b=0",
        "region=null/at_day=1970-01-01/b=0",
    }
    assert sorted(part.num_rows for part in parts.values()) == [1, 2]


def test_files_follow_the_target_size(tmp_path: Any) -> None:
    """A file is closed at the target size, and its description has the bounds that the manifest needs."""
    layout = _layout(tmp_path, _spec(), **{"write.target-file-size-bytes": "1"})
    file = RollingFile(layout, FileKind.data(layout), UNPARTITIONED, "x")
    for start in (0, 100):
        file.write(_rows(layout, list(range(start, start + 100)), ["r"] * 100))
        file.flush()
    descriptions = [orjson.loads(d.json) for d in file.close()]
    assert [d["record-count"] for d in descriptions] == [100, 100]
    bounds = dict(zip(descriptions[1]["lower-bounds"]["keys"], descriptions[1]["lower-bounds"]["values"], strict=True))
    assert bounds[1] == (100).to_bytes(8, "little").hex().upper()


def test_open_files_are_capped(tmp_path: Any) -> None:
    """However many partitions a task meets, only so many files are open at once; no row is lost by that."""
    layout = _layout(tmp_path, _spec((1, "id", IdentityTransform())))
    writer = TableWriter(layout, "x")
    ids = list(range(MAX_OPEN_FILES * 3))
    writer.write_rows(_rows(layout, ids, ["r"] * len(ids)))
    assert len(writer._open) == MAX_OPEN_FILES
    done = [orjson.loads(d.json) for d in writer.close()]
    assert sorted(d["partition"][0] for d in done) == ids


def test_a_delete_file_is_unpartitioned_and_holds_keys_only(tmp_path: Any) -> None:
    """Equality deletes are written under the unpartitioned spec, which makes them global."""
    layout = _layout(tmp_path, _spec((2, "region", IdentityTransform())))
    writer = TableWriter(layout, "x")
    writer.write_equality_deletes(
        pa.RecordBatch.from_arrays([pa.array([7], I64)], schema=pa.schema([layout.columns.field("id")]))
    )
    (description,) = (orjson.loads(d.json) for d in writer.close())
    assert description["content"] == "equality-deletes"
    assert (description["spec-id"], description["partition"], description["equality-ids"]) == (0, [], [1])


def test_key_bounds_widen_with_each_commit(tmp_path: Any) -> None:
    """What a table may hold grows by the bounds of the added files; a file without bounds ends the knowledge."""
    layout = _layout(tmp_path, _spec())
    file = RollingFile(layout, FileKind.data(layout), UNPARTITIONED, "x")
    file.write(_rows(layout, [5, 9], ["r", "r"]))
    files = list(file.close())
    known = widen_bounds(KeyBounds.nothing(), layout, files)
    assert known.bounds == {"id": (5, 9)}
    blind = {**orjson.loads(files[0].json), "lower-bounds": {"keys": [], "values": []}}
    assert not widen_bounds(known, layout, [FileDescription.of(blind)]).is_complete


def test_positions_survive_summary_and_table() -> None:
    """A position reads back as it was written, from a summary and from the offsets table."""
    position = KafkaOffsets("cluster", {"a.b": "id"}, {("a.b", 0): 7, ("a.b", 11): 2**40})
    assert KafkaOffsets.parse(position.json()) == position
    assert KafkaOffsets.from_summary(position.summary("me", "c"), "me") == position
    assert KafkaOffsets.from_summary(position.summary("me", "c"), "another") is None


def test_a_position_knows_what_it_is_behind_of() -> None:
    """Only topic-partitions with a lower offset, or none, are behind."""
    here = KafkaOffsets("c", {}, {("t", 0): 5, ("t", 1): 5})
    there = KafkaOffsets("c", {}, {("t", 0): 5, ("t", 1): 6, ("t", 2): 1})
    assert here.behind(there) == [("t", 1), ("t", 2)]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (True, set[str]()),
        ({"type": "eq", "term": "id", "value": 1}, {"id"}),
        ({"type": "is-null", "term": {"type": "transform", "transform": "day", "term": "a.b"}}, {"a.b"}),
        (
            {
                "type": "or",
                "left": {"type": "not", "child": {"type": "in", "term": "N", "values": ["left"]}},
                "right": {"type": "and", "left": False, "right": {"type": "lt", "term": "n", "value": {"term": "x"}}},
            },
            {"N", "n"},
        ),
    ],
)
def test_columns_that_an_expression_names(expression: Any, names: set[str]) -> None:
    """Terms at any depth, and none of the values: Iceberg's parser is given these columns alone."""
    assert find_terms(expression) == names
