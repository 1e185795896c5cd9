"""Iceberg's Java table, as far as the product calls it -> commits to the simulated catalog.

What a snapshot update does is Iceberg's: it looks at the table again before each try, has its validators look at the
ancestors, tries a few times more when the catalog says a conflict, and hands on manifests that it takes for needless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from connector.iceberg.catalog.file_description import FileDescription
from tests.simulation.catalog_server import CatalogServer, LiveFile, Metadata, SnapshotVersion
from tests.simulation.conflicts import Demands, find_conflict, find_rewrite_conflict
from tests.simulation.interruptions import (
    CapturedJavaError,
    Interruptions,
    JavaError,
    catalog_away,
    commit_refused,
    commit_unanswered,
)
from tests.simulation.java_values import JavaIterator, JavaMap

RETRIES = 4
"""`commit.retry.num-retries`."""


@attrs.frozen
class JavaSnapshot:
    """Java's Snapshot."""

    version: SnapshotVersion

    def snapshotId(self) -> int:  # noqa: N802
        return self.version.id

    def parentId(self) -> int | None:  # noqa: N802
        return self.version.parent

    def sequenceNumber(self) -> int:  # noqa: N802
        return self.version.number

    def timestampMillis(self) -> int:  # noqa: N802
        return self.version.made_ms

    def operation(self) -> str:
        return self.version.operation

    def summary(self) -> JavaMap:
        return JavaMap(self.version.summary)


@attrs.frozen(eq=False)
class JavaSnapshots:
    """Java's List of snapshots."""

    versions: Collection[SnapshotVersion]

    def iterator(self) -> JavaIterator:
        return JavaIterator(map(JavaSnapshot, self.versions)).iterator()

    def size(self) -> int:
        return len(self.versions)

    def get(self, place: int) -> JavaSnapshot:
        return JavaSnapshot(next(islice(self.versions, place, None)))


@attrs.frozen
class _Spec:
    def isUnpartitioned(self) -> bool:  # noqa: N802
        return True


@attrs.define(eq=False)
class JavaTable:
    """A table as one client has loaded it; one that `is_stale` is loaded again when it is next looked at."""

    server: CatalogServer
    calls: Interruptions
    now: Metadata
    owner: Callable[[], Any] = lambda: None
    is_stale: bool = False

    def uuid(self) -> str:
        return self.now.uuid

    def location(self) -> str:
        return self.now.name

    name = location

    def spec(self) -> _Spec:
        return _Spec()

    def properties(self) -> JavaMap:
        return JavaMap(self.now.properties)

    def refs(self) -> dict[str, Any]:
        return {}

    def currentSnapshot(self) -> JavaSnapshot | None:  # noqa: N802
        return self.snapshot("main")

    def snapshot(self, which: int | str) -> JavaSnapshot | None:
        if self.is_stale:
            self.refresh()
        found = self.now.newest if which == "main" else self.now.snapshots.get(which)  # type: ignore[call-overload]
        return None if found is None else JavaSnapshot(found)

    def refresh(self) -> None:
        self.now, self.is_stale = self.calls.call(f"refresh {self.now.name}", self._look, catalog_away), False

    def _look(self) -> Metadata:
        found = self.server.tables.get(self.now.name)
        if found is None:
            raise JavaError("NoSuchTableException", self.now.name)
        if found.uuid != self.now.uuid:
            raise JavaError("IllegalStateException", "Table UUID does not match")
        return found

    def operations(self) -> Any:
        return JavaOperations(self)

    def io(self) -> JavaTable:
        return self

    def deleteFile(self, path: str) -> None:  # noqa: N802
        self.calls.call(f"delete {path}", lambda: self.server.delete_file(path), catalog_away)

    def newOutputFile(self, path: str) -> _OutputFile:  # noqa: N802
        return _OutputFile(self, path)

    def newAppend(self) -> Update:  # noqa: N802
        return Update(self, "append")

    newFastAppend = newAppend  # noqa: N815

    def newRowDelta(self) -> Update:  # noqa: N802
        return Update(self, "overwrite")

    newOverwrite = newRowDelta  # noqa: N815

    def newRewrite(self) -> Update:  # noqa: N802
        return Update(self, "replace")

    def newDelete(self) -> Update:  # noqa: N802
        return Update(self, "delete")


