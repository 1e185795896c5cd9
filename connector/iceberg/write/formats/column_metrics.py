"""Columns of rows -> what a manifest says of them: counts and bounds, for formats that keep no statistics.

Source: Iceberg's spec, "Data File Fields", and the table properties `write.metadata.metrics.*`. What is nested has
none: to readers a column without bounds may hold anything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector, compute_statistics_plan, match_metrics_mode
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from connector.iceberg.types.values.single_values import to_stored_values
from connector.iceberg.write.formats.value_bounds import UNORDERED_TYPES, ValueBounds

_MODE_PROPERTIES = ("write.metadata.metrics.default", "write.metadata.metrics.column.")
BOUNDED_MODES = (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE)


@define
class _ColumnMetrics:
    """A column that is counted; `extremes` where its bounds are kept."""

    field_id: int
    place: int
    extremes: ValueBounds | None
    values: int = 0
    nulls: int = 0
    nans: int | None = None

    def add(self, column: pa.ChunkedArray) -> None:
        self.values += len(column)
        self.nulls += column.null_count
        if pa.types.is_floating(column.type):
            self.nans = (self.nans or 0) + (pc.sum(pc.is_nan(column)).as_py() or 0)
        if self.extremes is not None:
            span = pc.min_max(to_stored_values(column))
            self.extremes.add(span["min"].as_py(), span["max"].as_py())


@define
class FileMetrics:
    """What one file's rows look like."""

    _columns: list[_ColumnMetrics]
    count: int = field(default=0)

    @staticmethod
    def of(schema: Schema, properties: tuple[tuple[str, str], ...]) -> FileMetrics:
        """Begin with nothing; the properties are the table's."""
        wanted = _plan_metrics(schema.model_dump_json(), properties)
        return FileMetrics(
            [_ColumnMetrics(i, at, None if span is None else ValueBounds(*span)) for i, at, span in wanted]
        )

    def add(self, rows: pa.Table) -> None:
        """Take rows, their columns in the schema's order."""
        self.count += rows.num_rows
        for column in self._columns:
            column.add(rows.column(column.place))

    def describe(self) -> dict[str, Any]:
        """Return counts and bounds by field id, as `write.rolling_file.describe_file` takes them."""
        columns = self._columns
        bounded = {each.field_id: each.extremes for each in columns if each.extremes is not None}
        lower = {key: each.lower() for key, each in bounded.items()}
        upper = {key: each.upper() for key, each in bounded.items()}
        return {
            "record_count": self.count,
            "column_sizes": {},
            "value_counts": {each.field_id: each.values for each in columns},
            "null_value_counts": {each.field_id: each.nulls for each in columns},
            "nan_value_counts": {each.field_id: each.nans for each in columns if each.nans is not None},
            "lower_bounds": {key: value for key, value in lower.items() if value is not None},
            "upper_bounds": {key: value for key, value in upper.items() if value is not None},
            "split_offsets": [],
        }


def plan_statistics(schema: Schema, properties: tuple[tuple[str, str], ...]) -> dict[int, StatisticsCollector]:
    """Return by field id what is collected, by a table's properties; as in Iceberg, unknown modes do not count."""
    return compute_statistics_plan(schema, {key: text for key, text in properties if _is_usable(key, text)})


def _is_usable(key: str, text: str) -> bool:
    if not key.startswith(_MODE_PROPERTIES):
        return True
    try:
        match_metrics_mode(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _plan_metrics(
    schema_json: str, properties: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, int, tuple[PrimitiveType, int | None] | None], ...]:
    """Return id, place and, where bounds are kept, type and their length, of each column that is counted."""
    schema = Schema.model_validate_json(schema_json)
    plan = plan_statistics(schema, properties)
    found = []
    for place, each in enumerate(schema.fields):
        collected = plan.get(each.field_id)
        if collected is None or collected.mode.type == MetricModeTypes.NONE:
            continue
        kind, mode = collected.iceberg_type, collected.mode
        bounded = mode.type in BOUNDED_MODES and not isinstance(kind, UNORDERED_TYPES)
        found.append((each.field_id, place, (kind, mode.length) if bounded else None))
    return tuple(found)
