"""Arrow arrays -> numpy views, masks and columns within structs: what every reader and writer of columns needs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def view_bytes(text: pa.StringArray) -> tuple[Bytes, Ints, Ints]:
    """Value bytes, starts and ends of a string or binary array (32-bit offsets), slices honoured."""
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    data = text.buffers()[2]
    return np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), bounds[:-1], bounds[1:]


def longest_text(text: pa.StringArray) -> int:
    """Bytes of the longest value of a string or binary array (32-bit offsets) that is not empty, slices honoured."""
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    return int(np.diff(bounds).max())


def valid_mask(array: pa.Array) -> Mask:
    """True where there is a value."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def children(array: pa.StructArray) -> list[pa.Array]:
    """Return the columns of a struct array, null where the struct is: below a null struct the JSON reader may leave
    empty values.
    """
    columns: list[pa.Array] = array.flatten()
    return columns


def child_at(array: pa.StructArray, index: int) -> pa.Array:
    """Return one column of a struct array, null where the struct is. Cost: a mask, none where no struct is null."""
    return pc.struct_field(array, index) if array.null_count else array.field(index)


def column_at(array: pa.StructArray, path: str) -> pa.Array | None:
    """Return the column of that name, else the one at that dotted path, null where a struct above it is; None when
    there is none.
    """
    index = array.type.get_field_index(path)
    if index >= 0:
        return child_at(array, index)
    name, dot, rest = path.partition(".")
    index = array.type.get_field_index(name) if dot else -1
    if index < 0 or not pa.types.is_struct(array.type.field(index).type):
        return None
    return column_at(child_at(array, index), rest)


def with_columns(array: pa.StructArray, columns: Mapping[str, pa.Array]) -> pa.StructArray:
    """Return the structs with these columns instead of those of the same names, new ones last; null where they were."""
    by_name = dict(zip(array.type.names, children(array), strict=True))
    return _build_structs(array, {**by_name, **columns})


def without_columns(array: pa.StructArray, names: Container[str]) -> pa.StructArray:
    """Return the structs without the columns of these names; null where they were."""
    pairs = zip(array.type.names, children(array), strict=True)
    return _build_structs(array, {name: column for name, column in pairs if name not in names})


def _build_structs(like: pa.StructArray, columns: Mapping[str, pa.Array]) -> pa.StructArray:
    null_rows = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=null_rows)


def choose_values(one: pa.Array, other: pa.Array, which: Mask) -> pa.Array:
    """Return the values of one column, and of the other where marked; of any type, which both have."""
    return pa.concat_arrays([one, other]).take(pa.array(np.arange(len(one)) + np.where(which, len(one), 0)))


def place_others(count: int, at: Sequence[int] | Ints) -> pa.Array:
    """Return which of `count` rows and others behind them to take, so that the others stand at the places `at`."""
    places = np.arange(count)
    places[at] = count + np.arange(len(at))
    return pa.array(places)


def count_list_offsets(owners: Ints, count: int) -> pa.Array:
    """Return the offsets of `count` lists whose items, in their order, belong to these."""
    return pa.array(np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]), pa.int32())


def unify_floats(column: pa.Array) -> pa.Array:
    """Return a column of keys whose equal values are the same: zero has no sign, and one value is no number.

    Columns of other types are returned as they are.
    """
    if not pa.types.is_floating(column.type):
        return column
    numbers = np.asarray(column.fill_null(0))
    unified = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers + np.array(0, numbers.dtype))
    return pa.array(unified, column.type, mask=np.asarray(column.is_null()))
