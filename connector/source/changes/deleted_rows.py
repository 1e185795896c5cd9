"""Older files whose delete files a snapshot changed -> the rows that deletes took away, and those that live again.

A delete may hit a row that was gone before: a deletion vector repeats its predecessor, an equality delete names keys.
So rows hit by the deletes before are taken out, by file and position. Rows live again where deletes went and others in
their place, if any, do not hit all that these did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from connector.iceberg.catalog.file_io import storage
from connector.iceberg.read.scan_planning import Relieved, Task, Touched
from connector.iceberg.read.table_reader import FILE, POSITION, SEQUENCE, Reader
from connector.iceberg.write.position_deletes import PositionDeletes, deleted

Vectors = tuple[str, PositionDeletes, PositionDeletes]
"""A data file's path, its deletion vector before, and the one of now."""


def taken(reader: Reader, touched: Sequence[Touched], *, lineage: bool) -> DataFrame:
    """Give the rows that the new deletes took away; cost: one read of each file, two where it had deletes before."""
    first = [pair for pair in touched if not pair.before.deletes]
    again = [pair for pair in touched if pair.before.deletes]
    parts = []
    if first:
        parts.append(_struck(reader, first, lineage=lineage))
    if again:
        before = reader.struck([pair.before for pair in again]).select(FILE, POSITION)
        parts.append(_struck(reader, again, lineage=lineage).join(before, [FILE, POSITION], "left_anti"))
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return rows.drop(SEQUENCE)


def restored(reader: Reader, relieved: Sequence[Relieved], *, lineage: bool) -> DataFrame | None:
    """Give the rows that live again, None where there are none.

    Runs a job over deletion vectors, and for other deletes one over positions of the files: no data is read to know
    that no row is back, as when an engine puts a delete file in the place of another.
    """
    pairs = {pair.now.path: pair for pair in relieved}
    vectors = {path: found for path, pair in pairs.items() if (found := _vectors(pair)) is not None}
    if vectors:
        smaller = _smaller(reader, list(vectors.values()))
        pairs = {path: pair for path, pair in pairs.items() if path not in vectors or path in smaller}
    if not pairs:
        return None
    back = _positions(reader, [pair.before for pair in pairs.values()]).join(
        _positions(reader, [pair.now for pair in pairs.values()]), [FILE, POSITION], "left_anti"
    )
    known = back.localCheckpoint()
    if known.isEmpty():
        return None
    rows = reader.live([pair.now for pair in pairs.values()], lineage=lineage).drop(SEQUENCE)
    return rows.join(known, [FILE, POSITION], "left_semi").select(*rows.columns)


def _positions(reader: Reader, tasks: Sequence[Task]) -> DataFrame:
    hit = [task for task in tasks if task.deletes]
    rows = reader.struck(hit) if hit else reader.nothing()
    return rows.select(FILE, POSITION)


def _vectors(pair: Relieved) -> Vectors | None:
    """Give both vectors of a file that has no other deletes."""
    sides = [task.place.deletes for task in (pair.before, pair.now)]
    if any(len(deletes) != 1 or deletes[0].offset is None for deletes in sides):
        return None
    if pair.before.equality_ids:
        return None
    return pair.now.path, sides[0][0], sides[1][0]


def _smaller(reader: Reader, vectors: Sequence[Vectors]) -> frozenset[str]:
    """Give the data files whose vector of now lacks positions that the one before has."""
    slots = min(len(vectors), 4 * reader.spark.sparkContext.defaultParallelism)
    numbers = reader.spark.range(0, len(vectors), 1, slots)
    work = partial(_compare, vectors=vectors, io_properties=reader.table.io_properties())
    return frozenset(vectors[row.id][0] for row in numbers.mapInArrow(work, "id bigint").collect())


def _compare(
    batches: Iterator[pa.RecordBatch], vectors: Sequence[Vectors], io_properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = []
        for number in batch.column(0).to_pylist():
            path, *both = vectors[number]
            before, now = (_decoded(dict(io_properties), file, path) for file in both)
            if not before.issubset(now):
                found.append(number)
        yield pa.RecordBatch.from_pydict({"id": pa.array(found, pa.int64())})


def _decoded(io_properties: dict[str, str], file: PositionDeletes, path: str) -> BitMap64:
    return deleted(storage(io_properties, file.path), file, path)


def _struck(reader: Reader, touched: Sequence[Touched], *, lineage: bool) -> DataFrame:
    struck = [pair.struck for pair in touched]
    if not lineage or reader.vectorised(struck):
        return reader.struck(struck, lineage=lineage)
    positions = reader.struck(struck).select(FILE, POSITION)
    # The vectorised reader, which alone can mark and number rows at once, takes neither nested columns nor Avro.
    return reader.live([pair.before for pair in touched], lineage=True).join(positions, [FILE, POSITION], "left_semi")
