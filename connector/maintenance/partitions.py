"""Manifests of a table -> what each partition has: files, bytes, deletes. On the driver; metadata only."""

from __future__ import annotations

import attrs
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from connector.iceberg.catalog.manifest_entries import read_manifest_entries
from connector.iceberg.catalog.table import Table
from connector.maintenance.size_tiers import small_file_bytes
from connector.settings.iceberg.maintenance.policies import RewritePolicy

EVERYWHERE = "(all partitions)"
"""Where global equality deletes stand."""
_DEFAULTS = RewritePolicy()


@attrs.define
class PartitionFiles:
    """The live files of one partition; `small_files` are data files that a rewrite takes for small."""

    partition: str
    data_files: int = 0
    data_bytes: int = 0
    records: int = 0
    small_files: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0
    equality_delete_bytes: int = 0
    position_delete_files: int = 0
    deletion_vectors: int = 0
    position_deletes: int = 0

    def add(self, file: DataFile, small_bytes: int) -> None:
        """Count a file."""
        if file.content == DataFileContent.DATA:
            self.data_files += 1
            self.data_bytes += file.file_size_in_bytes
            self.records += file.record_count
            self.small_files += file.file_size_in_bytes < small_bytes
        elif file.content == DataFileContent.EQUALITY_DELETES:
            self.equality_delete_files += 1
            self.equality_deletes += file.record_count
            self.equality_delete_bytes += file.file_size_in_bytes
        else:
            vector = file.file_format == FileFormat.PUFFIN
            self.deletion_vectors += vector
            self.position_delete_files += not vector
            self.position_deletes += file.record_count


def count_partitions(table: Table, policy: RewritePolicy = _DEFAULTS) -> list[PartitionFiles]:
    """Return what each partition of the branch's newest snapshot has.

    Args:
        table: as it was last read.
        policy: which data files are small.

    Cost: reads every manifest once.

    Raises:
        RetriableError: the store is away, or the manifests went with a newer commit.
        FatalError: a manifest cannot be read.
    """
    metadata, newest = table.metadata(), table.snapshot_id
    snapshot = None if newest is None else metadata.snapshot_by_id(newest)
    if snapshot is None:
        return []
    small_bytes = small_file_bytes(policy, table.layout().target_file_size_bytes)
    found: dict[tuple[int, str], PartitionFiles] = {}
    with table.reading("the manifests"):
        for manifest in snapshot.manifests(metadata.io):
            names = [field.name for field in metadata.specs()[manifest.partition_spec_id].fields]
            for entry in read_manifest_entries(manifest, metadata.io):
                label = _label(names, entry.data_file)
                place = found.setdefault((manifest.partition_spec_id, label), PartitionFiles(label))
                place.add(entry.data_file, small_bytes)
    return [found[key] for key in sorted(found)]


def _label(names: list[str], file: DataFile) -> str:
    if not names:
        return EVERYWHERE if file.content == DataFileContent.EQUALITY_DELETES else "(none)"
    return "/".join(f"{name}={file.partition[place]}" for place, name in enumerate(names))
