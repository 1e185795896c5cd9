"""Bounds in manifests that mislead readers -> the same files without those bounds, in new manifests. On the driver.

Readers leave out files, and equality deletes, by bounds. Bounds of uuids are compared in one order and were written in
another; those of nanoseconds were cut to microseconds, the upper ones too (see `connector.iceberg.extremes`). What
manifests say is metadata: no file is read or written but manifests, and sequence numbers stay, so that the deletes
apply to just the rows that they were meant for.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType, UUIDType
from pyspark.sql import SparkSession

from connector.iceberg.attempts import land
from connector.iceberg.java import each, jvm
from connector.iceberg.table import Table
from connector.settings.writes import MAIN

_MISLEADING = (UUIDType, TimestampNanoType, TimestamptzNanoType)

_Entry = tuple[str, int | None]
"""The path of a file, and for a deletion vector its place in it."""


@attrs.frozen
class Harm:
    """What misleads readers of a table: how many delete and data files have such bounds, in which manifests.

    `snapshots` has, by manifest, the snapshot that each of its files came with.
    """

    delete_files: int
    data_files: int
    columns: tuple[str, ...]
    snapshots: Mapping[str, Mapping[_Entry, int]]


def harm(table: Table) -> Harm:
    """Look for misleading bounds in the newest snapshot of the table's main branch.

    Cost: reads every manifest once, where the table has, or had, a column of such a type. Raises as `Table.reading`.
    """
    metadata = table.metadata()
    named = {number: name for schema in metadata.schemas().values() for number, name in _columns(schema)}
    snapshot = metadata.current_snapshot()
    counts = dict.fromkeys(DataFileContent, 0)
    found: dict[str, dict[_Entry, int]] = {}
    columns: set[str] = set()
    for manifest, entries in _read(table, snapshot, metadata.io) if named and snapshot is not None else ():
        hurt = [(file, ids) for file in (one.data_file for one in entries) if (ids := _bounded(file, named))]
        for file, ids in hurt:
            counts[file.content] += 1
            columns |= {named[number] for number in ids}
        if hurt:
            found[manifest.manifest_path] = {_entry(one.data_file): _came_with(one, manifest) for one in entries}
    deletes = sum(counts.values()) - counts[DataFileContent.DATA]
    return Harm(deletes, counts[DataFileContent.DATA], tuple(sorted(columns)), found)


def _read(table: Table, snapshot: Snapshot, io: FileIO) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
    with table.reading("the manifests"):
        manifests = snapshot.manifests(io)
    for manifest in manifests:
        with table.reading("the manifests"):
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        yield manifest, entries


def mend(spark: SparkSession, table: Table, found: Harm) -> int:
    """Write the manifests anew without those bounds, and replace the old ones in one commit; give how many files.

    Raises:
        CommitRefused: another writer was faster; nothing was changed, look again.
        CommitUnknown, RetriableError: as `connector.iceberg.attempts.land`.
    """
    ids = {number for schema in table.metadata().schemas().values() for number, _ in _columns(schema)}
    mended = 0

    def update() -> Any:
        nonlocal mended
        java, mended = table.java, 0
        made = java.rewriteManifests()
        for manifest in each(java.snapshot(MAIN).allManifests(java.io())):
            snapshots = found.snapshots.get(str(manifest.path()))
            if snapshots is not None:
                new, count = _without(spark, table, manifest, snapshots, ids)
                made = made.deleteManifest(manifest).addManifest(new)
                mended += count
        return made

    land(table, uuid.uuid4().hex, update)
    return mended


def _columns(schema: Schema) -> Iterator[tuple[int, str]]:
    for number, field in index_by_id(schema).items():
        if isinstance(field.field_type, _MISLEADING):
            yield number, str(schema.find_column_name(number))


def _bounded(file: DataFile, ids: Mapping[int, str]) -> set[int]:
    return ids.keys() & ({*(file.lower_bounds or {})} | {*(file.upper_bounds or {})})


def _entry(file: DataFile) -> _Entry:
    return str(file.file_path), getattr(file, "content_offset", None)


def _came_with(entry: Any, manifest: ManifestFile) -> int:
    came = entry.snapshot_id
    return int(manifest.added_snapshot_id or 0) if came is None else int(came)


def _without(
    spark: SparkSession, table: Table, manifest: Any, snapshots: Mapping[_Entry, int], ids: set[int]
) -> tuple[Any, int]:
    """Write a manifest's live files into a new one; give it, and how many were mended."""
    iceberg, java, version = jvm(spark).org.apache.iceberg, table.java, table.format_version
    files, spec = iceberg.ManifestFiles, java.specs()[manifest.partitionSpecId()]
    deletes = str(manifest.content().name()) == "DELETES"
    place = java.operations().metadataFileLocation(f"{uuid.uuid4().hex}-mended.avro")
    read, write = (files.readDeleteManifest, files.writeDeleteManifest) if deletes else (files.read, files.write)
    reader, mended = read(manifest, java.io(), java.specs()), 0
    writer = write(version, spec, java.io().newOutputFile(place), None)
    try:
        for file in each(reader):
            made = _unbounded(spark, table, file, spec, ids)
            path, offset = str(file.location()), file.contentOffset() if deletes else None
            came = snapshots[path, None if offset is None else int(offset)]
            writer.existing(made or file, came, file.dataSequenceNumber(), file.fileSequenceNumber())
            mended += made is not None
    finally:
        reader.close()
        writer.close()
    return writer.toManifestFile(), mended


def _unbounded(spark: SparkSession, table: Table, file: Any, spec: Any, ids: set[int]) -> Any:
    """Give the same content file without bounds of these fields; None where it has none."""
    document = orjson.loads(jvm(spark).org.apache.iceberg.ContentFileParser.toJson(file, spec))
    mended = False
    for side in ("lower-bounds", "upper-bounds"):
        bounds = document.get(side, {"keys": [], "values": []})
        kept = [pair for pair in zip(bounds["keys"], bounds["values"], strict=True) if pair[0] not in ids]
        mended |= len(kept) < len(bounds["keys"])
        document[side] = {"keys": [key for key, _ in kept], "values": [value for _, value in kept]}
    return next(table.content_files([orjson.dumps(document)])) if mended else None
