"""Laws of what leaves data files out: ranges of keys, and deletion vectors."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from connector.iceberg.keys.intervals import group_overlapping
from connector.iceberg.keys.key_ranges import MAX_RANGES, KeyRanges
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write import deletion_vectors

KEYS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    min_size=1,
    max_size=120,
)
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])


def _batch(rows: list[tuple[int, str, date]], first: str) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS)
    return batch.select([first, *(name for name in COLUMNS.names if name != first)])


def _holds(ranges: KeyRanges, row: dict[str, Any]) -> bool:
    row = {**row, "day": (row["day"] - date(1970, 1, 1)).days}
    return any(all(low <= row[name] <= high for name, (low, high) in each.items()) for each in ranges.ranges)


@given(st.lists(KEYS, min_size=1, max_size=4), st.sampled_from(COLUMNS.names))
def test_every_key_lies_in_a_range(tasks: list[list[tuple[int, str, date]]], first: str) -> None:
    """Whatever the keys, their tasks and the first column: no key is outside of the ranges, which stay few."""
    batches = [_batch(rows, first) for rows in tasks]
    ranges = KeyRanges.join(map(KeyRanges.of, batches))
    assert all(_holds(ranges, row) for batch in batches for row in batch.to_pylist())
    assert ranges.count == sum(map(len, tasks))
    assert len(ranges.ranges) <= MAX_RANGES


def test_ranges_leave_out_what_lies_between_groups_of_keys() -> None:
    """Keys in two places far apart give ranges that hold nothing of what is between."""
    keys = pa.record_batch({"id": pa.array([*range(100), *range(10_000, 10_100)])})
    ranges = KeyRanges.of(keys)
    assert not any(low <= 5_000 <= high for each in ranges.ranges for low, high in each.values())
    schema = build_table_schema(pa.schema([("id", pa.int64())]), ("id",), frozenset(), nanoseconds=False)
    assert orjson.loads(ranges.filter(schema) or "")["type"] == "or"


@pytest.mark.parametrize("kind", [pa.binary(), pa.time64("us"), pa.bool_()])
def test_keys_without_an_order_in_bounds_may_be_anywhere(kind: pa.DataType) -> None:
    """A key of a type that bounds do not order leaves no file out."""
    schema = build_table_schema(pa.schema([("k", kind)]), ("k",), frozenset(), nanoseconds=False)
    assert KeyRanges.of(pa.record_batch({"k": pa.nulls(2, kind)})).filter(schema) is None


@given(st.sets(st.integers(0, 2**40), min_size=1))
def test_a_vector_comes_back_as_it_was_written(positions: set[int]) -> None:
    """Any set of positions survives, for us and for PyIceberg's reader of Puffin files."""
    blob = deletion_vectors.encode_vector(BitMap64(positions))
    assert set(deletion_vectors.decode_vector(blob)) == positions
    place = deletion_vectors.VectorBlob(
        "file:/x.parquet", len(deletion_vectors.PUFFIN_MAGIC), len(blob), len(positions)
    )
    puffin = PuffinFile(deletion_vectors.PUFFIN_MAGIC + blob + deletion_vectors.encode_footer([place]))
    found = puffin.footer.blobs[0]
    assert found.properties == {"referenced-data-file": "file:/x.parquet", "cardinality": str(len(positions))}
    assert puffin.get_blob_payload(found) == blob


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_damaged_vector_is_refused(place: int, change: int) -> None:
    """One changed byte anywhere in a blob is noticed."""
    blob = bytearray(deletion_vectors.encode_vector(BitMap64(range(0, 90, 2))))
    blob[place % len(blob)] ^= change
    with pytest.raises(ValueError, match="damaged"):
        deletion_vectors.decode_vector(bytes(blob))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))))
def test_groups_are_apart_and_touch_within(lengths: list[tuple[int, int]]) -> None:
    """Every span is in one group; between two groups is a gap, and in none is one."""
    spans = [(low, low + length) for low, length in lengths]
    groups = group_overlapping(spans, lambda span: span)
    assert sorted(span for group in groups for span in group) == sorted(spans)
    hulls = [(group[0][0], max(high for _, high in group)) for group in groups]
    assert all(one[1] < other[0] for one, other in pairwise(hulls))
    inside = {number for low, high in spans for number in range(low, high + 1)}
    assert {number for low, high in hulls for number in range(low, high + 1)} == inside
