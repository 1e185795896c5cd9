"""messages as columns -> the same without columns that hold nothing, but for those that somebody knows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import children
from serde.connect.logical_columns import replace_children
from serde.events.kinds.cloudevents import CLOUD_EVENT_FIELDS, holds_images, is_framed

_IMAGES = ("before", "after")


def prune_empty(array: pa.StructArray, known: pa.StructType | None = None) -> pa.StructArray:
    """The struct array without columns that hold nothing: what messages of before had there gives none a type.

    known: the columns of the rows, or of the images of an envelope. Whatever such a column has that is not null stays,
    also where it holds nothing: an empty object or list is another value than null, or one that does not fit. So do
    images: one whose columns are all null is a row of nulls, and not none.
    """
    rows = _prune_struct(array, _wrap_columns(array, pa.struct([]) if known is None else known))
    return pa.array([{}] * len(array), pa.struct([])) if rows is None else rows


def prune_rows(rows: pa.StructArray, known: pa.StructType) -> pa.StructArray:
    """The same of rows that are flattened: their columns are those of the table."""
    if not any(map(pa.types.is_nested, (field.type for field in rows.type))):
        return rows
    pruned = _prune_struct(rows, known)
    return replace_children(rows, [], []) if pruned is None else pruned


def name_as_written(known: pa.StructType, events: pa.StructType) -> pa.StructType:
    """The known columns, and under their own names those of rows, or images, that differ from them in case only.

    Of any type: what is there is judged when both have one name.
    """
    exact, folded = set(known.names), {name.lower() for name in known.names}
    parts = [events, *(field.type for field in events if field.name in _IMAGES and pa.types.is_struct(field.type))]
    written = dict.fromkeys(name for part in parts for name in part.names)
    others = [name for name in written if name not in exact and name.lower() in folded]
    return pa.struct([*known, *(pa.field(name, pa.null()) for name in others)]) if others else known


def _wrap_columns(array: pa.StructArray, columns: pa.StructType) -> pa.StructType:
    """The type of events whose rows, or images, have these columns."""
    names = {field.name for place, field in enumerate(array.type) if array.field(place).null_count < len(array)}
    images = pa.struct([(name, columns) for name in _IMAGES])
    has_source = names >= {"op", "source"} and pa.types.is_struct(array.type.field("source").type)
    if has_source and not names.isdisjoint(images.names):
        return images
    if not names >= CLOUD_EVENT_FIELDS or not pa.types.is_struct(array.type.field("data").type):
        return columns
    data = array.type.field("data").type
    framed = is_framed(data.names) and pa.types.is_struct(data.field("payload").type)
    if not holds_images(names, data.field("payload").type.names if framed else data.names):
        return columns
    images = pa.struct([("payload", images)]) if framed else images
    return pa.struct([("data", images)])


def _null_column(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a known type without any value but structs, which are where they were."""
    if not (pa.types.is_struct(kind) and pa.types.is_struct(array.type)):
        return pa.nulls(len(array), kind)
    # Only what the messages name: what they do not, such as the columns of add.fields, others may fill in.
    below = dict(zip(array.type.names, children(array), strict=True))
    fields = [field for field in kind if field.name in below]
    columns = [_null_column(below[field.name], field.type) for field in fields]
    return replace_children(array, columns, [f.with_type(c.type) for f, c in zip(fields, columns, strict=True)])


def _null_mask(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _prune_column(array: pa.Array, known: pa.DataType | None) -> pa.Array | None:
    """The column, None where it holds nothing: only nulls, and where it is not known, empty objects and lists too."""
    if array.null_count == len(array):
        return None
    if pa.types.is_struct(array.type):
        if known is not None and not pa.types.is_struct(known):
            return array
        struct = _prune_struct(array, known)
        return _null_column(array, known) if struct is None and known is not None else struct
    if pa.types.is_list(array.type):
        if known is not None and not pa.types.is_list(known):
            return array
        return _prune_list(array, None if known is None else known.value_type)
    return array


def _prune_struct(array: pa.StructArray, known: pa.StructType | None) -> pa.StructArray | None:
    kept: dict[str, pa.Array] = {}
    expected = {} if known is None else {field.name: field.type for field in known}
    for child, column in zip(array.type, children(array), strict=True):
        pruned = _prune_column(column, expected.get(child.name))
        if pruned is not None:
            kept[child.name] = pruned
    fields = [pa.field(name, column.type) for name, column in kept.items()]
    if fields == list(array.type) and fields:
        return array
    return pa.StructArray.from_arrays(list(kept.values()), fields=fields, mask=_null_mask(array)) if kept else None


def _prune_list(array: pa.ListArray, known: pa.DataType | None) -> pa.ListArray | None:
    items = array.flatten()
    pruned = _prune_column(items, known)
    if pruned is None:
        return None if known is None else array
    if pruned.type == items.type:
        return array
    sizes = np.concatenate([[0], np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False))])
    return pa.ListArray.from_arrays(pa.array(sizes, pa.int32()), pruned, mask=_null_mask(array))
