"""The footer of a written Parquet file -> what a manifest says of it: counts and bounds. Pure.

PyIceberg's own reading of footers takes dates and times through Python's types, which have an end and no nanoseconds,
and bounds of some row groups for those of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector
from pyiceberg.types import DecimalType, DoubleType, FloatType, StringType

from connector.iceberg.write.formats.column_metrics import BOUNDED_MODES
from connector.iceberg.write.formats.value_bounds import UNORDERED_TYPES, ValueBounds


def read_statistics(
    footer: pq.FileMetaData,
    wanted: Mapping[int, StatisticsCollector],
    places: Mapping[str, int],
    nulls: Mapping[int, int],
    nans: Mapping[int, int],
) -> dict[str, Any]:
    """Return what `write.rolling_file.describe_file` takes.

    Args:
        footer: of the file.
        wanted: what is collected of each field id.
        places: the field id of each column, by its path.
        nulls: how many nulls columns have of which the footer does not say it.
        nans: how many numbers that are none floating columns have.
    """
    found, offsets = _ChunkTotals(), []
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        offsets.append(_chunk_start(group.column(0)))
        for place in range(footer.num_columns):
            chunk = group.column(place)
            field_id = places[chunk.path_in_schema]
            found.add(field_id, chunk, wanted[field_id])
    lower = {key: each.lower() for key, each in found.bounds.items()}
    upper = {key: each.upper() for key, each in found.bounds.items()}
    null_counts = {key: value for key, value in found.null_counts.items() if value is not None}
    return {
        "record_count": footer.num_rows,
        "column_sizes": found.sizes,
        "value_counts": found.counts,
        "null_value_counts": null_counts | dict(nulls),
        "nan_value_counts": dict(nans),
        "lower_bounds": {key: value for key, value in lower.items() if value is not None},
        "upper_bounds": {key: value for key, value in upper.items() if value is not None},
        "split_offsets": sorted(offsets),
    }


@attrs.define
class _ChunkTotals:
    """What the column chunks of a footer add up to, by field id; None nulls where one chunk does not say them."""

    sizes: dict[int, int] = attrs.field(factory=dict)
    counts: dict[int, int] = attrs.field(factory=dict)
    null_counts: dict[int, int | None] = attrs.field(factory=dict)
    bounds: dict[int, ValueBounds] = attrs.field(factory=dict)

    def add(self, field_id: int, chunk: pq.ColumnChunkMetaData, wanted: StatisticsCollector) -> None:
        """Add a chunk, as far as it is wanted."""
        self.sizes[field_id] = self.sizes.get(field_id, 0) + chunk.total_compressed_size
        mode = wanted.mode
        if mode.type == MetricModeTypes.NONE:
            return
        self.counts[field_id] = self.counts.get(field_id, 0) + chunk.num_values
        if not chunk.num_values:
            return
        statistics: Any = chunk.statistics if chunk.is_stats_set else None
        before = self.null_counts.get(field_id, 0)
        known = before is not None and statistics is not None and statistics.has_null_count
        self.null_counts[field_id] = before + statistics.null_count if before is not None and known else None
        kind = wanted.iceberg_type
        if mode.type in BOUNDED_MODES and not isinstance(kind, UNORDERED_TYPES):
            _extend_bounds(self.bounds.setdefault(field_id, ValueBounds(kind, mode.length)), chunk, statistics)


def _extend_bounds(found: ValueBounds, chunk: pq.ColumnChunkMetaData, statistics: Any) -> None:
    kind = found.kind
    if statistics is None or not statistics.has_min_max:
        # Long values are left out of footers; numbers that are none are no ends.
        empty = statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values
        if not empty and not (statistics is not None and isinstance(kind, (FloatType, DoubleType))):
            found.known = False
        return
    low, high = statistics.min_raw, statistics.max_raw
    if isinstance(kind, DecimalType) and isinstance(low, bytes):
        low, high = (int.from_bytes(each, "big", signed=True) for each in (low, high))
    elif isinstance(kind, StringType):
        low, high = low.decode(), high.decode()
    found.add(low, high)


def _chunk_start(chunk: pq.ColumnChunkMetaData) -> int:
    data, dictionary = int(chunk.data_page_offset), chunk.dictionary_page_offset
    return int(dictionary) if chunk.has_dictionary_page and dictionary < data else data
