"""A chunk of a snapshot on demand -> a DataFrame of its rows (op `r`), as the newest published snapshot has them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.table import Table
from connector.iceberg.read.frame_columns import ROW_ID_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.read.table_reader import TableReader
from connector.source.changes.pairing import IS_ONLY_EVENT, rows_to_changes
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.changes.snapshot_diff import key_column, row_struct


@attrs.define(eq=False)
class LiveFiles:
    """The files of a table's newest published snapshot, planned once for each."""

    spark: SparkSession
    table: Table
    _planned: tuple[int, list[FileScanTask]] | None = None

    def at(self, snapshot_id: int) -> list[FileScanTask]:
        """Return the scan tasks of a snapshot.

        Raises:
            GapError: it has expired.
            FatalError, RetriableError: metadata cannot be read.
        """
        if self._planned is None or self._planned[0] != snapshot_id:
            self._planned = snapshot_id, plan_files(self.spark, self.table, snapshot_id)
        return self._planned[1]

    def forget(self) -> None:
        """Drop the plan."""
        self._planned = None


def read_live(reader: TableReader, tasks: Sequence[FileScanTask], key: RowKey) -> DataFrame:
    """Return the live rows of files as reads; no shuffle. `reader` is of the newest published snapshot's schema."""
    return _to_reads(reader, reader.read_live_rows(tasks, lineage=_by_row_id(key)), key)


def read_rewritten(
    reader: TableReader, replaced: Sequence[FileScanTask], newer: Sequence[FileScanTask], key: RowKey
) -> DataFrame:
    """Return the rows of newer files whose keys are in files that are gone.

    Reads the key columns of the one and all columns of the other, and shuffles both; the join sorts and may spill.

    Args:
        reader: of the newest published snapshot's schema.
        replaced: files of the pinned snapshot, with its deletes, that are not live any more.
        newer: live files that the pinned snapshot did not have.
        key: what identifies rows; not none.
    """
    lineage = _by_row_id(key)
    names = [f"key{place}" for place in range(1 if lineage else len(key.columns))]
    keys = [F.col(ROW_ID_COLUMN)] if lineage else [key_column(reader.schema, name) for name in key.columns]
    named = [column.alias(name) for column, name in zip(keys, names, strict=True)]
    # A broadcast of the keys would pass through the driver.
    wanted = reader.read_live_rows(replaced, lineage=lineage).select(*named).hint("merge")
    rows = reader.read_live_rows(newer, lineage=lineage).withColumns(dict(zip(names, keys, strict=True)))
    return _to_reads(reader, rows.join(wanted, names, "left_semi").drop(*names), key)


def keep_rows(reads: DataFrame, condition: Column | None) -> DataFrame:
    """Return the reads that a condition on `after` keeps; all without one."""
    return reads if condition is None else reads.filter(condition)


def _to_reads(reader: TableReader, rows: DataFrame, key: RowKey) -> DataFrame:
    row_id = F.col(ROW_ID_COLUMN) if _by_row_id(key) else F.lit(None).cast("long")
    return rows_to_changes(rows, "r", row_struct(reader.schema), row_id).drop(IS_ONLY_EVENT)


def _by_row_id(key: RowKey) -> bool:
    return key.kind == KeyKind.ROW_ID
