"""Older files whose delete files a snapshot changed -> the rows that deletes took away, and those that live again.

A delete may hit a row that was gone before: a deletion vector repeats its predecessor, an equality delete names keys.
So rows hit by the deletes before are taken out, by file and position. Rows live again where deletes went and others in
their place, if any, do not hit all that these did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TypeVar

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.read.file_changes import AffectedFile, RestoredFile
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN, SEQUENCE_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.write.position_deletes import PositionDeletes, read_deleted_positions

_Pair = TypeVar("_Pair")
VectorPair = tuple[str, PositionDeletes, PositionDeletes]
"""A data file's path, its deletion vector before, and the one of now."""


def find_deleted_rows(reader: TableReader, touched: Sequence[AffectedFile], *, lineage: bool) -> DataFrame:
    """Return the rows that the new deletes took away; cost: one read of each file, two where it had deletes before."""
    parts = []
    for layer in _split_by_path(touched, lambda pair: pair.before.path):
        first = [pair for pair in layer if not pair.before.deletes]
        again = [pair for pair in layer if pair.before.deletes]
        if first:
            parts.append(_read_deleted_rows(reader, first, lineage=lineage))
        if again:
            parts.append(_read_newly_deleted_rows(reader, again, lineage=lineage))
    return reduce(DataFrame.unionByName, parts).drop(SEQUENCE_COLUMN)


def find_restored_rows(reader: TableReader, relieved: Sequence[RestoredFile], *, lineage: bool) -> DataFrame | None:
    """Return the rows that live again, None where there are none.

    Runs a job over deletion vectors, and for other deletes one over positions of the files: no data is read to know
    that no row is back, as when an engine puts a delete file in the place of another.
    """
    layers = _split_by_path(relieved, lambda pair: pair.now.path)
    parts = [rows for pairs in layers if (rows := _find_restored(reader, pairs, lineage=lineage)) is not None]
    return reduce(DataFrame.unionByName, parts) if parts else None


def _split_by_path(pairs: Sequence[_Pair], path: Callable[[_Pair], str]) -> list[list[_Pair]]:
    """Split files so that none is in a part twice, as a table may list one more than once: rows are told by position.

    There is one part where each is listed once.
    """
    seen, layers = Counter[str](), list[list[_Pair]]()
    for pair in pairs:
        number = seen[path(pair)]
        seen[path(pair)] += 1
        if number == len(layers):
            layers.append([])
        layers[number].append(pair)
    return layers


def _find_restored(reader: TableReader, relieved: Sequence[RestoredFile], *, lineage: bool) -> DataFrame | None:
    pairs = {pair.now.path: pair for pair in relieved}
    vectors = {path: found for path, pair in pairs.items() if (found := _vector_pair(pair)) is not None}
    if vectors:
        smaller = _find_shrunk_vectors(reader, list(vectors.values()))
        pairs = {path: pair for path, pair in pairs.items() if path not in vectors or path in smaller}
    if not pairs:
        return None
    back = _deleted_positions(reader, [pair.before for pair in pairs.values()]).join(
        _deleted_positions(reader, [pair.now for pair in pairs.values()]), [FILE_COLUMN, POSITION_COLUMN], "left_anti"
    )
    known = back.localCheckpoint()
    if known.isEmpty():
        return None
    rows = reader.read_live_rows([pair.now for pair in pairs.values()], lineage=lineage).drop(SEQUENCE_COLUMN)
    return rows.join(known, [FILE_COLUMN, POSITION_COLUMN], "left_semi").select(*rows.columns)


def _deleted_positions(reader: TableReader, tasks: Sequence[FileScanTask]) -> DataFrame:
    hit = [task for task in tasks if task.deletes]
    rows = reader.read_deleted_rows(hit) if hit else reader.nothing()
    return rows.select(FILE_COLUMN, POSITION_COLUMN)


def _vector_pair(pair: RestoredFile) -> VectorPair | None:
    """Return both vectors of a file that has no other deletes."""
    sides = [task.place.deletes for task in (pair.before, pair.now)]
    if any(len(deletes) != 1 or deletes[0].offset is None for deletes in sides):
        return None
    if pair.before.equality_ids:
        return None
    return pair.now.path, sides[0][0], sides[1][0]


def _find_shrunk_vectors(reader: TableReader, vectors: Sequence[VectorPair]) -> frozenset[str]:
    """Return the data files whose vector of now lacks positions that the one before has."""
    slots = min(len(vectors), 4 * reader.spark.sparkContext.defaultParallelism)
    numbers = reader.spark.range(0, len(vectors), 1, slots)
    work = partial(_compare_vectors, vectors=vectors, io_properties=reader.table.io_properties())
    return frozenset(vectors[row.id][0] for row in numbers.mapInArrow(work, "id bigint").collect())


def _compare_vectors(
    batches: Iterator[pa.RecordBatch], vectors: Sequence[VectorPair], io_properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        positions = []
        for number in batch.column(0).to_pylist():
            path, *both = vectors[number]
            before, now = (_read_vector(dict(io_properties), file, path) for file in both)
            if not before.issubset(now):
                positions.append(number)
        yield pa.RecordBatch.from_pydict({"id": pa.array(positions, pa.int64())})


def _read_vector(io_properties: dict[str, str], file: PositionDeletes, path: str) -> BitMap64:
    return read_deleted_positions(file_io_for(io_properties, file.path), file, path)


def _read_deleted_rows(reader: TableReader, touched: Sequence[AffectedFile], *, lineage: bool) -> DataFrame:
    deleted = [pair.deleted for pair in touched]
    if not lineage or reader.is_vectorized(deleted):
        return reader.read_deleted_rows(deleted, lineage=lineage)
    positions = reader.read_deleted_rows(deleted).select(FILE_COLUMN, POSITION_COLUMN)
    # The vectorised reader, which alone can mark and number rows at once, takes neither nested columns nor Avro.
    return reader.read_live_rows([pair.before for pair in touched], lineage=True).join(
        positions, [FILE_COLUMN, POSITION_COLUMN], "left_semi"
    )


def _read_newly_deleted_rows(reader: TableReader, touched: Sequence[AffectedFile], *, lineage: bool) -> DataFrame:
    """Leave out the rows that were deleted before."""
    before = reader.read_deleted_rows([pair.before for pair in touched]).select(FILE_COLUMN, POSITION_COLUMN)
    rows = _read_deleted_rows(reader, touched, lineage=lineage)
    return rows.join(before, [FILE_COLUMN, POSITION_COLUMN], "left_anti")
