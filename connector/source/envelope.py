"""changes -> Kafka records: keys, Debezium envelopes, tombstones and headers, all as Spark columns.

What does not differ from row to row is text made once on the driver: schema blocks, the `source` block, the times.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import attrs
import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.source.describe import Key
from connector.source.values import json_text
from serde.emit.envelope import Origin, key_schema, value_schema
from serde.emit.forms import Modes
from serde.emit.kinds import Member, Plain, Record

ROW_ID = Key(Record((Member("_row_id", Plain("long"), optional=False),)), ())
"""The key of tables without identifier columns whose rows have an id of their own (format v3)."""
_EVENT, _TOMBSTONE, _LEAVES, _LEFT, _ARRIVES = range(5)
_HEADERS = "array<struct<key:string,value:binary>>"


@attrs.frozen
class Wire:
    """How the events of one table look at one snapshot.

    `row` describes the columns of both images; `key` those of the record key, None for records without key.
    `by_row_id` says that the key is the row's own id, `moves` that an update may change the key. `ordered` says that
    the frame has `total_order`, so that events carry a `transaction` block.
    """

    topic: str
    row: Record
    key: Key | None
    modes: Modes
    origin: Origin
    by_row_id: bool = False
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


def records(changes: DataFrame, wire: Wire, *, reads: bool) -> DataFrame:
    """Give the Kafka records of changes: columns `key`, `value` (text, nullable) and, where keys change, `headers`.

    Args:
        changes: `op`, `before`, `after`, `row_id`, and `total_order` if the wire is `ordered`.
        wire: what the events look like.
        reads: all rows are `r`: then every row is one record.
    """
    if reads:
        return changes.select(_key(wire, F.col("after")).alias("key"), _value(wire).alias("value"))
    kept = changes.filter(~F.col("op").isin(*wire.skipped)) if wire.skipped else changes
    parts = kept.select("*", F.explode(_parts(wire)).alias("part"))
    if wire.moves:
        return _with_moves(parts, wire)
    value = F.when(F.col("part") == _EVENT, _value(wire))
    return parts.select(_key(wire, F.coalesce("after", "before")).alias("key"), value.alias("value"))


def events(wire: Wire) -> Column:
    """How many events (tombstones are none) a change gives: two for a change of key."""
    return F.when(_moved(wire), 2).otherwise(1) if wire.moves else F.lit(1)


def _with_moves(parts: DataFrame, wire: Wire) -> DataFrame:
    part, op = F.col("part"), F.col("op")
    leaves = part.isin(_LEAVES, _LEFT)
    of_part = {
        "before": F.when(part != _ARRIVES, F.col("before")),
        "after": F.when(part != _LEAVES, F.col("after")),
        "op": F.when(part == _LEAVES, "d").when(part == _ARRIVES, "c").otherwise(op),
        "image": F.when((op == "d") | leaves, F.col("before")).otherwise(F.col("after")),
        "headers": _headers(wire, part),
    }
    if wire.ordered:
        of_part["total_order"] = F.col("total_order") + F.when(part == _ARRIVES, 1).otherwise(0)
    settled = parts.select("part", "row_id", *(column.alias(name) for name, column in of_part.items()))
    value = F.when(~part.isin(_TOMBSTONE, _LEFT), _value(wire))
    return settled.select(_key(wire, F.col("image")).alias("key"), value.alias("value"), "headers")


def _moved(wire: Wire) -> Column:
    """Whether an update changes the record's key."""
    assert wire.key is not None
    before, after = F.col("before"), F.col("after")
    same = [at(before, path).eqNullSafe(at(after, path)) for path in wire.key.paths]
    return (F.col("op") == "u") & before.isNotNull() & ~reduce(lambda left, right: left & right, same)


def _parts(wire: Wire) -> Column:
    """Which records a change gives, in their order."""

    def parts(*chosen: int) -> Column:
        return F.array(*map(F.lit, chosen))

    tombstones = wire.tombstones and wire.key is not None
    chosen = F.when(F.col("op") == "d", parts(_EVENT, _TOMBSTONE) if tombstones else parts(_EVENT))
    if wire.moves:
        moved = parts(_LEAVES, _LEFT, _ARRIVES) if tombstones else parts(_LEAVES, _ARRIVES)
        chosen = chosen.when(_moved(wire), moved)
    return chosen.otherwise(parts(_EVENT))


def _key(wire: Wire, image: Column) -> Column:
    if wire.key is None:
        return F.lit(None).cast("string")
    text = _payload_of_key(wire, wire.key, image)
    if not wire.key_schemas:
        return text
    return F.concat(F.lit(_opening(key_schema(wire.topic, wire.key.record, wire.modes))), text, F.lit("}"))


def _payload_of_key(wire: Wire, key: Key, image: Column) -> Column:
    columns = [F.col("row_id")] if wire.by_row_id else [at(image, path) for path in key.paths]
    named = [column.alias(member.name) for column, member in zip(columns, key.record.members, strict=True)]
    return json_text(F.struct(*named), key.record, wire.modes)


def at(image: Column, path: tuple[str, ...]) -> Column:
    """Give the column at a path of an image."""
    return reduce(lambda column, name: column[name], path, image)


def _value(wire: Wire) -> Column:
    schema = value_schema(wire.topic, wire.row, wire.modes) if wire.value_schemas else None
    source, times = _text(wire.origin.document()), _text(wire.origin.times())
    pieces = [
        F.lit((_opening(schema) if schema else "") + '{"before":'),
        _image("before", wire),
        F.lit(',"after":'),
        _image("after", wire),
        F.lit(f',"source":{source},"transaction":'),
        *_transaction(wire),
        F.lit(',"op":"'),
        F.col("op"),
        F.lit(f'",{times[1:]}' + ("}" if schema else "")),
    ]
    return F.concat(*pieces)


def _image(name: str, wire: Wire) -> Column:
    return F.coalesce(json_text(F.col(name), wire.row, wire.modes), F.lit("null"))


def _transaction(wire: Wire) -> list[Column]:
    if not wire.ordered:
        return [F.lit("null")]
    order = F.col("total_order").cast("string")
    start = f'{{"id":{_text(wire.transaction)},"total_order":'
    return [F.lit(start), order, F.lit(',"data_collection_order":'), order, F.lit("}")]


def _headers(wire: Wire, part: Column) -> Column:
    """Of a change of key: the new key on what leaves, the old one on what arrives."""
    key = wire.key
    assert key is not None

    def header(name: str, image: str) -> Column:
        payload = _payload_of_key(wire, key, F.col(image)).cast("binary")
        return F.array(F.struct(F.lit(name).alias("key"), payload.alias("value"))).cast(_HEADERS)

    leaves = F.when(part.isin(_LEAVES, _LEFT), header("__debezium.newkey", "after"))
    return leaves.when(part == _ARRIVES, header("__debezium.oldkey", "before")).otherwise(F.lit(None).cast(_HEADERS))


def _opening(schema: dict[str, Any]) -> str:
    return f'{{"schema":{_text(schema)},"payload":'


def _text(document: object) -> str:
    return orjson.dumps(document).decode()
