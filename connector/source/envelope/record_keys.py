"""Images of rows -> the keys of their records, as JSON or as columns, and the headers of records whose key changed."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connector.source.changes.key_values import require_key_column, unite_zeros
from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.json_values import json_text, schema_prefix, to_wire
from connector.source.envelope.row_schema import RecordKey
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER

HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def record_key(wire: EventFormat, image: Column, *, required: bool = True) -> Column:
    """Return the record key of an image as JSON text, null without key.

    Where a column of the key is null the task fails; or the text is null, if it is not `required`.
    """
    if wire.key is None:
        return F.lit(None).cast("string")
    parts = key_parts(wire.key, image)
    if required:
        names = (member.name for member in wire.key.record.members)
        parts = [require_key_column(column, name) for column, name in zip(parts, names, strict=True)]
    text = _key_text(wire, wire.key, parts)
    if wire.key_schemas:
        text = F.concat(F.lit(schema_prefix(wire.key_schema)), text, F.lit("}"))
    return text if required else F.when(reduce(lambda left, right: left & right, [c.isNotNull() for c in parts]), text)


def key_struct(wire: EventFormat, image: Column) -> Column:
    """Return the record key of an image as a struct of `key_columns`, null without key."""
    if wire.key is None:
        return F.lit(None).cast("string")
    named = zip(key_columns(wire, image), wire.key.record.members, strict=True)
    return F.struct(*(column.alias(member.name) for column, member in named))


def key_columns(wire: EventFormat, image: Column) -> list[Column]:
    """Return the fields of the record key of an image, in the form that the wire has; null where the image's are."""
    assert wire.key is not None
    columns = zip(key_parts(wire.key, image), wire.key.record.members, strict=True)
    return [to_wire(column, member.kind, wire.modes) for column, member in columns]


def key_parts(key: RecordKey | None, image: Column) -> list[Column]:
    """Return the columns of the key of an image, none without key."""
    if key is None:
        return []
    if key.is_row_id:
        return [F.col("row_id")]
    fields = zip(key.paths, key.record.members, strict=True)
    return [unite_zeros(column_at(image, path), member.kind) for path, member in fields]


def _key_text(wire: EventFormat, key: RecordKey, parts: list[Column]) -> Column:
    named = zip(parts, key.record.members, strict=True)
    return json_text(F.struct(*(column.alias(member.name) for column, member in named)), key.record, wire.modes)


def column_at(image: Column, path: tuple[str, ...]) -> Column:
    """Return the column at a path of an image."""
    return reduce(lambda column, name: column[name], path, image)


def is_key_change(wire: EventFormat) -> Column:
    """Whether an update changes the record's key."""
    assert wire.key is not None
    before, after = F.col("before"), F.col("after")
    same = [column_at(before, path).eqNullSafe(column_at(after, path)) for path in wire.key.paths]
    return (F.col("op") == "u") & before.isNotNull() & ~reduce(lambda left, right: left & right, same)


def events_per_change(wire: EventFormat) -> Column | None:
    """How many events (tombstones are none) a change gives: two for a change of key; None: always one."""
    return F.when(is_key_change(wire), 2).otherwise(1) if wire.moves else None


def key_change_headers(wire: EventFormat, leaves: Column, arrives: Column) -> Column:
    """Return the headers of a change of key: the new key on what `leaves`, the old one on what `arrives`, else none.

    They are JSON whatever the key's converter: Connect's own header converter writes them so (recorded events in
    tests/fixtures, those in Avro too).
    """
    headers = F.when(leaves, _key_header(wire, NEW_KEY_HEADER, F.col("after")))
    headers = headers.when(arrives, _key_header(wire, OLD_KEY_HEADER, F.col("before")))
    return headers.otherwise(F.lit(None).cast(HEADERS_TYPE))


def _key_header(wire: EventFormat, name: str, image: Column) -> Column:
    assert wire.key is not None
    payload = _key_text(wire, wire.key, key_parts(wire.key, image)).cast("binary")
    return F.array(F.struct(F.lit(name).alias("key"), payload.alias("value"))).cast(HEADERS_TYPE)
