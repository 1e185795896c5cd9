"""A data file -> its key index: the numbers of its keys, sorted, with their positions. On executors.

A data file never changes, and neither does its index: it is made when the file is first looked into, and kept in the
executor's scratch folder, which goes with Spark's application. Which files count, and which of their rows live, the
snapshot says. An index that is lost is made again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path as FilePath

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from connector.iceberg.catalog.file_io import file_io_for, map_read_errors
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.key_hashes import KeyHashes, hash_keys
from connector.iceberg.read.initial_defaults import field_id_of
from connector.iceberg.types.nested_columns import Path
from connector.iceberg.types.values.conversion import convert
from serde.arrays import Ints, Mask, child_at, valid_mask

FOLDER = "icebridge-key-index"
"""The name of the folder of indexes, within a scratch folder of Spark's."""

INDEX_ROW_BYTES = 12
"""What an index takes for a row; the values of keys that are more than one number come on top."""

_RUN_ROWS, _RUN_BYTES = 2**20, 64 * 1024**2
"""How much of a file is sorted at once: bounds a task's memory."""

_READ_ROWS, _IDLE_S, _FORMAT = 2**16, 600.0, 1
_TEMPORARY = ".part"

Positions = npt.NDArray[np.uint32]
_MOST_ROWS = 2**32
Spans = Mapping[str, tuple[int, int]]
"""The least and the greatest key that is looked for, of key columns of whole numbers, by name."""


class UnindexableFileError(Exception):
    """Arrow does not give the keys of a data file as Iceberg's readers do: it has no field ids, or lacks a column."""


@attrs.frozen(eq=False)
class IndexRun:
    """Some of a file's rows: keys in the order of their numbers, and where each is in the file."""

    keys: KeyHashes
    positions: Positions

    @staticmethod
    def of(batch: pa.RecordBatch) -> IndexRun:
        """Read a run that was kept, without a copy."""
        hashes, positions, *values = batch.columns
        return IndexRun(KeyHashes(np.asarray(hashes), tuple(values)), np.asarray(positions))

    @property
    def batch(self) -> pa.RecordBatch:
        """The run as it is kept."""
        columns = [pa.array(self.keys.hashes), pa.array(self.positions), *self.keys.values]
        return pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(columns))])

    def find(self, wanted: KeyHashes) -> Positions:
        """Return the positions of rows that have one of these keys; the rest as `match`."""
        return self.match(wanted)[0]

    def match(self, wanted: KeyHashes) -> tuple[Positions, Ints]:
        """Return the positions of rows that have one of these keys, and the place of each one's key among them.

        Args:
            wanted: keys in the order of their numbers; a row comes once for each that is its own.

        Cost: a binary search for each of the fewer side, of those that lie within the other's span.
        """
        if len(wanted) <= len(self.keys):
            theirs, mine = _match_sorted(wanted, self.keys)
        else:
            mine, theirs = _match_sorted(self.keys, wanted)
        same = self.keys.is_equal(mine, wanted, theirs)
        return self.positions[mine[same]], theirs[same]


def sort_keys(keys: KeyHashes) -> KeyHashes:
    """Put keys in the order of their numbers, as `IndexRun.find` wants them."""
    return keys.take(np.argsort(keys.hashes, kind="stable"))


def _match_sorted(few: KeyHashes, many: KeyHashes) -> tuple[Ints, Ints]:
    """Return the pairs of rows with the same number, of two sorted sides."""
    if not len(few) or not len(many):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    start = int(np.searchsorted(few.hashes, many.hashes[0]))
    stop = int(np.searchsorted(few.hashes, many.hashes[-1], side="right"))
    within = few.hashes[start:stop]
    low = np.searchsorted(many.hashes, within)
    hit = np.flatnonzero(many.hashes[low] == within)
    low = low[hit]
    counts = np.searchsorted(many.hashes, within[hit], side="right") - low
    before = np.cumsum(counts) - counts
    theirs = np.repeat(low - before, counts) + np.arange(int(counts.sum()))
    return np.repeat(hit + start, counts), theirs


def read_runs(layout: TableLayout, path: str, spans: Spans | None = None) -> Iterator[IndexRun]:
    """Read the key columns of a Parquet data file; rows with a null in them are no key's.

    Args:
        layout: the table.
        path: the data file.
        spans: what keys are looked for; row groups without any are passed over. All rows by default.

    Raises:
        UnindexableFileError: Iceberg's readers have to read it.
        RetriableError, FatalError: it cannot be read.
    """
    waiting: list[tuple[KeyHashes, Positions]] = []
    for start, columns in read_keys(layout, path, spans):
        if columns is None or start + len(columns[0]) > _MOST_ROWS:
            raise UnindexableFileError(path)
        valid: Mask = np.logical_and.reduce([valid_mask(column) for column in columns])
        rows = np.flatnonzero(valid)
        kept = columns if len(rows) == len(valid) else [column.take(pa.array(rows)) for column in columns]
        waiting.append((hash_keys(kept), (rows + start).astype(np.uint32)))
        size = sum(value.nbytes for keys, _ in waiting for value in keys.values)
        if sum(len(rows) for _, rows in waiting) >= _RUN_ROWS or size >= _RUN_BYTES:
            yield _sort_run(waiting)
            waiting = []
    if waiting:
        yield _sort_run(waiting)


