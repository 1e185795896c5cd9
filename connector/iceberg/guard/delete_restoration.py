"""Equality deletes that a rewrite removed -> the table with them, as they were. One commit, by metadata alone.

A delete file comes back under its old sequence number, so that it deletes just the rows that it was written for; a
data file that has outrun deletes gets the number of what it replaced. Rows are neither read nor written. The commit is
a `replace`: changelog readers, which have seen the deletes once, pass over it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import structlog

from connector.errors import GapError
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import iterate, jvm, map_java_errors

JavaFile = Any

REMEDY = (
    "rows that were deleted may be back: roll the table back to before that snapshot, or have the topics read again by "
    "`icebridge offsets reset`, which replaces and deletes rows by key (docs/how-to/write-modes.md)"
)


@attrs.frozen(eq=False)
class Renumbering:
    """Data files that get another data sequence number, and the equality deletes that then apply to them again."""

    sequence_number: int
    files: Sequence[JavaFile]
    deletes: Sequence[JavaFile]


@attrs.frozen(eq=False)
class Restoration:
    """What is to be put right: lost delete files, in Java's form, and data files that have outrun deletes.

    `homes` are the snapshots that have the delete files: where one expires, its files go.
    """

    lost: Sequence[JavaFile] = ()
    renumbered: Sequence[Renumbering] = ()
    homes: frozenset[int] = frozenset()


def find_delete_files(table: Table, places: Mapping[str, int]) -> dict[str, JavaFile]:
    """Return Java's delete files by path; `places` says of each path a snapshot that has it.

    Cost: the delete manifests of those snapshots.

    Raises:
        GapError: the snapshot has expired.
    """
    found: dict[str, JavaFile] = {}
    for snapshot_id in dict.fromkeys(places.values()):
        with map_java_errors(f"reading the delete manifests of {table.name} at snapshot {snapshot_id}"):
            snapshot = table.java.snapshot(snapshot_id)
            if snapshot is None:
                raise GapError(f"table {table.name}: snapshot {snapshot_id} has expired; {REMEDY}")
            found |= {path: file for path, file in _iter_delete_files(table, snapshot) if path in places}
    return found


def _iter_delete_files(table: Table, snapshot: Any) -> Iterator[tuple[str, JavaFile]]:
    io, specs = table.java.io(), table.java.specs()
    manifests = jvm(table.driver).org.apache.iceberg.ManifestFiles
    for manifest in iterate(snapshot.deleteManifests(io)):
        reader = manifests.readDeleteManifest(manifest, io, specs)
        try:
            for file in iterate(reader):
                yield str(file.location()), file.copy()
        finally:
            reader.close()


def is_vector(file: JavaFile) -> bool:
    """Tell whether a delete file is a deletion vector: those Iceberg drops with the data file that they are about."""
    return str(file.format()) == "PUFFIN"


def check_files_exist(table: Table, files: Sequence[JavaFile], snapshot_id: int) -> None:
    """See that delete files which the table has lost are still in the store.

    Raises:
        GapError: one is gone: the snapshots that had it have expired.
        RetriableError: the store is away.
    """
    with map_java_errors(f"looking for delete files of {table.name}"):
        missing = [str(file.location()) for file in files if not table.java.io().newInputFile(file.location()).exists()]
    if missing:
        raise GapError(
            f"table {table.name}: snapshot {snapshot_id}, of another engine, removed {len(missing)} equality delete "
            f"file(s) that are still needed, and they are no longer in the store ({missing[0]}); {REMEDY}"
        )


def restore_deletes(table: Table, found: Restoration, head: int, connector: str) -> None:
    """Put it right in one commit upon snapshot `head`; the table is up to date afterwards.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`; done again it does no harm.
        RetriableError: another writer was faster; look again.
    """
    doing = f"giving equality deletes back to {table.name}"
    with map_java_errors(doing), settle_commits(table, doing) as java:
        transaction, marker = java.newTransaction(), _build_marker(table, found)
        begun = transaction.newRowDelta().toBranch(table.branch).set(CREATED_BY, connector)
        begun.addDeletes(marker).validateWith(_HeadValidator(head, found.homes)).commit()
        for place, group in enumerate(found.renumbered or [None]):
            update = transaction.newRewrite().toBranch(table.branch).set(CREATED_BY, connector)
            if group is not None:
                _renumber(update, group, head)
            if not place:
                update.deleteFile(marker)
                for file in found.lost:
                    update.addFile(file, int(file.dataSequenceNumber()))
            update.commit()
        transaction.commitTransaction()
    structlog.get_logger().warning(
        "equality deletes that another engine's rewrite removed were restored",
        table=table.name,
        delete_files=len(found.lost),
        data_files=sum(len(group.files) for group in found.renumbered),
    )


def _renumber(update: Any, group: Renumbering, head: int) -> None:
    update.validateFromSnapshot(head).dataSequenceNumber(group.sequence_number)
    for file in group.files:
        update.deleteFile(file).addFile(file)
    # Iceberg drops deletes that no other data file is old enough for: those that are there come again with the files.
    for file in group.deletes:
        update.deleteFile(file).addFile(file, int(file.dataSequenceNumber()))


def _build_marker(table: Table, found: Restoration) -> JavaFile:
    """Describe a position delete of a data file that does not exist.

    Iceberg adds delete files under old numbers only in a rewrite, and a rewrite has to replace a delete file. This one
    is replaced in the commit that brings it; as it deletes nothing no reader ever opens it.
    """
    example = next(iter(found.lost), None) or found.renumbered[0].deletes[0]
    path = f"{str(example.location()).rsplit('/', 1)[0]}/none-{uuid.uuid4().hex}"
    java = jvm(table.driver).org.apache.iceberg
    spec = table.java.specs().get(example.specId())
    builder = java.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPartition(example.partition())
    vectors = table.format_version >= VECTORS_VERSION
    builder = builder.withPath(f"{path}.{'puffin' if vectors else 'parquet'}").withFileSizeInBytes(1).withRecordCount(1)
    if vectors:
        builder = builder.withContentOffset(4).withContentSizeInBytes(1)
    return builder.withFormat("puffin" if vectors else "parquet").withReferencedDataFile(f"{path}.none").build()


class _HeadValidator:
    """Iceberg's `SnapshotAncestryValidator`: a commit lands upon the snapshot that was looked at, or not at all.

    Nor does it where one of `homes`, whose files come back, has expired meanwhile.
    """

    def __init__(self, head: int, homes: frozenset[int] = frozenset()) -> None:
        self._head, self._homes = head, homes

    def validate(self, ancestors: Any) -> bool:
        """Look at the newest snapshot, and go back to the oldest that is needed."""
        missing, seen = set(self._homes), iterate(ancestors)
        newest = next(seen, None)
        if newest is None or int(newest.snapshotId()) != self._head:
            return False
        missing.discard(self._head)
        while missing and (snapshot := next(seen, None)) is not None:
            missing.discard(int(snapshot.snapshotId()))
        return not missing

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        """Tell what a refusal means."""
        return "another writer committed first"

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)
