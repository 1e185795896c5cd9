"""Envelopes -> their images, and which of the two is an event's row: `after`, of deletes `before`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import evolve

from serde.arrays import Mask, children, choose_values
from serde.events.kinds.event_kind import is_envelope
from serde.events.kinds.operations import OP_DELETE, Ops, encode_ops
from serde.messages import MessageBlock


def find_image(block: MessageBlock, name: str) -> pa.StructArray | None:
    """The column of an image; None when there is none in the whole block."""
    index = block.fields.type.get_field_index(name)
    if index < 0 or not pa.types.is_struct(block.fields.type.field(index).type):
        return None
    return block.fields.field(index)


def choose_images(after: pa.StructArray | None, before: pa.StructArray | None, op: Ops) -> pa.StructArray:
    """The image of each event: after, for deletes before; columns of both where the two differ."""
    deletes = op == OP_DELETE
    if before is None or (after is not None and not deletes.any()):
        return after if after is not None else pa.nulls(len(op), pa.struct([]))
    if after is None:
        return before.take(pa.array(np.arange(len(op)), mask=~deletes))
    if after.type != before.type:
        after, before = _align_images(after, before)
    return choose_values(after, before, deletes)


def _align_images(one: pa.StructArray, other: pa.StructArray) -> tuple[pa.StructArray, pa.StructArray]:
    """Both images with the fields of both."""
    kind = _merge_types(one.type, other.type)
    return one.cast(kind), other.cast(kind)


def _merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        kinds: dict[str, pa.DataType] = {child.name: child.type for child in one}
        for child in other:
            kinds[child.name] = _merge_types(kinds.get(child.name, child.type), child.type)
        return pa.struct(list(kinds.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merge_types(one.value_type, other.value_type))
    return other if pa.types.is_null(one) else one


def _is_compatible(one: pa.DataType, other: pa.DataType) -> bool:
    """True when no field is of one type here and of another there."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        mine = {child.name: child.type for child in one}
        return all(_is_compatible(mine.get(child.name, child.type), child.type) for child in other)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _is_compatible(one.value_type, other.value_type)
    return one == other or pa.types.is_null(one) or pa.types.is_null(other)


def split_images(block: MessageBlock) -> list[MessageBlock]:
    """The block; two where `before` and `after` have columns of different types: deletes are rows of the former."""
    if not is_envelope(block.fields.type):
        return [block]
    after, before = find_image(block, "after"), find_image(block, "before")
    if after is None or before is None or _is_compatible(after.type, before.type):
        return [block]
    deletes = encode_ops(block.fields.field("op")) == OP_DELETE
    parts = [(mask, name) for mask, name in ((~deletes, "before"), (deletes, "after")) if mask.any()]
    return [_drop_image(block, mask, name) for mask, name in parts]


def _drop_image(block: MessageBlock, mask: Mask, image: str) -> MessageBlock:
    """Some rows of a block, without an image that they do not need."""
    kept = [child.name for child in block.fields.type if child.name != image]
    columns = dict(zip((child.name for child in block.fields.type), children(block.fields), strict=True))
    fields = pa.StructArray.from_arrays([columns[name] for name in kept], names=kept).filter(pa.array(mask))
    optional = {path: flag for path, flag in block.optional.items() if path.partition(".")[0] != image}
    return evolve(block, rows=block.rows[mask], fields=fields, optional=optional)