@attrs.frozen
class JavaMetadata:
    """Java's TableMetadata."""

    now: Metadata

    def formatVersion(self) -> int:  # noqa: N802
        return self.now.format_version

    def metadataFileLocation(self) -> str:  # noqa: N802
        return f"{self.now.name}/metadata/{self.now.version}"

    def previousFiles(self) -> JavaSnapshots:  # noqa: N802
        return JavaSnapshots(())

    def snapshots(self) -> JavaSnapshots:
        return JavaSnapshots(self.now.snapshots.values())

    def snapshot(self, which: int) -> JavaSnapshot | None:
        return JavaSnapshot(self.now.snapshots[which]) if which in self.now.snapshots else None

    def ref(self, _: str) -> JavaSnapshot | None:
        return None if self.now.newest is None else JavaSnapshot(self.now.newest)


@attrs.frozen
class JavaOperations:
    """Java's TableOperations."""

    table: JavaTable

    def current(self) -> JavaMetadata:
        if self.table.is_stale:
            self.table.refresh()
        return JavaMetadata(self.table.now)

    def refresh(self) -> JavaMetadata:
        self.table.refresh()
        return self.current()

    def commit(self, base: JavaMetadata, made: JavaMetadata) -> None:
        told, table = self.table.owner(), self.table
        table.calls.call(
            f"commit {base.now.name}",
            lambda: table.server.swap(base.now, made.now, told),
            catalog_away,
            commit_unanswered,
        )
        # The answer of a REST catalog has the new metadata; others are asked for it.
        table.is_stale = table.server.kind == "jdbc"
        if not table.is_stale:
            table.now = table.server.tables[base.now.name]


@attrs.define
class _OutputFile:
    table: JavaTable
    path: str

    def createOrOverwrite(self) -> _OutputFile:  # noqa: N802
        return self

    def write(self, data: Any) -> None:
        def put() -> None:
            self.table.server.files[self.path] = data

        self.table.calls.call(f"write {self.path}", put, catalog_away)

    def close(self) -> None:
        pass


