"""Small data files of one of our own tables -> fewer and larger ones, by Arrow. On the driver.

A file comes with each task of a batch, and has few rows: to plan and run a job for them takes longer than to read and
write them, and takes the cores from the batches beside it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from connector.errors import CommitRefused
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.read.initial_defaults import default_column, field_id_of, parse_initial_defaults
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.state.system_tables import delete_orphan
from connector.iceberg.write.table_writer import TableWriter

_LEAST_FILES = 5
_LARGE_BYTES = 16 * 1024**2
"""Files of this size are not merged any more."""
_MOST_BYTES = 64 * 1024**2
"""So much of a partition passes through the driver at once, however many keys are deleted: it takes a second or two."""
_BATCH_ROWS = 1 << 16


def merge_small_files(spark: SparkSession, table: Table, where: str, name: str) -> None:
    """Merge small files of the rows that an expression holds (Iceberg's JSON), for the connector of this name.

    Raises:
        CommitRefused: another writer took some of these files out.
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        RetriableError, FatalError: a file cannot be read, or the catalog stayed away.
    """
    table.refresh()
    base = table.snapshot_id
    files = [] if base is None else list(choose_small_files(plan_files(spark, table, base, where)))
    if not files:
        return
    with table.reading("small files to merge"):
        written = write_together(table.layout(), files)

    def update() -> Any:
        rewrite = table.java.newRewrite().validateFromSnapshot(base).set(CREATED_BY, name)
        for file in files:
            rewrite.deleteFile(file.java().file())
        for added in table.content_files(written):
            rewrite.addFile(added)
        return rewrite

    try:
        commit_exactly_once(table, uuid.uuid4().hex, update)
    except CommitRefused:
        for description in written:
            delete_orphan(table, description)
        raise


def choose_small_files(files: Iterable[FileScanTask]) -> Iterator[FileScanTask]:
    """Return what is to be merged: of each partition the smallest files, as many as there are without one that is
    larger than all others of them, and no more than `_MOST_BYTES`.

    So what they become is twice as large at least as any of them: a row is written anew as often as its partition's
    rows double, and not as often as files come.
    """
    partitions = defaultdict[object, list[FileScanTask]](list)
    for file in files:
        if file.data_format == "parquet" and not file.deletes and file.size_bytes < _LARGE_BYTES:
            partitions[file.place.spec_id, file.place.partition].append(file)
    for together in partitions.values():
        yield from _take_smallest(sorted(together, key=lambda file: file.size_bytes))


def _take_smallest(files: Sequence[FileScanTask]) -> Sequence[FileScanTask]:
    sizes = [file.size_bytes for file in files]
    together = takewhile(lambda whole: whole <= _MOST_BYTES, accumulate(sizes))
    count = max((i for i, whole in enumerate(together, 1) if sizes[i - 1] * 2 <= whole), default=0)
    return files[:count] if count >= _LEAST_FILES else ()


def write_together(layout: TableLayout, files: Iterable[FileScanTask]) -> list[FileDescription]:
    """Write the rows of data files to new ones, and describe these. Raises what Arrow and the store's client raise."""
    writer = TableWriter(layout, "merged")
    for file in files:
        for rows in _read_rows(layout, file.path):
            writer.write_rows(rows)
    return list(writer.close())


def _read_rows(layout: TableLayout, path: str) -> Iterator[pa.RecordBatch]:
    """Read a file as the table's columns are now."""
    with (
        file_io_for(layout.io_properties, path).new_input(path).open() as stream,
        pq.ParquetFile(stream) as file,
    ):
        places = {field_id_of(field): place for place, field in enumerate(file.schema_arrow)}
        defaults = parse_initial_defaults(layout.schema_json)
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            columns = [
                default_column(field, batch.num_rows, defaults)
                if (place := places.get(field_id_of(field))) is None
                else batch.column(place).cast(field.type)
                for field in layout.columns
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=layout.columns)
