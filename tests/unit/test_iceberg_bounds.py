"""Values of every type -> a file's bounds: no value lies outside of them, whoever compares; all row groups count."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import LessThan
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, DoubleType, TimestampType, TimestamptzNanoType

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.file_key_bounds import widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.repair.partition_repair import CheckedField, MixedRows, find_right_values
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.values.single_values import encode_bytes, encode_json, parse_non_finite, to_stored_values
from connector.iceberg.write.formats.avro import AvroFile
from connector.iceberg.write.formats.column_metrics import FileMetrics
from connector.iceberg.write.formats.parquet import ParquetFile
from connector.iceberg.write.partitioning import _partition_values, split_by_partition
from connector.sink.destinations.iceberg.write_modes.equality_delete import may_exist
from tests.model.key_types import EXACT, KEY_TYPES, KeyType, key_type

UUID = key_type("uuid")
STRING = key_type("string")


class _Stream(io.BytesIO):
    def close(self) -> None:
        """Stay readable."""


def _layout(kind: KeyType, **properties: str) -> TableLayout:
    schema = build_table_schema(pa.schema([("k", kind.arrow)]), (), frozenset(), nanoseconds=True)
    return TableLayout("d.t", "u", "/", schema.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, properties, {})


def _told(kind: KeyType, groups: Sequence[Sequence[Any]]) -> tuple[dict[str, Any], dict[str, Any], pq.FileMetaData]:
    """What is told of values in a Parquet file of these row groups, and in an Avro file; and the footer."""
    layout, stream = _layout(kind), _Stream()
    tables = [pa.table([kind.array(values)], schema=layout.columns) for values in groups]
    parquet, avro = (
        ParquetFile(stream, layout.schema, layout, layout.columns),
        AvroFile(io.BytesIO(), layout.schema, layout),
    )
    for table in tables:
        parquet.write(table)
        avro.write(table)
    return parquet.close()[1], avro.close()[1], pq.read_metadata(pa.BufferReader(stream.getvalue()))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.uuid(), pa.list_(pa.string())], ids=str)
def test_values_that_seldom_repeat_have_no_dictionary(kind: pa.DataType) -> None:
    """A column of single values is written as it is, others have a dictionary; small files are written as ever."""
    texts = [f"{number:032x}" for number in range(5_000)]
    made = {
        "list<item: string>": [[text] for text in texts],
        "extension<arrow.uuid>": [bytes.fromhex(text) for text in texts],
        "int64": list(range(5_000)),
    }.get(str(kind), texts)
    columns = pa.schema([("one", kind), ("few", kind), ("none", kind)])
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=True)
    layout = TableLayout("d.t", "u", "/", schema.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, {}, {})
    rows = [pa.array(made, kind), pa.array(made[:50] * 100, kind), pa.nulls(5_000, kind)]
    seen = []
    for count in (5_000, 1_000):
        stream = _Stream()
        file = ParquetFile(stream, layout.schema, layout, layout.columns)
        written = pa.table(
            [column.slice(0, count).cast(each.type) for column, each in zip(rows, layout.columns, strict=True)],
            schema=layout.columns,
        )
        file.write(written)
        assert file.close()[1]["record_count"] == count
        read = pq.ParquetFile(pa.BufferReader(stream.getvalue()))
        assert read.read().equals(written.cast(read.schema_arrow))
        group = read.metadata.row_group(0)
        seen.append([group.column(place).has_dictionary_page for place in range(2)])
    assert seen == [[pa.types.is_list(kind), True], [True, True]]


def _order(kind: KeyType, raw: bytes) -> Any:
    """A bound as its readers compare it."""
    types = pa.types
    if types.is_decimal(kind.arrow):
        return int.from_bytes(raw, "big", signed=True)
    if types.is_integer(kind.arrow) or types.is_temporal(kind.arrow):
        return int.from_bytes(raw, "little", signed=True)
    return raw


@pytest.mark.parametrize("kind", [k for k in KEY_TYPES if k.identifies], ids=lambda kind: kind.name)
def test_no_value_lies_outside(kind: KeyType) -> None:
    """In either format, in several row groups: bounds hold every value, or there are none; nulls are counted."""
    rng = Random(7)
    values = kind.values(rng, 60)
    rng.shuffle(values)
    groups = [[None, *values[:9]], values[9:30], [None, None], values[30:]]
    schema = _layout(kind).schema
    for told in _told(kind, groups)[:2]:
        assert told["null_value_counts"] == {1: 3}
        assert told["record_count"] == told["value_counts"][1] == len(values) + 3
        for value in to_stored_values(kind.array(values)).to_pylist():
            number = int(value.scaleb(kind.arrow.scale, EXACT)) if pa.types.is_decimal(kind.arrow) else value
            raw = _order(kind, encode_bytes(schema.find_type("k"), number))
            low, high = told["lower_bounds"].get(1), told["upper_bounds"].get(1)
            assert low is None or _order(kind, low) <= raw
            assert high is None or _order(kind, high) >= raw


def test_uuids_are_compared_by_nobody() -> None:
    """Readers order them differently: neither manifest nor footer has bounds of them."""
    parquet, avro, footer = _told(UUID, [UUID.values(Random(1), 20)])
    assert not (parquet["lower_bounds"] or parquet["upper_bounds"] or avro["lower_bounds"] or avro["upper_bounds"])
    assert not footer.row_group(0).column(0).is_stats_set


def test_values_too_long_for_a_footer_are_not_forgotten() -> None:
    """A row group whose footer has no ends, since a value is long, leaves the file without bounds."""
    assert _told(STRING, [["b"], ["a", "x" * 5000], ["c"]])[0]["upper_bounds"] == {}
    assert _told(STRING, [["b"], ["a", "x" * 5000], ["c"]])[0]["lower_bounds"] == {}


def test_bounds_of_text_are_text() -> None:
    """The letter after the last one that was kept is one of Unicode's, and no half of a pair."""
    upper = _told(STRING, [["k" * 15 + "\ud7ffx"]])[0]["upper_bounds"][1]
    assert upper.decode() == "k" * 15 + "\ue000"


