"""Iceberg's Spark actions, as maintenance calls them -> commits to the simulated catalog, and files that go.

What an action reads, writes and demands is Iceberg's; it commits through the product's own table operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import attrs
from py4j.protocol import Py4JJavaError

from connector.errors import FatalError
from tests.simulation.catalog_server import LiveFile, Metadata, SnapshotVersion
from tests.simulation.interruptions import JavaError
from tests.simulation.java_table import RETRIES, JavaMetadata, JavaSnapshot, JavaTable, Update
from tests.simulation.java_values import JavaIterator
from tests.simulation.store import store_away


class SettledTable(JavaTable):
    """Java's BaseTable over operations of ours (`commit.settlement`)."""

    def __init__(self, operations: Any, table: JavaTable) -> None:
        super().__init__(table.server, table.calls, operations.current().now, table.owner)
        self.own = operations

    def operations(self) -> Any:
        return _Operations(self.own)

    def refresh(self) -> None:
        self.now, self.is_stale = self.own.refresh().now, False


@attrs.frozen
class _Operations:
    """Ours, as Java hears of them: a Python error that names a Java exception is that exception there."""

    own: Any

    def current(self) -> Any:
        return self.own.current()

    def commit(self, base: JavaMetadata, made: JavaMetadata) -> None:
        try:
            self.own.commit(base, made)
        except Py4JJavaError as error:
            raise error.java_exception from error


@attrs.define(eq=False)
class _Action:
    table: SettledTable
    rng: Random
    properties: dict[str, str] = attrs.field(factory=dict)
    options: dict[str, str] = attrs.field(factory=dict)

    def snapshotProperty(self, key: str, value: str) -> Any:  # noqa: N802 - Java's names
        self.properties[key] = value
        return self

    def toBranch(self, _: str) -> Any:  # noqa: N802
        return self

    def option(self, key: str, value: str) -> Any:
        self.options[key] = value
        return self

    def _start(self) -> Update:
        update = self.table.newRewrite()
        update.properties.update(self.properties)
        return update

    def _read(self, what: str, read: Any) -> Any:
        try:
            return self.table.calls.call(f"{what} of {self.table.now.name}", read, store_away)
        except KeyError as gone:
            raise FatalError(f"file {gone} of {self.table.now.name} is gone") from gone


class RewriteDataFiles(_Action):
    """Some data files become one, of the rows that live in the snapshot that is the newest now."""

    def execute(self) -> Rewritten:
        base = self.table.now.newest
        share = self.rng.choice([1, 1, 0.6])
        chosen = [file for file in base.files if file.is_data and self.rng.random() < share] if base is not None else []
        if base is None or not chosen:
            return Rewritten()
        rows = self._read("read rows", lambda: self._live_rows(base, chosen))
        update = self._start().validateFromSnapshot(base.id)
        keeps = self.options["use-starting-sequence-number"] == "true"
        if keeps:
            update.dataSequenceNumber(base.number)
        for file in chosen:
            update.deleteFile(attrs.evolve(file))
        made = [self._write(rows)] if rows else []
        for file in made:
            update.addFile(file)
        try:
            update.commit()
        except JavaError as error:
            if error.getSimpleName() != "CommitStateUnknownException":
                for file in made:
                    self.table.deleteFile(file.path)
            raise
        return Rewritten(tuple(chosen), tuple(made))

    def _write(self, rows: list[dict[str, Any]]) -> LiveFile:
        server, name, folder = self.table.server, self.table.now.name, self.table.own._data_path
        return self._read("write rows", lambda: server.write(name, rows, 0, folder))  # type: ignore[no-any-return]

    def _live_rows(self, base: SnapshotVersion, chosen: Iterable[LiveFile]) -> list[dict[str, Any]]:
        paths = {file.path for file in chosen}
        return [row for file, _, row in self.table.server.live_rows(base) if file.path in paths]


@attrs.frozen
class Rewritten:
    """Java's results of rewrites."""

    gone: tuple[LiveFile, ...] = ()
    made: tuple[LiveFile, ...] = ()

    def rewrittenDataFilesCount(self) -> int:  # noqa: N802
        return len(self.gone)

    def addedDataFilesCount(self) -> int:  # noqa: N802
        return len(self.made)

    def rewrittenBytesCount(self) -> int:  # noqa: N802
        return len(self.gone)

    def failedDataFilesCount(self) -> int:  # noqa: N802
        return 0


@attrs.frozen
class SnapshotChanges:
    """Java's SnapshotChanges, and its builder: what a snapshot adds and takes away, which may not be in yet."""

    table: JavaTable
    of: SnapshotVersion | None = None

    @staticmethod
    def builderFor(table: JavaTable) -> SnapshotChanges:  # noqa: N802 - Java's names
        return SnapshotChanges(table)

    def snapshot(self, snapshot: JavaSnapshot) -> SnapshotChanges:
        return attrs.evolve(self, of=snapshot.version)

    def build(self) -> SnapshotChanges:
        return self

    def addedDataFiles(self) -> JavaIterator:  # noqa: N802
        added = set(self._own.files) - set(self._before)
        return JavaIterator([ChangedFile(file) for file in added if file.is_data])

    def removedDeleteFiles(self) -> JavaIterator:  # noqa: N802
        removed = set(self._before) - set(self._own.files)
        return JavaIterator([ChangedFile(file) for file in removed if not file.is_data])

    @property
    def _own(self) -> SnapshotVersion:
        assert self.of is not None
        return self.of

    @property
    def _before(self) -> tuple[LiveFile, ...]:
        parent = self._own.parent
        return () if parent is None else self.table.server.ever[parent].files


