"""Changes that may be older than what their table holds -> those that are not. One join by Spark, where there are such.

    reduce task -> keys whose winning change is a suspect, with all their changes (parcels of kind SUSPECT)
                -> joined with what the table's rows tell of their age, and what is known of keys that were deleted
                -> what stands, as parcels for the reduce task again
A suspect loses where it is proven to be older (`is_older`). Where nothing is proven Kafka's order decides. Documents
that are there have versions, so only deleted keys are asked, which the cluster forgets: the smaller version loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import StructType

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.key_codes import key_codes
from connector.iceberg.state.deleted_keys_table import GONE
from connector.iceberg.types.nested_columns import columns_of
from connector.iceberg.types.spark_types import to_spark
from connector.sink.convert.row_builder import integers, truncated
from connector.sink.destinations.iceberg.lookups.deleted_keys import key_text
from connector.sink.destinations.iceberg.lookups.snapshot_rows import Held, aliases, found_under, shape
from connector.sink.fold.winners import NONE, Order
from connector.sink.model import task_output
from connector.sink.model.change_rows import Folded, Part, codes_of, fold, pack, unpack
from connector.sink.model.event_age import below, dated, placed, second_of
from connector.sink.model.plan import BatchPlan, TablePlan, Tally
from connector.sink.model.task_output import Parcel, Task
from serde.arrays import Ints, Mask
from serde.events.changes import ORIGIN, position_of_row
from serde.events.source_positions import FIELDS, FIRST, SOURCE, Places, unplaced

BROADCAST = 500_000
"""So many suspects at most go to where the table's rows are read, instead of the rows coming to them."""

_PLACE = ("_source", "_place_0", "_place_1", "_place_2")
_SEEN = ("_seen_source", "_seen_0", "_seen_1", "_seen_2")
_SUSPECT = pa.schema(
    [
        ("_bucket", pa.int32()),
        ("_row", pa.int64()),
        ("_cut", pa.bool_()),
        ("_text", pa.string()),
        *((name, pa.int64()) for name in ("_date", *_PLACE, *_SEEN)),
    ]
)
_OWN = ("_bucket", "_row", "_date", *_PLACE, *_SEEN)
_LOST = "_bucket int, _row long"
_CHANGED, _READ = ord("u"), ord("r")


def set_aside(folded: Folded, keys: tuple[str, ...]) -> tuple[Folded | None, Part | None]:
    """Part keys whose winner is a suspect from the others; a part marks only these winners as suspects."""
    suspect = np.concatenate([part.suspect for part in folded.parts])[folded.winners]
    if not suspect.any():
        return folded, None
    codes = codes_of(folded.parts, keys)
    aside = np.isin(codes, codes[folded.winners[suspect]])
    marks = np.zeros(len(codes), np.bool_)
    marks[folded.winners[suspect]] = True
    whole = attrs.evolve(Part.concat(folded.parts), suspect=marks)
    rest = None if aside.all() else fold([whole.take(np.flatnonzero(~aside))], keys)
    return rest, whole.take(np.flatnonzero(aside))


def standing(
    asked: DataFrame, count: int, plan: BatchPlan, table: TablePlan, held: Held | None, gone: DataFrame | None
) -> DataFrame:
    """Give what stands of suspects, as parcels of changes, and how many keys were late.

    Args:
        asked: parcels of kind SUSPECT of this table, one per bucket.
        count: how many keys are in them.
        plan: the batch's.
        table: the table's; it is dated, or numbered.
        held: what the table held at batch start; None of documents.
        gone: what is remembered of its deleted keys, None where deletes keep their rows.
    """
    keys = aliases("key", len(table.layout.keys))
    suspects = asked.mapInArrow(_told(table, plan), _shape(table))
    lost = suspects.where(F.col("_cut")).select("_bucket", "_row")
    suspects = F.broadcast(suspects) if count <= BROADCAST else suspects
    if held is not None:
        telling = [name for name in held.names if name in _telling(table.layout, plan)]
        renamed = zip(telling, aliases("held", len(telling)), strict=True)
        columns = [F.col(held.names[name]).alias(alias) for name, alias in renamed]
        joined = held.live.join(suspects, found_under(held.names, table.layout, keys)).select(*_OWN, *columns)
        lost = lost.union(joined.mapInArrow(_overtaken(telling, plan), _LOST))
    if gone is not None:
        joined = gone.join(suspects, F.col("key") == F.col("_text")).select(*_OWN, *GONE)
        lost = lost.union(joined.mapInArrow(_outlived, _LOST))
    rows = lost.groupBy("_bucket").agg(F.collect_set("_row").alias("lost"))
    judged = asked.join(rows, F.col("bucket") == F.col("_bucket"), "left").select("bucket", "payload", "lost")
    return judged.mapInArrow(_let_through(table), task_output.SCHEMA)


def _telling(layout: TableLayout, plan: BatchPlan) -> frozenset[str]:
    """Give the columns of a table that tell how old its rows are."""
    prefix = plan.events.add_fields_prefix
    names = (*FIELDS, *ORIGIN, "ts_ms", "transaction_total_order", "total_order")
    known = {f"{prefix}{start}{name}" for name in names for start in ("source_", "")} if prefix else set[str]()
    known |= {f"source_{name}" for name in names} if not prefix else set()
    wanted = known | {plan.dedup_column, plan.op_field}
    simple = (pa.types.is_integer, pa.types.is_string)
    return frozenset(f.name for f in layout.columns if f.name in wanted and any(kind(f.type) for kind in simple))


