"""Rows that are appended -> the time of each, for a data stream or the name of its index. Runs on executors; no I/O."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.opensearch.indexes.index_names import IndexNamePattern
from connector.sink.convert.change_order import DEDUP_UNITS_NS
from connector.sink.model.change_rows import ChangeBatch
from serde.events.positions.log_positions import NO_VALUE

TIMESTAMP_TYPE = pa.timestamp("us", "UTC")
_MILLISECOND_US, _DAY_US = 1_000, 86_400_000_000


@attrs.frozen
class TimestampRule:
    """Which time a row has: that of the first of these columns that has one; then, with `source`, its change's there.

    It makes the name of the row's index by `pattern`, or without one is the row's time in a data stream.
    """

    columns: tuple[str, ...]
    source: bool
    pattern: IndexNamePattern | None = None

    def times(self, part: ChangeBatch, dedup_column: str) -> pa.TimestampArray:
        """Return the time of each row, null where it has none.

        Columns may be timestamps, dates, ISO 8601 texts, and numbers of milliseconds since 1970.
        """
        columns = [_to_timestamps(part.rows.column(name)) for name in self.columns if name in part.rows.schema.names]
        if self.source:
            columns.append(_read_source_time(part, dedup_column))
        return pc.coalesce(*columns) if columns else pa.nulls(len(part), TIMESTAMP_TYPE)


def _read_source_time(part: ChangeBatch, dedup_column: str) -> pa.TimestampArray:
    unit = DEDUP_UNITS_NS.get(dedup_column)
    if unit is None:
        return pa.nulls(len(part), TIMESTAMP_TYPE)
    known = part.order.dedup != NO_VALUE
    micros = part.order.dedup // 1000 if unit == 1 else part.order.dedup * (unit // 1000)
    return pa.array(np.where(known, micros, 0), pa.int64(), mask=~known).cast(TIMESTAMP_TYPE)


def _to_timestamps(column: pa.Array) -> pa.TimestampArray:
    kind = column.type
    if pa.types.is_integer(kind):
        return _scale_to_micros(column.cast(pa.int64()), _MILLISECOND_US)
    if pa.types.is_date(kind):
        return _scale_to_micros(column.cast(pa.int32()).cast(pa.int64()), _DAY_US)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(TIMESTAMP_TYPE)
    if pa.types.is_string(kind):
        zoned = convert(column, TIMESTAMP_TYPE)[0]
        return pc.coalesce(zoned, convert(column, pa.timestamp("us"))[0].cast(TIMESTAMP_TYPE))
    return pa.nulls(len(column), TIMESTAMP_TYPE)


def _scale_to_micros(numbers: pa.Int64Array, unit: int) -> pa.TimestampArray:
    """Return the times that numbers of units since 1970 stand for; null where no timestamp is that far away."""
    limit = (2**63 - 1) // unit
    known = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, -limit))
    return pc.multiply(pc.if_else(known, numbers, None), unit).cast(TIMESTAMP_TYPE)
