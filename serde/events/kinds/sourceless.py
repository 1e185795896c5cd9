"""Envelopes without `source` -> envelopes whose source tells nothing, so that all that follows knows one kind.

Source: Flink's `debezium-json` format, which writes `before`, `after` and `op` alone (an update is a delete, then a
create), and Debezium's own events behind ReplaceField; MongoDB's images are texts, and `updateDescription` is beside
them. Their order is Kafka's: no position stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import Mask, child_at, children, valid_mask, with_columns
from serde.byte_windows import ByteWindows
from serde.messages import MessageBlock

IMAGES = frozenset({"before", "after"})
UPDATE_DESCRIPTION = "updateDescription"
"""What MongoDB's envelopes have, and no others: images beside it may be texts."""
ENVELOPE_FIELDS = frozenset({*IMAGES, "op", "source", "transaction", "ts_ms", "ts_us", "ts_ns", UPDATE_DESCRIPTION})
"""What envelopes have; a message with any other field beside is none without source."""
_NAME = ".Envelope"
_OPS = ("c", "r", "u", "d", "t", "m")


def is_sourceless_document(event: object) -> bool:
    """Tell of a parsed message whether it is an envelope without source."""
    if not isinstance(event, Mapping) or event.get("op") not in _OPS or event.get("source"):
        return False
    images = [event[name] for name in IMAGES if name in event]
    kinds = (dict, str) if UPDATE_DESCRIPTION in event else (dict,)
    return bool(images) and event.keys() <= ENVELOPE_FIELDS and all(one is None or type(one) in kinds for one in images)


def is_sourceless(block: MessageBlock, texts: ByteWindows | None = None) -> bool:
    """Tell whether all messages of a block are envelopes without source; `texts` as in `split_sourceless`."""
    return len(block.rows) > 0 and bool(_mark_sourceless(block, texts).all())


def split_sourceless(block: MessageBlock, texts: ByteWindows | None = None) -> list[MessageBlock]:
    """The messages that are envelopes without source, and the others, each in a block of its own; rows in order.

    texts: the JSON of messages without schema, by row: they tell of images that are null.
    """
    mask = _mark_sourceless(block, texts)
    if mask.all() or not mask.any():
        return [block]
    return [block.filter(mask), block.filter(~mask)]


def add_source(fields: pa.StructArray) -> pa.StructArray:
    """The events with a source that tells nothing."""
    return with_columns(fields, {"source": pa.repeat(pa.scalar({}, pa.struct([])), len(fields))})


def complete_envelopes(block: MessageBlock) -> list[MessageBlock]:
    """The messages of a schema, those without source with one that tells nothing."""
    names = block.fields.type.names
    if "source" in names and pa.types.is_struct(block.fields.type.field("source").type):
        return [block]
    if (block.name or "").endswith(_NAME) and "source" not in names and _has_images(block.fields.type):
        return [evolve(block, fields=add_source(block.fields))]
    if not ENVELOPE_FIELDS.issuperset(names):
        return [block]
    parts = split_sourceless(block)
    return [evolve(part, fields=add_source(part.fields)) if is_sourceless(part) else part for part in parts]


def _has_images(kind: pa.StructType) -> bool:
    types = {field.name: field.type for field in kind}
    images = [types[name] for name in IMAGES if name in types]
    return "op" in types and pa.types.is_string(types["op"]) and bool(images) and all(map(pa.types.is_struct, images))


def _mark_sourceless(block: MessageBlock, texts: ByteWindows | None) -> Mask:
    """Mark envelopes without source. Of a block in which all have one nothing but that is looked at."""
    fields, names = block.fields, block.fields.type.names
    source = child_at(fields, names.index("source")) if "source" in names else None
    if source is not None and _is_empty(source):
        source = None
    op = names.index("op") if "op" in names else -1
    if (source is not None and not source.null_count) or op < 0 or IMAGES.isdisjoint(names):
        return np.zeros(len(fields), np.bool_)
    if not pa.types.is_string(fields.type.field(op).type):
        return np.zeros(len(fields), np.bool_)
    columns = dict(zip(names, children(fields), strict=True))
    mask: Mask = pc.is_in(columns["op"], pa.array(_OPS)).to_numpy(zero_copy_only=False)
    mask = mask if source is None else mask & ~valid_mask(source)
    for name, column in columns.items():
        if name in IMAGES and pa.types.is_string(column.type):
            mask &= ~valid_mask(column) | _mark_described(mask, block, texts)
        elif name not in ENVELOPE_FIELDS or (name in IMAGES and not pa.types.is_struct(column.type)):
            mask &= ~valid_mask(column)
        if not mask.any():
            return mask
    return mask if texts is None else _drop_rows_without_images(mask, block, columns, texts)


def _mark_described(mask: Mask, block: MessageBlock, texts: ByteWindows | None) -> Mask:
    """Mark, among those of the mask, the messages that have an `updateDescription`, be it null."""
    if texts is None:
        return mask & (UPDATE_DESCRIPTION in block.fields.type.names)
    marked = mask.copy()
    if mask.any():
        marked[mask] = texts.pick(block.rows[mask]).contains(b'"%s"' % UPDATE_DESCRIPTION.encode())
    return marked


def _drop_rows_without_images(
    mask: Mask, block: MessageBlock, columns: Mapping[str, pa.Array], texts: ByteWindows
) -> Mask:
    """The mask without messages that have no image, not even null: the columns may be there for others only."""
    null = mask.copy()
    for name in IMAGES & columns.keys():
        null &= ~valid_mask(columns[name])
    if null.any():
        named = texts.pick(block.rows[null])
        mask[null] = np.logical_or.reduce([named.contains(b'"%s"' % name.encode()) for name in sorted(IMAGES)])
    return mask


def _is_empty(column: pa.Array) -> bool:
    """True for nothing but nulls, and structs of those."""
    if column.null_count == len(column):
        return True
    return pa.types.is_struct(column.type) and all(
        _is_empty(child_at(column, place)) for place in range(column.type.num_fields)
    )
