"""A data file -> its key index: the numbers of its keys, sorted, with their positions. On executors.

A data file never changes, so neither does its index (`read.key_index_store` keeps it). The snapshot says which files
count, and which of their rows are live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from connector.iceberg.catalog.file_io import file_io_for, map_read_errors
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.key_hashes import KeyHashes, hash_keys
from connector.iceberg.read.initial_defaults import field_id_of
from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.values.conversion import convert
from serde.arrays import Ints, Mask, child_at, valid_mask

INDEX_ROW_BYTES = 12
"""What an index takes for a row; the values of keys that are more than one number come on top."""

_RUN_ROWS, _RUN_BYTES = 2**20, 64 * 1024**2
"""How much of a file is sorted at once: bounds a task's memory."""

_READ_ROWS = 2**16

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