@attrs.define(eq=False)
class Update:
    """Java's SnapshotUpdate, of any kind."""

    table: JavaTable
    operation: str
    properties: dict[str, str] = attrs.field(factory=dict)
    added: list[FileDescription | LiveFile] = attrs.field(factory=list)
    removed: list[LiveFile] = attrs.field(factory=list)
    validators: list[Any] = attrs.field(factory=list)
    consumer: Any = None
    demands: Demands = attrs.field(factory=Demands)
    rows_filter: Callable[[dict[str, Any]], bool] | None = None
    number: int | None = None

    def set(self, key: str, value: str) -> Update:
        self.properties[key] = value
        return self

    def toBranch(self, _: str) -> Update:  # noqa: N802
        return self

    def scanManifestsWith(self, _: None) -> Update:  # noqa: N802
        return self

    def writeManifestsWith(self, _: None, __: int) -> Update:  # noqa: N802
        return self

    def validateWith(self, validator: Any) -> Update:  # noqa: N802
        self.validators.append(validator)
        return self

    def deleteWith(self, consumer: Any) -> Update:  # noqa: N802
        self.consumer = consumer
        return self

    def validateFromSnapshot(self, snapshot: int) -> Update:  # noqa: N802
        self.demands.since = snapshot
        return self

    def validateNoConflictingDataFiles(self) -> Update:  # noqa: N802
        self.demands.no_new_data = True
        return self

    def validateNoConflictingDeleteFiles(self) -> Update:  # noqa: N802
        self.demands.no_new_deletes = True
        return self

    def validateDeletedFiles(self) -> Update:  # noqa: N802
        self.demands.deletes_count = True
        return self

    def validateDataFilesExist(self, paths: Iterable[str]) -> Update:  # noqa: N802
        self.demands.exist |= set(paths)
        return self

    def conflictDetectionFilter(self, where: Any) -> Update:  # noqa: N802
        self.demands.where = where
        return self

    def addFile(self, file: FileDescription | LiveFile) -> Update:  # noqa: N802
        self.added.append(file)
        return self

    def dataSequenceNumber(self, number: int) -> Update:  # noqa: N802
        self.number = number
        return self

    def deleteFromRowFilter(self, gone: Callable[[dict[str, Any]], bool]) -> Update:  # noqa: N802
        """Java takes an expression, and only whole files; Spark does the rest in a commit of its own, this one both."""
        self.rows_filter = gone
        return self

    addRows = addDeletes = appendFile = addFile  # noqa: N815

    def deleteFile(self, file: FileDescription | LiveFile) -> Update:  # noqa: N802
        self.removed.append(_as_live(file, 0))
        return self

    def removeRows(self, file: LiveFile) -> Update:  # noqa: N802
        self.removed.append(file)
        return self

    removeDeletes = removeRows  # noqa: N815

    def commit(self) -> None:
        """Try as Iceberg does; its exceptions are Java's."""
        made: list[str] = []
        for left in reversed(range(RETRIES + 1)):
            self.table.refresh()
            base = self.table.now
            try:
                self._validate(base)
            except (JavaError, CapturedJavaError):
                self._clean(made)
                raise
            version = self._build(base, made)
            try:
                self._send(base, version)
            except JavaError as error:
                if error.getSimpleName() != "CommitFailedException":
                    raise
                if not left:
                    self._clean(made)
                    raise
                continue
            self._clean(path for path in made if path != version.manifest)
            # What goes wrong behind a commit Iceberg only logs.
            with suppress(JavaError):
                self.table.refresh()
            return

    def _validate(self, base: Metadata) -> None:
        """In Iceberg's order: its own conflicts, whoever validates ancestors, then files that are to go."""
        if self.operation == "replace":
            find_rewrite_conflict(self.demands.since, base, self.removed, by_key=self.number is None)
        else:
            find_conflict(self.demands, base, [_as_live(one, 0) for one in self.added], self.removed)
        for validator in self.validators:
            if not validator.validate(JavaIterator(map(JavaSnapshot, base.ancestors()))):
                raise JavaError("ValidationException", str(validator.errorMessage()))
        newest = base.newest
        places = {file.place for file in newest.files} if newest is not None and self.removed else set()
        if {file.place for file in self.removed} - places:
            raise JavaError("ValidationException", "missing required files to delete")

    def _build(self, base: Metadata, made: list[str]) -> SnapshotVersion:
        server, newest = self.table.server, base.newest
        at, number = server.next_id(), base.last_number + 1
        manifest = f"{base.name}/metadata/snap-{at}"
        made.append(manifest)
        server.files[manifest] = b""
        gone = {file.place for file in self.removed}
        kept = [file for file in (newest.files if newest is not None else ()) if file.place not in gone]
        new = [_as_live(one, self.number or number) for one in self.added]
        if self.operation == "replace":
            kept = self._without_needless(kept, base)
        if self.rows_filter is not None:
            rows = [row for row in server.rows(base.name, base.head) if not self.rows_filter(row)]
            kept, new = [], [server.write(base.name, rows, number)] if rows else []
        return SnapshotVersion(
            at,
            base.head,
            number,
            self._name(new),
            {**self.properties, **(count_changes(newest, (*kept, *new)) if self.operation == "replace" else {})},
            (*kept, *new),
            manifest,
            any(one.content == "data" for one in new),
            server.now_ms,
        )

    def _without_needless(self, kept: list[LiveFile], base: Metadata) -> list[LiveFile]:
        """Iceberg's own: vectors go with their data files, and deletes that are older than all data files; those that
        are written anew are not counted (`MergingSnapshotProducer.apply`).
        """
        paths = {file.path for file in self.removed if file.is_data}
        least = min((file.number for file in kept if file.is_data), default=base.last_number)
        return [
            file
            for file in kept
            if file.is_data or (file.number >= least and not (file.offset is not None and file.referenced in paths))
        ]

    def _name(self, new: Iterable[LiveFile]) -> str:
        """A row delta has its operation by what it does."""
        if self.operation != "overwrite" or self.removed:
            return self.operation
        kinds = {file.is_data for file in new}
        return "append" if kinds == {True} else "delete" if kinds == {False} else "overwrite"

    def _send(self, base: Metadata, version: SnapshotVersion) -> None:
        snapshots = {**base.snapshots, version.id: version}
        new = attrs.evolve(base, head=version.id, last_number=version.number, snapshots=snapshots)
        self.table.operations().commit(JavaMetadata(base), JavaMetadata(new))

    def _clean(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self.consumer is not None:
                self.consumer.accept(path)
            else:
                self.table.server.delete_file(path)


def _as_live(file: FileDescription | LiveFile, number: int) -> LiveFile:
    return LiveFile.of(file, number) if isinstance(file, FileDescription) else attrs.evolve(file, number=number)


def count_changes(before: SnapshotVersion | None, after: Iterable[LiveFile]) -> dict[str, str]:
    """Iceberg's counts of what a snapshot added and took away, for its summary."""
    old, new = set(before.files if before is not None else ()), set(after)
    sides = (("added", new - old), ("removed", old - new))
    counts = Counter(name for side, files in sides for file in files for name in _count_names(side, file))
    return {name: str(count) for name, count in counts.items()}


def _count_names(side: str, file: LiveFile) -> tuple[str, ...]:
    if file.is_data:
        return (f"{'deleted' if side == 'removed' else side}-data-files",)
    if file.content == "equality-deletes":
        return f"{side}-delete-files", f"{side}-equality-delete-files"
    return f"{side}-delete-files", f"{side}-{'position-delete-files' if file.offset is None else 'dvs'}"


__all__ = ["JavaMetadata", "JavaSnapshot", "JavaTable", "Update", "commit_refused", "count_changes"]
