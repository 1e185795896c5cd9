"""A table's changes on their way through a batch: columns of rows with what decides between them.

map task:    decoded rows -> `ChangeBatch`s -> folded -> packed by bucket
reduce task: unpacked `ChangeBatch`s -> folded -> files
A packed part is one Arrow IPC message, so the shuffle moves a few large values and needs no schema of any table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IcebergType

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.types.nested_columns import read_column
from connector.sink.fold.winners import ChangeOrder, Decision, find_last_known, find_row_images
from serde.arrays import Ints, Mask

_BUCKET_HASH: BucketTransform[int] = BucketTransform(2**31 - 1)
MAX_CONCAT_BYTES = 8 * 1024**2
"""Arrow bytes of parts up to which copying them together pays."""

_ORDER_NAMES = tuple(field.name for field in attrs.fields(ChangeOrder))
_MASKS = ("deleted", "image", "suspect")


@attrs.frozen(eq=False)
class ChangeBatch:
    """Changes of one table, aligned: the table's columns, their order, and what kind of change each is.

    `deleted` marks changes after which the key is gone; `image` those that carry a row (a tombstone does not);
    `suspect` those that may be older than what the table holds (`fold.watermarks`).
    """

    rows: pa.RecordBatch
    order: ChangeOrder
    deleted: Mask
    image: Mask
    suspect: Mask = attrs.field(
        default=attrs.Factory(lambda self: np.zeros(len(self.deleted), np.bool_), takes_self=True)
    )

    def __len__(self) -> int:
        return self.rows.num_rows

    @cached_property
    def size_bytes(self) -> int:
        """Arrow bytes of the rows; looking at every buffer costs more than few rows do."""
        return int(self.rows.nbytes)

    def take(self, indices: Ints) -> ChangeBatch:
        """Give the same columns at `indices`."""
        rows, order = self.rows.take(pa.array(indices)), self.order.take(indices)
        return ChangeBatch(rows, order, *(getattr(self, name)[indices] for name in _MASKS))

    @staticmethod
    def concat(parts: Sequence[ChangeBatch]) -> ChangeBatch:
        """Join parts end to end; at least one."""
        rows = pa.concat_batches([part.rows for part in parts])
        masks = (np.concatenate([getattr(part, name) for part in parts]) for name in _MASKS)
        return ChangeBatch(rows, ChangeOrder.concat([part.order for part in parts]), *masks)


@attrs.frozen(eq=False)
class FoldedChanges:
    """The outcome of a fold over several parts; indices count through the parts in turn.

    `images[i]` is the change whose row stands for `winners[i]`, or -1 where none is known. `decision` is why.
    """

    parts: tuple[ChangeBatch, ...]
    winners: Ints
    images: Ints
    decision: Decision | None = None


def concat_small(parts: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Make one part of several small ones: what is done per part and column costs more than few rows do."""
    if len(parts) < 2 or sum(part.size_bytes for part in parts) > MAX_CONCAT_BYTES:  # noqa: PLR2004
        return list(parts)
    return [ChangeBatch.concat(parts)]