def test_numbers_that_are_none_are_no_bounds() -> None:
    """Bounds of floats leave them out, and hold both zeros."""
    kind = key_type("double")
    for told in _told(kind, [[float("nan")], [0.0, 1.0], [float("nan")]])[:2]:
        assert told["lower_bounds"] == {1: encode_bytes(_layout(kind).schema.find_type("k"), -0.0)}
        assert told["upper_bounds"] == {1: encode_bytes(_layout(kind).schema.find_type("k"), 1.0)}


@pytest.mark.parametrize("name", ["float", "double"])
def test_numbers_that_are_none_are_counted(name: str) -> None:
    """Readers that drop whole files by bounds (`DELETE WHERE k < 2`) learn that not every row is within them."""
    kind = key_type(name)
    for told in _told(kind, [[float("nan")], [0.0, 1.0], [float("nan"), 1.0]])[:2]:
        assert told["nan_value_counts"] == {1: 2}
        file = DataFile.from_args(
            record_count=told["record_count"],
            **{name: told[name] for name in ("value_counts", "null_value_counts", "nan_value_counts")},
            **{name: told[name] for name in ("lower_bounds", "upper_bounds")},
        )
        assert not _StrictMetricsEvaluator(_layout(kind).schema, LessThan("k", 2.0)).eval(file)


def test_bounds_that_cannot_be_read_are_not_known() -> None:
    """Others' bounds may be cut within a letter, or lie the wrong way round: then any key may be in their files."""
    keyed = evolve(_layout(STRING), id_columns=("k",))

    def file(low: bytes, high: bytes) -> FileDescription:
        return FileDescription.of(
            {
                "file-path": "f",
                "content": "data",
                "lower-bounds": {"keys": [1], "values": [low.hex()]},
                "upper-bounds": {"keys": [1], "values": [high.hex()]},
            }
        )

    nothing = KeyBounds.nothing()
    assert widen_bounds(nothing, keyed, [file(b"a", "é".encode())]) == KeyBounds(True, {"k": ("a", "é")})
    assert widen_bounds(nothing, keyed, [file(b"a", "é".encode()[:1])]) == KeyBounds()
    assert widen_bounds(nothing, keyed, [file(b"b", b"a")]) == KeyBounds()


@pytest.mark.parametrize(
    "kind", [k for k in KEY_TYPES if k.name in ("date", "timestamp", "timestamptz")], ids=lambda kind: kind.name
)
def test_ranges_of_times_of_any_year(kind: KeyType) -> None:
    """Keys beyond the years of Python's dates have ranges, as Iceberg's JSON writes them."""
    schema = _layout(kind).schema
    keys = pa.record_batch({"k": kind.array(kind.extreme)})
    document = KeyRanges.of(keys).filter(schema)
    assert document is not None
    assert encode_json(schema.find_type("k"), kind.extreme[-1]) in document


