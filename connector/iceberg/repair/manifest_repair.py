"""Bounds in manifests that mislead readers -> the same files without those bounds, in new manifests. On the driver.

Readers leave out files, and equality deletes, by bounds. Bounds of uuids are compared in one order and were written in
another; those of nanoseconds were cut to microseconds, the upper ones too (see `formats.value_bounds`). What
manifests say is metadata: no file is read or written but manifests, and sequence numbers stay, so that the deletes
apply to just the rows that they were meant for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import attrs
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import StaticTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType, UUIDType

from connector.errors import CommitRefused, ConnectorError
from connector.iceberg.catalog.manifest_entries import read_manifest_entries
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.java import iterate, jvm
from connector.settings.iceberg.write_mode import MAIN_BRANCH

_MISLEADING_TYPES = (UUIDType, TimestampNanoType, TimestamptzNanoType)
_POSITION_DELETE_FIELD_IDS = (2147483546, 2147483545)
"""Iceberg's ids of the columns of position deletes: by their bounds readers find the data files that they are for."""


@attrs.frozen
class LiveFile:
    """A live file of a manifest: what it holds, its path, the snapshot it came with.

    `columns` are those with such bounds, `partition` the partition values that are wrong: what they have to be as
    Iceberg's JSON has it, by the place of their field in the spec.
    """

    content: DataFileContent
    path: str
    snapshot: int
    columns: frozenset[int] = frozenset()
    partition: Mapping[int, Any] = attrs.field(factory=dict)


FileChange = Callable[[LiveFile, Any, Any], Any]
"""A live file, Java's file and its spec -> the file as the new manifest is to describe it."""


@attrs.frozen
class MisleadingBounds:
    """What misleads readers of a table: how many delete and data files have such bounds, in which manifests.

    `manifests` has all live files of each, in its order: a Puffin file may be there several times. `branches` are those
    besides main that have such files too.
    """

    delete_files: int = 0
    data_files: int = 0
    columns: tuple[str, ...] = ()
    manifests: Mapping[str, tuple[LiveFile, ...]] = attrs.field(factory=dict)
    branches: tuple[str, ...] = ()


class _ManifestsChanged(ConnectorError):
    """The manifests that were looked at are not those of the newest snapshot any more."""


def find_misleading_bounds(table: Table) -> MisleadingBounds:
    """Look for misleading bounds in the newest snapshots of the table's branches; what is counted is main's.

    Cost: reads every manifest once, where the table has, or had, a column of such a type. Raises as `Table.reading`.
    """
    metadata = table.metadata()
    named = {
        number: name for schema in metadata.schemas().values() for number, name in _iter_misleading_columns(schema)
    }
    if not named:
        return MisleadingBounds()
    read: dict[str, tuple[LiveFile, ...]] = {}
    hurt = {
        name: found
        for name, snapshot in iter_branches(metadata)
        if (found := dict(_find_misleading_manifests(table, snapshot, metadata.io, named.keys(), read)))
    }
    manifests = hurt.pop(MAIN_BRANCH, {})
    files = [entry for entries in manifests.values() for entry in entries if entry.columns]
    data = sum(entry.content == DataFileContent.DATA for entry in files)
    columns = {named[number] for entry in files for number in entry.columns}
    return MisleadingBounds(len(files) - data, data, tuple(sorted(columns)), manifests, tuple(sorted(hurt)))


def iter_branches(metadata: StaticTable) -> Iterator[tuple[str, Snapshot]]:
    """Return the branches of a table with their newest snapshots."""
    for name, ref in metadata.refs().items():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and snapshot is not None:
            yield name, snapshot


def _find_misleading_manifests(
    table: Table, snapshot: Snapshot, io: FileIO, ids: AbstractSet[int], read: dict[str, tuple[LiveFile, ...]]
) -> Iterator[tuple[str, tuple[LiveFile, ...]]]:
    """Return the manifests of a snapshot that have such bounds; `read` are those that were looked at already."""
    with table.reading("the manifests"):
        manifests = snapshot.manifests(io)
    for manifest in manifests:
        path = manifest.manifest_path
        if path not in read:
            with table.reading("the manifests"):
                read[path] = tuple(_read_live_files(manifest, io, ids))
        if any(entry.columns for entry in read[path]):
            yield path, read[path]


