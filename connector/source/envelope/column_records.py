"""changes -> Kafka records with values or keys in Avro, which Python workers write: columns for them, batch by batch.

A value goes to the workers as rows of one image each (an update is two of them, one after the other), with its columns
side by side: a nested row, and an image that is null, cost as much there as one that holds something.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from connector.source.changes.key_values import refuse_nulls
from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.json_values import to_wire
from connector.source.envelope.record_keys import (
    is_key_change,
    key_change_headers,
    key_columns,
    record_key,
)
from serde.arrays import Ints
from serde.connect.values.unscaled_bytes import encode_decimals
from serde.emit.row_schema import Primitive, RowType
from serde.emit.type_mapping import HandlingModes, ValueEncoding, wire_type
from serde.wire_format import (
    AFTER,
    BEFORE,
    FIRST_OF_TWO,
    SECOND_OF_TWO,
    TOMBSTONE,
    ColumnSerializer,
    EnvelopeSerializer,
)

_KIND, _IS_KEY_CHANGE = "kind", "moved"


@attrs.frozen
class EventSerializers:
    """How workers write each side of the records of one topic; None where Spark writes it, as JSON."""

    key: ColumnSerializer | None = None
    value: ColumnSerializer | None = None


JSON_SERIALIZERS = EventSerializers()


@attrs.frozen
class ColumnPlan:
    """What a worker makes of its columns: the kind of row, then `total_order` and `headers` if there are any, the key's
    columns (one of text where `key` is None; `key_names` are None where there is no key), the image's.

    `operations` has, by the kind of row, the operation of the record that it ends.
    """

    key: ColumnSerializer | None
    key_names: tuple[str, ...] | None
    key_columns: int
    envelopes: EnvelopeSerializer
    ordered: bool
    headers: bool
    operations: tuple[str | None, ...]


def with_serialized_keys(records: DataFrame, serializer: ColumnSerializer) -> DataFrame:
    """Return records whose key is a struct with the key as a message."""
    fields = [
        StructField(field.name, BinaryType() if field.name == "key" else field.dataType)
        for field in records.schema.fields
    ]
    return records.mapInArrow(partial(_encode_keys, serializer=serializer), StructType(fields))


def _encode_keys(batches: Iterator[pa.RecordBatch], serializer: ColumnSerializer) -> Iterator[pa.RecordBatch]:
    """Raises FatalError: a key has a null."""
    for batch in batches:
        place = batch.schema.get_field_index("key")
        columns = batch.column(place).flatten()
        refuse_nulls(batch.schema.field(place).type.names, columns)
        yield batch.set_column(place, "key", serializer.messages(columns, batch.num_rows))


def to_column_records(
    changes: DataFrame, wire: EventFormat, value: ColumnSerializer, key: ColumnSerializer | None, *, reads: bool
) -> DataFrame:
    """Return the records of changes with values as messages, and keys too where `key` writes them (else JSON)."""
    rows = changes.withColumn(_KIND, F.lit(AFTER)) if reads else _to_image_rows(changes, wire)
    kind = F.col(_KIND)
    is_after = F.lit(True) if reads else kind.isin(AFTER, SECOND_OF_TWO)
    keys = _select_key(wire, key, F.when(is_after, F.col("after")).otherwise(F.col("before")))
    order = F.col("total_order") + F.when(_is_new_key(wire, kind), 1).otherwise(0) if wire.ordered else None
    headers = _key_change_headers(wire, kind) if wire.moves and not reads else None
    images = [_select_image(wire, name, is_after) for name in range(len(wire.row.members))]
    plan = ColumnPlan(
        key if wire.key else None,
        _key_field_names(wire, key),
        len(keys),
        value.envelopes(reads=reads, transaction=wire.transaction),
        order is not None,
        headers is not None,
        _operations(reads=reads),
    )
    chosen = [kind, *(column for column in (order, headers) if column is not None), *keys, *images]
    shape = [StructField("key", BinaryType() if plan.key else StringType()), StructField("value", BinaryType())]
    named = rows.select(*(column.alias(f"c{place}") for place, column in enumerate(chosen)))
    if headers is not None:
        shape.append(StructField("headers", named.schema[f"c{1 + plan.ordered}"].dataType))
    shape.append(StructField("op", StringType()))
    return named.mapInArrow(partial(_encode_batches, plan=plan), StructType(shape))


def _operations(*, reads: bool) -> tuple[str | None, ...]:
    letters = {AFTER: "r" if reads else "c", BEFORE: "d", SECOND_OF_TWO: "u"}
    return tuple(letters.get(kind) for kind in range(TOMBSTONE + 1))


def _to_image_rows(changes: DataFrame, wire: EventFormat) -> DataFrame:
    """Return a row for each image of each record, and for each tombstone."""

    def kinds(*chosen: int | None) -> Column:
        return F.array(*(F.lit(kind) for kind in chosen if kind is not None))

    tombstone = TOMBSTONE if wire.tombstones and wire.key is not None else None
    of_change = F.when(F.col("op") == "d", kinds(BEFORE, tombstone))
    if wire.moves:
        changes = changes.withColumn(_IS_KEY_CHANGE, is_key_change(wire))
        of_change = of_change.when(F.col(_IS_KEY_CHANGE), kinds(BEFORE, tombstone, AFTER))
    of_change = of_change.when(F.col("op") == "u", kinds(FIRST_OF_TWO, SECOND_OF_TWO)).otherwise(kinds(AFTER))
    return changes.select("*", F.explode(of_change).alias(_KIND))


def _is_new_key(wire: EventFormat, kind: Column) -> Column:
    return F.col(_IS_KEY_CHANGE) & (kind == AFTER) if wire.moves else F.lit(False)


def _select_key(wire: EventFormat, key: ColumnSerializer | None, image: Column) -> list[Column]:
    if wire.key is None or key is None:
        return [record_key(wire, image, required=False)]
    return key_columns(wire, image)


def _key_field_names(wire: EventFormat, key: ColumnSerializer | None) -> tuple[str, ...] | None:
    """Return what the key's columns are called in messages; a text stands for all of them."""
    if wire.key is None:
        return None
    names = tuple(member.name for member in wire.key.record.members)
    return names if key is not None else (" or ".join(names),)