@attrs.frozen
class ChangedFile:
    """Java's ContentFile."""

    file: LiveFile

    def content(self) -> str:
        return self.file.content.replace("-", "_").upper()

    def dataSequenceNumber(self) -> int:  # noqa: N802
        return self.file.number


class RemoveDanglingDeletes(_Action):
    """Position deletes that are older than every data file go, and those by key that are no younger."""

    def execute(self) -> RemovedDeletes:
        base = self.table.now.newest
        files = self._read("read entries", lambda: base.files if base is not None else ())
        least = min((file.number for file in files if file.is_data), default=None)
        if base is None or least is None:
            return RemovedDeletes()
        by_key = [file for file in files if file.content == "equality-deletes" and file.number <= least]
        by_place = [file for file in files if file.content == "position-deletes" and file.number < least]
        if not by_key and not by_place:
            return RemovedDeletes()
        update = self._start().validateFromSnapshot(base.id)
        for file in (*by_key, *by_place):
            update.deleteFile(file)
        update.commit()
        return RemovedDeletes((*by_key, *by_place))


@attrs.frozen
class RemovedDeletes:
    """Java's result of it."""

    files: tuple[LiveFile, ...] = ()

    def removedDeleteFiles(self) -> JavaIterator:  # noqa: N802
        return JavaIterator([ChangedFile(file) for file in self.files])


class ExpireSnapshots(_Action):
    """Snapshots go, and then the files that none of those that are left names."""

    older_than_ms, least = 0, 1

    def expireOlderThan(self, ms: int) -> ExpireSnapshots:  # noqa: N802
        self.older_than_ms = ms
        return self

    def retainLast(self, count: int) -> ExpireSnapshots:  # noqa: N802
        self.least = count
        return self

    def executeDeleteWith(self, _: Any) -> ExpireSnapshots:  # noqa: N802
        return self

    def execute(self) -> Expired:
        before = self._commit()
        self.table.refresh()
        gone = sorted(_files_of(before) - _files_of(self.table.now))
        for path in gone:
            self.table.deleteFile(path)
        return Expired(len(gone))

    def _commit(self) -> Metadata:
        for left in reversed(range(RETRIES + 1)):
            self.table.refresh()
            base = self.table.now
            kept = self._find_kept(base)
            if kept.keys() == base.snapshots.keys():
                return base
            try:
                self.table.operations().commit(JavaMetadata(base), JavaMetadata(attrs.evolve(base, snapshots=kept)))
            except JavaError as error:
                if error.getSimpleName() != "CommitFailedException" or not left:
                    raise
            else:
                return base
        raise AssertionError("unreachable")

    def _find_kept(self, base: Metadata) -> dict[int, SnapshotVersion]:
        """The newest few of the branch, and those behind them as far as all are young enough (`RemoveSnapshots`)."""
        line, kept = list(base.ancestors()), dict[int, SnapshotVersion]()
        for place, one in enumerate(line):
            if place >= self.least and one.made_ms < self.older_than_ms:
                break
            kept[one.id] = one
        known = {one.id for one in line}
        apart = (one for one in base.snapshots.values() if one.id not in known and one.made_ms >= self.older_than_ms)
        return kept | {one.id: one for one in apart}


@attrs.frozen
class Expired:
    """Java's result of an expiry."""

    count: int

    def deletedDataFilesCount(self) -> int:  # noqa: N802
        return self.count

    def _none(self) -> int:
        return 0

    deletedEqualityDeleteFilesCount = deletedPositionDeleteFilesCount = _none  # noqa: N815
    deletedManifestsCount = deletedManifestListsCount = _none  # noqa: N815


def _files_of(table: Metadata) -> set[str]:
    versions = table.snapshots.values()
    return {file.path for one in versions for file in one.files} | {one.manifest for one in versions}


@attrs.frozen
class Actions:
    """Java's SparkActions; which files are merged is drawn."""

    rng: Random

    def rewriteDataFiles(self, table: SettledTable) -> RewriteDataFiles:  # noqa: N802
        return RewriteDataFiles(table, self.rng)

    def removeDanglingDeleteFiles(self, table: SettledTable) -> RemoveDanglingDeletes:  # noqa: N802
        return RemoveDanglingDeletes(table, self.rng)

    def expireSnapshots(self, table: SettledTable) -> ExpireSnapshots:  # noqa: N802
        return ExpireSnapshots(table, self.rng)


__all__ = ["Actions", "SettledTable"]
