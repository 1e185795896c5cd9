"""datums of one schema -> wire columns: a pass over the schema reads each field of all datums in one step.

Cost: some thirty steps of numpy per field and piece, whatever the number of datums; items of arrays and maps are read
in rounds, the first of every datum, then the second. Few datums with many items are left to be read one by one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from serde.arrays import Ints, Mask, count_list_offsets, valid_mask
from serde.avro.codec import (
    Array,
    Boolean,
    Codec,
    Enum,
    Fixed,
    Float,
    Integer,
    LengthPrefixed,
    MapBlocks,
    Null,
    Optional,
    Record,
    Scalar,
    Union,
)
from serde.cursor import NEEDS_ROW_READER, OUTSIDE_SCHEMA, TOO_SHORT, Cursor
from serde.pieces import window_column

_FEW_DATUMS, _MANY_ITEMS = 32, 16
"""So few datums with more items than so many are read one by one."""


def read_column(codec: Codec, at: Cursor) -> pa.Array:  # noqa: PLR0911 - one case per type
    """Reads one field of every datum at the cursor; bad datums give any value."""
    if not len(at):
        return pa.array([], codec.wire)
    match codec:
        case Record():
            return _read_record(codec, at)
        case Optional():
            return _read_optional(codec, at)
        case Union():
            return _read_union(codec, at)
        case Array():
            rows, items = _read_items(codec.item, at)
            return pa.ListArray.from_arrays(count_list_offsets(rows, len(at)), items)
        case MapBlocks():
            return _read_map(codec, at)
        case _:
            return _read_scalar(codec, at)


def _read_scalar(codec: Scalar, at: Cursor) -> pa.Array:  # noqa: PLR0911 - one case per type
    match codec:
        case Null():
            return pa.nulls(len(at))
        case Boolean():
            return _read_boolean(at)
        case Integer():
            return _read_integer(codec, at)
        case Float():
            return _read_float(codec, at)
        case LengthPrefixed():
            return _read_sized(at, at.varint(), text=codec.text)
        case Fixed():
            return _read_sized(at, np.full(len(at), codec.size, np.int64), text=False)
        case Enum():
            index = _check_index(at, at.varint(), len(codec.symbols))
            return _symbol_array(codec.symbols).take(pa.array(index))


def skip_column(codec: Codec, at: Cursor) -> None:
    """Goes behind a field that nobody wants; text is not looked at."""
    match codec:
        case Null():
            return
        case Boolean():
            at.byte()
        case Integer() | Enum():
            at.pass_varint()
        case Float() | Fixed():
            at.windows(np.full(len(at), codec.size, np.int64))
        case LengthPrefixed():
            at.windows(at.varint())
        case Record():
            for member in codec.members:
                skip_column(member.codec, at)
        case Optional() if not isinstance(codec.codec, Union | Array | MapBlocks):
            _skip_optional(codec, at)
        case _:
            read_column(codec, at)


def _skip_optional(codec: Optional, at: Cursor) -> None:
    present = _read_branch(at, codec.count) != codec.null
    if present.all():
        skip_column(codec.codec, at)
    elif present.any():
        index = np.flatnonzero(present)
        below = at.pick(index)
        skip_column(codec.codec, below)
        at.put(index, below)


def _read_boolean(at: Cursor) -> pa.Array:
    flags = at.byte()
    wrong = flags > 1
    if wrong.any():
        at.fail(wrong, OUTSIDE_SCHEMA)
    return pa.array(flags == 1)


def _read_integer(codec: Integer, at: Cursor) -> pa.Array:
    value = at.varint()
    if codec.bits == 64:  # noqa: PLR2004
        return pa.array(value)
    narrow = value.astype(np.int32)
    wrong = narrow != value
    if wrong.any():
        at.fail(wrong, OUTSIDE_SCHEMA)
    return pa.array(narrow)


def _read_float(codec: Float, at: Cursor) -> pa.Array:
    words = at.piece.load(at.fixed(codec.size))
    if codec.size == 4:  # noqa: PLR2004
        return pa.array(words.astype(np.uint32).view(np.float32))
    return pa.array(words.view(np.float64))


def _read_sized(at: Cursor, sizes: Ints, *, text: bool) -> pa.Array:
    starts, sizes = at.windows(sizes)
    return window_column(at, starts, sizes, text=text)


def _check_index(at: Cursor, index: Ints, count: int) -> Ints:
    """Marks datums bad whose index is not one of `count`."""
    wrong = (index < 0) | (index >= count)
    if not wrong.any():
        return index
    at.fail(wrong, OUTSIDE_SCHEMA)
    return np.where(wrong, 0, index)


@lru_cache(maxsize=256)
def _symbol_array(symbols: tuple[str, ...]) -> pa.StringArray:
    return pa.array(symbols, pa.string())


def _read_record(codec: Record, at: Cursor) -> pa.StructArray:
    columns: list[pa.Array] = []
    for member in codec.members:
        if member.wanted:
            columns.append(read_column(member.codec, at))
        else:
            skip_column(member.codec, at)
    if not columns:
        return pa.array([{}] * len(at), codec.wire)
    return pa.StructArray.from_arrays(columns, fields=list(codec.wire))


def _read_branch(at: Cursor, count: int) -> Ints:
    return _check_index(at, at.varint(), count)


def _read_optional(codec: Optional, at: Cursor) -> pa.Array:
    return _read_present(codec.codec, at, _read_branch(at, codec.count) != codec.null)


def _read_present(codec: Codec, at: Cursor, present: Mask) -> pa.Array:
    """The column of those datums that have the value, null for the others."""
    if present.all():
        return read_column(codec, at)
    if not present.any():
        return pa.nulls(len(at), codec.wire)
    index = np.flatnonzero(present)
    below = at.pick(index)
    values = read_column(codec, below)
    at.put(index, below)
    place = np.cumsum(present) - 1
    return values.take(pa.array(place, mask=~present))


def _read_union(codec: Union, at: Cursor) -> pa.StructArray:
    count = len(codec.branches) + (codec.null >= 0)
    chosen = _read_branch(at, count)
    null = chosen == codec.null
    columns = []
    for position, branch in enumerate(codec.branches):
        number = position + (0 <= codec.null <= position)
        columns.append(_read_present(branch.codec, at, chosen == number))
    mask = pa.array(null) if null.any() else None
    return pa.StructArray.from_arrays(columns, fields=list(codec.wire), mask=mask)


def _read_map(codec: MapBlocks, at: Cursor) -> pa.MapArray:
    rows, pairs = _read_items(codec.pair, at)
    keys, values = pairs.flatten()
    if keys.null_count:
        at.fail(rows[~valid_mask(keys)], OUTSIDE_SCHEMA)
        keep = pa.array(valid_mask(keys))
        rows, keys, values = rows[valid_mask(keys)], keys.filter(keep), values.filter(keep)
    return pa.MapArray.from_arrays(count_list_offsets(rows, len(at)), keys, values)


def _read_items(codec: Codec, at: Cursor) -> tuple[Ints, pa.Array]:
    """The items of all datums in order, and for each which datum (of the cursor) it belongs to."""
    owners: list[Ints] = []
    parts: list[pa.Array] = []
    index = np.arange(len(at))
    while len(index):
        below = at.pick(index)
        counts = _read_block_counts(below)
        at.put(index, below)
        _read_block(codec, at, index, counts, owners, parts)
        index = index[counts > 0]
    if not parts:
        return np.zeros(0, np.int64), pa.array([], codec.wire)
    rows, items = np.concatenate(owners), pa.concat_arrays(parts)
    if len(parts) > 1:
        order = np.argsort(rows, kind="stable")
        rows, items = rows[order], items.take(pa.array(order))
    return rows, items


def _read_block_counts(at: Cursor) -> Ints:
    """How many items the next block of each has; more than there are bytes cannot be."""
    counts = at.varint()
    negative = np.flatnonzero(counts < 0)
    if len(negative):
        below = at.pick(negative)
        below.pass_varint()
        at.put(negative, below)
        counts[negative] = -counts[negative]
    wrong = (counts < 0) | (counts > at.end - at.pos)
    if wrong.any():
        at.fail(wrong, TOO_SHORT)
        counts[wrong] = 0
    return counts


def _read_block(codec: Codec, at: Cursor, index: Ints, counts: Ints, owners: list[Ints], parts: list[pa.Array]) -> None:
    """Reads the items of one block of each datum at `index`: the first of all, the second of all ..."""
    for number in range(int(counts.max(initial=0))):
        active = index[counts > number]
        if number >= _MANY_ITEMS and len(active) <= _FEW_DATUMS:
            at.fail(active, NEEDS_ROW_READER)
            return
        below = at.pick(active)
        parts.append(read_column(codec, below))
        at.put(active, below)
        owners.append(active)
