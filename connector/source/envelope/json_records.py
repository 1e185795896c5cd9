"""changes -> Kafka records with values in JSON: Debezium envelopes, tombstones and headers, all as Spark columns.

What does not differ from row to row is text made once on the driver: schema blocks, the `source` block, the times. A
key that a worker writes stays a struct; values that workers write (Avro) are made by `column_records`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.json_values import json_text, schema_prefix
from connector.source.envelope.record_keys import (
    is_key_change,
    key_change_headers,
)

_EVENT, _TOMBSTONE, _OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE, _NEW_KEY_CREATE = range(5)


def to_json_records(
    changes: DataFrame, wire: EventFormat, key: Callable[[Column], Column], *, reads: bool
) -> DataFrame:
    """Return the records with values in JSON, see `kafka.to_kafka_records`.

    key: writes the record key of an image.
    """
    if reads:
        value = _value_json(wire, _whole_event(wire))
        return changes.select(key(F.col("after")).alias("key"), value.alias("value"), "op")
    parts = changes.select("*", F.explode(_record_parts(wire)).alias("part"))
    if wire.moves:
        return _with_key_changes(parts, wire, key)
    is_event = F.col("part") == _EVENT
    value, op = F.when(is_event, _value_json(wire, _whole_event(wire))), F.when(is_event, F.col("op"))
    return parts.select(key(F.coalesce("after", "before")).alias("key"), value.alias("value"), op.alias("op"))


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
    value = F.when(is_event, _value_json(wire, event))
    headers = key_change_headers(wire, part.isin(_OLD_KEY_DELETE, _OLD_KEY_TOMBSTONE), part == _NEW_KEY_CREATE)
    counted = F.when(is_event, event.op).alias("op")
    return parts.select(keys.alias("key"), value.alias("value"), headers.alias("headers"), counted)


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
        F.lit((schema_prefix(schema) if schema else "") + '{"before":'),
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


def _image_json(name: str, present: Column | None, wire: EventFormat) -> Column:
    text = json_text(F.col(name), wire.row, wire.modes)
    return F.coalesce(text if present is None else F.when(present, text), F.lit("null"))


def _transaction_json(wire: EventFormat, number: Column | None) -> list[Column]:
    if number is None:
        return [F.lit("null")]
    order = number.cast("string")
    start = f'{{"id":{_to_json(wire.transaction)},"total_order":'
    return [F.lit(start), order, F.lit(',"data_collection_order":'), order, F.lit("}")]


def _to_json(document: object) -> str:
    return orjson.dumps(document).decode()