def test_fields_dropped_in_format_version_1_are_null() -> None:
    """A partition has a value for each field of its spec, the dropped ones too."""
    schema = build_table_schema(pa.schema([("id", pa.int64())]), (), frozenset(), nanoseconds=False)
    dropped = PartitionField(source_id=7, field_id=1000, transform=VoidTransform(), name="gone")
    bucket = PartitionField(source_id=1, field_id=1001, transform=BucketTransform(4), name="b")
    rows = pa.record_batch({"id": pa.array([1, 2, 3])})
    [(only, _)] = split_by_partition(rows, PartitionSpec(dropped), schema)
    assert (only.path, only.json) == ("", (None,))
    assert {
        len(partition.json) for partition, _ in split_by_partition(rows, PartitionSpec(dropped, bucket), schema)
    } == {2}
    assert all(
        partition.path.startswith("b=")
        for partition, _ in split_by_partition(rows, PartitionSpec(dropped, bucket), schema)
    )


def test_names_of_folders_are_short() -> None:
    """A long value makes no name that a store refuses; two of them keep apart."""
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform="identity", name="k"))
    rows = pa.record_batch({"k": ["x" * 5000, "x" * 5001]})
    paths = {partition.path for partition, _ in split_by_partition(rows, spec, _layout(STRING).schema)}
    assert len(paths) == 2
    assert max(map(len, paths)) < 255


def test_metrics_of_no_rows() -> None:
    """A file without rows has no bounds."""
    assert FileMetrics.of(_layout(STRING).schema, ()).describe()["lower_bounds"] == {}


def test_only_keys_are_known() -> None:
    """Where fewer columns than the identifier fields tell rows apart, the bounds of these are known, and no others."""
    schema = build_table_schema(
        pa.schema([("a", pa.int64()), ("b", pa.int64())]), ("a", "b"), frozenset(), nanoseconds=False
    )
    narrow = TableLayout("d.t", "u", "/", schema.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, {}, {}, ("b",))
    told = {"keys": [1, 2], "values": [(7).to_bytes(8, "little").hex(), (9).to_bytes(8, "little").hex()]}
    file = FileDescription.of({"file-path": "f", "content": "data", "lower-bounds": told, "upper-bounds": told})
    known = widen_bounds(KeyBounds.nothing(), narrow, [file])
    assert known.bounds == {"b": (9, 9)}
    assert may_exist({"b": pa.array([8, 9])}, known).tolist() == [False, True]


@pytest.mark.parametrize("kind", [k for k in KEY_TYPES if k.name in ("float", "double")], ids=lambda kind: kind.name)
def test_partitions_of_numbers_without_digits(kind: KeyType) -> None:
    """NaN and the infinities are values of a partition like others, each once, and no null."""
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform="identity", name="k"))
    rows = pa.record_batch({"k": kind.array([float("nan"), float("inf"), float("nan"), -float("inf"), 1.5])})
    found = {part.json: len(rows) for part, rows in split_by_partition(rows, spec, _layout(kind).schema)}
    assert found == {("NaN",): 2, ("Infinity",): 1, ("-Infinity",): 1, (1.5,): 1}
    named = [parse_non_finite("DOUBLE", name) for name in ("NaN", "Infinity", "-Infinity")]
    assert list(map(str, named)) == ["nan", "inf", "-inf"]
    assert (parse_non_finite("STRING", "NaN"), parse_non_finite("DOUBLE", 1.5)) == (None, None)


def _partitions(kind: KeyType, values: list[Any], transform: Any) -> pa.Array:
    field = PartitionField(source_id=1, field_id=1000, transform=transform, name="b")
    return _partition_values(pa.record_batch({"k": kind.array(values)}), field, _layout(kind).schema)


