"""File descriptions + position -> one snapshot of a table, with its offsets in the summary. On the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from connector.errors import CommitRefused, FatalError, OutdatedFiles
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.commit.commit_attempts import Ancestors, commit_exactly_once
from connector.iceberg.commit.commit_summary import (
    COMMIT_ID,
    CONNECTOR_NAME,
    CREATED_BY,
    MANIFEST_REWRITE,
)
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit, find_last_commit, is_rolled_back, snapshot_summary
from connector.iceberg.commit.written_columns import find_moved_columns
from connector.iceberg.java import map_java_errors
from connector.iceberg.read.scan_planning import FileScanTask

REPLACE = "replace"
"""Iceberg's operation of snapshots that rewrite files and leave rows as they are."""

_CONTENTION_HINT = (
    "another writer was faster: where many write to one table, raise errors.retry.timeout and the table's "
    "commit.retry.num-retries"
)


@attrs.frozen(eq=False)
class RowsToReplace:
    """What was read of snapshot `base` to find rows that changes replace; true as long as nothing else touched it.

    `affected_files` are the data files that have such rows: they are rewritten, or the new delete files are about them.
    `conflict_filter` is Iceberg's filter (JSON) that holds all changed keys, None for any row.
    """

    affected_files: Sequence[FileScanTask] = ()
    conflict_filter: str | None = None


@attrs.frozen(eq=False)
class PendingCommit:
    """What one batch brings to one table.

    `expected` is what the table said when the files were made; `position` is the one after the commit. `base` is the
    snapshot that it was looked at, by the guard of equality deletes too.
    `guarded` is set when deletes were left out because the table could not hold their keys: then no other writer may
    have added rows since snapshot `base`. `replaces` tells an upsert from an append. `properties` go into the summary.
    `rows_to_replace` is set where rows were looked up, and not deleted by their keys; `replace_rows` then adds their
    replacement to the RowDelta. `needed` is a snapshot that the branch must still have: rows of a truncate go in one
    of their own. `schema_json` is the schema that data files among `files` were written with.
    """

    files: Sequence[FileDescription]
    position: KafkaOffsets
    expected: LastCommit
    base: int | None
    guarded: bool
    replaces: bool
    properties: Mapping[str, str] = attrs.field(factory=dict)
    rows_to_replace: RowsToReplace | None = None
    replace_rows: Callable[[Any, RowsToReplace], None] | None = None
    needed: int | None = None
    schema_json: str | None = None


@attrs.frozen
class CommittedSnapshot:
    """A commit that is in the table."""

    snapshot_id: int
    sequence_number: int
    data_files: int
    delete_files: int
    stored: LastCommit


def commit_files(table: Table, pending: PendingCommit, name: str) -> CommittedSnapshot:
    """Commit one batch's files to a table, exactly once.

    Iceberg itself checks, against the very snapshot that the commit lands on, that this connector's newest commit
    there is the one that was expected: a second sink with the same name, or a late commit of a process that was
    killed, cannot slip in between.

    Raises:
        CommitRefused: another writer was faster; nothing was committed nor will be, the batch may be tried again.
        OutdatedFiles: the same, and it needs other files: the table's columns are others by now.
        CommitUnknown: nobody could tell until `errors.retry.timeout`; the files must stay.
        RetriableError: the catalog stayed away before anything was sent.
        GapError: this connector's newest commit is gone from the table, and has not expired.
        FatalError: the commit is impossible, or another sink with the same name writes to the table.
    """
    commit_id = uuid.uuid4().hex
    summary = {**pending.properties, **pending.position.summary(name, commit_id)}
    rule = expect_last_commit(name, pending.expected, pending.base, pending.needed)
    try:
        few = pending.rows_to_replace is None
        commit_exactly_once(table, commit_id, lambda: _build_update(table, pending, summary), rule, few_manifests=few)
    except CommitRefused as error:
        check_sole_writer(table, pending.expected, name)
        if isinstance(error, OutdatedFiles):
            raise
        raise CommitRefused(f"{error}; {_CONTENTION_HINT}") from error.__cause__
    place = _find_commit(table, commit_id)
    if place is None:
        raise FatalError(
            f"table {table.name} does not have the snapshot of a commit that was just made; see whether somebody "
            "rolled it back (its table `history`), then start again"
        )
    deletes = sum(not description.is_data for description in pending.files)
    return CommittedSnapshot(
        *place, len(pending.files) - deletes, deletes, LastCommit(pending.position, commit_id, place[1])
    )


