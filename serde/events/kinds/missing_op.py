"""Envelopes whose `op` is missing or null -> the messages that are such: what they mean nobody can tell.

As a row of the table such an event would have columns `before`, `after` and `source`, and none of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, children, valid_mask
from serde.events.kinds.sourceless import ENVELOPE_FIELDS, IMAGES
from serde.messages import MessageBlock

_NAME = ".Envelope"
_CONNECTOR, _DATES = "connector", ("ts_ms", "ts_us", "ts_ns")


def mark_missing_op(block: MessageBlock) -> Mask:
    """Mark envelopes without `op`, in a block that `is_envelope` does not take for envelopes.

    Their schema's name tells them; without schema, a `source` that is Debezium's, an image, and nothing beside but what
    envelopes have. A row may have columns of these names: not all of that, and no other.
    """
    names, count = frozenset(block.fields.type.names), len(block.rows)
    if "op" in names or IMAGES.isdisjoint(names):
        return np.zeros(count, np.bool_)
    if block.schema_id:
        return np.full(count, (block.name or "").endswith(_NAME), np.bool_)
    columns = dict(zip(block.fields.type.names, children(block.fields), strict=True))
    mask = _mark_debeziums(columns["source"]) if "source" in names else np.zeros(count, np.bool_)
    if not mask.any():
        return mask
    images = np.zeros(count, np.bool_)
    for name, column in columns.items():
        if name in IMAGES:
            images |= valid_mask(column)
        if name not in ENVELOPE_FIELDS or (name in IMAGES and not _is_image(column.type)):
            mask &= ~valid_mask(column)
    return mask & images


def _mark_debeziums(source: pa.Array) -> Mask:
    """Mark where a source names its connector and has a date, as those of all connectors do."""
    if not pa.types.is_struct(source.type) or _CONNECTOR not in source.type.names:
        return np.zeros(len(source), np.bool_)
    fields = dict(zip(source.type.names, children(source), strict=True))
    has_date = np.zeros(len(source), np.bool_)
    for name in _DATES:
        if name in fields:
            has_date |= valid_mask(fields[name])
    is_named = pa.types.is_string(fields[_CONNECTOR].type)
    return valid_mask(source) & valid_mask(fields[_CONNECTOR]) & has_date & is_named


def _is_image(kind: pa.DataType) -> bool:
    """Whether it is a struct, or a text as MongoDB's are."""
    return bool(pa.types.is_struct(kind) or pa.types.is_string(kind))
