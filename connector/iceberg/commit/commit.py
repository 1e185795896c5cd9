"""File descriptions + position -> one snapshot of a table (design, section 5). On the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import orjson
from pyiceberg.table.snapshots import Snapshot

from connector.errors import CommitRefused, FatalError, GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_attempts import Ancestors, land
from connector.iceberg.commit.kafka_position import COMMIT_ID, NAME, WAYS_OUT, Position
from connector.iceberg.read.scan_planning import Task

_MANY_WRITERS = (
    "another writer was faster: where many write to one table, raise errors.retry.timeout and the table's "
    "commit.retry.num-retries"
)


@attrs.frozen
class Stored:
    """What a table says of a connector: the position of its newest commit there, and that commit's id (None: none)."""

    position: Position = Position()
    commit_id: str | None = None


@attrs.frozen(eq=False)
class Found:
    """What was read of snapshot `base` to find rows that changes replace; true as long as nothing else touched it.

    `touched` are the data files that have such rows: they are rewritten, or the new delete files are about them.
    `where` is Iceberg's filter (JSON) that holds all changed keys, None for any row.
    """

    touched: Sequence[Task] = ()
    rewritten: bool = False
    where: str | None = None


@attrs.frozen(eq=False)
class Pending:
    """What one batch brings to one table.

    `expected` is what the table said when the files were made; `position` is the one after the commit.
    `guarded` is set when deletes were left out because the table could not hold their keys: then no other writer may
    have added rows since snapshot `base`. `replaces` tells an upsert from an append. `properties` go into the summary.
    `found` is set where rows were looked up, and not deleted by their keys.
    """

    files: Sequence[bytes]
    position: Position
    expected: Stored
    base: int | None
    guarded: bool
    replaces: bool
    properties: Mapping[str, str] = attrs.field(factory=dict)
    found: Found | None = None


@attrs.frozen
class Committed:
    """A commit that is in the table."""

    snapshot_id: int
    sequence_number: int
    data_files: int
    delete_files: int
    stored: Stored


def stored(table: Table, name: str) -> Stored:
    """Give what the newest ancestor that this connector wrote says; empty when there is none."""
    found = newest(table, name)
    return Stored() if found is None else of_snapshot(found, name) or Stored()


def of_snapshot(snapshot: Snapshot, name: str) -> Stored | None:
    """Give what a snapshot says, None when this connector did not write it."""
    summary = summary_of(snapshot)
    position = Position.of_summary(summary, name)
    return None if position is None else Stored(position, summary.get(COMMIT_ID))


def newest(table: Table, name: str) -> Snapshot | None:
    """Give the newest ancestor that this connector wrote."""
    return next((one for one in table.ancestors() if summary_of(one).get(NAME) == name), None)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Give a snapshot's summary, the operation left out."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def commit(table: Table, pending: Pending, name: str) -> Committed:
    """Commit one batch's files to a table, exactly once.

    Iceberg itself checks, against the very snapshot that the commit lands on, that this connector's newest commit
    there is the one that was expected: a second sink with the same name, or a late commit of a process that was
    killed, cannot slip in between.

    Raises:
        CommitRefused: another writer was faster; nothing was committed nor will be, the batch may be tried again.
        CommitUnknown: nobody could tell until `errors.retry.timeout`; the files must stay.
        RetriableError: the catalog stayed away before anything was sent.
        GapError: this connector's newest commit is gone from the table, and has not expired.
        FatalError: the commit is impossible, or another sink with the same name writes to the table.
    """
    commit_id = uuid.uuid4().hex
    summary = {**pending.properties, **pending.position.summary(name, commit_id)}
    rule = last_of_ours(name, pending.expected.commit_id)
    try:
        land(table, commit_id, lambda: _update(table, pending, summary), rule)
    except CommitRefused as error:
        _check_alone(table, pending, name)
        raise CommitRefused(f"{error}; {_MANY_WRITERS}") from error.__cause__
    snapshot_id = table.snapshot_id
    if snapshot_id is None:
        raise FatalError(f"table {table.name} has no snapshot after a commit")
    deletes = sum(is_delete(description) for description in pending.files)
    place = snapshot_id, int(table.java.snapshot(snapshot_id).sequenceNumber())
    return Committed(*place, len(pending.files) - deletes, deletes, Stored(pending.position, commit_id))


def is_delete(description: bytes) -> bool:
    """Tell whether a description is of a delete file."""
    return bool(orjson.loads(description)["content"] != "data")


def _check_alone(table: Table, pending: Pending, name: str) -> None:
    found, expected = stored(table, name), pending.expected
    if expected.commit_id and (found.commit_id is None or found.position.behind(expected.position)):
        ancestors = list(table.ancestors())
        if found.commit_id or not ancestors or ancestors[-1].parent_snapshot_id is None:
            raise GapError(
                f"table {table.name} was rolled back or replaced while connector {name} wrote to it: its newest commit "
                f"there is gone; {WAYS_OUT}"
            )
    if found.commit_id not in (None, expected.commit_id):
        raise FatalError(
            f"table {table.name} has a commit of connector {name} that this process did not make: another sink with "
            "the same name is running; stop it, or give one of them another `name`"
        )


def _update(table: Table, pending: Pending, summary: Mapping[str, str]) -> Any:
    update = _append(table) if not pending.replaces else _row_delta(table, pending)
    for key, value in summary.items():
        update.set(key, value)
    for description, file in zip(pending.files, table.content_files(pending.files), strict=True):
        if is_delete(description):
            update.addDeletes(file)
        elif pending.replaces:
            update.addRows(file)
        else:
            update.appendFile(file)
    return update


def _append(table: Table) -> Any:
    return table.java.newAppend().toBranch(table.branch)


def _row_delta(table: Table, pending: Pending) -> Any:
    update = table.java.newRowDelta().toBranch(table.branch)
    if pending.guarded or pending.found is not None:
        if pending.base is not None:
            update.validateFromSnapshot(pending.base)
        update.validateNoConflictingDataFiles()
    if pending.found is not None:
        _replace(table, update, pending.found)
    return update


def _replace(table: Table, update: Any, found: Found) -> None:
    """Take out what the new files stand for, and have Iceberg refuse the commit if it is not as it was found.

    Rows that another writer added may have our keys; a compaction may have moved the rows that we delete; deletes in a
    file that we rewrote would be lost. Two writers' vectors of one data file Iceberg refuses by itself.
    """
    if found.where is not None:
        update.conflictDetectionFilter(table.expression(found.where))
    update.validateDeletedFiles()
    if found.rewritten:
        update.validateNoConflictingDeleteFiles()
    else:
        update.validateDataFilesExist([task.path for task in found.touched])
    for task in found.touched:
        java = task.java()
        if found.rewritten:
            update.removeRows(java.file())
        elif any(delete.alone for delete in task.place.deletes):
            for delete in java.deletes():
                if delete.referencedDataFile() is not None:
                    update.removeDeletes(delete)


def last_of_ours(name: str, commit_id: str | None) -> Callable[[Ancestors], bool]:
    """Let a commit in where this connector's newest one is the expected one, or has expired.

    The oldest snapshot that is left then names a parent; a table that was rolled back or replaced ends with one that
    has none.
    """

    def is_expected(ancestors: Ancestors) -> bool:
        snapshot = None
        for snapshot in ancestors:
            summary = snapshot.summary()
            if summary.get(NAME) == name:
                return bool(summary.get(COMMIT_ID) == commit_id)
        return commit_id is None or (snapshot is not None and snapshot.parentId() is not None)

    return is_expected
