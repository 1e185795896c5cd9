"""JSON messages without schema -> those of Debezium's side topics that no schema names: heartbeats, schema changes,
notifications, logical messages.

Each message is one by its own fields, whatever stands beside it: one that lacks a field, or has another one, is a row,
if only with a null there. Fields that are null tell it too; columns do not show them, so texts are looked at where
columns leave a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from serde.arrays import Mask, valid_mask
from serde.byte_windows import ByteWindows, window_array
from serde.events.kinds.event_kind import NOTIFICATION_FIELDS, SCHEMA_CHANGE_FIELDS
from serde.events.kinds.sourceless import ENVELOPE_FIELDS
from serde.faults import Unfit
from serde.json.row_reader import parse_message, unwrap_payload
from serde.messages import MessageBlock

HEARTBEAT = "Heartbeat"
HEARTBEAT_TYPE = pa.struct([("ts_ms", pa.int64())])
_HEARTBEAT = r'^\s*\{\s*"ts_ms"\s*:\s*[0-9]+\s*\}\s*$'
_MAX_HEARTBEAT_BYTES = 64

_TOLD = ("id", "aggregate_type", "type")


@frozen
class _SideEvent:
    """One kind: the last part of its schema's name, columns that all of them have, some of which each has one, rows
    seldom, and what proves a message one.
    """

    name: str
    columns: tuple[str, ...]
    marks: frozenset[str]
    proves: Callable[[Mapping[str, Any]], bool]


def _is_schema_change(event: Mapping[str, Any]) -> bool:
    if not isinstance(event.get("source"), dict) or not event.keys() <= SCHEMA_CHANGE_FIELDS:
        return False
    known = event.keys() & {"ddl", "tableChanges"}
    # Those of some connectors, or of older versions, lack one of both.
    return len(known) > 1 or (bool(known) and "connector" in event["source"])


def _is_notification(event: Mapping[str, Any]) -> bool:
    told = all(isinstance(event.get(name), str) for name in _TOLD)
    return told and {*_TOLD, "additional_data"} <= event.keys() <= NOTIFICATION_FIELDS


def _is_logical_message(event: Mapping[str, Any]) -> bool:
    told = event.get("op") == "m" and isinstance(event.get("source"), dict) and isinstance(event.get("message"), dict)
    images = event.get("before") is not None or event.get("after") is not None
    return told and not images and event.keys() <= ENVELOPE_FIELDS | {"message"}


_KINDS = (
    _SideEvent("SchemaChangeValue", ("source",), frozenset({"ddl", "tableChanges"}), _is_schema_change),
    _SideEvent("Notification", _TOLD, frozenset({"aggregate_type"}), _is_notification),
    _SideEvent("MessageValue", ("op", "source", "message"), frozenset({"message"}), _is_logical_message),
)


def mark_heartbeats(texts: ByteWindows) -> Mask:
    """Mark the JSON texts that have the time of a heartbeat, and nothing else."""
    mask: Mask = (texts.sizes <= _MAX_HEARTBEAT_BYTES) & (texts.sizes > 0)
    if mask.any():
        some = texts.pick(mask)
        data = window_array(some.data, some.starts, some.ends)
        mask[mask] = pc.match_substring_regex(data, _HEARTBEAT).to_numpy(zero_copy_only=False)
    return mask


def split_side_events(block: MessageBlock, texts: ByteWindows) -> list[MessageBlock]:
    """The side topics' messages of each kind, under the name of its schema, and the others; rows in order.

    texts: the messages, by row. Cost: Python for each message that has the columns of one.
    """
    parts = [block]
    for kind in _KINDS:
        rest = parts.pop(0)
        mask = _mark_kind(rest, texts, kind)
        if not mask.any():
            parts.insert(0, rest)
            continue
        found = evolve(rest.filter(mask), name=kind.name)
        if mask.all():
            return [found, *parts]
        parts = [rest.filter(~mask), found, *parts]
    return parts


def _mark_kind(block: MessageBlock, texts: ByteWindows, kind: _SideEvent) -> Mask:
    names = frozenset(block.fields.type.names)
    mask = np.zeros(len(block.rows), np.bool_)
    if not names.issuperset(kind.columns) or names.isdisjoint(kind.marks):
        return mask
    marks = np.logical_or.reduce([valid_mask(block.fields.field(name)) for name in names & kind.marks])
    likely = np.logical_and.reduce([marks, *(valid_mask(block.fields.field(name)) for name in kind.columns)])
    for place in np.flatnonzero(likely).tolist():
        mask[place] = _is_kind(texts.text(int(block.rows[place])), kind)
    return mask


def _is_kind(text: bytes, kind: _SideEvent) -> bool:
    try:
        event = unwrap_payload(parse_message(text))
    except Unfit:
        return False
    return isinstance(event, dict) and kind.proves(event)
