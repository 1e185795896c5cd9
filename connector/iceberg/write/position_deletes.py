"""Data files and positions in them -> position delete files (format v2) or deletion vectors (v3). On executors.

A data file has at most one of them that is about it alone: what an older one deletes goes into the new one, and the
commit takes the old one out (spec, "Deletion Vectors"; for v2 it keeps reads from opening ever more files).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.iceberg.write import deletion_vectors
from connector.iceberg.write.partitioning import Partition
from connector.iceberg.write.rolling_file import FileKind, RollingFile

_PATH_FIELD_ID, _POSITION_FIELD_ID = 2147483546, 2147483545
_DELETE_SCHEMA = Schema(
    NestedField(_PATH_FIELD_ID, "file_path", StringType(), required=True),
    NestedField(_POSITION_FIELD_ID, "pos", LongType(), required=True),
)
_DELETE_COLUMNS = to_arrow_schema(_DELETE_SCHEMA)
_METRICS_PROPERTIES = {f"write.metadata.metrics.column.{name}": "full" for name in _DELETE_COLUMNS.names}
"""Readers go by the whole path."""


@attrs.frozen
class PositionDeletes:
    """Positions that are deleted already: a vector inside of a Puffin file, or else a Parquet file.

    `alone` tells that it is about one data file and no other.
    """

    path: str
    alone: bool
    offset: int | None = None
    size_bytes: int | None = None


@attrs.frozen
class DataFileDeletes:
    """What a delete of positions has to know of their data file: where it belongs, and what is deleted already."""

    spec_id: int
    partition: tuple[Any, ...]
    deletes: tuple[PositionDeletes, ...] = ()


class PositionDeleteWriter:
    """Writes one table's position deletes in one task; a data file's positions come one after the other."""

    def __init__(
        self, layout: TableLayout, label: str, places: Mapping[str, DataFileDeletes], *, as_vectors: bool
    ) -> None:
        """Prepare; nothing is opened before positions come.

        Args:
            layout: the table.
            label: goes into file names.
            places: every data file that positions may be of, by path.
            as_vectors: write deletion vectors (format v3) instead of files.
        """
        self._layout = attrs.evolve(layout, properties={**layout.properties, **_METRICS_PROPERTIES})
        self._label, self._places = label, places
        self._io = file_io_for(layout.io_properties, layout.data_path)
        self._puffin = _PuffinWriter(self._layout, self._io, label) if as_vectors else None
        self._path, self._positions = "", BitMap64()

    def take(self, files: pa.Array, positions: pa.Array) -> Iterator[FileDescription]:
        """Take places sorted by data file; gives the descriptions of files that are finished."""
        codes = files.dictionary_encode()
        which, at = np.asarray(codes.indices), np.asarray(positions)
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        for start, stop in pairwise([*starts, len(which)]):
            path = codes.dictionary[int(which[start])].as_py()
            if path != self._path:
                yield from self._write_current()
                self._path = path
            self._positions |= BitMap64(at[start:stop].astype(np.uint64))

    def add(self, path: str, positions: BitMap64) -> Iterator[FileDescription]:
        """Take all positions of a data file; gives the descriptions of files that are finished."""
        yield from self._write_current()
        self._path, self._positions = path, positions

    def close(self) -> Iterator[FileDescription]:
        """Write what is left and give the descriptions."""
        yield from self._write_current()
        if self._puffin is not None:
            yield from self._puffin.close()

    def _write_current(self) -> Iterator[FileDescription]:
        path, positions = self._path, self._positions
        self._path, self._positions = "", BitMap64()
        if not path:
            return
        place = self._places[path]
        for before in place.deletes:
            if self._puffin is not None or before.alone:
                positions |= read_deleted_positions(self._io, before, path)
        if self._puffin is not None:
            yield from self._puffin.add(path, place, positions)
        else:
            yield from self._file(path, place, positions)

    def _file(self, path: str, place: DataFileDeletes, positions: BitMap64) -> Iterator[FileDescription]:
        kind = FileKind(
            "position-deletes",
            place.spec_id,
            _DELETE_SCHEMA,
            _DELETE_COLUMNS,
            self._layout.target_delete_file_size_bytes,
            referenced=path,
        )
        file = RollingFile(self._layout, kind, Partition("", place.partition), self._label)
        at = pa.array(np.asarray(positions.to_array()).astype(np.int64))
        file.write(pa.RecordBatch.from_arrays([pa.repeat(path, len(at)), at], schema=_DELETE_COLUMNS))
        yield from file.close()


class _PuffinWriter:
    """Puffin files of vectors, one after the other, each about the target size of delete files."""

    def __init__(self, layout: TableLayout, io: FileIO, label: str) -> None:
        self._layout, self._io, self._label = layout, io, label
        self._stream: OutputStream | None = None
        self._path, self._written_bytes = "", 0
        self._blobs: list[tuple[deletion_vectors.VectorBlob, DataFileDeletes]] = []

    def add(self, path: str, place: DataFileDeletes, positions: BitMap64) -> Iterator[FileDescription]:
        """Write a vector; gives descriptions when the file is full."""
        if self._stream is None:
            self._path = f"{self._layout.data_path}/{self._label}-{uuid.uuid4().hex}-deletes.puffin"
            self._stream = self._io.new_output(self._path).create(overwrite=True)  # no name comes twice
            self._stream.write(deletion_vectors.PUFFIN_MAGIC)
            self._written_bytes = len(deletion_vectors.PUFFIN_MAGIC)
        blob = deletion_vectors.encode_vector(positions)
        self._blobs.append((deletion_vectors.VectorBlob(path, self._written_bytes, len(blob), len(positions)), place))
        self._stream.write(blob)
        self._written_bytes += len(blob)
        if self._written_bytes >= self._layout.target_delete_file_size_bytes:
            yield from self.close()

    def close(self) -> Iterator[FileDescription]:
        """Finish the file and describe its vectors."""
        if self._stream is None:
            return
        end = deletion_vectors.encode_footer([blob for blob, _ in self._blobs])
        self._stream.write(end)
        self._stream.close()
        size_bytes = self._written_bytes + len(end)
        for blob, place in self._blobs:
            yield FileDescription.of(
                {
                    "spec-id": place.spec_id,
                    "content": "position-deletes",
                    "file-path": self._path,
                    "file-format": "puffin",
                    "partition": place.partition,
                    "file-size-in-bytes": size_bytes,
                    "record-count": blob.cardinality,
                    "referenced-data-file": blob.data_file,
                    "content-offset": blob.offset,
                    "content-size-in-bytes": blob.size_bytes,
                }
            )
        self._stream, self._blobs = None, []


def read_deleted_positions(io: FileIO, file: PositionDeletes, data_file: str) -> BitMap64:
    """Read which positions of a data file are deleted.

    Raises:
        ValueError: the vector is damaged.
        FatalError: the file is no Parquet.
    """
    if file.offset is not None and file.size_bytes is not None:
        with io.new_input(file.path).open() as stream:
            stream.seek(file.offset)
            return deletion_vectors.decode_vector(stream.read(file.size_bytes))
    return BitMap64(np.concatenate([np.zeros(0, np.uint64), *_read_delete_file(io, file, data_file)]))


def _read_delete_file(io: FileIO, file: PositionDeletes, data_file: str) -> Iterable[Any]:
    if not file.path.endswith(".parquet"):
        raise FatalError(
            f"position delete file {file.path} is no Parquet; set write.delete.format.default to parquet and "
            "rewrite it (rewrite_position_delete_files)"
        )
    with io.new_input(file.path).open() as stream:
        fragment = ds.ParquetFileFormat().make_fragment(stream)
        for batch in fragment.to_batches(columns=["pos"], filter=ds.field("file_path") == data_file):
            yield batch.column(0).to_numpy().astype(np.uint64)
