"""catalog -> files and commits: what a run left in Iceberg, read by PyIceberg from the same SQLite catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.session import CATALOG

_COUNTS = {
    "data_files": "added-data-files",
    "delete_files": "added-delete-files",
    "bytes": "added-files-size",
    "removed_data_files": "deleted-data-files",
}


def open_table(warehouse: Path, table: str) -> Any:
    """The PyIceberg table `namespace.table`."""
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    return catalog.load_table(tuple(table.split(".")))


def files_written(warehouse: Path, tables: Sequence[str], prefilled: bool) -> dict[str, int]:
    """Commits, files and bytes added since the tables were created (or prefilled by their first snapshot)."""
    sums = dict.fromkeys((*_COUNTS, "commits"), 0)
    for table in tables:
        snapshots = open_table(warehouse, table).metadata.snapshots
        measured = sorted(snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[1 if prefilled else 0 :]
        sums["commits"] += len(measured)
        for snapshot in measured:
            for name, key in _COUNTS.items():
                sums[name] += int(snapshot.summary[key] or 0) if snapshot.summary else 0
    return sums
