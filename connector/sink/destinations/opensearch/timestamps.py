"""Rows that are appended -> the time of each, for a data stream or the name of its index. Runs on executors; no I/O."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.conversion import converted
from connector.opensearch.indexes.index_name_dates import Pattern
from connector.sink.convert.row_builder import UNITS_NS
from connector.sink.fold.winners import NONE
from connector.sink.model.change_rows import Part

MOMENT = pa.timestamp("us", "UTC")


@attrs.frozen
class Dating:
    """Which time a row has: that of the first of these columns that has one; then, with `source`, its change's there.

    It makes the name of the row's index by `pattern`, or without one is the row's time in a data stream.
    """

    columns: tuple[str, ...]
    source: bool
    pattern: Pattern | None = None

    def times(self, part: Part, dedup_column: str) -> pa.TimestampArray:
        """Give the time of each row, null where it has none.

        Columns may be timestamps, dates, ISO 8601 texts, and numbers of milliseconds since 1970.
        """
        found = [_moments(part.rows.column(name)) for name in self.columns if name in part.rows.schema.names]
        if self.source:
            found.append(_at_source(part, dedup_column))
        return pc.coalesce(*found) if found else pa.nulls(len(part), MOMENT)


def _at_source(part: Part, dedup_column: str) -> pa.TimestampArray:
    unit = UNITS_NS.get(dedup_column)
    if unit is None:
        return pa.nulls(len(part), MOMENT)
    known = part.order.dedup != NONE
    micros = part.order.dedup // 1000 if unit == 1 else part.order.dedup * (unit // 1000)
    return pa.array(np.where(known, micros, 0), pa.int64(), mask=~known).cast(MOMENT)


def _moments(column: pa.Array) -> pa.TimestampArray:
    kind = column.type
    if pa.types.is_integer(kind):
        limit = (2**63 - 1) // 1000
        known = pc.and_(pc.less_equal(column, limit), pc.greater_equal(column, -limit))
        return pc.multiply(pc.if_else(known, column, None).cast(pa.int64()), 1000).cast(MOMENT)
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us")).cast(MOMENT)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(MOMENT)
    if pa.types.is_string(kind):
        zoned = converted(column, MOMENT)[0]
        return pc.coalesce(zoned, converted(column, pa.timestamp("us"))[0].cast(MOMENT))
    return pa.nulls(len(column), MOMENT)
