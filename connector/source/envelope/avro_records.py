"""changes -> Kafka records with Avro values or keys: columns for the Python workers, which write them batch by batch.

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

from connector.source.changes.record_key import refuse_nulls
from connector.source.envelope.envelope import HEADERS, NEW_KEY, OLD_KEY, Wire, header, is_moved, key_columns, key_of
from connector.source.envelope.json_values import converted
from serde.arrays import Ints
from serde.emit.avro_datums import AFTER, BEFORE, FIRST_OF_TWO, NOTHING, SECOND_OF_TWO, Avro, Envelopes

_KIND, _MOVED = "kind", "moved"


@attrs.frozen
class Plan:
    """What a worker makes of its columns: the kind of row, then `total_order` and `headers` if there are any, the key's
    columns (one of text where `key` is None; `key_names` are None where there is no key), the image's.
    """

    key: Avro | None
    key_names: tuple[str, ...] | None
    key_columns: int
    envelopes: Envelopes
    ordered: bool
    headers: bool


def with_keys(records: DataFrame, avro: Avro) -> DataFrame:
    """Give records whose key is a struct with the key as a message."""
    fields = [
        StructField(field.name, BinaryType() if field.name == "key" else field.dataType)
        for field in records.schema.fields
    ]
    return records.mapInArrow(partial(_keys, avro=avro), StructType(fields))


def _keys(batches: Iterator[pa.RecordBatch], avro: Avro) -> Iterator[pa.RecordBatch]:
    """Raises FatalError: a key has a null."""
    for batch in batches:
        place = batch.schema.get_field_index("key")
        columns = batch.column(place).flatten()
        refuse_nulls(batch.schema.field(place).type.names, columns)
        yield batch.set_column(place, "key", avro.messages(columns, batch.num_rows))


def with_values(changes: DataFrame, wire: Wire, avro: Avro, *, reads: bool) -> DataFrame:
    """Give the records of changes with values as messages, and keys too where those are Avro."""
    rows = changes.withColumn(_KIND, F.lit(AFTER)) if reads else _rows(changes, wire)
    kind = F.col(_KIND)
    is_after = F.lit(True) if reads else kind.isin(AFTER, SECOND_OF_TWO)
    keys = _key_columns(wire, F.when(is_after, F.col("after")).otherwise(F.col("before")))
    order = F.col("total_order") + F.when(_moved_to(wire, kind), 1).otherwise(0) if wire.ordered else None
    headers = _headers(wire, kind) if wire.moves and not reads else None
    images = [_image(wire, name, is_after) for name in range(len(wire.row.members))]
    plan = Plan(
        wire.key_avro if wire.key else None,
        _key_names(wire),
        len(keys),
        Envelopes(avro, reads, wire.transaction),
        order is not None,
        headers is not None,
    )
    chosen = [kind, *(column for column in (order, headers) if column is not None), *keys, *images]
    shape = [StructField("key", BinaryType() if plan.key else StringType()), StructField("value", BinaryType())]
    named = rows.select(*(column.alias(f"c{place}") for place, column in enumerate(chosen)))
    if headers is not None:
        shape.append(StructField("headers", named.schema[f"c{1 + plan.ordered}"].dataType))
    return named.mapInArrow(partial(_messages, plan=plan), StructType(shape))


def _rows(changes: DataFrame, wire: Wire) -> DataFrame:
    """Give a row for each image of each record, and for each tombstone."""
    kept = changes.filter(~F.col("op").isin(*wire.skipped)) if wire.skipped else changes

    def kinds(*chosen: int | None) -> Column:
        return F.array(*(F.lit(kind) for kind in chosen if kind is not None))

    tombstone = NOTHING if wire.tombstones and wire.key is not None else None
    of_change = F.when(F.col("op") == "d", kinds(BEFORE, tombstone))
    if wire.moves:
        kept = kept.withColumn(_MOVED, is_moved(wire))
        of_change = of_change.when(F.col(_MOVED), kinds(BEFORE, tombstone, AFTER))
    of_change = of_change.when(F.col("op") == "u", kinds(FIRST_OF_TWO, SECOND_OF_TWO)).otherwise(kinds(AFTER))
    return kept.select("*", F.explode(of_change).alias(_KIND))


def _moved_to(wire: Wire, kind: Column) -> Column:
    return F.col(_MOVED) & (kind == AFTER) if wire.moves else F.lit(False)


def _key_columns(wire: Wire, image: Column) -> list[Column]:
    if wire.key is None or wire.key_avro is None:
        return [key_of(wire, image, required=False)]
    return key_columns(wire, image)


def _key_names(wire: Wire) -> tuple[str, ...] | None:
    """Give what the key's columns are called in messages; a text stands for all of them."""
    if wire.key is None:
        return None
    names = tuple(member.name for member in wire.key.record.members)
    return names if wire.key_avro is not None else (" or ".join(names),)


def _headers(wire: Wire, kind: Column) -> Column:
    gone = F.col(_MOVED) & kind.isin(BEFORE, NOTHING)
    made = F.when(gone, header(wire, NEW_KEY, F.col("after")))
    return made.when(_moved_to(wire, kind), header(wire, OLD_KEY, F.col("before"))).otherwise(F.lit(None).cast(HEADERS))


def _image(wire: Wire, place: int, is_after: Column) -> Column:
    member = wire.row.members[place]
    value = F.when(is_after, F.col("after")[member.name]).otherwise(F.col("before")[member.name])
    return converted(value, member.kind, wire.modes)


def _messages(batches: Iterator[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
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
            yield _written(batch.columns[1:], kinds, plan)


def _written(columns: list[pa.Array], kinds: Ints, plan: Plan) -> pa.RecordBatch:
    ends = np.flatnonzero(kinds != FIRST_OF_TWO)

    def of_records(column: pa.Array) -> pa.Array:
        return column if len(ends) == len(kinds) else column.take(pa.array(ends))

    orders = columns[0] if plan.ordered else None
    start = plan.ordered + plan.headers
    keys = [of_records(column) for column in columns[start : start + plan.key_columns]]
    if plan.key_names is not None:
        refuse_nulls(plan.key_names, keys)
    value = plan.envelopes.messages(columns[start + plan.key_columns :], kinds, orders)
    made = {"key": keys[0] if plan.key is None else plan.key.messages(keys, len(ends)), "value": value}
    if plan.headers:
        made["headers"] = of_records(columns[int(plan.ordered)])
    return pa.RecordBatch.from_pydict(made)
