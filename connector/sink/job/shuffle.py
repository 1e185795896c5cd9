"""Changes -> bytes by bucket, for the shuffle from map tasks to reduce tasks, and back.

A packed part is one Arrow IPC message, so the shuffle moves a few large values and needs no schema of any table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IcebergType

from connector.iceberg.types.nested_columns import read_column
from connector.sink.model.change_rows import MASKS, ChangeBatch, ChangeOrder
from serde.arrays import Ints

_BUCKET_HASH: BucketTransform[int] = BucketTransform(2**31 - 1)
_PATCHES = "patches"

PACKED_BYTES = 4 * 1024**2
"""Arrow bytes of rows in one packed part, about."""
_ORDER_NAMES = tuple(field.name for field in attrs.fields(ChangeOrder))


def split_by_bucket(
    part: ChangeBatch, keys: Sequence[tuple[str, IcebergType]], buckets: int, chosen: Ints | None = None
) -> Iterator[tuple[int, ChangeBatch]]:
    """Split a part, or some rows of it, so that a key is always in the same bucket, in every task and batch."""
    chosen = None if chosen is None or len(chosen) == len(part) else chosen
    if buckets == 1:
        yield 0, part if chosen is None else part.take(chosen)
        return
    codes = hash_rows(part.rows, keys, chosen) % buckets
    sequence = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[sequence], np.arange(buckets + 1))
    sequence = sequence if chosen is None else chosen[sequence]
    for bucket in range(buckets):
        rows = sequence[starts[bucket] : starts[bucket + 1]]
        if len(rows):
            yield bucket, part.take(rows)


def slice_part(part: ChangeBatch) -> Iterator[ChangeBatch]:
    """Return a part in pieces of about `PACKED_BYTES`: what sends them gathers some before it writes."""
    rows = max(1, len(part) * PACKED_BYTES // max(1, part.size_bytes))
    if rows >= len(part):
        yield part
        return
    for start in range(0, len(part), rows):
        yield part.slice(start, rows)


def hash_rows(rows: pa.RecordBatch, keys: Sequence[tuple[str, IcebergType]], chosen: Ints | None = None) -> Ints:
    """Return a number for each row, or each of those at some places, that is equal for equal keys in every task and
    batch, less than 2**31 - 1.
    """
    result = np.zeros(rows.num_rows if chosen is None else len(chosen), np.int64)
    for name, kind in keys:
        column = read_column(rows, name)
        hashed = _hash_column(column if chosen is None else column.take(pa.array(chosen)), kind)
        result = (result * 31 + hashed) % (2**31 - 1)
    return result


def _hash_column(column: pa.Array, kind: IcebergType) -> Ints:
    if _BUCKET_HASH.can_transform(kind):
        if pa.types.is_decimal(column.type):
            # Those of a packed part lie at any multiple of 8 bytes; the hash takes 16, and panics otherwise.
            column = column.take(pa.array(np.arange(len(column))))
        return np.asarray(_BUCKET_HASH.pyarrow_transform(kind)(column).fill_null(0), dtype=np.int64)
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(0), dtype=np.int64)


def pack(part: ChangeBatch) -> bytes:
    """Return a part as one Arrow IPC stream."""
    columns = [_pack_column(getattr(part.order, name)) for name in _ORDER_NAMES]
    columns += [pa.array(getattr(part, name)) for name in MASKS]
    names = [*part.rows.schema.names, *_ORDER_NAMES, *MASKS]
    if part.patches is not None:
        columns, names = [*columns, part.patches], [*names, _PATCHES]
    batch = pa.RecordBatch.from_arrays([*part.rows.columns, *columns], names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _pack_column(column: npt.NDArray[Any]) -> pa.Array:
    if column.ndim == 1:
        return pa.array(column)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(column).ravel()), column.shape[1])


def _unpack_column(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        numbers: npt.NDArray[Any] = np.asarray(column.flatten()).reshape(-1, column.type.list_size)
        return numbers
    return np.asarray(column.to_numpy(zero_copy_only=False))


def unpack(data: pa.Buffer | bytes, columns: pa.Schema) -> ChangeBatch:
    """Read a packed part; `columns` is the table's Arrow schema that the part was made with."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    width = len(columns)
    rows = pa.RecordBatch.from_arrays(batch.columns[:width], schema=columns)
    last = width + len(_ORDER_NAMES) + len(MASKS)
    rest: list[Any] = [_unpack_column(column) for column in batch.columns[width:last]]
    patches = batch.column(last) if batch.num_columns > last else None
    return ChangeBatch(rows, ChangeOrder(*rest[: len(_ORDER_NAMES)]), *rest[len(_ORDER_NAMES) :], patches=patches)
