"""A snapshot -> what it changed against its parent: files that came and went, and those whose deletes did.

Metadata only, on the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import attrs
from pyspark.sql import SparkSession

from connector.errors import GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import jvm, map_java_errors
from connector.iceberg.read.scan_planning import (
    FileScanTask,
    delete_file_name,
    keep_deletes,
    plan_files,
    tasks_by_entry,
    tasks_without_deletes,
)


@attrs.frozen(eq=False)
class AffectedFile:
    """An older data file that a snapshot's deletes touch: read with the new deletes, and with those before."""

    deleted: FileScanTask
    before: FileScanTask


@attrs.frozen(eq=False)
class RestoredFile:
    """An older data file that has lost deletes, most often for others in their place: with those before, and of now."""

    before: FileScanTask
    now: FileScanTask


@attrs.frozen(eq=False)
class FileChanges:
    """What a snapshot did to files: removed and added data files as they are to be read, older files it deletes in.

    `relieved` are older files of which rows may live again.
    """

    removed: tuple[FileScanTask, ...]
    added: tuple[FileScanTask, ...]
    touched: tuple[AffectedFile, ...]
    relieved: tuple[RestoredFile, ...]
    sequence_number: int
    first_row_id: int | None


def read_file_changes(spark: SparkSession, table: Table, snapshot_id: int) -> FileChanges:
    """Return what a snapshot changed against its parent.

    Removed files carry the deletes that applied before, added ones those that apply now, so that reading them gives
    the rows that were live. Cost: the snapshot's own manifests; all manifests of both snapshots where delete files are
    involved.

    Raises:
        GapError: the snapshot or its parent has expired.
        FatalError, RetriableError: metadata cannot be read.
    """
    snapshot = _require_snapshot(table, snapshot_id)
    with map_java_errors(f"reading the manifests of {table.name} at snapshot {snapshot_id}"):
        changed = _read_changed_files(spark, table, snapshot)
        first_row_id = snapshot.firstRowId()
    parent = _plan_parent(spark, table, snapshot, changed)
    plan = plan_files(spark, table, snapshot_id) if changed.deletes or changed.lifted else []
    now, before = tasks_by_entry(plan, parent)
    # Of a path that was taken out no entry counts as one that stays: Iceberg takes out all in a manifest, or one of
    # two where they are in different ones.
    gone = {file.path for file in changed.removed}
    staying = {entry for entry in now if entry in before and entry[0] not in gone}
    removed = _take_planned(changed.removed, (task for entry, task in before.items() if entry not in staying))
    added = _take_planned(changed.added, (task for entry, task in now.items() if entry not in staying))
    touched = tuple(
        AffectedFile(keep_deletes(spark, task, changed.deletes), before[entry])
        for entry, task in now.items()
        if entry in staying and task.deletes & changed.deletes
    )
    relieved = tuple(
        RestoredFile(before[entry], task)
        for entry, task in now.items()
        if entry in staying and before[entry].deletes - task.deletes
    )
    sequence_number = int(snapshot.sequenceNumber())
    first = None if first_row_id is None else int(first_row_id)
    return FileChanges(removed, added, touched, relieved, sequence_number, first)


def _plan_parent(spark: SparkSession, table: Table, snapshot: Any, changed: _ChangedFiles) -> list[FileScanTask]:
    """Plan the parent where deletes that applied before matter; empty where none can."""
    parent_id = snapshot.parentId()
    if parent_id is None or not (changed.removed or changed.deletes or changed.lifted):
        return []
    parent = _require_snapshot(table, int(parent_id))
    with map_java_errors(f"reading the manifests of {table.name} at snapshot {parent_id}"):
        if not (changed.deletes or changed.lifted) and not parent.deleteManifests(table.java.io()):
            return []
    return plan_files(spark, table, int(parent_id))


@attrs.frozen(eq=False)
class _ChangedFiles:
    added: tuple[FileScanTask, ...]
    removed: tuple[FileScanTask, ...]
    deletes: frozenset[str]
    lifted: frozenset[str]


def _read_changed_files(spark: SparkSession, table: Table, snapshot: Any) -> _ChangedFiles:
    """Read the manifests that the snapshot wrote; its data files come without deletes.

    `deletes` names the delete files that it added, `lifted` those that it took away while their data files stayed.
    """
    builder = jvm(spark).org.apache.iceberg.SnapshotChanges.builderFor(table.java)
    found = builder.snapshot(snapshot).build()
    added, removed = (
        tasks_without_deletes(spark, table, files) for files in (found.addedDataFiles(), found.removedDataFiles())
    )
    removed_paths = {task.path for task in removed}
    lifted = (file for file in found.removedDeleteFiles() if str(file.referencedDataFile()) not in removed_paths)
    return _ChangedFiles(
        added, removed, *(frozenset(map(delete_file_name, files)) for files in (found.addedDeleteFiles(), lifted))
    )


def _take_planned(files: Iterable[FileScanTask], planned: Iterable[FileScanTask]) -> tuple[FileScanTask, ...]:
    """Return for each file its planned task, which has its deletes, or the file itself where none was planned."""
    by_path = defaultdict[str, list[FileScanTask]](list)
    for task in planned:
        by_path[task.path].append(task)
    return tuple(by_path[file.path].pop() if by_path.get(file.path) else file for file in files)


def _require_snapshot(table: Table, snapshot_id: int) -> Any:
    snapshot = table.java.snapshot(snapshot_id)
    if snapshot is None:
        raise GapError(
            f"table {table.name} has no snapshot {snapshot_id} any more: it has expired; keep snapshots for longer "
            "(history.expire.max-snapshot-age-ms); a source reads the table in full after `icebridge offsets reset`"
        )
    return snapshot
