"""Key indexes of data files -> the same, kept in the executor's scratch folder until Spark's application ends.

A lost index is made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path as FilePath

import attrs
import pyarrow as pa
import structlog

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.initial_defaults import field_id_of
from connector.iceberg.read.key_index import IndexRun, UnindexableFileError, read_runs

FOLDER = "icebridge-key-index"
"""The folder of indexes within one of Spark's scratch folders."""

_IDLE_S, _FORMAT = 600.0, 1
_TEMPORARY = ".part"


@attrs.define(eq=False)
class KeyIndexStore:
    """The indexes on one executor. Without a folder none is kept.

    `max_bytes` limits the folder, which may exceed it by one index per task. The longest unused indexes are removed
    first; if all were used within the last ten minutes, no further one is kept.
    """

    folder: FilePath | None
    max_bytes: int
    read: Callable[[TableLayout, str], Iterator[IndexRun]] = read_runs
    _used_bytes: int | None = None

    @staticmethod
    def open(max_bytes: int) -> KeyIndexStore:
        """Open the store of the Spark application, within one of its tasks."""
        scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return KeyIndexStore(FilePath(scratch) / FOLDER if scratch and max_bytes else None, max_bytes)

    def runs(self, layout: TableLayout, path: str, size_bytes: int) -> Iterator[IndexRun]:
        """Return the index of a data file, which is made if it does not exist.

        Raises:
            UnindexableFileError: the file can have none; ignore the runs that were returned before.
            RetriableError, FatalError: the data file cannot be read.
        """
        if self.folder is None:
            return self.read(layout, path)
        place = self.folder / _index_name(layout, path, size_bytes)
        try:
            if not place.exists() and self._has_room():
                self._keep(place, self.read(layout, path))
        except OSError as error:
            structlog.get_logger().warning("a key index is not kept", reason=str(error))
        return self._open(place, layout, path)

    def _open(self, place: FilePath, layout: TableLayout, path: str) -> Iterator[IndexRun]:
        try:
            os.utime(place)
            source = pa.memory_map(str(place))
        except OSError:
            yield from self.read(layout, path)
            return
        with source:
            if not source.size():
                raise UnindexableFileError(path)
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield IndexRun.of(reader.get_batch(number))

    def _keep(self, place: FilePath, runs: Iterable[IndexRun]) -> None:
        """Write an index; an empty file if the data file can have none."""
        place.parent.mkdir(exist_ok=True)
        part = place.with_name(f"{place.name}.{os.getpid()}{_TEMPORARY}")
        try:
            with part.open("wb") as sink:
                self._write(sink, runs)
            self._used_bytes = (self._used_bytes or 0) + part.stat().st_size
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def _write(self, sink: object, runs: Iterable[IndexRun]) -> None:
        writer = None
        try:
            for run in runs:
                batch = run.batch
                writer = writer or pa.ipc.new_file(sink, batch.schema)
                writer.write_batch(batch)
        except UnindexableFileError:
            if writer is not None:
                writer.close()
            sink.truncate(0)  # type: ignore[attr-defined]
            return
        (writer or pa.ipc.new_file(sink, pa.schema([]))).close()

    def _has_room(self) -> bool:
        """Tell whether one more index may be kept; remove unused ones to make room."""
        assert self.folder is not None
        if self._used_bytes is None:
            self._used_bytes = sum(size for _, size, _ in self._list())
        if self._used_bytes < self.max_bytes:
            return True
        entries = sorted(self._list())
        self._used_bytes = sum(size for _, size, _ in entries)
        for used_s, size, entry in entries:
            if self._used_bytes < self.max_bytes or used_s > time.time() - _IDLE_S:
                break
            entry.unlink(missing_ok=True)
            self._used_bytes -= size
        return self._used_bytes < self.max_bytes

    def _list(self) -> Iterator[tuple[float, int, FilePath]]:
        """Return when each file was last used (epoch seconds), its size and its path."""
        assert self.folder is not None
        if not self.folder.is_dir():
            return
        for entry in os.scandir(self.folder):
            try:
                found = entry.stat()
            except FileNotFoundError:
                continue
            yield found.st_mtime, found.st_size, FilePath(entry.path)


def _index_name(layout: TableLayout, path: str, size_bytes: int) -> str:
    """Name an index by the file, and by the ids and types of the table's key columns."""
    keys = [(field_id_of(field), str(field.type)) for field in layout.key_fields]
    return sha256(repr((_FORMAT, path, size_bytes, keys)).encode()).hexdigest()
