"""fields of events -> when they were made at their source, and their place in the transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import column_at

_UNITS = (("ts_ns", 1), ("ts_us", 1_000), ("ts_ms", 1_000_000))
SOURCE_DATES = tuple(name for name, _ in _UNITS)
"""When a row changed at its source, the most precise first."""
FINE_DATES = {f"source.{name}": factor for name, factor in _UNITS if name != "ts_ms"}
"""Those that older connectors do not send, by path: what a nanosecond is divided by."""


def read_ts_ns(fields: pa.StructArray, prefix: str) -> pa.Int64Array:
    """ts_ns, where it is missing ts_us, where that is missing ts_ms."""
    total: pa.Int64Array | None = None
    for unit, factor in _UNITS:
        column = column_at(fields, prefix + unit)
        if column is None or column.type != pa.int64():
            continue
        scaled = column if factor == 1 else _multiply(column, factor)
        total = scaled if total is None else pc.coalesce(total, scaled)
        if not total.null_count:
            break
    return total if total is not None else pa.nulls(len(fields), pa.int64())


def _multiply(column: pa.Int64Array, factor: int) -> pa.Int64Array:
    """Times `factor`; null where that does not fit."""
    limit = (2**63 - 1) // factor
    fits = pc.and_(pc.less_equal(column, limit), pc.greater_equal(column, -limit))
    return pc.multiply(pc.if_else(fits, column, None), factor)


def derive_date(fields: pa.StructArray, own: pa.Array | None, factor: int) -> pa.Array | None:
    """A date of the source, from coarser ones where events have none so fine: as Debezium does it since 2.6."""
    told = read_ts_ns(fields, "source.")
    if told.null_count == len(told) or (own is not None and own.type != told.type):
        return own
    made = told if factor == 1 else pc.divide(told, factor)
    return made if own is None else pc.coalesce(own, made)


def read_total_order(fields: pa.StructArray, paths: Sequence[str]) -> pa.Int64Array:
    """Return the place of events in their transaction, in the first of these columns that is there."""
    column = next((column for path in paths if (column := column_at(fields, path)) is not None), None)
    return column if column is not None and column.type == pa.int64() else pa.nulls(len(fields), pa.int64())
