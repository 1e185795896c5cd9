"""A frame of data files and positions -> deletion vectors (format 3) or position delete files. On executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.frame_columns import POSITION_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeleteWriter
from connector.maintenance.conversion.position_search import PLACE_COLUMN

FILE_LABEL = "maintain"
"""What names of files begin with that maintenance writes."""

DESCRIBED_FILES = "file binary"
"""What tasks give of the files that they have written."""


def write_position_deletes(
    positions: DataFrame, layout: TableLayout, files: Sequence[FileScanTask], tasks: int, *, as_vectors: bool
) -> list[FileDescription]:
    """Write what the positions delete together with what was deleted of these data files before.

    Args:
        positions: data file, as its place in `files`, and position.
        layout: the table.
        files: the data files.
        tasks: how many tasks write.
        as_vectors: write deletion vectors.

    Returns:
        Descriptions of the delete files, one for each data file with positions.
    """
    sorted_positions = positions.repartition(tasks, PLACE_COLUMN).sortWithinPartitions(PLACE_COLUMN)
    written = sorted_positions.select(PLACE_COLUMN, POSITION_COLUMN).mapInArrow(
        _write_task(layout, [(file.path, file.place) for file in files], as_vectors=as_vectors), DESCRIBED_FILES
    )
    return read_descriptions(written)


def read_descriptions(written: DataFrame) -> list[FileDescription]:
    """Run tasks that write files, and return what they have written."""
    return [FileDescription.of(orjson.loads(row.file)) for row in written.collect()]


def _write_task(
    layout: TableLayout, files: Sequence[tuple[str, DataFileDeletes]], *, as_vectors: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths = pa.array([path for path, _ in files], pa.string())
        writer = PositionDeleteWriter(layout, FILE_LABEL, dict(files), as_vectors=as_vectors)
        for batch in batches:
            if batch.num_rows:
                at = pa.DictionaryArray.from_arrays(batch.column(0).cast(pa.int32()), paths)
                yield from to_batches(writer.take(at, batch.column(1)))
        yield from to_batches(writer.close())

    return task


def to_batches(descriptions: Iterator[FileDescription]) -> Iterator[pa.RecordBatch]:
    """Yield descriptions as tasks give them."""
    for description in descriptions:
        yield pa.RecordBatch.from_arrays([pa.array([description.json], pa.binary())], names=["file"])
