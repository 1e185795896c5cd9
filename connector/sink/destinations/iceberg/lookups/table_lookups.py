"""Outputs of a job -> further outputs, from what only Iceberg's tables know: the lookups of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.read.table_reader import release_reads
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.sink.destinations.iceberg.lookups.document_patches import patch_table_rows
from connector.sink.destinations.iceberg.lookups.tombstones import mark_deleted_rows
from connector.sink.destinations.iceberg.lookups.unavailable_values import fill_from_table
from connector.sink.destinations.iceberg.snapshot_rows import read_table_rows
from connector.sink.destinations.iceberg.write_modes.scd2 import update_histories
from connector.sink.destinations.late_events import drop_late_events
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind

_MISSING_ROW_KINDS = frozenset({OutputKind.TOMBSTONES, OutputKind.UNAVAILABLE_ROWS, OutputKind.PATCHED_ROWS})


@attrs.frozen(eq=False)
class LateEventLookup:
    """Late candidates -> those that are newer than the table's row, and than the key's last hard delete."""

    plan: BatchPlan
    tables: Sequence[Table]
    deleted_keys: DeletedKeysTable | None

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether there are late candidates."""
        return table.index in result.late_ranges

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Return the changes that are not late, for the reduce task."""
        candidates = outputs.where(F.col("kind") == OutputKind.LATE_CANDIDATES)
        java, ranges = self.tables[table.index], result.late_ranges[table.index]
        yield drop_late_changes(candidates, ranges, self.plan, table, java, self.deleted_keys, until)


def drop_late_changes(
    candidates: DataFrame,
    ranges: KeyRanges,
    plan: BatchPlan,
    table: TablePlan,
    java: Table,
    deleted_keys: DeletedKeysTable | None,
    until: ExitStack,
) -> DataFrame:
    """Return candidates that are not late, as outputs of kind CHANGES; `until` closes what they are read from."""
    spark, deleted = candidates.sparkSession, None
    if deleted_keys is not None and not table.keep_deletes:
        until.callback(deleted_keys.close)
        deleted = deleted_keys.of(table.layout.name)
    until.callback(release_reads, spark, java)
    rows = read_table_rows(spark, java, table, ranges.filter(table.layout.schema))
    return drop_late_events(candidates, ranges.count, plan, table, rows, deleted)


@attrs.frozen(eq=False)
class HistoryLookup:
    """New versions of rows -> files with them, and with the end of the versions before (tables that keep history)."""

    tables: Sequence[Table]
    tasks: int
    op_field: str

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether there are new versions."""
        return bool(KeyRanges.join(result.version_ranges.get(table.index, ())).count)

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Write the files."""
        spark, java = outputs.sparkSession, self.tables[table.index]
        until.callback(release_reads, spark, java)
        spans = KeyRanges.join(result.version_ranges.get(table.index, ()))
        yield update_histories(spark, java, table, outputs, spans, self.tasks, self.op_field)


@attrs.frozen(eq=False)
class MissingValueLookup:
    """Tombstones and rows with unavailable values -> files with the rows that the table completes."""

    tables: Sequence[Table]
    dedup_column: str
    op_field: str
    prefix: str

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether there are such rows."""
        return not _MISSING_ROW_KINDS.isdisjoint(result.kinds_left.get(table.index, ()))

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Write the files."""
        kinds = result.kinds_left[table.index]
        spark, java = outputs.sparkSession, self.tables[table.index]
        until.callback(release_reads, spark, java)
        rows = read_table_rows(spark, java, table)
        if OutputKind.TOMBSTONES in kinds:
            yield mark_deleted_rows(outputs.where(F.col("kind") == OutputKind.TOMBSTONES), table, rows)
        if OutputKind.UNAVAILABLE_ROWS in kinds:
            moved = OutputKind.OLD_KEY_ROWS in kinds
            columns = {"dedup_column": self.dedup_column, "op_field": self.op_field, "prefix": self.prefix}
            yield fill_from_table(outputs, table, rows, until, moved=moved, **columns)
        if OutputKind.PATCHED_ROWS in kinds:
            yield patch_table_rows(outputs.where(F.col("kind") == OutputKind.PATCHED_ROWS), table, rows)
