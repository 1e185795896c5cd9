"""Updates that tell the modified columns only -> the same with patches: what an update does not tell stays as it was.

A change stream of Spanner captures whole rows, or of an update the key and what was modified, all else null: with
OLD_AND_NEW_VALUES (its default) a column that was set to null has its value in `before`, with NEW_VALUES nothing tells
it from one that stays (`source.value_capture_type`).
Source: Spanner's documentation, "Change streams overview", value capture types; Debezium's Spanner page, "update
events".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import Mask, child_at, children, column_at, valid_mask, with_columns
from serde.events.images.cells import lacks_columns
from serde.events.images.document_patches import PATCH_COLUMN, format_row_patches
from serde.events.kinds.event_kind import is_envelope
from serde.messages import MessageBlock

CAPTURE_TYPE = "source.value_capture_type"
_MODIFIED_ONLY = pa.array(["OLD_AND_NEW_VALUES", "NEW_VALUES"])


def patch_modified_columns(block: MessageBlock, known: frozenset[str] = frozenset()) -> MessageBlock:
    """The block with a patch beside each row of which an update leaves columns out; other blocks as they are.

    known: columns that rows may have, as for `images.cells.unpack_envelopes`.
    """
    partial = _find_partial(block.fields)
    if partial is None:
        return block
    after = child_at(block.fields, block.fields.type.get_field_index("after"))
    before = column_at(block.fields, "before")
    names, values = after.type.names, children(after)
    pairs = zip(names, values, strict=True)
    given = np.column_stack([valid_mask(value) | _had_value(before, name) for name, value in pairs])
    patches = format_row_patches(names, given, values, partial, more=lacks_columns(block, after, known))
    if patches is None:
        return block
    rows = with_columns(after, {PATCH_COLUMN: patches})
    return evolve(block, fields=with_columns(block.fields, {"after": rows}))


def _find_partial(fields: pa.StructArray) -> Mask | None:
    """Mark the updates that may leave columns out; None without any."""
    told, after = column_at(fields, CAPTURE_TYPE), fields.type.get_field_index("after")
    if told is None or after < 0 or not pa.types.is_string(told.type) or not is_envelope(fields.type):
        return None
    if not pa.types.is_struct(fields.type.field(after).type) or not fields.type.field(after).type.num_fields:
        return None
    modified = np.asarray(pc.is_in(told, _MODIFIED_ONLY))
    updates = np.asarray(pc.equal(fields.field("op"), "u").fill_null(False))
    partial: Mask = modified & updates & valid_mask(fields.field(after))
    return partial if partial.any() else None


def _had_value(before: pa.Array | None, name: str) -> Mask | bool:
    if before is None or not pa.types.is_struct(before.type):
        return False
    column = column_at(before, name)
    return False if column is None else valid_mask(column)
