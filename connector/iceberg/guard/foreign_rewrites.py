"""A table's history since a snapshot that was looked at -> what rewrites of others did to files. On the driver.

Only the manifests in which two snapshots differ are read. A table that no one else has rewritten costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import index_by_id
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation, Snapshot

from connector.iceberg.catalog.manifest_entries import read_manifest_entries
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import (
    CONNECTOR_NAME,
    REMOVED_EQUALITY_DELETES,
    is_harmless_rewrite,
    is_icebridge_commit,
)
from connector.iceberg.commit.last_commit import snapshot_summary
from connector.iceberg.guard.delete_reach import ContentFile, FieldTypes, ForeignRewrite

"""What Iceberg says in a summary of the equality delete files that went."""


@attrs.frozen(eq=False)
class UncheckedHistory:
    """The snapshots of a branch that nobody has looked at, as pairs of parent and child, oldest first.

    `cut` tells that older ones have expired.
    """

    steps: tuple[tuple[Snapshot, Snapshot], ...]
    cut: bool

    @property
    def first_rewrite(self) -> int | None:
        """The place of the first rewrite of another engine among the steps; None without one."""
        return next((place for place, (_, child) in enumerate(self.steps) if is_foreign_rewrite(child)), None)


def is_foreign_rewrite(snapshot: Snapshot) -> bool:
    """Tell whether another engine rewrote files, whose rows stay the same."""
    replaces = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
    summary = snapshot_summary(snapshot)
    return replaces and not is_harmless_rewrite(summary)


def find_conversions(table: Table) -> list[tuple[Snapshot, Snapshot]]:
    """Return the snapshots in which this program put position deletes in the place of equality deletes.

    As pairs of parent and child, newest first, as far back as snapshots are left. Cost: the metadata file.
    """
    found: list[tuple[Snapshot, Snapshot]] = []
    child: Snapshot | None = None
    for snapshot in table.ancestors():
        if child is not None and _takes_deletes_out(child):
            found.append((snapshot, child))
        child = snapshot
    return found


def _takes_deletes_out(snapshot: Snapshot) -> bool:
    replaces = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
    summary = snapshot_summary(snapshot)
    return replaces and is_icebridge_commit(summary) and summary.get(REMOVED_EQUALITY_DELETES, "0") != "0"


def read_history(table: Table, checked: int | None, connector: str) -> UncheckedHistory:
    """Go back from the newest snapshot to the one that was checked, or to the connector's own newest commit.

    What a connector commits upon is checked before (`commit.expect_last_commit`). A table that has neither snapshot,
    and all of its history, was never written to: there is nothing to check. Cost: the metadata file.
    """
    steps: list[tuple[Snapshot, Snapshot]] = []
    child: Snapshot | None = None
    for snapshot in table.ancestors():
        if child is not None:
            steps.append((snapshot, child))
        if snapshot.snapshot_id == checked or snapshot_summary(snapshot).get(CONNECTOR_NAME) == connector:
            return UncheckedHistory(tuple(reversed(steps)), cut=False)
        child = snapshot
    if child is None or child.parent_snapshot_id is None:
        return UncheckedHistory((), cut=False)
    return UncheckedHistory(tuple(reversed(steps)), cut=True)


@attrs.frozen(eq=False)
class ManifestReader:
    """Reads manifests of one table as it is now.

    Raises, wherever it reads, as `Table.reading`.
    """

    table: Table
    metadata: StaticTable

    @property
    def types(self) -> FieldTypes:
        """The types of all columns of now, by field id."""
        return {number: field.field_type for number, field in index_by_id(self.metadata.schema()).items()}

    def read_changes(self, parent: Snapshot, child: Snapshot) -> ForeignRewrite:
        """Return what a snapshot did.

        Cost: the manifests that parent and child do not share; after a rewrite of another engine also the delete
        manifests since the replaced files came, and data manifests with files older than a delete that went.
        """
        with self.table.reading("the manifests"):
            before, after = parent.manifests(self.metadata.io), child.manifests(self.metadata.io)
            old = {file.path: file for file in self._files(_difference(before, after))}
            new = _difference(after, before)
            added_files = {file.path: file for file in self._files(new)}
            changed = [file for path, file in old.items() if path not in added_files]
            fresh = [file for path, file in added_files.items() if path not in old]
            found = ForeignRewrite(
                child.snapshot_id,
                child.sequence_number or 0,
                lost=tuple(file for file in changed if file.equality_ids),
                added=tuple(file for file in fresh if not file.equality_ids),
                removed=tuple(file for file in changed if not file.equality_ids),
                new_deletes=frozenset(file.path for file in fresh if file.equality_ids),
                converts=self._has_new_position_deletes(new, child),
            )
            if not is_foreign_rewrite(child):
                return found
            older, deletes = self._older(after, found.lost), self._deletes_since(before, found)
            return attrs.evolve(found, older=older, deletes=deletes)

    def _older(self, manifests: Iterable[ManifestFile], lost: Sequence[ContentFile]) -> tuple[ContentFile, ...]:
        if not lost:
            return ()
        newest = max(delete.sequence_number for delete in lost)
        data = (m for m in manifests if m.content == ManifestContent.DATA and m.min_sequence_number < newest)
        return tuple(file for file in self._files(data) if file.sequence_number < newest)

    def _deletes_since(self, manifests: Iterable[ManifestFile], found: ForeignRewrite) -> tuple[ContentFile, ...]:
        if not found.removed or all(file.sequence_number < found.sequence_number for file in found.added):
            return ()
        since = found.replaced_until
        deletes = (m for m in manifests if m.content == ManifestContent.DELETES and m.sequence_number > since)
        return tuple(file for file in self._files(deletes) if file.sequence_number > since)

    def _has_new_position_deletes(self, manifests: Iterable[ManifestFile], child: Snapshot) -> bool:
        return any(
            entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.POSITION_DELETES
            for manifest in manifests
            if manifest.content == ManifestContent.DELETES and manifest.added_snapshot_id == child.snapshot_id
            for entry in read_manifest_entries(manifest, self.metadata.io)
        )

    def _files(self, manifests: Iterable[ManifestFile]) -> Iterator[ContentFile]:
        for manifest in manifests:
            for entry in read_manifest_entries(manifest, self.metadata.io):
                if entry.data_file.content != DataFileContent.POSITION_DELETES:
                    yield self._file(entry, manifest)

    def _file(self, entry: ManifestEntry, manifest: ManifestFile) -> ContentFile:
        file = entry.data_file
        spec = self.metadata.specs()[manifest.partition_spec_id]
        number = entry.sequence_number or 0
        file_sequence_number = entry.file_sequence_number
        return ContentFile(
            str(file.file_path),
            number,
            number if file_sequence_number is None else file_sequence_number,
            manifest.partition_spec_id,
            _to_tuple(file.partition),
            file.lower_bounds or {},
            file.upper_bounds or {},
            tuple(file.equality_ids or ()) if file.content == DataFileContent.EQUALITY_DELETES else (),
            everywhere=all(str(field.transform) == "void" for field in spec.fields),
        )


def open_manifests(table: Table) -> ManifestReader:
    """Read the metadata file."""
    return ManifestReader(table, table.metadata())


def _difference(some: Iterable[ManifestFile], others: Iterable[ManifestFile]) -> list[ManifestFile]:
    other_paths = {manifest.manifest_path for manifest in others}
    return [manifest for manifest in some if manifest.manifest_path not in other_paths]


def _to_tuple(partition: Any) -> tuple[Any, ...]:
    return tuple(partition[place] for place in range(len(partition))) if partition is not None else ()