def _sort_run(parts: list[tuple[KeyHashes, Positions]]) -> IndexRun:
    keys = KeyHashes.concat([keys for keys, _ in parts])
    order = np.argsort(keys.hashes, kind="stable")
    return IndexRun(keys.take(order), np.concatenate([rows for _, rows in parts])[order])


def read_keys(
    layout: TableLayout, path: str, spans: Spans | None = None
) -> Iterator[tuple[int, list[pa.Array] | None]]:
    """Read the key columns of a Parquet file in the table's types, by batches, each with the position of its first row;
    None where only Iceberg's readers give them.

    Args:
        layout: the table.
        path: the file.
        spans: row groups that have no such keys are passed over.

    Raises:
        RetriableError, FatalError: it cannot be read.
    """
    fields = [layout.columns.field(name) for name in dict.fromkeys(key_path[0] for key_path in layout.key_paths)]
    with (
        map_read_errors(f"reading keys of table {layout.name} in its file {path}"),
        file_io_for(layout.io_properties, path).new_input(path).open() as stream,
        pq.ParquetFile(stream) as file,
    ):
        names = {field_id_of(field): field.name for field in file.schema_arrow}
        if None in names or not all(field_id_of(field) in names for field in fields):
            yield 0, None
            return
        wanted = {field.name: names[field_id_of(field)] for field in fields}
        bounds = {wanted[name]: span for name, span in (spans or {}).items() if name in wanted}
        for first, group in _pick_row_groups(file.metadata, bounds):
            start = first
            for batch in file.iter_batches(
                _READ_ROWS, row_groups=[group], columns=list(wanted.values()), use_threads=False
            ):
                keys = [_read_key(batch.column(wanted[key_path[0]]), layout, key_path) for key_path in layout.key_paths]
                yield start, None if any(key is None for key in keys) else keys
                start += batch.num_rows


def _pick_row_groups(footer: pq.FileMetaData, bounds: Spans) -> Iterator[tuple[int, int]]:
    """Return the row groups that may have rows within these bounds, with the position of the first row of each."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)} if bounds else {}
    start = 0
    for group in range(footer.num_row_groups):
        found = footer.row_group(group)
        told = ((found.column(places[name]).statistics, span) for name, span in bounds.items() if name in places)
        if not any(_is_outside(statistics, span) for statistics, span in told):
            yield start, group
        start += found.num_rows


def _is_outside(statistics: pq.Statistics | None, span: tuple[int, int]) -> bool:
    """Tell whether no value of a row group lies within; bounds of other types than whole numbers tell nothing."""
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, int):
        return False
    return bool(statistics.max < span[0] or statistics.min > span[1])


def _read_key(column: pa.Array, layout: TableLayout, path: Path) -> pa.Array | None:
    """Return a key of a file's column in the table's type; None where the file has none, or values that do not fit."""
    field = layout.columns.field(path[0])
    for name in path[1:]:
        field = field.type.field(name)
        place = next((i for i, own in enumerate(column.type) if field_id_of(own) == field_id_of(field)), None)
        if place is None:
            return None
        column = child_at(column, place)
    values, unfit = convert(column, field.type)
    return values if unfit is None else None


@attrs.define(eq=False)
class KeyIndexStore:
    """The indexes on one executor. Without a folder none is kept.

    `max_bytes` bounds the folder, by as much as one more index of each task: the longest unused ones go first, and
    where none has been unused for ten minutes no further one is kept.
    """

    folder: FilePath | None
    max_bytes: int
    read: Callable[[TableLayout, str], Iterator[IndexRun]] = read_runs
    _used_bytes: int | None = None

    @staticmethod
    def open(max_bytes: int) -> KeyIndexStore:
        """Open that of Spark's application, in a task of it."""
        scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return KeyIndexStore(FilePath(scratch) / FOLDER if scratch and max_bytes else None, max_bytes)

    def runs(self, layout: TableLayout, path: str, size_bytes: int) -> Iterator[IndexRun]:
        """Return the index of a data file; it is made if it is not there.

        Raises:
            UnindexableFileError: the file has none; runs that came before do not count.
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
        """Write an index; an empty file where there is none."""
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
        """Tell whether one more may be kept, and remove what has long not been used where there is none."""
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
    """Name an index by the file, and by what of the table's key it depends on."""
    keys = [(field_id_of(field), str(field.type)) for field in layout.key_fields]
    return sha256(repr((_FORMAT, path, size_bytes, keys)).encode()).hexdigest()
