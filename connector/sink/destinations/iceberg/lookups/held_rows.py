"""Rows that a table has or had -> the same with when each was written, which tells whose they are.

A key may be given to one row after the other. What a change of key took along was written before it; what it made was
written at it or later, and before the next change of that row's key. Of a transaction, whose changes have one time, the
place in the source's log tells what came first, where the table has it. Otherwise nothing does (`is_unsure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.sink.convert.columns.found_columns import has_dates
from connector.sink.destinations.join_columns import TableRows, column_aliases, key_column

ORDER, PLACE, READ = "_order", "_stood", "_read"
"""When a row was written, where that stands in the source's log, and whether it was a snapshot read: the time of a read
does not say when the row was made.
"""
_SOURCE_TIMES = ("source_ts_ns", "source_ts_us", "source_ts_ms")
_SOURCE_PLACES = ("source_lsn", "lsn")


@attrs.frozen
class AgeColumns:
    """The columns of a table that tell when a row was written, and where its change stands in the source's log."""

    time: str | None = None
    place: str | None = None


@attrs.frozen
class MomentColumns:
    """The columns of a frame that tell when and where a key changed."""

    time: str
    place: str


def find_time_column(layout: RowLayout, dedup_column: str, prefix: str) -> str | None:
    """Return the column that tells when a row was written; None where the table has none.

    A time of the source stays as it is when its event is sent again, unlike that of processing; so it comes before a
    dedup column of another kind.
    """
    times = [f"{prefix}{name}" for name in _SOURCE_TIMES]
    order = [dedup_column] if dedup_column in times else [*times, dedup_column]
    return next((name for name in order if has_dates(layout, name)), None)


def find_place_column(layout: RowLayout, prefix: str) -> str | None:
    """Return the column that tells where a change stands in the source's log: PostgreSQL's, which leaves values out."""
    names = [f"{prefix}{name}" for name in (_SOURCE_PLACES if prefix else _SOURCE_PLACES[:1])]
    kinds = {field.name: field.type for field in layout.columns}
    return next((name for name in names if name in kinds and pa.types.is_integer(kinds[name])), None)


@attrs.frozen(eq=False)
class HeldRows:
    """Rows of a table with their keys (`keys`), their age, and where each is (`place`: file and position)."""

    rows: DataFrame
    keys: Sequence[str]
    place: tuple[str, str]

    def is_within(self, under: Sequence[str], since: MomentColumns, until: MomentColumns) -> Column:
        """Say that a row has these keys and was written from one moment on and before another.

        Where both are of one time the row came and went within a transaction: then it may be of that very time.
        """
        order, last = F.col(ORDER), F.col(until.time)
        tied = F.coalesce(F.col(PLACE) < F.col(until.place), F.col(since.time) == last)
        return self._has_keys(under) & is_since(since) & ((order < last) | ((order == last) & tied))

    def is_between(self, under: Sequence[str], since: MomentColumns, until: MomentColumns) -> Column:
        """Say that a row has these keys and was certainly written after one moment and before another."""
        row = MomentColumns(ORDER, PLACE)
        return self._has_keys(under) & ~F.col(READ) & _is_after(row, since) & _is_after(until, row)

    def _has_keys(self, under: Sequence[str]) -> Column:
        pairs = zip(under, self.keys, strict=True)
        return reduce(and_, (F.col(own) == F.col(key) for own, key in pairs))

    def union(self, other: HeldRows) -> HeldRows:
        """Return these rows and others of the same table."""
        return attrs.evolve(self, rows=self.rows.unionAll(other.rows))


def hold_rows(table_rows: TableRows, rows: DataFrame, layout: RowLayout) -> HeldRows:
    """Return rows that tell their age (`tell_age`) under names that no other side of a join has."""
    keys = column_aliases("held_key", len(layout.key_paths))
    place = ("_held_in", "_held_at")
    columns = [key_column(table_rows.names, path).alias(key) for path, key in zip(layout.key_paths, keys, strict=True)]
    where = [F.col(name).alias(alias) for name, alias in zip(table_rows.place, place, strict=True)]
    return HeldRows(rows.select(*columns, *where, ORDER, PLACE, READ), keys, place)


def tell_age(rows: DataFrame, table_rows: TableRows, layout: RowLayout, ages: AgeColumns, op_field: str) -> DataFrame:
    """Add when the table's rows were written, and where that stands, null without that column or a number in it, and
    whether they were read by snapshots.
    """
    column, order, read = ages.time, F.lit(None), F.lit(False)
    stored = None if ages.place is None else table_rows.names.get(ages.place)
    place = F.lit(None) if stored is None else F.col(stored)
    if column is not None:
        order = F.col(table_rows.names[column])
        kind = layout.columns.field(column).type
        if pa.types.is_timestamp(kind):
            order = F.unix_millis(order.cast("timestamp"))
        elif pa.types.is_date(kind):
            order = F.unix_date(order)
    if op_field in table_rows.names:
        read = F.coalesce(F.col(table_rows.names[op_field]).cast("string") == "r", read)
    rows = rows.withColumn(ORDER, order.try_cast("bigint")).withColumn(PLACE, place.try_cast("bigint"))
    return rows.withColumn(READ, read)


def is_before(change: MomentColumns) -> Column:
    """Say that a row may be the one that a key change took along, not another row that got the key later."""
    return F.col(READ) | ~F.coalesce(_is_after(MomentColumns(ORDER, PLACE), change), F.lit(False))


def _is_after(later: MomentColumns, earlier: MomentColumns) -> Column:
    """Say that one moment is certainly after another, null or false where nothing tells."""
    one, other = F.col(later.time), F.col(earlier.time)
    return (one > other) | ((one == other) & (F.col(later.place) > F.col(earlier.place)))


def is_since(change: MomentColumns) -> Column:
    """Say that a row was written by a key change, or after it."""
    order = F.col(ORDER)
    tied = (order == F.col(change.time)) & F.coalesce(F.col(PLACE) >= F.col(change.place), F.lit(True))
    return ~F.col(READ) & ((order > F.col(change.time)) | tied)


def is_unsure(change: MomentColumns) -> Column:
    """Say that nothing tells whether a row was there before a key change: it is of the same transaction."""
    untold = F.col(PLACE).isNull() | F.col(change.place).isNull()
    return ~F.col(READ) & F.coalesce((F.col(ORDER) == F.col(change.time)) & untold, F.lit(False))
