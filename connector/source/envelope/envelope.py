"""changes -> Kafka records: keys, Debezium envelopes, tombstones and headers, all as Spark columns.

What does not differ from row to row is text made once on the driver: schema blocks, the `source` block, the times. A
key that a worker writes stays a struct; values that workers write go another way (`column_records`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import attrs
import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.source.changes.record_key import require_key_column, unite_zeros
from connector.source.envelope.json_values import json_text, to_wire
from connector.source.envelope.row_schema import RecordKey
from serde.emit.connect_schema import Document
from serde.emit.envelope import SourceInfo, key_schema, value_schema
from serde.emit.row_schema import RowStruct
from serde.emit.type_mapping import HandlingModes

_EVENT, _TOMBSTONE, _OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE, _NEW_KEY_CREATE = range(5)
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
NEW_KEY_HEADER, OLD_KEY_HEADER = "__debezium.newkey", "__debezium.oldkey"


@attrs.frozen
class EventFormat:
    """How the events of one table look at one snapshot.

    `row` describes the columns of both images; `key` those of the record key, None for records without key.
    `moves` says that an update may change the key. `ordered` says that
    the frame has `total_order`, so that events carry a `transaction` block. `key_schemas` and `value_schemas`
    say whether JSON has schema blocks.
    """

    topic: str
    row: RowStruct
    key: RecordKey | None
    modes: HandlingModes
    origin: SourceInfo
    moves: bool = False
    key_schemas: bool = True
    value_schemas: bool = True
    tombstones: bool = True
    skipped: frozenset[str] = frozenset()
    ordered: bool = False

    @property
    def transaction(self) -> str:
        """The id of the snapshot as a transaction: one per table and snapshot."""
        return f"{self.origin.snapshot_id}:{self.origin.sequence_number}"

    @property
    def key_schema(self) -> Document | None:
        """The Connect schema of record keys; None for records without."""
        return None if self.key is None else key_schema(self.topic, self.key.record, self.modes)

    @property
    def value_schema(self) -> Document:
        """The Connect schema of record values."""
        return value_schema(self.topic, self.row, self.modes)

    @property
    def constant(self) -> dict[str, Any]:
        """The fields of the value that are the same in all records."""
        fields = {"source": self.origin.document(), **self.origin.times()}
        return fields if self.ordered else {**fields, "transaction": None}


def to_json_records(
    changes: DataFrame, wire: EventFormat, key: Callable[[Column], Column], *, reads: bool
) -> DataFrame:
    """Return the records with values in JSON, see `kafka.to_kafka_records`.

    key: writes the record key of an image.
    """
    if reads:
        value = _value_json(wire, _whole_event(wire))
        return changes.select(key(F.col("after")).alias("key"), value.alias("value"), "op")
    kept = changes.filter(~F.col("op").isin(*wire.skipped)) if wire.skipped else changes
    parts = kept.select("*", F.explode(_record_parts(wire)).alias("part"))
    if wire.moves:
        return _with_key_changes(parts, wire, key)
    is_event = F.col("part") == _EVENT
    value, op = F.when(is_event, _value_json(wire, _whole_event(wire))), F.when(is_event, F.col("op"))
    return parts.select(key(F.coalesce("after", "before")).alias("key"), value.alias("value"), op.alias("op"))


def events_per_change(wire: EventFormat) -> Column | None:
    """How many events (tombstones are none) a change gives: two for a change of key; None: always one."""
    return F.when(is_key_change(wire), 2).otherwise(1) if wire.moves else None


def _with_key_changes(parts: DataFrame, wire: EventFormat, key: Callable[[Column], Column]) -> DataFrame:
    """Return records where a change may be two events; conditions stand around texts, so no image is copied."""
    part, op = F.col("part"), F.col("op")
    by_before = (op == "d") | part.isin(_OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE)
    keys = F.when(by_before, key(F.col("before"))).otherwise(key(F.col("after")))
    event = EventParts(
        before=part != _NEW_KEY_CREATE,
        after=part != _OLD_KEY_DELETE,
        op=F.when(part == _OLD_KEY_DELETE, "d").when(part == _NEW_KEY_CREATE, "c").otherwise(op),
        order=F.col("total_order") + F.when(part == _NEW_KEY_CREATE, 1).otherwise(0) if wire.ordered else None,
    )
    is_event = ~part.isin(_TOMBSTONE, _OLD_KEY_TOMBSTONE)
    value, headers = F.when(is_event, _value_json(wire, event)), _key_change_headers(wire, part)
    counted = F.when(is_event, event.op).alias("op")
    return parts.select(keys.alias("key"), value.alias("value"), headers.alias("headers"), counted)


def is_key_change(wire: EventFormat) -> Column:
    """Whether an update changes the record's key."""
    assert wire.key is not None
    before, after = F.col("before"), F.col("after")
    same = [column_at(before, path).eqNullSafe(column_at(after, path)) for path in wire.key.paths]
    return (F.col("op") == "u") & before.isNotNull() & ~reduce(lambda left, right: left & right, same)