def _count(name: str, days: int, hours: int) -> int:
    """Years, months, days or hours since 1970, by the calendar's own arithmetic (days from the era's March)."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    rest = day - (365 * year + year // 4 - year // 100)
    month = (5 * rest + 2) // 153
    month, year = (month + 3, year) if month < 10 else (month - 9, year + 1)
    years = year + era * 400 - 1970
    return {"year": years, "month": years * 12 + month - 1, "day": days, "hour": (hours + 2**31) % 2**32 - 2**31}[name]


TIMES = [k for k in KEY_TYPES if k.name.startswith(("date", "timestamp"))]


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
@pytest.mark.parametrize("kind", TIMES, ids=lambda kind: kind.name)
def test_partitions_of_times_of_any_year(kind: KeyType, transform: str) -> None:
    """A time has the partition of its year, whichever that is: infinities are in none of null."""
    if (kind.name, transform) == ("date", "hour"):
        return
    rng = Random(7)
    values = [*kind.extreme, *(kind.draw(rng) for _ in range(500)), None]
    unit = {"date": 1, "timestamp": 86_400 * 10**6}.get(kind.name.removesuffix("tz"), 86_400 * 10**9)
    made = _partitions(kind, values, transform)
    told = [None if v is None else _count(transform, v // unit, v * 24 // unit) for v in values]
    assert made.to_pylist() == told


@pytest.mark.parametrize("kind", [k for k in TIMES if k.nanoseconds], ids=lambda kind: kind.name)
def test_buckets_of_nanoseconds(kind: KeyType) -> None:
    """Nanoseconds are in the bucket of their microsecond, before 1970 too (Iceberg's spec, "Hash Functions")."""
    values = [*kind.extreme, -1, -999, -1000, -1001, None]
    micros = pa.array([None if v is None else v // 1000 for v in values]).cast(pa.timestamp("us"))
    wanted = BucketTransform(97).pyarrow_transform(TimestampType())(micros)
    assert _partitions(kind, values, BucketTransform(97)).to_pylist() == wanted.to_pylist()


def _stored(stored: Any, nans: int | None = None, nulls: int = 0, ends: tuple[bytes, ...] = ()) -> Any:
    """A file of two rows under a partition value, as PyIceberg tells of it; `ends` are its bounds."""
    lower, upper = ({1: end} for end in (ends or (None, None)))
    counts = {"value_counts": {1: 2}, "null_value_counts": {1: nulls}, "nan_value_counts": {1: nans}}
    return SimpleNamespace(partition=[stored], **counts, lower_bounds=lower, upper_bounds=upper)


def _long(*values: int) -> tuple[bytes, ...]:
    return tuple(value.to_bytes(8, "little", signed=True) for value in values)


FAR = 9_223_371_331_200_000_000
INFINITE = (to_bytes(DoubleType(), math.inf),) * 2
PLACED: dict[str, tuple[Any, Any, Any, Any]] = {
    "NaN": (IdentityTransform(), DoubleType(), _stored(None, nans=2), {0: "NaN"}),
    "infinity": (IdentityTransform(), DoubleType(), _stored(None, nans=0, ends=INFINITE), {0: "Infinity"}),
    "nulls": (IdentityTransform(), DoubleType(), _stored(None, nans=0, nulls=2), {}),
    "a number": (IdentityTransform(), DoubleType(), _stored(1.5, nans=0), {}),
    "NaN beside a number": (IdentityTransform(), DoubleType(), _stored(None, nans=1), None),
    "NaN beside null": (IdentityTransform(), DoubleType(), _stored(None, nans=1, nulls=1), None),
    "a year": (YearTransform(), TimestampType(), _stored(None, ends=_long(FAR, FAR)), {0: 292277}),
    "another year": (YearTransform(), TimestampType(), _stored(54, ends=_long(FAR, FAR)), {0: 292277}),
    "its year": (YearTransform(), TimestampType(), _stored(292277, ends=_long(FAR, FAR)), {}),
    "two years": (YearTransform(), TimestampType(), _stored(None, ends=_long(0, FAR)), None),
    "a year beside null": (YearTransform(), TimestampType(), _stored(None, nulls=1, ends=_long(FAR, FAR)), None),
    "no bounds": (YearTransform(), TimestampType(), _stored(None), {}),
    "a day": (DayTransform(), TimestampType(), _stored(0, ends=_long(FAR, FAR)), {0: "+294247-01-02"}),
    "a date of two bounds": (MonthTransform(), DateType(), _stored(0, ends=(b"\0" * 4, b"\1" + b"\0" * 3)), {}),
    "nanoseconds before 1970": (HourTransform(), TimestamptzNanoType(), _stored(0, ends=_long(-2, -1)), {0: -1}),
}


@pytest.mark.parametrize("case", PLACED)
def test_what_a_file_tells_of_its_partition(case: str) -> None:
    """Counts and bounds tell which partition value is right for all rows of a file, that it is, or that none is."""
    transform, source, file, wanted = PLACED[case]
    fields = [CheckedField(0, "k", PartitionField(1, 1000, transform, "k"), source)]
    if wanted is None:
        with pytest.raises(MixedRows):
            find_right_values(file, fields)
    else:
        assert find_right_values(file, fields) == wanted
