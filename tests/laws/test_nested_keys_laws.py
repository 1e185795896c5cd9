"""Keys within structs fold, hash and are written as the same keys do in columns of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import LongType, StringType

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch, read_columns, set_column
from connector.sink.fold.fold import fold
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

pytestmark = [pytest.mark.laws, pytest.mark.timeout(600)]

NAMES = ("s.id", "s.t.code")
PATHS = (("s", "id"), ("s", "t", "code"))
FLAT = pa.schema([("s.id", pa.int64()), ("s.t.code", pa.string())])
STRUCT = pa.struct([("more", pa.string()), ("id", pa.int64()), ("t", pa.struct([("code", pa.string())]))])
NESTED = pa.schema([("s", STRUCT)])
KEYS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "a,b"])), min_size=1, max_size=30)


def _nested(keys: list[tuple[int, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"s": {"id": i, "t": {"code": c}}} for i, c in keys], NESTED)


def _flat(keys: list[tuple[int, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(NAMES, key, strict=True)) for key in keys], FLAT)


def _part(rows: pa.RecordBatch, start: int) -> ChangeBatch:
    count = rows.num_rows
    none, at = np.full(count, NO_VALUE), np.arange(start, start + count)
    order = ChangeOrder(
        np.zeros(count, np.int64), at, at, none, unknown_positions(count), np.full(count, ord("u"), np.uint8)
    )
    return ChangeBatch(rows, order, np.zeros(count, np.bool_), np.ones(count, np.bool_))


@given(st.lists(KEYS, min_size=1, max_size=3), st.integers(1, 5))
def test_they_fold_and_part_as_flat_keys(batches: list[list[tuple[int, str]]], buckets: int) -> None:
    """The same changes win, and every key is in the same bucket, also after a part has travelled."""
    starts = np.cumsum([0, *map(len, batches)]).tolist()
    flat = [_part(_flat(keys), start) for keys, start in zip(batches, starts, strict=False)]
    nested = [_part(_nested(keys), start) for keys, start in zip(batches, starts, strict=False)]
    nested = [unpack(pack(part), NESTED) for part in nested]
    assert fold(nested, NAMES).winners.tolist() == fold(flat, NAMES).winners.tolist()
    kinds = list(zip(NAMES, (LongType(), StringType()), strict=True))
    for one, other in zip(nested, flat, strict=True):
        parted = [
            [(bucket, piece.order.offset.tolist()) for bucket, piece in split_by_bucket(part, kinds, buckets)]
            for part in (one, other)
        ]
        assert parted[0] == parted[1]
        assert KeyRanges.of(read_batch(one.rows, NAMES)) == KeyRanges.of(read_batch(other.rows, NAMES))


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.text(max_size=2)), max_size=20), st.data())
def test_what_is_put_is_found(keys: list[tuple[int | None, str | None]], data: st.DataObject) -> None:
    """Values put into structs, null ones too, come out as they went in; whatever else is there stays."""
    before = data.draw(st.lists(st.none() | st.just({"more": "m"}), min_size=len(keys), max_size=len(keys)))
    columns = {"s": pa.array(before, STRUCT)}
    leaves = [pa.array([key[place] for key in keys], field.type) for place, field in enumerate(FLAT)]
    for path, leaf in zip(PATHS, leaves, strict=True):
        set_column(columns, path, leaf)
    rows = pa.RecordBatch.from_arrays([columns["s"]], schema=NESTED)
    assert [column.to_pylist() for column in read_columns(rows, NAMES)] == [leaf.to_pylist() for leaf in leaves]
    assert [row and row["more"] for row in columns["s"].to_pylist()] == ["m" if was else None for was in before]
