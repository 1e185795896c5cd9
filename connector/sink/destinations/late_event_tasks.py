"""Arrow batches of late candidates -> those that stand: what each join of `late_events` asks and judges. On executors.

A suspect loses where it is proven to be older (`is_older`). Where nothing is proven Kafka's order decides. A change
behind which another partition goes on loses unless it is proven to be newer (`is_newer`). Documents that are there have
versions, so only deleted keys are asked, which the cluster forgets: the smaller version loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.state.deleted_keys_schema import DELETE_ORDER_COLUMNS
from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.values.spark_types import to_spark
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.change_order import to_int64
from connector.sink.convert.columns.found_columns import count_milliseconds, has_dates
from connector.sink.destinations.deleted_keys import keys_to_text
from connector.sink.destinations.join_columns import column_aliases
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model import task_output
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.driver_output import RecordsCounted
from connector.sink.model.event_age import mark_above, mark_below, select_proven_dates, select_proven_places
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import OutputKind, Task, TaskOutput
from serde.arrays import Ints, Mask
from serde.events.flattened_rows import name_columns, read_row_position
from serde.events.kinds.operations import OP_READ, OP_UPDATE
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN, LogPositions, unknown_positions
from serde.events.positions.origins import ORIGIN_FIELDS
from serde.events.positions.source_positions import POSITION_FIELDS, TRANSACTION_FIELDS

_PLACE_COLUMNS = ("_source", "_place_0", "_place_1", "_place_2")
_ROW_PLACE_COLUMNS = ("_seen_source", "_seen_0", "_seen_1", "_seen_2")
CANDIDATE_SCHEMA = pa.schema(
    [
        ("_bucket", pa.int32()),
        ("_row", pa.int64()),
        ("_cut", pa.bool_()),
        ("_goes_on", pa.bool_()),
        ("_text", pa.string()),
        *((name, pa.int64()) for name in ("_date", *_PLACE_COLUMNS, *_ROW_PLACE_COLUMNS)),
    ]
)
CANDIDATE_COLUMNS = ("_bucket", "_row", "_goes_on", "_date", *_PLACE_COLUMNS, *_ROW_PLACE_COLUMNS)


def find_age_columns(layout: RowLayout, plan: BatchPlan) -> frozenset[str]:
    """Return the columns of a table that tell how old its rows are."""
    prefix = plan.events.add_fields_prefix
    transaction = (path.replace(".", "_") for path in TRANSACTION_FIELDS)
    names = (*POSITION_FIELDS, *ORIGIN_FIELDS, "ts_ms", "transaction_total_order", "total_order", *transaction)
    wanted = {plan.dedup_column, plan.op_field, *(column for name in names for column in name_columns(name, prefix))}
    simple = (pa.types.is_integer, pa.types.is_string)
    told = {f.name for f in layout.columns if f.name in wanted and any(kind(f.type) for kind in simple)}
    return frozenset(told | ({plan.dedup_column} if has_dates(layout, plan.dedup_column) else set()))


def candidate_task(table: TablePlan, plan: BatchPlan) -> Task:
    """Return the task that tells of each suspect where it is, its evidence and key.

    Of its place twice: as the event told it, and as the table's columns do, which may leave parts of it out. Deletes of
    documents are none: one that is late takes nothing out, but keeps what another key's row moves there from coming
    back, for which the cluster may have forgotten the delete that was sent before.
    """
    layout, telling = table.layout, frozenset[str]() if table.numbered else find_age_columns(table.layout, plan)
    names = [*CANDIDATE_SCHEMA.names, *column_aliases("key", len(layout.keys))]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, whole in _unpack_buckets(batches, layout.rows):
            rows = np.flatnonzero(whole.candidate & ~whole.deleted if table.numbered else whole.candidate)
            part = whole.take(rows)
            order = part.order
            date, place = proof(order, table)
            known = [name for name in part.rows.schema.names if name in telling]
            _, row_places = _read_age(
                dict(zip(known, part.rows.select(known).columns, strict=True)), len(part), plan, order
            )
            keys = read_columns(part.rows, layout.keys)
            numbers = [date, *place.T, *row_places.T]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.repeat(pa.scalar(bucket, pa.int32()), len(rows)),
                    pa.array(rows, pa.int64()),
                    pa.array(part.truncated),
                    pa.array(~part.suspect),
                    keys_to_text(keys),
                    *(pa.array(np.ascontiguousarray(column)) for column in numbers),
                    *map(to_spark, keys),
                ],
                names,
            )

    return task


def proof(order: ChangeOrder, table: TablePlan) -> tuple[Ints, LogPositions]:
    """Return what changes prove of their age: dates and places; of documents versions in the place of dates."""
    return (order.dedup, unknown_positions(len(order))) if table.numbered else (order.date, order.place)


def _read_age(
    columns: Mapping[str, pa.Array], count: int, plan: BatchPlan, order: ChangeOrder | None = None
) -> tuple[Ints, LogPositions]:
    """Return what rows of a table prove of their age: dates and places. `order` is of changes that became such rows."""
    if not columns:
        return np.full(count, NO_VALUE, np.int64), unknown_positions(count)
    columns = {name: count_milliseconds(column, name) for name, column in columns.items()}
    row = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    place, _ = read_row_position(row, plan.events.add_fields_prefix)
    dedup = to_int64(columns[plan.dedup_column]) if plan.dedup_column in columns else np.full(count, NO_VALUE, np.int64)
    # A row that does not tell how it came is none of a read as far as anybody knows.
    op = np.full(count, OP_UPDATE, np.uint8)
    if order is not None:
        op = np.where(order.op == 0, OP_UPDATE, order.op)
    elif plan.op_field in columns and pa.types.is_string(columns[plan.op_field].type):
        op[np.asarray(pc.equal(columns[plan.op_field], "r").fill_null(False))] = OP_READ
    evidence = (dedup, op, np.zeros(count, np.bool_))
    dates = select_proven_dates(*evidence, plan.dedup_units_per_second)
    return dates, select_proven_places(place, *evidence, declared=plan.dedup_is_declared)


def older_than_row_task(telling: Sequence[str], plan: BatchPlan) -> Task:
    """Return the task that finds suspects that are older than the row that the table has."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stored_columns = [batch.column(alias) for alias in column_aliases("held", len(telling))]
            date, place = _read_age(dict(zip(telling, stored_columns, strict=True)), batch.num_rows, plan)
            yield _filter_older(batch, _ROW_PLACE_COLUMNS, date, place)

    return task


