"""catalog -> metadata: what a table's metadata becomes while a contender writes, seen from outside and cheaply."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path


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
        self._last: str | None = None

    def note(self, metadata: bytes, at_s: float) -> None:
        """Take note of new metadata, which was seen at that time (epoch seconds)."""
        raise NotImplementedError

    def run(self) -> None:
        """Look until told to finish."""
        while not self._done.wait(self._poll_s):
            self.look()

    def look(self) -> None:
        """Ask the catalog once; metadata is read only when it changed."""
        location, now_s = metadata_location(self._warehouse, self._table), time.time()
        if location is None or location == self._last:
            return
        try:
            body = local_path(location).read_bytes()
        except OSError:  # it is gone already: there is a newer one
            return
        self.note(body, now_s)
        self._last = location

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
