"""Shards of data files and deletes -> delete files of the rows that are hit, and what only Iceberg's readers can read.

One Spark job without a shuffle. A task reads the deleted keys, looks them up in the index of each data file's keys
(`connector.iceberg.read.key_index`), and writes the vector or position delete file of a data file as soon as all keys
were looked for. Memory: one part of the deleted keys, one run of an index, and the positions found in a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

import attrs
import numpy as np
import orjson
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.key_hashes import KeyHashes, hash_keys
from connector.iceberg.read.key_index import IndexRun, Spans, UnindexableFileError, read_keys, read_runs
from connector.iceberg.read.key_index_store import KeyIndexStore
from connector.iceberg.write.position_deletes import PositionDeleteWriter
from connector.maintenance.conversion.position_files import FILE_LABEL
from connector.maintenance.conversion.shards import KeyDeletes, SearchedFile, Shard
from serde.arrays import Ints

_OUTPUT = pa.schema([("file", pa.binary()), ("unread", pa.string())])
_PART_KEYS, _PART_BYTES = 2**20, 64 * 1024**2
"""How much of the deleted keys is looked for at once."""


@attrs.frozen(eq=False)
class DeletedKeys:
    """Keys in the order of their numbers, each hardly ever twice, and the sequence number of the newest delete.

    `spans` bounds those of whole numbers.
    """

    keys: KeyHashes
    newest: Ints
    spans: Spans = attrs.field(factory=dict)


def write_hits(
    spark: SparkSession, layout: TableLayout, shards: Sequence[Shard], index_bytes: int, *, as_vectors: bool
) -> tuple[list[FileDescription], frozenset[str]]:
    """Find and write what deletes hit.

    Args:
        spark: the session.
        layout: the table.
        shards: one for each task, at least one.
        index_bytes: how much an executor may keep of indexes.
        as_vectors: write deletion vectors.

    Returns:
        Descriptions of the delete files, one for each data file that is hit; the data files that could not be read.
    """
    work = partial(_search_shards, shards=shards, layout=layout, index_bytes=index_bytes, as_vectors=as_vectors)
    frame = spark.range(0, len(shards), 1, len(shards)).mapInArrow(work, "file binary, unread string")
    rows = frame.collect()
    written = [FileDescription.of(orjson.loads(row.file)) for row in rows if row.file is not None]
    return written, frozenset(row.unread for row in rows if row.unread is not None)


def _search_shards(
    numbers: Iterator[pa.RecordBatch],
    shards: Sequence[Shard],
    layout: TableLayout,
    index_bytes: int,
    *,
    as_vectors: bool,
) -> Iterator[pa.RecordBatch]:
    """Search the shards of one task: frames of their numbers -> what was written, and what could not be read."""
    store = KeyIndexStore.open(index_bytes)
    for shard in (shards[number] for batch in numbers for number in batch.column(0).to_pylist()):
        places = {file.path: file.place for file in shard.files}
        writer = PositionDeleteWriter(layout, FILE_LABEL, places, as_vectors=as_vectors)
        for path, positions in search_shard(shard, store):
            if positions is None:
                yield _to_batch([], [path])
            elif positions:
                yield _to_batch(writer.add(path, positions))
        yield _to_batch(writer.close())


def _to_batch(written: Iterable[FileDescription], unread: Sequence[str] = ()) -> pa.RecordBatch:
    files = [description.json for description in written]
    columns = [[*files, *(None for _ in unread)], [*(None for _ in files), *unread]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _OUTPUT.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_OUTPUT)


def search_shard(shard: Shard, store: KeyIndexStore) -> Iterator[tuple[str, BitMap64 | None]]:
    """Return each data file with the positions of its rows that are hit, deleted ones too; None if it cannot be read.

    Raises:
        RetriableError: the store is away.
    """
    for places, files in groupby(shard.files, key=lambda file: tuple(place for place, _ in file.oldest)):
        found: dict[str, BitMap64 | None] = {file.path: BitMap64() for file in files}
        together = [file for file in shard.files if file.path in found]
        for place in places:
            _search_files(shard.deletes[place], place, together, store, found)
        yield from found.items()


def _search_files(
    deletes: KeyDeletes,
    place: int,
    files: Sequence[SearchedFile],
    store: KeyIndexStore,
    found: dict[str, BitMap64 | None],
) -> None:
    """Add the positions that these deletes hit, None where that cannot be told."""
    try:
        for deleted in read_deleted_keys(deletes):
            for file in files:
                positions = found[file.path]
                if positions is not None:
                    found[file.path] = _find_hits(
                        deletes.layout, file, dict(file.oldest)[place], deleted, store, positions
                    )
    except (UnindexableFileError, FatalError):
        found.update(dict.fromkeys(found))


def _find_hits(
    layout: TableLayout,
    file: SearchedFile,
    oldest: int,
    deleted: DeletedKeys,
    store: KeyIndexStore,
    positions: BitMap64,
) -> BitMap64 | None:
    """Return the positions with those that are hit; None where Iceberg's readers have to read the file.

    They may have rights, or know formats, that Arrow has not; or they say why not.
    """
    try:
        for run in _open_runs(store, layout, file, deleted.spans):
            rows, keys = run.match(deleted.keys)
            hit = rows[deleted.newest[keys] >= oldest]
            if len(hit):
                positions |= BitMap64(hit.astype(np.uint64))
    except (UnindexableFileError, FatalError):
        return None
    return positions


def _open_runs(store: KeyIndexStore, layout: TableLayout, file: SearchedFile, spans: Spans) -> Iterator[IndexRun]:
    """Return the index that is kept of a file; where none is, that of what lies within the spans."""
    if store.folder is None:
        return read_runs(layout, file.path, spans)
    return store.runs(layout, file.path, file.size_bytes)


def read_deleted_keys(deletes: KeyDeletes) -> Iterator[DeletedKeys]:
    """Read the keys of delete files, part by part.

    Raises:
        UnindexableFileError: Iceberg's readers have to read them: one has no field ids, lacks a column, or has nulls.
        RetriableError, FatalError: one cannot be read.
    """
    waiting: list[tuple[KeyHashes, Ints]] = []
    for path, sequence_number in deletes.files:
        for _, columns in read_keys(deletes.layout, path):
            if columns is None or any(column.null_count for column in columns):
                raise UnindexableFileError(path)
            keys = hash_keys(columns)
            waiting.append((keys, np.full(len(keys), sequence_number)))
            size = sum(value.nbytes for each, _ in waiting for value in each.values)
            if sum(len(each) for each, _ in waiting) >= _PART_KEYS or size >= _PART_BYTES:
                yield _sort_deleted(deletes.layout, waiting)
                waiting = []
    if waiting:
        yield _sort_deleted(deletes.layout, waiting)


def _sort_deleted(layout: TableLayout, parts: Sequence[tuple[KeyHashes, Ints]]) -> DeletedKeys:
    """Put parts, the oldest first, in the order of numbers, and keep the newest delete of each key."""
    keys = KeyHashes.concat([keys for keys, _ in parts])
    order = np.argsort(keys.hashes, kind="stable")
    keys, newest = keys.take(order), np.concatenate([numbers for _, numbers in parts])[order]
    again = np.flatnonzero(keys.hashes[1:] == keys.hashes[:-1])
    again = again[keys.is_equal(again, keys, again + 1)]
    if len(again):
        kept = np.delete(np.arange(len(keys)), again)
        keys, newest = keys.take(kept), newest[kept]
    return DeletedKeys(keys, newest, _span_keys(layout, keys))


def _span_keys(layout: TableLayout, keys: KeyHashes) -> Spans:
    columns = zip(layout.key_fields, keys.values or (keys.hashes,), strict=True)
    numbers = {field.name: np.asarray(column) for field, column in columns if pa.types.is_integer(field.type)}
    return {
        name: (int(values.view(np.int64).min()), int(values.view(np.int64).max()))
        for name, values in numbers.items()
        if len(values)
    }