def _read_live_files(manifest: ManifestFile, io: FileIO, ids: AbstractSet[int]) -> Iterator[LiveFile]:
    for file, snapshot in iter_live_files(manifest, io):
        yield LiveFile(file.content, str(file.file_path), snapshot, _bounded_field_ids(file, ids))


def iter_live_files(manifest: ManifestFile, io: FileIO) -> Iterator[tuple[DataFile, int]]:
    """Return the live files of a manifest, in its order, with the snapshots that they came with."""
    for entry in read_manifest_entries(manifest, io):
        snapshot_id = entry.snapshot_id
        yield entry.data_file, int(manifest.added_snapshot_id or 0) if snapshot_id is None else int(snapshot_id)


def remove_misleading_bounds(table: Table, found: MisleadingBounds) -> int:
    """Rewrite main's manifests without those bounds, and replace the old ones in one commit; give how many files.

    Raises:
        CommitRefused: another writer was faster; nothing was changed, look again.
        CommitUnknown, RetriableError: as `commit.commit_attempts.commit_exactly_once`.
    """
    kept = _kept_field_ids(table)
    replace_manifests(
        table, found.manifests, lambda entry, file, _: file.copyWithStats(kept) if entry.columns else file
    )
    return found.delete_files + found.data_files


def replace_manifests(table: Table, manifests: Mapping[str, tuple[LiveFile, ...]], change: FileChange) -> None:
    """Rewrite manifests of main with other descriptions of the same files, and replace the old ones in one commit.

    `manifests` has all live files of each, by its path and in its order. Raises as `remove_misleading_bounds`.
    """

    def update() -> Any:
        java = table.java
        current = {
            str(manifest.path()): manifest for manifest in iterate(java.snapshot(MAIN_BRANCH).allManifests(java.io()))
        }
        if not manifests.keys() <= current.keys():
            raise _ManifestsChanged
        rewrite = java.rewriteManifests()
        for path, entries in manifests.items():
            rewrite = rewrite.deleteManifest(current[path]).addManifest(
                _rewrite_manifest(table, current[path], entries, change)
            )
        return rewrite

    try:
        commit_exactly_once(table, uuid.uuid4().hex, update)
    except _ManifestsChanged:
        raise CommitRefused(f"table {table.name} has other manifests than those that were looked at") from None


def _kept_field_ids(table: Table) -> Any:
    """Return the ids of the columns of which manifests go on to tell bounds and counts, as Java's set."""
    kept = jvm(table.driver).java.util.HashSet()
    ids = {number for schema in table.metadata().schemas().values() for number in _iter_reliable_fields(schema)}
    for number in (*_POSITION_DELETE_FIELD_IDS, *sorted(ids)):
        kept.add(number)
    return kept


def _iter_misleading_columns(schema: Schema) -> Iterator[tuple[int, str]]:
    for number, field in index_by_id(schema).items():
        if isinstance(field.field_type, _MISLEADING_TYPES):
            yield number, str(schema.find_column_name(number))


def _iter_reliable_fields(schema: Schema) -> Iterator[int]:
    return (
        number for number, field in index_by_id(schema).items() if not isinstance(field.field_type, _MISLEADING_TYPES)
    )


def _bounded_field_ids(file: DataFile, ids: AbstractSet[int]) -> frozenset[int]:
    return frozenset(ids & {*(file.lower_bounds or {}), *(file.upper_bounds or {})})


def _rewrite_manifest(table: Table, manifest: Any, entries: tuple[LiveFile, ...], change: FileChange) -> Any:
    """Write a manifest's live files into a new one."""
    iceberg, java = jvm(table.driver).org.apache.iceberg, table.java
    files, spec = iceberg.ManifestFiles, java.specs()[manifest.partitionSpecId()]
    place = java.operations().metadataFileLocation(f"{uuid.uuid4().hex}-mended.avro")
    deletes = str(manifest.content().name()) == "DELETES"
    read, write = (files.readDeleteManifest, files.writeDeleteManifest) if deletes else (files.read, files.write)
    reader = read(manifest, java.io(), java.specs())
    writer = write(table.format_version, spec, java.io().newOutputFile(place), None)
    try:
        for entry, file in zip(entries, iterate(reader), strict=True):
            assert entry.path == str(file.location())
            writer.existing(
                change(entry, file, spec), entry.snapshot, file.dataSequenceNumber(), file.fileSequenceNumber()
            )
    finally:
        reader.close()
        writer.close()
    return writer.toManifestFile()
