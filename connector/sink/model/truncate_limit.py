"""A truncate -> which rows of a table came before it, by one of its columns. Pure rules."""

from __future__ import annotations

import pyarrow as pa

from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.truncates import SOURCE_TS_NS, TableTruncate


def find_truncate_limit(cut: TableTruncate, table: TablePlan, plan: BatchPlan) -> tuple[str, int] | None:
    """Return a column that orders the table's rows, and its greatest value of those from before a truncate.

    That is the source's time, else the dedup column, where it is a number. None: all rows go, as all of them are known
    to have come before, or as no column tells.
    """
    columns, own = table.layout.columns, plan.dedup_column
    for column, value in ((SOURCE_TS_NS, cut.ts_ns), (own, cut.dedup)):
        if column in columns.names and pa.types.is_integer(columns.field(column).type):
            # Of a declared column nobody knows how far the table has come in the source's log.
            marks = () if plan.dedup_is_declared else table.find_watermarks(cut.source)
            limit = cut.deletes_until(table.find_last_truncate(cut.source).place, marks, value)
            return None if limit is None else (column, limit)
    return None
