"""Rewritten files of a v3 table -> the rows that changed, by row lineage instead of by comparing rows.

A row that was changed carries the snapshot's sequence number as `_last_updated_sequence_number`; a row that stayed
carries an older one (spec, "Row Lineage"). So new rows are found by one column, and before-images by row id.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.scan import ROW_ID, SEQUENCE, Reader
from connector.iceberg.scan_tasks import FileChanges, Task
from connector.source.carryover import picked


def known(files: FileChanges) -> bool:
    """Tell whether every row of the rewritten files has lineage; rows from before an upgrade to v3 have none."""
    return files.first_row_id is not None and all(
        task.first_row_id is not None for task in (*files.removed, *files.added)
    )


def changed(reader: Reader, files: FileChanges) -> tuple[DataFrame, DataFrame]:
    """Give gone and new rows of rewritten files without those that stayed.

    Runs one job over two narrow columns of the added files, and a second one (row ids of both, no other column) only
    where rows were deleted, which the row counts tell.
    """
    before, after = reader.live(files.removed, lineage=True), reader.live(files.added, lineage=True)
    stayed = F.col(SEQUENCE) < files.sequence_number
    fresh = after.filter(~stayed).select(ROW_ID).localCheckpoint()
    updated = fresh.filter(F.col(ROW_ID) < files.first_row_id)
    if _all_there(files, fresh.count(), updated.count()):
        gone = updated
    else:
        gone = before.select(ROW_ID).join(after.filter(stayed).select(ROW_ID), ROW_ID, "left_anti").localCheckpoint()
    return picked(before, gone, (ROW_ID,)).drop(SEQUENCE), after.filter(~stayed).drop(SEQUENCE)


def _all_there(files: FileChanges, fresh: int, updated: int) -> bool:
    """Tell by counting that each row of the removed files is in the added ones, stayed or updated."""
    if any(task.deletes for task in (*files.removed, *files.added)):
        return False
    return _records(files.removed) == _records(files.added) - fresh + updated


def _records(tasks: Sequence[Task]) -> int:
    return sum(task.records for task in tasks)
