"""fields -> shape: envelope, flattened row or another kind of event, told by schema name or by the fields themselves.

Sources: Debezium's Envelope (op codes c r u d t m), transaction metadata, heartbeat, schema change and notification
schemas.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, valid_mask
from serde.byte_windows import ByteWindows
from serde.events.kinds.sourceless import split_sourceless
from serde.messages import MessageBlock

TRANSACTION_METADATA = "TransactionMetadataValue"
"""The name of the schema of BEGIN and END; messages without schema that are such get it too."""
_DEBEZIUM_NAMES = "io.debezium."
"""Begins the names of Debezium's own schemas; a record of anybody may be a `Notification`, too."""
_OTHER_NAMES = (
    TRANSACTION_METADATA,
    "TransactionMetadataKey",
    "Heartbeat",
    "SchemaChangeValue",
    "Notification",
    "MessageValue",
)
_COLLECTION = pa.struct([("data_collection", pa.string()), ("event_count", pa.int64())])
TRANSACTION_METADATA_TYPE = pa.struct(
    [("status", pa.string()), ("id", pa.string()), ("data_collections", pa.list_(_COLLECTION)), ("ts_ms", pa.int64())]
)
"""What END says, so that a message without schema which says something else does not change how others are read."""
_BEGIN, _END = (b'{"status":"%s","id":"' % status for status in (b"BEGIN", b"END"))
_TRANSACTION_WORDS = (b'"event_count"', b'"data_collections"')
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections", "ts_ms"})
SCHEMA_CHANGE_FIELDS = frozenset(
    {"source", "ts_ms", "ts_us", "ts_ns", "databaseName", "schemaName", "ddl", "tableChanges"}
)
NOTIFICATION_FIELDS = frozenset({"id", "aggregate_type", "type", "additional_data", "timestamp"})
_ENVELOPE = frozenset({"op", "source"})
_IMAGES = frozenset({"before", "after"})
_FLATTENED = frozenset({"__op", "__deleted"})
_SOURCE = frozenset({"connector", "ts_ms", "ts_us", "ts_ns"})
"""One of these, as every connector sends them, or no field at all: a source whose fields nobody reads."""


def field_names(kind: pa.StructType) -> frozenset[str]:
    """Names of the fields."""
    return frozenset(child.name for child in kind)


def is_envelope(kind: pa.StructType) -> bool:
    """True when a struct has op (text), source (struct) and an image, or nothing but what a truncate leaves of them.

    A flattened row may have columns of these names: what the transform added tells it, or that its source is no source.
    """
    names = field_names(kind)
    if not names >= _ENVELOPE or names & _FLATTENED or not pa.types.is_string(kind.field("op").type):
        return False
    source = kind.field("source").type
    if not pa.types.is_struct(source):
        return False
    known = not source.num_fields or bool(field_names(source) & _SOURCE)
    return bool(names & _IMAGES) or ("message" not in names and known)


def is_other_event(block: MessageBlock) -> bool:
    """True for events that are no row changes: transactions, heartbeats, schema changes, notifications,
    logical messages.
    """
    if block.name is not None and block.name.rsplit(".", 1)[-1] not in _OTHER_NAMES:
        return False
    if not block.schema_id:
        # Those without schema have got their names by what each of them is (`json.side_events`).
        return block.name is not None
    if (block.name or "").startswith(_DEBEZIUM_NAMES):
        return True
    kind = block.fields.type
    if field_names(kind) == {"ts_ms"} or _is_schema_change(kind) or _is_notification(kind):
        return True
    return _is_message(kind) or _has_transaction_fields(block)


def _is_schema_change(kind: pa.StructType) -> bool:
    """True for what a connector tells of its tables."""
    names = field_names(kind)
    if names >= {"source", "ddl", "tableChanges"}:
        return True
    if not {"source"} < names <= SCHEMA_CHANGE_FIELDS or not names & {"ddl", "tableChanges"}:
        return False
    source = kind.field("source").type
    return pa.types.is_struct(source) and "connector" in field_names(source)


def _is_notification(kind: pa.StructType) -> bool:
    names = field_names(kind)
    told = ("id", "aggregate_type", "type")
    return (
        names.issuperset((*told, "additional_data"))
        and names <= NOTIFICATION_FIELDS
        and all(pa.types.is_string(kind.field(name).type) for name in told)
    )


def _is_message(kind: pa.StructType) -> bool:
    names = field_names(kind)
    return (
        names >= _ENVELOPE
        and "message" in names
        and not names & _IMAGES
        and pa.types.is_struct(kind.field("source").type)
    )


def mark_transaction_metadata(texts: ByteWindows) -> Mask:
    """Mark the JSON texts that are BEGIN or END as Debezium writes them, whatever others are beside them."""
    mask = texts.starts_with(_BEGIN) | texts.starts_with(_END)
    for word in _TRANSACTION_WORDS if mask.any() else ():
        mask[mask] = texts.pick(mask).contains(word)
    return mask


def is_transaction_metadata(block: MessageBlock, texts: ByteWindows) -> bool:
    """Tell whether all messages of a block are BEGIN or END; `texts` are theirs, which tell of fields without value."""
    return _has_transaction_fields(block) and all(texts.contains(word).all() for word in _TRANSACTION_WORDS)


def _has_transaction_fields(block: MessageBlock) -> bool:
    names = field_names(block.fields.type)
    if not {"status", "id", "ts_ms"} <= names <= _TRANSACTION:
        return False
    status = block.fields.field("status")
    return pa.types.is_string(status.type) and pc.all(pc.is_in(status, pa.array(["BEGIN", "END"]))).as_py() is True


def split_event_kinds(block: MessageBlock, texts: ByteWindows) -> list[MessageBlock]:
    """Messages without schema: envelopes, with source or without, rows and what is between, each in a block of its own.

    texts: theirs, by row.
    """
    return [part for each in _split_by_fields(block, sorted(_ENVELOPE)) for part in split_sourceless(each, texts)]


def _split_by_fields(block: MessageBlock, marks: list[str]) -> list[MessageBlock]:
    """The messages that have all of these fields, those that have none, and the others; rows in order."""
    if not field_names(block.fields.type) >= set(marks):
        return [block]
    having = np.sum([valid_mask(block.fields.field(name)) for name in marks], axis=0)
    if (having == len(marks)).all():
        return [block]
    masks = (having == len(marks), having == 0, (having > 0) & (having < len(marks)))
    return [block.filter(mask) for mask in masks if mask.any()]
