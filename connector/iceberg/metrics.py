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
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

_WITH_BOUNDS = (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE)
_WITHOUT_BOUNDS = pa.uuid()
"""Readers differ in the order of uuids."""


@define
class _Column:
    """A column that is counted; `bounded`: its bounds are kept, text and bytes of them only so long."""

    field_id: int
    place: int
    kind: PrimitiveType
    bounded: bool
    length: int | None
    values: int = 0
    nulls: int = 0
    nans: int | None = None
    low: Any = None
    high: Any = None

    def add(self, column: pa.ChunkedArray) -> None:
        self.values += len(column)
        self.nulls += column.null_count
        if pa.types.is_floating(column.type):
            self.nans = (self.nans or 0) + (pc.sum(pc.is_nan(column)).as_py() or 0)
        if self.bounded and not column.type.equals(_WITHOUT_BOUNDS):
            self._span(column)

    def _span(self, column: pa.ChunkedArray) -> None:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
        span = pc.min_max(column)
        low, high = span["min"].as_py(), span["max"].as_py()
        # A number that is none equals nothing, itself included: a column of nothing else has no bounds.
        if low is not None and low == low:  # noqa: PLR0124
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def lower(self) -> bytes | None:
        low = self.low
        if low is None:
            return None
        if isinstance(low, float) and not low:
            low = -0.0
        return to_bytes(self.kind, low if self.length is None else low[: self.length])

    def upper(self) -> bytes | None:
        high = self.high
        if isinstance(high, float) and not high:
            high = 0.0
        if isinstance(high, str):
            high = truncate_upper_bound_text_string(high, self.length)
        elif isinstance(high, bytes) and self.length is not None:
            high = truncate_upper_bound_binary_string(high, self.length)
        try:
            return None if high is None else to_bytes(self.kind, high)
        except UnicodeEncodeError:
            # The letter after the last one that was kept is none of Unicode's.
            return None


@define
class Metrics:
    """What one file's rows look like."""

    _columns: list[_Column]
    count: int = field(default=0)

    @staticmethod
    def of(schema: Schema, properties: tuple[tuple[str, str], ...]) -> Metrics:
        """Begin with nothing; the properties are the table's."""
        return Metrics([_Column(*each) for each in _wanted(schema.model_dump_json(), properties)])

    def add(self, rows: pa.Table) -> None:
        """Take rows, their columns in the schema's order."""
        self.count += rows.num_rows
        for column in self._columns:
            column.add(rows.column(column.place))

    def told(self) -> dict[str, Any]:
        """Give counts and bounds by field id, as `connector.iceberg.files.describe` takes them."""
        columns = self._columns
        lower = {each.field_id: each.lower() for each in columns}
        upper = {each.field_id: each.upper() for each in columns}
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


@lru_cache(maxsize=1024)
def _wanted(
    schema_json: str, properties: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, int, PrimitiveType, bool, int | None], ...]:
    """Give id, place, type, whether bounds are kept, and their length of each column that is counted."""
    schema = Schema.model_validate_json(schema_json)
    plan = compute_statistics_plan(schema, dict(properties))
    found = []
    for place, each in enumerate(schema.fields):
        collected = plan.get(each.field_id)
        if collected is None or collected.mode.type == MetricModeTypes.NONE:
            continue
        bounded = collected.mode.type in _WITH_BOUNDS
        found.append((each.field_id, place, collected.iceberg_type, bounded, collected.mode.length))
    return tuple(found)
