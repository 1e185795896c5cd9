"""key columns -> a number of 64 bits per row, the same in every process: what rows are looked up by. Pure.

The number of a key that is one column of at most 8 bytes is the value itself, so equal numbers mean equal keys. Of
other keys it is a hash, and `values` tell equal keys from others of the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask

Words = npt.NDArray[np.uint64]

_WORD_BYTES, _WORD_DIGITS = 8, 18
_MAX_HASHED_BYTES = 4096
"""Of longer texts the beginning decides, and their length: keys have to be equal, not their hashes different."""

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _THIRD = np.uint64(32), np.uint64(29)


@attrs.frozen(eq=False)
class KeyHashes:
    """The numbers of rows, and the key columns as they are compared; these are empty where numbers tell keys apart."""

    hashes: Words
    values: tuple[pa.Array, ...] = ()

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.hashes)

    @staticmethod
    def concat(parts: Sequence[KeyHashes]) -> KeyHashes:
        """Put the rows of parts, at least one, one after the other."""
        columns = zip(*(part.values for part in parts), strict=True)
        values = tuple(pa.concat_arrays(list(column)) for column in columns)
        return KeyHashes(np.concatenate([part.hashes for part in parts]), values)

    def take(self, rows: Ints) -> KeyHashes:
        """Return some of the rows."""
        at = pa.array(rows)
        return KeyHashes(self.hashes[rows], tuple(column.take(at) for column in self.values))

    def is_equal(self, rows: Ints, other: KeyHashes, other_rows: Ints) -> Mask:
        """Mark the pairs of rows that have the same key, of pairs with the same number."""
        same = np.ones(len(rows), np.bool_)
        for mine, theirs in zip(self.values, other.values, strict=True):
            same &= np.asarray(pc.equal(mine.take(pa.array(rows)), theirs.take(pa.array(other_rows))))
        return same


def hash_keys(columns: Sequence[pa.Array]) -> KeyHashes:
    """Return the numbers of rows without nulls.

    Args:
        columns: at least one, aligned, in the types of the table. Neither lists nor maps nor structs.

    Cost: a few passes per column; of texts one per 8 bytes.
    """
    values = tuple(_to_comparable(column) for column in columns)
    if len(values) == 1 and pa.types.is_uint64(values[0].type):
        return KeyHashes(np.asarray(values[0]))
    result = np.full(len(columns[0]), _SEED)
    for value in values:
        _mix(result, np.asarray(value) if pa.types.is_uint64(value.type) else _hash_bytes(value))
    return KeyHashes(result, values)


def _to_comparable(column: pa.Array) -> pa.Array:
    """Return a column as numbers of 64 bits or as bytes, equal for equal values, as Spark's joins have it."""
    types, kind = pa.types, column.type
    if isinstance(column, pa.ExtensionArray):
        return column.storage.cast(pa.binary())
    if types.is_floating(kind):
        # Zero has no sign there, and what is no number equals itself.
        numbers = np.asarray(column.cast(pa.float64())) + 0.0
        return pa.array(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64))
    if types.is_decimal(kind):
        return _decimal_to_comparable(column)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_temporal(kind):
        number = column.cast(pa.int32()) if types.is_date32(kind) else column
        return number.cast(pa.int64()).view(pa.uint64())
    return column.cast(pa.binary())


def _decimal_to_comparable(column: pa.Decimal128Array) -> pa.Array:
    words = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    if column.type.precision <= _WORD_DIGITS:
        return pa.array(np.ascontiguousarray(words[::2]))
    return pa.Array.from_buffers(pa.binary(16), len(column), [None, pa.py_buffer(words)]).cast(pa.binary())


def _hash_bytes(column: pa.BinaryArray) -> Words:
    """Return a hash of each value: a word after the other, of all values that are as long."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    # A word is read at any byte, also at the last one.
    padded: Any = np.zeros(last - first + _WORD_BYTES, np.uint8)
    if data is not None:
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    words = np.ndarray((last - first + 1,), np.dtype("<u8"), padded, strides=(1,))
    starts, lengths = ends[:-1] - first, np.diff(ends)
    result = np.full(len(column), _SEED)
    _mix(result, lengths.view(np.uint64))
    longest = min(int(lengths.max(initial=0)), _MAX_HASHED_BYTES)
    for begin in range(0, longest, _WORD_BYTES):
        rows = np.flatnonzero(lengths > begin)
        remaining = np.minimum(lengths[rows] - begin, _WORD_BYTES)
        unused = ((_WORD_BYTES - remaining) * 8).astype(np.uint64)
        part = result[rows]
        _mix(part, (words[starts[rows] + begin] << unused) >> unused)
        result[rows] = part
    return result


def _mix(result: Words, more: Words) -> None:
    """Take further words into hashes, in place."""
    result ^= more
    for multiplier, shift in zip(_MULTIPLIERS, (_HALF, _THIRD), strict=True):
        result ^= result >> shift
        result *= multiplier
    result ^= result >> _HALF
