"""Rows that a table has or had -> the same with when each was written, which tells whose they are.

A key may be given to one row after the other. What a change of key took along was written before it; what it made was
written at it or later, and before the next change of that row's key.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.sink.convert.columns.found_columns import has_dates
from connector.sink.destinations.join_columns import TableRows, column_aliases, key_column

ORDER, READ = "_order", "_read"
"""When a row was written, and whether it was a snapshot read: the time of a read does not say when the row was made."""
_SOURCE_TIMES = ("source_ts_ns", "source_ts_us", "source_ts_ms")


def find_time_column(layout: RowLayout, dedup_column: str, prefix: str) -> str | None:
    """Return the column that tells when a row was written; None where the table has none.

    A time of the source stays as it is when its event is sent again, unlike that of processing; so it comes before a
    dedup column of another kind.
    """
    times = [f"{prefix}{name}" for name in _SOURCE_TIMES]
    order = [dedup_column] if dedup_column in times else [*times, dedup_column]
    return next((name for name in order if has_dates(layout, name)), None)


@attrs.frozen(eq=False)
class HeldRows:
    """Rows of a table with their keys (`keys`), `ORDER`, `READ`, and where each stands (`place`: file and position)."""

    rows: DataFrame
    keys: Sequence[str]
    place: tuple[str, str]

    def is_within(self, under: Sequence[str], since: str, until: str) -> Column:
        """Say that a row has these keys and was written from one time on and before another.

        Where both are one the row came and went within a transaction: then it may be of that very time.
        """
        order = F.col(ORDER)
        written = (order >= F.col(since)) & ((order < F.col(until)) | (F.col(since) == F.col(until)))
        condition = ~F.col(READ) & written & (order <= F.col(until))
        for own, key in zip(under, self.keys, strict=True):
            condition = condition & (F.col(own) == F.col(key))
        return condition


def hold_rows(table_rows: TableRows, rows: DataFrame, layout: RowLayout) -> HeldRows:
    """Return rows that tell their age (`tell_age`) under names that no other side of a join has."""
    keys = column_aliases("held_key", len(layout.key_paths))
    place = ("_held_in", "_held_at")
    columns = [key_column(table_rows.names, path).alias(key) for path, key in zip(layout.key_paths, keys, strict=True)]
    where = [F.col(name).alias(alias) for name, alias in zip(table_rows.place, place, strict=True)]
    return HeldRows(rows.select(*columns, *where, ORDER, READ), keys, place)


def tell_age(rows: DataFrame, table_rows: TableRows, layout: RowLayout, column: str | None, op_field: str) -> DataFrame:
    """Add when the table's rows were written, null without that column or a number in it, and whether they were read by
    snapshots.
    """
    order, read = F.lit(None), F.lit(False)
    if column is not None:
        order = F.col(table_rows.names[column])
        kind = layout.columns.field(column).type
        if pa.types.is_timestamp(kind):
            order = F.unix_millis(order.cast("timestamp"))
        elif pa.types.is_date(kind):
            order = F.unix_date(order)
    if op_field in table_rows.names:
        read = F.coalesce(F.col(table_rows.names[op_field]).cast("string") == "r", read)
    return rows.withColumn(ORDER, order.try_cast("bigint")).withColumn(READ, read)


def is_before(change: str) -> Column:
    """Say that a row may be the one that a key change took along, not another row that got the key later."""
    return F.col(READ) | F.coalesce(F.col(ORDER) <= F.col(change), F.lit(True))
