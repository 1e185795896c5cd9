"""Changes -> their order: dedup value, proven date and place, operation, of each change of a run. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.columns.found_columns import count_milliseconds, has_dates
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.event_age import is_declared, select_proven_dates, select_proven_places, units_per_second
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.truncates import SOURCE_TS_NS
from serde.arrays import Ints, children
from serde.events.changes import Changes
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

DEDUP_UNITS_NS = {"__source_ts_ns": 1, "__source_ts_us": 1_000, "__source_ts_ms": 1_000_000}
"""Dedup columns that are Debezium's time of the source, and their units."""


def build_order(
    run: ConsumerRecords, change: Changes, table: TablePlan, plan: BatchPlan, column: str | None = None
) -> ChangeOrder:
    """Return by what each change is older or newer than others: its dedup value, date and place, and where it stood.

    Args:
        run: the records.
        change: the changes among them.
        table: their table. The versions of a history have a time of the source, which counts where the table lacks the
            dedup column.
        plan: the batch's.
        column: what is the dedup column here (default: the plan's).
    """
    name = column or plan.dedup_column
    if table.history and not has_dates(table.layout, name):
        name = SOURCE_TS_NS
    rank, values = plan.ranks[run.topic, run.partition], to_int64(read_dedup_values(change, name))
    evidence, prefix = (values, change.op, change.deleted), plan.events.add_fields_prefix
    dates = select_proven_dates(*evidence, units_per_second(name, prefix))
    return ChangeOrder(
        partition=np.full(len(change.rows), rank, np.int64),
        offset=run.offset[change.rows],
        dedup=values,
        date=np.where(change.clock_dated, NO_VALUE, dates),
        place=select_proven_places(change.place, *evidence, declared=is_declared(name, prefix)),
        op=change.op,
    )


def order_by_offset(offset: Ints, rank: int, op: int) -> ChangeOrder:
    """Return the order of records that tell nothing of it: where they stand in Kafka.

    Args:
        offset: their offsets.
        rank: that of their topic-partition.
        op: the operation of all.
    """
    count = len(offset)
    unknown, ops = np.full(count, NO_VALUE, np.int64), np.full(count, op, np.uint8)
    return ChangeOrder(np.full(count, rank, np.int64), offset, unknown, unknown, unknown_positions(count), ops)


def read_dedup_values(change: Changes, name: str) -> pa.Array:
    """Return the dedup value of each change, null where it is not known.

    What is added to rows from around them is told of deletes too, which may have no row.
    """
    position = change.row.type.get_field_index(name) if name else -1
    if name in DEDUP_UNITS_NS:
        around = pc.divide(change.ts_ns, DEDUP_UNITS_NS[name])
    elif name in change.added:
        around = _to_numbers(change.added[name])
    else:
        around = pa.nulls(len(change.rows), pa.int64())
    if position < 0:
        return around
    dates = _to_numbers(count_milliseconds(children(change.row)[position], name))
    return pc.coalesce(dates.cast(pa.int64()), around) if dates.null_count else dates


def _to_numbers(column: pa.Array) -> pa.Array:
    return column if pa.types.is_integer(column.type) else convert(column, pa.int64())[0]


def to_int64(column: pa.Array) -> Ints:
    """Return a column of numbers with `NO_VALUE` for nulls."""
    return np.asarray(column.cast(pa.int64()).fill_null(NO_VALUE), dtype=np.int64)
