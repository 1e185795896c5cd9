"""A pinned snapshot -> its files in parts of bounded size -> a DataFrame of reads (op `r`) per part.

Parts are the same whenever they are asked for, so that a first read that was interrupted continues at a part's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.snapshot_schema import check_format_version
from connector.iceberg.catalog.table import Table
from connector.iceberg.read.frame_columns import ROW_ID_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask, plan_files, tasks_by_entry
from connector.iceberg.read.table_reader import TableReader
from connector.source.changes.pairing import IS_ONLY_EVENT, rows_to_changes
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.changes.snapshot_diff import row_struct

PART_BYTES = 256 * 1024**2


@attrs.frozen(eq=False)
class SnapshotPart:
    """Some of a snapshot's files; `read_part` counts what the files hold, deletes not taken off."""

    number: int
    tasks: tuple[FileScanTask, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes in storage."""
        return sum(task.size_bytes for task in self.tasks)

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(task.records for task in self.tasks)


def plan_parts(
    spark: SparkSession, table: Table, snapshot_id: int, part_bytes: int = PART_BYTES
) -> tuple[SnapshotPart, ...]:
    """Put a snapshot's files, in the order of their paths, into parts of at most `part_bytes`, or of one larger file.

    A part's rows stream: what a part bounds is what is read again after a crash.

    Raises:
        FatalError, RetriableError: as `changes.snapshot_diff.read_changes`.
    """
    check_format_version(table)
    (entries,) = tasks_by_entry(plan_files(spark, table, snapshot_id))
    files = [entries[entry] for entry in sorted(entries)]
    return tuple(SnapshotPart(number, tasks) for number, tasks in enumerate(_pack_files(files, part_bytes)))


@attrs.define(eq=False)
class SnapshotParts:
    """Plans the parts of a table's initial snapshot, and keeps the plan while its parts are published one by one."""

    spark: SparkSession
    table: Table
    max_batch_size: int
    _plan: tuple[int, int, tuple[SnapshotPart, ...]] | None = None

    def choose_part_bytes(self, summary: Mapping[str, str]) -> int:
        """Return how many bytes hold about `max.batch.size` rows, by the totals in the snapshot's summary."""
        size, count = int(summary.get("total-files-size", 0)), int(summary.get("total-records", 0))
        if not size or not count:
            return PART_BYTES
        return max(1, min(PART_BYTES, size * self.max_batch_size // count))

    def plan(self, snapshot_id: int, part_bytes: int) -> tuple[SnapshotPart, ...]:
        """Return the parts of a snapshot; raises as `plan_parts`."""
        if self._plan is None or self._plan[:2] != (snapshot_id, part_bytes):
            self._plan = snapshot_id, part_bytes, plan_parts(self.spark, self.table, snapshot_id, part_bytes)
        return self._plan[2]

    def forget(self) -> None:
        """Drop the plan: its snapshot is published."""
        self._plan = None


def is_numbered(part: SnapshotPart) -> bool:
    """Return whether the rows of a part have ids; those from before an upgrade to v3 get them by the next commit."""
    return all(task.first_row_id is not None for task in part.tasks)


def read_part(reader: TableReader, part: SnapshotPart, key: RowKey) -> DataFrame:
    """Return the live rows of one part as reads, in the columns of `changes.snapshot_diff`; no shuffle.

    `reader` is of the snapshot's schema.
    """
    by_row_id = key.kind == KeyKind.ROW_ID
    live = reader.read_live_rows(part.tasks, lineage=by_row_id)
    row_id = F.col(ROW_ID_COLUMN) if by_row_id else F.lit(None).cast("long")
    return rows_to_changes(live, "r", row_struct(reader.schema), row_id).drop(IS_ONLY_EVENT)


def _pack_files(tasks: Sequence[FileScanTask], part_bytes: int) -> Iterator[tuple[FileScanTask, ...]]:
    waiting: list[FileScanTask] = []
    size_bytes = 0
    for task in tasks:
        if waiting and size_bytes + task.size_bytes > part_bytes:
            yield tuple(waiting)
            waiting, size_bytes = [], 0
        waiting.append(task)
        size_bytes += task.size_bytes
    if waiting:
        yield tuple(waiting)