def _find_commit(table: Table, commit_id: str) -> tuple[int, int] | None:
    """Return id and sequence number of the snapshot of a commit, None where the branch does not have it.

    Others may have committed since, so the newest snapshot need not be this one. Few have, so Java is asked, which has
    just read the metadata: as a file, all snapshots would be read again for each table and batch.
    """
    with map_java_errors(f"looking for a commit to table {table.name}"):
        for snapshot in table.java_ancestors():
            if snapshot.summary().get(COMMIT_ID) == commit_id:
                return int(snapshot.snapshotId()), int(snapshot.sequenceNumber())
    return None


def commit_own_files(
    table: Table,
    files: Sequence[FileDescription],
    base: int,
    name: str,
    rows_to_replace: RowsToReplace | None,
    replace_rows: Callable[[Any, RowsToReplace], None],
    rule: Callable[[Ancestors], bool] | None = None,
    schema_json: str | None = None,
) -> None:
    """Commit files that replace rows with others of the same keys, exactly once; the connector's offsets stay.

    Args:
        table: the table.
        files: its new files.
        base: the snapshot that they were made of.
        name: the connector's, for the snapshot's summary.
        rows_to_replace: where rows were looked up: what was read.
        replace_rows: then adds their replacement to the RowDelta.
        rule: whether the snapshots found let it in, as of `commit_exactly_once`.
        schema_json: the schema that data files among them were written with.

    Raises:
        CommitRefused: another writer was faster; nothing was committed nor will be.
        CommitUnknown, RetriableError, GapError, FatalError: as `commit_files`.
    """
    nothing = LastCommit()
    pending = PendingCommit(
        files,
        nothing.position,
        nothing,
        base,
        guarded=False,
        replaces=True,
        rows_to_replace=rows_to_replace,
        replace_rows=replace_rows,
        schema_json=schema_json,
    )
    commit_exactly_once(table, uuid.uuid4().hex, lambda: _build_update(table, pending, {CREATED_BY: name}), rule)


def check_sole_writer(table: Table, expected: LastCommit, name: str) -> None:
    """Raise FatalError where a table has a commit of this connector that is not the one that its process knows."""
    found = find_last_commit(table, name, expected)
    if found.commit_id not in (None, expected.commit_id):
        raise FatalError(
            f"table {table.name} has a commit of connector {name} that this process did not make: another sink with "
            "the same name is running; stop it, or give one of them another `name`"
        )


def check_own_commits(table: Table, base: int | None, expected: LastCommit, name: str) -> None:
    """Make sure that nobody but this process changed a table's rows since snapshot `base`.

    Snapshots of a connector's that hold none of its offsets, such as those of a truncate, are its own.

    Raises:
        CommitRefused: somebody did: what was made for the table as it was at `base` must be made again.
        FatalError: another sink with the same name did.
    """
    for snapshot in table.ancestors():
        if snapshot.snapshot_id == base:
            return
        summary = snapshot_summary(snapshot)
        own = _is_without_offsets(summary, name)
        if not own and (snapshot.summary is None or snapshot.summary.operation.value != REPLACE):
            break
    else:
        if base is None:
            return
    check_sole_writer(table, expected, name)
    raise CommitRefused(f"table {table.name} was changed by another writer while a truncate emptied it")


def check_no_rollback(table: Table, before: Collection[int], seen: int | None, name: str) -> None:
    """Make sure that the branch has what this connector committed without offsets, as of a truncate.

    Args:
        table: as it is now.
        before: the snapshots that there were, of any branch.
        seen: the one in which there was nothing left to do; None where something was done.
        name: the connector's.

    Raises:
        CommitRefused: the table was rolled back meanwhile: what was done must be done again.
    """
    snapshots, at = table.list_snapshots(), table.snapshot_id
    gone = {one for one, entry in snapshots.items() if _is_without_offsets(entry.summary, name)} - {*before}
    gone |= set() if seen is None else {seen}
    while gone and at in snapshots:
        gone.discard(at)
        at = snapshots[at].parent_id
    if gone:
        raise CommitRefused(f"table {table.name} was rolled back while a truncate emptied it")


def _is_without_offsets(summary: Mapping[str, str], name: str) -> bool:
    return summary.get(CREATED_BY) == name and CONNECTOR_NAME not in summary


