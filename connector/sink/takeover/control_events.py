"""a record of Iceberg Kafka Connect's control topic -> the data that a worker has written, if it tells of any.

Source of the format: Apache Iceberg, `AvroEncoderUtil` (magic, the writer schema as Java's `writeUTF` has it: length
and JSON, then the datum), `org.apache.iceberg.connect.events` (`Event`, `PayloadType`, `DataWritten`, `TableReference`)
and, for what snapshots say, `Coordinator`. Pure.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import orjson
from fastavro import schemaless_reader

from connector.runtime.topic_partitions import TopicPartition

_MAGIC = b"\xc2\x01"
_HEADER = struct.Struct(">2sH")
_DATA_WRITTEN = 1
"""The number of that type of event."""

TableName = tuple[tuple[str, ...], str]
"""Namespace and name."""


class UnreadableEvent(ValueError):
    """A record of the control topic that is no event."""


@attrs.frozen
class WrittenData:
    """Files of one table that a worker has written, for the coordinator of its group to commit."""

    group: str
    table: TableName
    rows: int


@attrs.frozen
class PlacedData:
    """The same, with the place of the event in the control topic."""

    at: TopicPartition
    offset: int
    written: WrittenData


def parse_written_data(value: bytes | None) -> WrittenData | None:
    """Return what a worker has written; None for an event that tells of no rows.

    Raises:
        UnreadableEvent: it is no event of that connector.
    """
    event = _decode(value or b"")
    try:
        if event["type"] != _DATA_WRITTEN:
            return None
        payload = event["payload"]
        table = payload["table_reference"]
        files = [*(payload["data_files"] or ()), *(payload["delete_files"] or ())]
        rows = sum(int(file["record_count"]) for file in files)
        written = WrittenData(str(event["group_id"]), (tuple(table["namespace"]), str(table["name"])), rows)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableEvent("an event without what such events have") from error
    return written if rows else None


def _decode(value: bytes) -> Mapping[str, Any]:
    try:
        magic, length = _HEADER.unpack_from(value)
        if magic != _MAGIC:
            raise UnreadableEvent("another magic number")
        begin = _HEADER.size + length
        schema = _shorten_names(orjson.loads(value[_HEADER.size : begin]))
        event = schemaless_reader(io.BytesIO(value[begin:]), schema, None)
    except UnreadableEvent:
        raise
    except Exception as error:
        # What fastavro raises for bytes that are no Avro is of many classes.
        raise UnreadableEvent(type(error).__name__) from error
    if not isinstance(event, dict):
        raise UnreadableEvent("no record")
    return event


def _shorten_names(schema: Any) -> Any:
    """Return a schema whose types are in no namespace.

    Iceberg's type of UUIDs is in none, and Avro's Java refers to it so from types that are in one: by Avro's
    specification that is another name.
    """
    if isinstance(schema, str):
        return schema.rpartition(".")[2]
    if isinstance(schema, list):
        return [_shorten_names(branch) for branch in schema]
    short = {key: value for key, value in schema.items() if key != "namespace"}
    if "name" in short:
        short["name"] = short["name"].rpartition(".")[2]
    if "fields" in short:
        short["fields"] = [{"name": one["name"], "type": _shorten_names(one["type"])} for one in short["fields"]]
    return short | {key: _shorten_names(short[key]) for key in ("items", "values") if key in short}


def parse_stored_offsets(summary: Mapping[str, str], topic: str, group: str) -> dict[int, int] | None:
    """Return up to where the control topic's data is in a snapshot, by partition; None where its summary says nothing.

    They are the next offsets: an event at a lower one is in the table.
    """
    text = summary.get(f"kafka.connect.offsets.{topic}.{group}")
    return None if text is None else {int(partition): int(offset) for partition, offset in orjson.loads(text).items()}


def select_pending(
    written: Iterable[PlacedData], group: str, stored: Mapping[TableName, Mapping[int, int]]
) -> list[PlacedData]:
    """Return what a group's workers have written and its tables do not have.

    Args:
        written: what the control topic tells, from where the group's coordinator stood.
        group: the connector's.
        stored: the next offset of each partition of the control topic, by table; tables without any are left out.
    """
    return [
        one
        for one in written
        if one.written.group == group and one.offset >= stored.get(one.written.table, {}).get(one.at[1], 0)
    ]
