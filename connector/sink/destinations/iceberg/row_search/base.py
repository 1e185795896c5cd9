"""RowSearch: the port of the ways in which rows of a batch's keys are found: keys + data files -> positions, by file.

One way per module, called SEARCH there and named in `settings.iceberg.row_lookup.DECLARED_LOOKUPS`; see `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.sink.destinations.join_columns import column_aliases, spark_schema
from connector.sink.model import task_output
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult

BROADCAST_KEYS, BROADCAST_BYTES = 1_000_000, 64 * 1024**2
"""Up to so many keys of a batch every task gets them all; more are joined by a shuffle."""


@attrs.frozen(eq=False)
class FileRows:
    """Live rows of a data file: their positions."""

    path: str
    positions: BitMap64


FileRowsTask = Callable[[Iterator[FileRows]], Iterator[pa.RecordBatch]]
"""What a write mode does with the rows that were found, in a task: all rows of a file come together."""


@attrs.frozen(eq=False)
class LookupScan:
    """A look-up as it is under way: the data files that may have rows of the keys, and outputs of kind KEYS.

    `conflict_filter` is Iceberg's filter (JSON) that holds all keys.
    """

    spark: SparkSession
    table: Table
    plan: TablePlan
    files: Sequence[FileScanTask]
    outputs: DataFrame
    ranges: KeyRanges
    tasks: int
    conflict_filter: str | None

    @property
    def has_few_keys(self) -> bool:
        """Whether the keys may go to every task."""
        return is_small(self.ranges)


class RowSearch(Protocol):
    """One way to find rows. It has no state."""

    def run(self, scan: LookupScan, work: FileRowsTask) -> JobResult:
        """Find the live rows of a scan's keys, and have tasks do `work` with them; return what these tell.

        Raises:
            FatalError, RetriableError: data files or deletes cannot be read.
        """


def is_small(ranges: KeyRanges) -> bool:
    """Tell whether keys are few enough to go to every task."""
    return ranges.count <= BROADCAST_KEYS and ranges.size_bytes <= BROADCAST_BYTES


def read_keys(outputs: DataFrame, layout: RowLayout, ranges: KeyRanges) -> DataFrame:
    """Return the key columns (called `column_aliases("key")`) in outputs of keys; few are sent to every executor."""
    names = column_aliases("key", len(layout.keys))
    schema = spark_schema([field.type for field in layout.key_fields], names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0):
                yield task_output.unpack_keys(payload.as_buffer()).rename_columns(names)

    keys = outputs.select("payload").mapInArrow(task, schema)
    return F.broadcast(keys) if is_small(ranges) else keys
