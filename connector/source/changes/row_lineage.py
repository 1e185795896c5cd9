"""Rewritten files of a v3 table -> the rows that changed, by row lineage instead of by comparing rows.

A row that was changed carries the snapshot's sequence number as `_last_updated_sequence_number`; a row that stayed
carries an older one (spec, "Row Lineage"). So new rows are found by one column, and before-images by row id.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.read.file_changes import FileChanges
from connector.iceberg.read.frame_columns import ROW_ID_COLUMN, SEQUENCE_COLUMN
from connector.iceberg.read.table_reader import TableReader
from connector.source.changes.rewrites.row_digests import keep_wanted


def has_lineage(files: FileChanges) -> bool:
    """Return whether every row of the files that changed has lineage that can be read.

    Rows from before an upgrade to v3 have none, and none is read from ORC files.
    """
    older = [task for pair in files.touched for task in (pair.deleted, pair.before)]
    return files.first_row_id is not None and all(
        task.first_row_id is not None and task.row_ids_readable for task in (*files.removed, *files.added, *older)
    )


def find_changed_rows(reader: TableReader, files: FileChanges, taken: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return gone and new rows of rewritten files, and of rows that deletes took away, without those that stayed.

    Which rows went need not be asked where all that were there are still there, stayed or updated: the ids of both
    sides are summed up for that, over narrow columns. Else the ids of one side are taken from those of the other.

    Args:
        reader: of the snapshot's schema.
        files: what the snapshot did.
        taken: rows of older files that its deletes took away, with their ids: they may be in the added files too.
    """
    before = reader.read_live_rows(files.removed, lineage=True).drop(SEQUENCE_COLUMN)
    if taken is not None:
        before = before.unionByName(taken)
    after = reader.read_live_rows(files.added, lineage=True)
    stayed = F.col(SEQUENCE_COLUMN) < files.sequence_number
    staying, fresh = after.filter(stayed).drop(SEQUENCE_COLUMN), after.filter(~stayed).drop(SEQUENCE_COLUMN)
    updated = fresh.filter(F.col(ROW_ID_COLUMN) < files.first_row_id).select(ROW_ID_COLUMN).localCheckpoint()
    if _count_and_checksum(before) == _count_and_checksum(staying.select(ROW_ID_COLUMN).unionAll(updated)):
        return keep_wanted(before, updated, (ROW_ID_COLUMN,)), fresh
    gone = (
        before.select(ROW_ID_COLUMN).join(staying.select(ROW_ID_COLUMN), ROW_ID_COLUMN, "left_anti").localCheckpoint()
    )
    # A row that stays what it was, but was in no file that went: written again after it had been deleted.
    back = (
        staying.select(ROW_ID_COLUMN).join(before.select(ROW_ID_COLUMN), ROW_ID_COLUMN, "left_anti").localCheckpoint()
    )
    return keep_wanted(before, gone, (ROW_ID_COLUMN,)), fresh.unionByName(keep_wanted(staying, back, (ROW_ID_COLUMN,)))


def _count_and_checksum(rows: DataFrame) -> tuple[int, int | None]:
    """Return a count and a checksum, which differ where the ids do."""
    sums = rows.agg(F.count(ROW_ID_COLUMN), F.bit_xor(F.xxhash64(ROW_ID_COLUMN))).first()
    return (0, None) if sums is None else (sums[0], sums[1])
