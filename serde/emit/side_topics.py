"""What happened beside the rows -> keys and values of Debezium's side topics: transactions, heartbeats, new schemas.

Schema names and fields: Debezium 3.7 (`SchemaFactory`); transactions as in the recorded fixtures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from serde.emit.connect_schema import Document, array, primitive, struct

_COMMON = "io.debezium.connector.common."


@frozen
class SideMessage:
    """A key or value: its payload, and the schema that JsonConverter would put beside it."""

    schema: Document
    payload: Mapping[str, Any]


def _text(*, optional: bool = False) -> Document:
    return primitive("string", optional=optional)


def _long(*, optional: bool = False) -> Document:
    return primitive("int64", optional=optional)


def transaction_key(transaction: str) -> SideMessage:
    """The key of a transaction's BEGIN and END."""
    schema = struct({"id": _text()}, optional=False, name=_COMMON + "TransactionMetadataKey", version=1)
    return SideMessage(schema, {"id": transaction})


def transaction_begin(transaction: str, ts_ms: int) -> SideMessage:
    """The value that opens a transaction."""
    return _transaction({"status": "BEGIN", "id": transaction, "event_count": None}, None, ts_ms)


def transaction_end(transaction: str, ts_ms: int, counts: Mapping[str, int]) -> SideMessage:
    """The value that closes a transaction; `counts` are events per data collection (`<schema>.<table>`)."""
    collections = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
    return _transaction({"status": "END", "id": transaction, "event_count": sum(counts.values())}, collections, ts_ms)


def _transaction(start: Mapping[str, Any], collections: Sequence[Mapping[str, Any]] | None, ts_ms: int) -> SideMessage:
    collection = struct(
        {"data_collection": _text(), "event_count": _long()}, optional=True, name="event.collection", version=1
    )
    fields = {
        "status": _text(),
        "id": _text(),
        "event_count": _long(optional=True),
        "data_collections": array(collection, optional=True),
        "ts_ms": _long(),
    }
    schema = struct(fields, optional=False, name=_COMMON + "TransactionMetadataValue", version=1)
    return SideMessage(schema, {**start, "data_collections": collections, "ts_ms": ts_ms})


def heartbeat_key(server: str) -> SideMessage:
    """The key of a heartbeat."""
    schema = struct({"serverName": _text()}, optional=False, name=_COMMON + "ServerNameKey", version=1)
    return SideMessage(schema, {"serverName": server})


def heartbeat(ts_ms: int) -> SideMessage:
    """The value of a heartbeat."""
    schema = struct({"ts_ms": _long()}, optional=False, name=_COMMON + "Heartbeat", version=1)
    return SideMessage(schema, {"ts_ms": ts_ms})
