"""catalog -> files and commits: what a run left in Iceberg, read by PyIceberg from the same SQLite catalog."""

from __future__ import annotations

import sqlite3
import threading
import time
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


def local_path(location: str) -> Path:
    """The path of a file's URI, as Iceberg writes it."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


class MetadataWatch(threading.Thread):
    """Asks the catalog for a table's metadata, again and again; `note` gets what is new."""

    def __init__(self, warehouse: Path, table: str, poll_s: float) -> None:
        """Describe what to watch; nothing runs yet."""
        super().__init__(name="metadata-watch", daemon=True)
        self._warehouse, self._table, self._poll_s = warehouse, table, poll_s
        self._done = threading.Event()

    def note(self, metadata: bytes, at_s: float) -> None:
        """Take note of new metadata, which was seen at that time (epoch seconds)."""
        raise NotImplementedError

    def run(self) -> None:
        """Ask until told to finish; metadata is read only when it changed."""
        last = None
        while not self._done.wait(self._poll_s):
            location, now_s = metadata_location(self._warehouse, self._table), time.time()
            if location is None or location == last:
                continue
            try:
                body = local_path(location).read_bytes()
            except OSError:  # it is gone already: there is a newer one
                continue
            self.note(body, now_s)
            last = location

    def finish(self) -> None:
        """Stop asking."""
        self._done.set()
        self.join()


def metadata_location(warehouse: Path, table: str) -> str | None:
    """Where the catalog says the table's metadata is: the moment this changes, a commit is visible."""
    namespace, _, name = table.rpartition(".")
    uri = f"file:{warehouse / 'catalog.db'}?mode=ro"
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=5)
    except sqlite3.OperationalError:
        return None
    try:
        row = connection.execute(query, (namespace, name)).fetchone()
    except sqlite3.OperationalError:  # the catalog's tables do not exist yet, or it is locked for longer
        return None
    finally:
        connection.close()
    return str(row[0]) if row else None