def _build_update(table: Table, pending: PendingCommit, summary: Mapping[str, str]) -> Any:
    _check_delete_files(table, pending.files)
    _check_columns(table, pending)
    _check_specs(table, pending.files)
    update = _start_append(table) if not pending.replaces else _start_row_delta(table, pending)
    for key, value in summary.items():
        update.set(key, value)
    for description, file in zip(pending.files, table.content_files(pending.files), strict=True):
        if not description.is_data:
            update.addDeletes(file)
        elif pending.replaces:
            update.addRows(file)
        else:
            update.appendFile(file)
    return update


def _check_delete_files(table: Table, files: Sequence[FileDescription]) -> None:
    """Raise CommitRefused where a table takes position delete files no more: it was upgraded meanwhile."""
    if table.format_version >= VECTORS_VERSION and any(one.is_position_delete_file for one in files):
        raise CommitRefused(
            f"table {table.name} was upgraded to format {table.format_version} since its rows were looked up: deletes "
            "by position are vectors there"
        )


def _check_columns(table: Table, pending: PendingCommit) -> None:
    """Raise OutdatedFiles where others changed the table's columns since its files were written."""
    if pending.schema_json is None or not any(one.is_data for one in pending.files):
        return
    moved = find_moved_columns(pending.schema_json, table.schema_json, whole=pending.replaces)
    if moved:
        raise OutdatedFiles(
            f"columns of table {table.name} were added or dropped since files were written for it "
            f"({', '.join(moved)}); they are written anew without your help"
        )


def _check_specs(table: Table, files: Sequence[FileDescription]) -> None:
    """Raise OutdatedFiles where others removed a partition spec since files were written under it."""
    gone = [one for one in sorted({file.spec_id for file in files}) if not table.has_spec(one)]
    if gone:
        raise OutdatedFiles(
            f"table {table.name} has lost partition spec {gone[0]} since files were written for it "
            "(clean_expired_metadata); they are written anew without your help"
        )


def _start_append(table: Table) -> Any:
    return table.java.newAppend().toBranch(table.branch)


def _start_row_delta(table: Table, pending: PendingCommit) -> Any:
    update = table.java.newRowDelta().toBranch(table.branch)
    if pending.guarded or pending.rows_to_replace is not None:
        if pending.base is not None:
            update.validateFromSnapshot(pending.base)
        update.validateNoConflictingDataFiles()
    if pending.rows_to_replace is not None:
        # Rows that another writer added may have our keys.
        if pending.rows_to_replace.conflict_filter is not None:
            update.conflictDetectionFilter(table.expression(pending.rows_to_replace.conflict_filter))
        update.validateDeletedFiles()
        if pending.replace_rows is not None:
            pending.replace_rows(update, pending.rows_to_replace)
    return update


def expect_last_commit(
    name: str, expected: LastCommit, checked: int | None, needed: int | None = None
) -> Callable[[Ancestors], bool]:
    """Let a commit in where this connector's newest one is the expected one, or has expired (`is_rolled_back`).

    A rewrite of another engine since snapshot `checked` is looked at first (`guard.delete_guard`): so nothing that a
    connector wrote stands upon one that was not. With `needed` in only where that snapshot, no older than the newest
    commit, is among them.
    """

    def is_expected(ancestors: Ancestors) -> bool:
        snapshot, unchecked, missing = None, True, needed is not None
        for snapshot in ancestors:
            summary = snapshot.summary()
            number = int(snapshot.snapshotId())
            unchecked, missing = unchecked and number != checked, missing and number != needed
            if summary.get(CONNECTOR_NAME) == name:
                return not missing and bool(summary.get(COMMIT_ID) == expected.commit_id)
            if unchecked and str(snapshot.operation()) == REPLACE and not _is_harmless(summary):
                return False
        if missing:
            return False
        if expected.is_none:
            return True
        return snapshot is not None and not is_rolled_back(
            snapshot.parentId(), int(snapshot.sequenceNumber()), expected.sequence_number
        )

    return is_expected


def _is_harmless(summary: Any) -> bool:
    """Tell whether a rewrite is one of this program's, or of manifests only; `summary` is Java's."""
    return any(summary.get(key) is not None for key in (CONNECTOR_NAME, CREATED_BY, MANIFEST_REWRITE))