def find_older_than_delete(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find suspects that are older than the delete of their key."""
    for batch in batches:
        date, *place = (to_int64(batch.column(name)) for name in DELETE_ORDER_COLUMNS)
        yield _filter_older(batch, _PLACE_COLUMNS, date, np.stack(place, axis=1))


def _filter_older(batch: pa.RecordBatch, own: Sequence[str], date: Ints, place: LogPositions) -> pa.RecordBatch:
    mine = np.stack([to_int64(batch.column(name)) for name in own], axis=1)
    dates = to_int64(batch.column("_date"))
    goes_on = np.asarray(batch.column("_goes_on"))
    lost = np.where(goes_on, ~is_newer(dates, mine, date, place), is_older(dates, mine, date, place))
    return batch.select(["_bucket", "_row"]).filter(pa.array(lost))


def is_older(date: Ints, place: LogPositions, held_date: Ints, held_place: LogPositions) -> Mask:
    """Mark changes that are proven to be older than what is held: the rule of the fold within a partition."""
    known = (date != NO_VALUE) & (held_date != NO_VALUE)
    by_place = mark_below(place, held_place[:, FIRST_NUMBER:]) & ~(known & (date > held_date))
    result: Mask = np.where(_is_of_one_log(place, held_place), by_place, known & (date < held_date))
    return result


def is_newer(date: Ints, place: LogPositions, held_date: Ints, held_place: LogPositions) -> Mask:
    """Mark changes that are proven to be newer than what is held, by the same rule."""
    known = (date != NO_VALUE) & (held_date != NO_VALUE)
    by_place = mark_above(place, held_place[:, FIRST_NUMBER:]) & ~(known & (date < held_date))
    result: Mask = np.where(_is_of_one_log(place, held_place), by_place, known & (date > held_date))
    return result


def _is_of_one_log(place: LogPositions, held_place: LogPositions) -> Mask:
    both: Mask = (place[:, FIRST_NUMBER] != NO_VALUE) & (held_place[:, FIRST_NUMBER] != NO_VALUE)
    return both & (place[:, SOURCE_COLUMN] == held_place[:, SOURCE_COLUMN])


def drop_late_task(table: TablePlan) -> Task:
    """Return the task that leaves out the changes of keys that lost."""
    layout = table.layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late = 0
        for batch in batches:
            for (bucket, part), lost in zip(_unpack_buckets([batch], layout.rows), batch.column("lost"), strict=True):
                kept, dropped = _drop_lost(part, np.array(lost.as_py() or [], np.int64), layout.keys)
                late += dropped
                if len(kept):
                    # They stay marked: a document's version must not rise for them.
                    changes = TaskOutput(OutputKind.CHANGES, pack(kept), table.index, bucket)
                    yield task_output.to_batch([changes])
        yield task_output.to_batch([TaskOutput.of(RecordsCounted(TaskMetrics(late=late)))])

    return task


def _drop_lost(part: ChangeBatch, lost: Ints, keys: Sequence[str]) -> tuple[ChangeBatch, int]:
    """Leave out the keys whose winners lost, and return how many; other changes that did are suspects again, so that no
    partition goes on behind them.
    """
    codes, winners = encode_keys(read_columns(part.rows, keys)), lost[part.suspect[lost]]
    suspect = part.suspect.copy()
    suspect[lost] = True
    in_time = np.flatnonzero(~np.isin(codes, codes[winners]))
    return attrs.evolve(part, suspect=suspect).take(in_time), len(winners)


def _unpack_buckets(
    batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch], columns: pa.Schema
) -> Iterator[tuple[int, ChangeBatch]]:
    for batch in batches:
        for bucket, payload in zip(batch.column("bucket"), batch.column("payload"), strict=True):
            yield bucket.as_py(), unpack(payload.as_buffer(), columns)
