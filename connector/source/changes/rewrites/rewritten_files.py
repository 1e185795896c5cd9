"""Parquet files of both sides of a rewrite -> their rows, with the same columns and types. On executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN, column_name
from connector.iceberg.read.table_reader import ROW_ID_FIELD_ID

BATCH_ROWS = 1 << 16


@attrs.frozen
class RewrittenFiles:
    """What executors need to read files side by side; `first_row_ids` by path, where rows are to have their ids."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    columns: pa.Schema
    key: tuple[int, ...]
    io_properties: dict[str, str]
    first_row_ids: dict[str, int | None] = attrs.field(factory=dict)

    def open(self, path: str) -> tuple[pq.ParquetFile, list[str]] | None:
        """Open a file; give the names there of all columns, None where it is not read as it is.

        Asked of every column by every job: a file that the walk cannot read has to be known before it.
        """
        file = pq.ParquetFile(file_io_for(self.io_properties, path).new_input(path).open())
        ids = {field.metadata.get(b"PARQUET:field_id"): field for field in file.schema_arrow if field.metadata}
        names = []
        for wanted in self.columns:
            own = ids.get(wanted.metadata[b"PARQUET:field_id"])
            if own is None or _storage_type(own.type) != _storage_type(wanted.type):
                return None
            names.append(own.name)
        return file, names

    def open_key(self, path: str) -> tuple[pq.ParquetFile, list[str]] | None:
        """The same, with the names of the key columns only."""
        opened = self.open(path)
        return None if opened is None else (opened[0], [opened[1][place] for place in self.key])

    def row_ids(self, path: str, batch: pa.RecordBatch, place: str | None, start: int) -> pa.Array:
        """Return the ids of rows from `start` on: those that the file holds, else counted from its first (spec)."""
        first = self.first_row_ids.get(path)
        if first is None:
            return pa.nulls(batch.num_rows, pa.int64())
        counted = pa.array(np.arange(first + start, first + start + batch.num_rows, dtype=np.int64))
        return counted if place is None else pc.coalesce(batch.column(place), counted)

    @property
    def rows_schema(self) -> pa.Schema:
        """The columns of rows as they are read: `c0`, ..., the file's number, the row's position and its id."""
        fields = [pa.field(column_name(place), _storage_type(field.type)) for place, field in enumerate(self.columns)]
        extra = [
            pa.field(FILE_COLUMN, pa.int32()),
            pa.field(POSITION_COLUMN, pa.int64()),
            pa.field(ROW_ID_COLUMN, pa.int64()),
        ]
        return pa.schema([*fields, *extra])

    def read_rows(self, paths: Sequence[str], numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Read files one after the other, as `rows_schema` says."""
        shape = self.rows_schema
        for number in numbers:
            opened = self.open(paths[number])
            if opened is None:
                raise ValueError(f"file {paths[number]} has other columns than when it was planned")
            file, names = opened
            held = _row_id_column(file) if self.first_row_ids else None
            start = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=[*names, *([held] if held else [])], use_threads=False):
                arrays = [_to_storage(batch.column(name)) for name in names]
                at = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
                ids = self.row_ids(paths[number], batch, held, start)
                arrays += [pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows), at, ids]
                yield pa.RecordBatch.from_arrays(arrays, schema=shape)
                start += batch.num_rows

    def combine_row_keys(self, rows: pa.Table) -> pa.Array:
        """Return what tells rows apart that were read so."""
        return combine_keys(rows, [column_name(place) for place in self.key])


def combine_keys(rows: pa.RecordBatch | pa.Table, names: list[str]) -> pa.Array:
    """Return one array that tells keys apart: the column itself, or the texts of several."""
    arrays = [rows.column(name) for name in names]
    if len(arrays) == 1:
        # Of a date before the year 0 or after 9999 Arrow makes a text that it does not read again.
        whole = arrays[0].cast(pa.int32()) if pa.types.is_date32(arrays[0].type) else arrays[0]
    else:
        texts = [pc.fill_null(pc.cast(array, pa.string()), "\0") for array in arrays]
        whole = pc.binary_join_element_wise(*texts, "\x1f")
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _row_id_column(file: pq.ParquetFile) -> str | None:
    """The name of the column of row ids; None in files whose rows are all counted."""
    wanted = str(ROW_ID_FIELD_ID).encode()
    fields = (field for field in file.schema_arrow if field.metadata)
    return next((field.name for field in fields if field.metadata.get(b"PARQUET:field_id") == wanted), None)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that stands for all that hold the same values."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _to_storage(array: pa.Array) -> pa.Array:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return storage if storage.type == _storage_type(storage.type) else storage.cast(_storage_type(storage.type))