def compute_key_codes(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> Ints:
    """Give each change of all parts in turn a number that is equal for equal keys."""
    return encode_keys([pa.concat_arrays([read_column(part.rows, name) for part in parts]) for name in keys])


def fold(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> FoldedChanges:
    """Find the winning change of each key among all parts (rules: `fold.winners`)."""
    decision = Decision(compute_key_codes(parts, keys), ChangeOrder.concat([part.order for part in parts]))
    winning = _prefer_delete_events(parts, decision.codes, decision.order, decision.winners)
    standing = find_row_images(decision.codes, decision.order, winning, np.concatenate([part.image for part in parts]))
    return FoldedChanges(tuple(parts), winning, standing, decision)


def _prefer_delete_events(parts: Sequence[ChangeBatch], codes: Ints, order: ChangeOrder, winning: Ints) -> Ints:
    """Give for tombstones that only repeat the delete event before them that event: it has a date, they have none."""
    bare = np.concatenate([part.deleted & ~part.image for part in parts]) & order.bare
    if not bare[winning].any() or bare.all():
        return winning
    before = find_last_known(codes, order, ~bare)
    deleted = np.concatenate([part.deleted for part in parts])
    repeats = bare & deleted[before] & ~bare[before]
    return np.sort(np.where(repeats, before, np.arange(len(codes)))[winning])


def select_rows_to_keep(
    folded: FoldedChanges, keys: Sequence[str], also: Ints | None = None, *, numbered: bool = False
) -> list[ChangeBatch]:
    """Give what a later fold still needs (`fold.winners.kept`), the rows of tombstones, and those in `also`."""
    decision = folded.decision
    if decision is None:
        decision = Decision(
            compute_key_codes(folded.parts, keys), ChangeOrder.concat([part.order for part in folded.parts])
        )
    kept = decision.kept(numbered=numbered)
    which = np.zeros(len(decision.codes), np.bool_)
    which[_prefer_delete_events(folded.parts, decision.codes, decision.order, kept)] = which[folded.winners] = True
    which[folded.images[folded.images >= 0]] = True
    if also is not None:
        which[also] = True
    return gather(folded.parts, np.flatnonzero(which))


def find_last_deletes(parts: Sequence[ChangeBatch]) -> Ints:
    """Find the delete events that parts end with: tombstones of theirs may be in what another task reads.

    Returns:
        Indices that count through the parts in turn.
    """
    ends = np.cumsum([len(part) for part in parts]) - 1
    told = (part.deleted[-1] and not part.order.take(np.array([len(part) - 1])).bare[0] for part in parts)
    return ends[np.fromiter(told, np.bool_, len(ends))]


def gather(parts: Sequence[ChangeBatch], indices: Ints) -> list[ChangeBatch]:
    """Take changes by ascending indices that count through the parts in turn; parts without any are left out."""
    result, start = [], 0
    for part in parts:
        first, last = np.searchsorted(indices, [start, start + len(part)])
        if last > first:
            local = indices[first:last] - start
            result.append(part if len(local) == len(part) else part.take(local))
        start += len(part)
    return result


def split_by_bucket(
    part: ChangeBatch, keys: Sequence[tuple[str, IcebergType]], buckets: int
) -> Iterator[tuple[int, ChangeBatch]]:
    """Split a part so that a key is always in the same bucket, in every task and batch."""
    if buckets == 1:
        yield 0, part
        return
    codes = _hash_rows(part.rows, keys) % buckets
    sequence = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[sequence], np.arange(buckets + 1))
    for bucket in range(buckets):
        rows = sequence[starts[bucket] : starts[bucket + 1]]
        if len(rows):
            yield bucket, part.take(rows)


def _hash_rows(rows: pa.RecordBatch, keys: Sequence[tuple[str, IcebergType]]) -> Ints:
    result = np.zeros(rows.num_rows, np.int64)
    for name, kind in keys:
        hashed = _hash_column(read_column(rows, name), kind)
        result = (result * 31 + hashed) % (2**31 - 1)
    return result


def _hash_column(column: pa.Array, kind: IcebergType) -> Ints:
    if _BUCKET_HASH.can_transform(kind):
        return np.asarray(_BUCKET_HASH.pyarrow_transform(kind)(column).fill_null(0), dtype=np.int64)
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(0), dtype=np.int64)


def pack(part: ChangeBatch) -> bytes:
    """Give a part as one Arrow IPC stream."""
    columns = [_pack_column(getattr(part.order, name)) for name in _ORDER_NAMES]
    columns += [pa.array(getattr(part, name)) for name in _MASKS]
    names = [*part.rows.schema.names, *_ORDER_NAMES, *_MASKS]
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
    rest: list[Any] = [_unpack_column(column) for column in batch.columns[width:]]
    return ChangeBatch(rows, ChangeOrder(*rest[: len(_ORDER_NAMES)]), *rest[len(_ORDER_NAMES) :])
