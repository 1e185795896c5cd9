"""What happened to a snapshot -> the key and value of a notification, as Debezium's `sink` channel writes them."""

from __future__ import annotations

from collections.abc import Mapping

from serde.emit.connect_schema import Document, primitive, struct
from serde.emit.side_topics import SideMessage

_NAME = "io.debezium.connector.common.Notification"


def _text(*, optional: bool = False) -> Document:
    return primitive("string", optional=optional)


def notification_key(notification: str) -> SideMessage:
    """The key of a notification: its id."""
    return SideMessage(struct({"id": _text()}, optional=False, name=f"{_NAME}Key", version=1), {"id": notification})


def notification_value(
    notification: str, aggregate: str, kind: str, additional: Mapping[str, str], timestamp_ms: int
) -> SideMessage:
    """The value of a notification.

    Args:
        notification: its id, that of the signal which it answers.
        aggregate: what it is about, such as `Incremental Snapshot`.
        kind: what happened to it, such as `STARTED`.
        additional: more, by name.
        timestamp_ms: when.
    """
    text = _text()
    pairs: Document = {"type": "map", "keys": text, "values": text, "optional": True}
    fields = {
        "id": _text(),
        "type": _text(),
        "aggregate_type": _text(),
        "additional_data": pairs,
        "timestamp": primitive("int64", optional=False),
    }
    payload = {
        "id": notification,
        "type": kind,
        "aggregate_type": aggregate,
        "additional_data": dict(additional),
        "timestamp": timestamp_ms,
    }
    return SideMessage(struct(fields, optional=False, name=_NAME, version=1), payload)
