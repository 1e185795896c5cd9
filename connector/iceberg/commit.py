"""File descriptions + position -> one snapshot of a table (design, section 5). On the driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson

from connector.errors import CommitUnknown, FatalError, RetriableError
from connector.iceberg.java import JavaTable, each, mapped
from connector.iceberg.position import COMMIT_ID, NAME, Position
from connector.iceberg.table import Table


@attrs.frozen
class Stored:
    """What a table says of a connector: the position of its newest commit there, and that commit's id (None: none)."""

    position: Position = Position()
    commit_id: str | None = None


@attrs.frozen(eq=False)
class Pending:
    """What one batch brings to one table.

    `expected` is what the table said when the files were made; `position` is the one after the commit.
    `guarded` is set when deletes were left out because the table could not hold their keys: then no other writer may
    have added rows since snapshot `base`. `replaces` tells an upsert from an append. `properties` go into the summary.
    """

    files: Sequence[bytes]
    position: Position
    expected: Stored
    base: int | None
    guarded: bool
    replaces: bool
    properties: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Committed:
    """A commit that is in the table."""

    snapshot_id: int
    data_files: int
    delete_files: int
    stored: Stored


def stored(table: Table, name: str) -> Stored:
    """Give what the newest ancestor that this connector wrote says; empty when there is none."""
    for snapshot in table.ancestors():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        position = Position.of_summary(summary, name)
        if position is not None:
            return Stored(position, summary.get(COMMIT_ID))
    return Stored()


def commit(table: Table, pending: Pending, name: str) -> Committed:
    """Commit one batch's files to a table, exactly once.

    Iceberg itself checks, against the very snapshot that the commit lands on, that this connector's newest commit
    there is the one that was expected: a second sink with the same name, or a late commit of a process that was
    killed, cannot slip in between.

    Raises:
        RetriableError: another writer was faster; nothing was committed, the batch may be tried again.
        CommitUnknown: the catalog did not say, and the table could not be read again.
        FatalError: the commit is impossible, or another sink with the same name writes to the table.
    """
    commit_id = uuid.uuid4().hex
    try:
        with mapped(f"committing to table {table.name}"):
            table.java.refresh()
            _apply(table, pending, pending.position.summary(name, commit_id), name)
    except (CommitUnknown, RetriableError):
        table.refresh()
        if not _is_in(table, commit_id):
            _check_alone(table, pending, name)
            raise
    snapshot_id = table.snapshot_id
    if snapshot_id is None:
        raise FatalError(f"table {table.name} has no snapshot after a commit")
    deletes = sum(is_delete(description) for description in pending.files)
    return Committed(snapshot_id, len(pending.files) - deletes, deletes, Stored(pending.position, commit_id))


def is_delete(description: bytes) -> bool:
    """Tell whether a description is of a delete file."""
    return bool(orjson.loads(description)["content"] != "data")


def _check_alone(table: Table, pending: Pending, name: str) -> None:
    found = stored(table, name)
    if found.commit_id not in (None, pending.expected.commit_id):
        raise FatalError(
            f"table {table.name} has a commit of connector {name} that this process did not make: another sink with "
            "the same name is running; stop it, or give one of them another `name`"
        )


def _apply(table: Table, pending: Pending, summary: Mapping[str, str], name: str) -> None:
    update = _update(table.java, pending)
    update.validateWith(_LastOfOurs(name, pending.expected.commit_id))
    for key, value in {**pending.properties, **summary}.items():
        update.set(key, value)
    for description in pending.files:
        file = table.content_file(description)
        if is_delete(description):
            update.addDeletes(file)
        elif pending.replaces:
            update.addRows(file)
        else:
            update.appendFile(file)
    update.commit()


def _update(java: JavaTable, pending: Pending) -> JavaTable:
    if not pending.replaces:
        return java.newAppend()
    update = java.newRowDelta()
    if pending.guarded:
        if pending.base is not None:
            update.validateFromSnapshot(pending.base)
        update.validateNoConflictingDataFiles()
    return update


def _is_in(table: Table, commit_id: str) -> bool:
    return any(
        snapshot.summary is not None and snapshot.summary.additional_properties.get(COMMIT_ID) == commit_id
        for snapshot in table.ancestors()
    )


class _LastOfOurs:
    """Iceberg's `SnapshotAncestryValidator`: this connector's newest commit is the expected one, or expired."""

    def __init__(self, name: str, commit_id: str | None) -> None:
        self._name, self._commit_id = name, commit_id

    def validate(self, ancestors: Any) -> bool:
        """Look at the snapshots that the commit would land on, newest first."""
        for snapshot in each(ancestors):
            summary = snapshot.summary()
            if summary.get(NAME) == self._name:
                return bool(summary.get(COMMIT_ID) == self._commit_id)
        return True

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        """Tell what a refusal means."""
        return f"another commit of connector {self._name} came first"

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)