def _shape(table: TablePlan) -> StructType:
    types = [field.type for field in table.layout.key_fields]
    return shape([*(field.type for field in _SUSPECT), *types], [*_SUSPECT.names, *aliases("key", len(types))])


def _told(table: TablePlan, plan: BatchPlan) -> Task:
    """Give the task that tells of each suspect where it is, its evidence and key.

    Of its place twice: as the event told it, and as the table's columns do, which may leave parts of it out.
    """
    layout, telling = table.layout, frozenset[str]() if table.numbered else _telling(table.layout, plan)
    names = [*_SUSPECT.names, *aliases("key", len(layout.keys))]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, whole in _unpacked(batches, layout.rows):
            rows = np.flatnonzero(whole.suspect)
            part = whole.take(rows)
            order = part.order
            cut = np.zeros(len(rows), np.bool_) if table.numbered else truncated(order, table, plan)
            date, place = proof(order, table)
            known = [name for name in part.rows.schema.names if name in telling]
            _, seen = _evidence(dict(zip(known, part.rows.select(known).columns, strict=True)), len(part), plan, order)
            keys = columns_of(part.rows, layout.keys)
            numbers = [date, *place.T, *seen.T]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.repeat(pa.scalar(bucket, pa.int32()), len(rows)),
                    pa.array(rows, pa.int64()),
                    pa.array(cut),
                    key_text(keys),
                    *(pa.array(np.ascontiguousarray(column)) for column in numbers),
                    *map(to_spark, keys),
                ],
                names,
            )

    return task


def proof(order: Order, table: TablePlan) -> tuple[Ints, Places]:
    """Give what changes prove of their age: dates and places; of documents versions in the place of dates."""
    return (order.dedup, unplaced(len(order))) if table.numbered else (order.date, order.place)


def _evidence(
    columns: Mapping[str, pa.Array], count: int, plan: BatchPlan, order: Order | None = None
) -> tuple[Ints, Places]:
    """Give what rows of a table prove of their age: dates and places. `order` is of changes that became such rows."""
    prefix, second = plan.events.add_fields_prefix, second_of(plan.dedup_column, plan.events.add_fields_prefix)
    if not columns:
        return np.full(count, NONE, np.int64), unplaced(count)
    row = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    place, _ = position_of_row(row, prefix)
    dedup = integers(columns[plan.dedup_column]) if plan.dedup_column in columns else np.full(count, NONE, np.int64)
    # A row that does not tell how it came is none of a read as far as anybody knows.
    op = np.full(count, _CHANGED, np.uint8)
    if order is not None:
        op = np.where(order.op == 0, _CHANGED, order.op)
    elif plan.op_field in columns and pa.types.is_string(columns[plan.op_field].type):
        op[np.asarray(pc.equal(columns[plan.op_field], "r").fill_null(False))] = _READ
    told = (dedup, op, np.zeros(count, np.bool_), second)
    return dated(*told), placed(place, *told)


def _overtaken(telling: Sequence[str], plan: BatchPlan) -> Task:
    """Give the task that finds suspects that are older than the row that the table has."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [batch.column(alias) for alias in aliases("held", len(telling))]
            date, place = _evidence(dict(zip(telling, found, strict=True)), batch.num_rows, plan)
            yield _losers(batch, _SEEN, date, place)

    return task


def _outlived(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find suspects that are older than the delete of their key."""
    for batch in batches:
        date, *place = (integers(batch.column(name)) for name in GONE)
        yield _losers(batch, _PLACE, date, np.stack(place, axis=1))


def _losers(batch: pa.RecordBatch, own: Sequence[str], date: Ints, place: Places) -> pa.RecordBatch:
    mine = np.stack([integers(batch.column(name)) for name in own], axis=1)
    lost = is_older(integers(batch.column("_date")), mine, date, place)
    return batch.select(["_bucket", "_row"]).filter(pa.array(lost))


def is_older(date: Ints, place: Places, held_date: Ints, held_place: Places) -> Mask:
    """Mark changes that are proven to be older than what is held: the rule of the fold within a partition."""
    both = (place[:, FIRST] != NONE) & (held_place[:, FIRST] != NONE) & (place[:, SOURCE] == held_place[:, SOURCE])
    known = (date != NONE) & (held_date != NONE)
    by_place = below(place, held_place[:, FIRST:]) & ~(known & (date > held_date))
    result: Mask = np.where(both, by_place, known & (date < held_date))
    return result


def _let_through(table: TablePlan) -> Task:
    """Give the task that leaves out the changes of keys that lost."""
    layout = table.layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late = 0
        for batch in batches:
            for (bucket, part), lost in zip(_unpacked([batch], layout.rows), batch.column("lost"), strict=True):
                rows = np.array(lost.as_py() or [], np.int64)
                late += len(rows)
                codes = key_codes(columns_of(part.rows, layout.keys))
                stands = np.flatnonzero(~np.isin(codes, codes[rows]))
                if len(stands):
                    # They stay marked: a document's version must not rise for them.
                    yield task_output.batch([Parcel(task_output.CHANGES, pack(part.take(stands)), table.index, bucket)])
        yield task_output.batch([Parcel.of(task_output.TALLY, Tally(late=late))])

    return task


def _unpacked(
    batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], columns: pa.Schema
) -> Iterator[tuple[int, Part]]:
    for batch in batches:
        for bucket, payload in zip(batch.column("bucket"), batch.column("payload"), strict=True):
            yield bucket.as_py(), unpack(payload.as_buffer(), columns)