def _record_parts(wire: EventFormat) -> Column:
    """Which records a change gives, in their order."""

    def parts(*chosen: int) -> Column:
        return F.array(*map(F.lit, chosen))

    tombstones = wire.tombstones and wire.key is not None
    chosen = F.when(F.col("op") == "d", parts(_EVENT, _TOMBSTONE) if tombstones else parts(_EVENT))
    if wire.moves:
        moved = (
            parts(_OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE, _NEW_KEY_CREATE)
            if tombstones
            else parts(_OLD_KEY_DELETE, _NEW_KEY_CREATE)
        )
        chosen = chosen.when(is_key_change(wire), moved)
    return chosen.otherwise(parts(_EVENT))


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
        text = F.concat(F.lit(_schema_prefix(wire.key_schema)), text, F.lit("}"))
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


@attrs.frozen(eq=False)
class EventParts:
    """What of a change an event tells: op, number, and whether `before` and `after` are in it (None: as they are)."""

    before: Column | None
    after: Column | None
    op: Column
    order: Column | None


def _whole_event(wire: EventFormat) -> EventParts:
    """The event that is the change itself."""
    return EventParts(None, None, F.col("op"), F.col("total_order") if wire.ordered else None)


def _value_json(wire: EventFormat, event: EventParts) -> Column:
    schema = wire.value_schema if wire.value_schemas else None
    source, times = _to_json(wire.origin.document()), _to_json(wire.origin.times())
    pieces = [
        F.lit((_schema_prefix(schema) if schema else "") + '{"before":'),
        _image_json("before", event.before, wire),
        F.lit(',"after":'),
        _image_json("after", event.after, wire),
        F.lit(f',"source":{source},"transaction":'),
        *_transaction_json(wire, event.order),
        F.lit(',"op":"'),
        event.op,
        F.lit(f'",{times[1:]}' + ("}" if schema else "")),
    ]
    return F.concat(*pieces)


def _image_json(name: str, there: Column | None, wire: EventFormat) -> Column:
    text = json_text(F.col(name), wire.row, wire.modes)
    return F.coalesce(text if there is None else F.when(there, text), F.lit("null"))


def _transaction_json(wire: EventFormat, number: Column | None) -> list[Column]:
    if number is None:
        return [F.lit("null")]
    order = number.cast("string")
    start = f'{{"id":{_to_json(wire.transaction)},"total_order":'
    return [F.lit(start), order, F.lit(',"data_collection_order":'), order, F.lit("}")]


def _key_change_headers(wire: EventFormat, part: Column) -> Column:
    """Of a change of key: the new key on what leaves, the old one on what arrives; JSON whatever the key's converter.

    Connect's own header converter writes them so (recorded events in tests/fixtures, those in Avro too).
    """
    leaves = F.when(
        part.isin(_OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE), key_change_header(wire, NEW_KEY_HEADER, F.col("after"))
    )
    arrives = leaves.when(part == _NEW_KEY_CREATE, key_change_header(wire, OLD_KEY_HEADER, F.col("before")))
    return arrives.otherwise(F.lit(None).cast(HEADERS_TYPE))


def key_change_header(wire: EventFormat, name: str, image: Column) -> Column:
    """Return the headers of a record with the other key of a row whose key changed."""
    assert wire.key is not None
    payload = _key_text(wire, wire.key, key_parts(wire.key, image)).cast("binary")
    return F.array(F.struct(F.lit(name).alias("key"), payload.alias("value"))).cast(HEADERS_TYPE)


def _schema_prefix(schema: Document | None) -> str:
    return f'{{"schema":{_to_json(schema)},"payload":'


def _to_json(document: object) -> str:
    return orjson.dumps(document).decode()