def _key_change_headers(wire: EventFormat, kind: Column) -> Column:
    return key_change_headers(wire, F.col(_IS_KEY_CHANGE) & kind.isin(BEFORE, TOMBSTONE), _is_new_key(wire, kind))


def _select_image(wire: EventFormat, place: int, is_after: Column) -> Column:
    """Return a column of the image as the wire has it, but decimals as they are: workers write them for less."""
    member = wire.row.members[place]
    value = F.when(is_after, F.col("after")[member.name]).otherwise(F.col("before")[member.name])
    return value if _is_unscaled(member.kind, wire.modes) else to_wire(value, member.kind, wire.modes)


def _is_unscaled(kind: RowType, modes: HandlingModes) -> bool:
    return isinstance(kind, Primitive) and wire_type(kind, modes).how is ValueEncoding.UNSCALED


def _encode_batches(batches: Iterator[pa.RecordBatch], plan: ColumnPlan) -> Iterator[pa.RecordBatch]:
    waiting: pa.RecordBatch | None = None
    for found in batches:
        batch = found if waiting is None else pa.concat_batches([waiting, found])
        kinds = batch.column(0).to_numpy().astype(np.int64)
        waiting = None
        if len(kinds) and kinds[-1] == FIRST_OF_TWO:
            # The other half of the update comes with the next batch.
            waiting = batch.slice(len(kinds) - 1)
            batch, kinds = batch.slice(0, len(kinds) - 1), kinds[:-1]
        if len(kinds):
            yield _encode_batch(batch.columns[1:], kinds, plan)


def _encode_batch(columns: list[pa.Array], kinds: Ints, plan: ColumnPlan) -> pa.RecordBatch:
    ends = np.flatnonzero(kinds != FIRST_OF_TWO)

    def of_records(column: pa.Array) -> pa.Array:
        return column if len(ends) == len(kinds) else column.take(pa.array(ends))

    orders = columns[0] if plan.ordered else None
    start = plan.ordered + plan.headers
    keys = [of_records(column) for column in columns[start : start + plan.key_columns]]
    if plan.key_names is not None:
        refuse_nulls(plan.key_names, keys)
    images = [encode_decimals(c) if pa.types.is_decimal(c.type) else c for c in columns[start + plan.key_columns :]]
    value = plan.envelopes.messages(images, kinds, orders)
    messages = {"key": keys[0] if plan.key is None else plan.key.messages(keys, len(ends)), "value": value}
    if plan.headers:
        messages["headers"] = of_records(columns[int(plan.ordered)])
    messages["op"] = pa.array(plan.operations, pa.string()).take(pa.array(kinds[ends]))
    return pa.RecordBatch.from_pydict(messages)
