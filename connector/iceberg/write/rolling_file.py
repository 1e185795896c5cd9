"""Arrow batches -> data and delete files of a table, and their descriptions for the commit. Runs on executors.

A file's description is Iceberg's own JSON form of a content file (`ContentFileParser`): the driver gets column bounds
and counts with it and never opens a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import attrs
import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.schema import Schema

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.table_layout import DataFormat, TableLayout
from connector.iceberg.types.schemas.row_layout import parse_schema
from connector.iceberg.write.formats.avro import AvroFile
from connector.iceberg.write.formats.orc import OrcFile
from connector.iceberg.write.formats.parquet import ParquetFile
from connector.iceberg.write.partitioning import Partition
from connector.iceberg.write.sorting import is_sortable, sort_rows

ROW_GROUP_BYTES = 32 * 1024**2
"""Arrow bytes gathered before a row group is written: bounds a task's memory, and small enough to stay in it."""


@attrs.frozen
class FileKind:
    """What a file holds: all columns of a table, the keys of an equality delete, or positions in a data file.

    `columns` are those of the batches that are written; the text of `variants` among them is stored as variants.
    `referenced` is the path of the data file that positions are in. `format` is Iceberg's name of how it is written:
    data files as the table says, delete files in Parquet, whatever the data files are.
    """

    content: str
    spec_id: int
    schema: Schema
    columns: pa.Schema
    target_bytes: int
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    variants: frozenset[str] = frozenset()
    format: DataFormat = "parquet"

    @staticmethod
    def data(layout: TableLayout) -> FileKind:
        """Rows of the table, under its current spec, in its format."""
        return FileKind(
            "data",
            layout.spec.spec_id,
            layout.schema,
            layout.columns,
            layout.target_file_size_bytes,
            variants=layout.variants,
            format=layout.data_format,
        )

    @staticmethod
    def equality_deletes(layout: TableLayout) -> FileKind:
        """Keys of rows that are gone, under the unpartitioned spec: a global delete (spec, "Equality Delete Files")."""
        schema = _select_columns(layout.schema_json, layout.keys)
        columns = pa.schema(layout.key_fields)
        ids = tuple(sorted(field.field_id for field in schema.fields))
        return FileKind(
            "equality-deletes", layout.delete_spec_id, schema, columns, layout.target_delete_file_size_bytes, ids
        )


class RollingFile:
    """Writes record batches to one file after the other, each about the target size."""

    def __init__(self, layout: TableLayout, kind: FileKind, partition: Partition, label: str) -> None:
        """Prepare; nothing is opened before the first row group.

        Args:
            layout: the table.
            kind: what the files hold.
            partition: where the rows belong.
            label: goes into file names, unique per task attempt.
        """
        self._layout, self._kind, self._partition, self._label = layout, kind, partition, label
        self._io: FileIO = file_io_for(layout.io_properties, layout.data_path)
        self._sorts = not kind.equality_ids and is_sortable(layout.order, kind.schema)
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._file: ParquetFile | AvroFile | OrcFile | None = None
        self._stream: OutputStream | None = None
        self._path, self._pieces = "", 0
        self._done: list[FileDescription] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of exactly the kind's columns; written when a row group is full."""
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one row group; close the file when it has reached its target size."""
        if not self._waiting:
            return
        if self._file is None:
            self._open()
        assert self._file is not None and self._stream is not None
        table = pa.Table.from_batches(self._waiting, self._kind.columns)
        if self._sorts:
            table = sort_rows(table, self._layout.order, self._kind.schema)
        self._file.write(table)
        self._pieces += 1
        self._waiting, self.waiting_bytes = [], 0
        if self._stream.tell() >= self._kind.target_bytes:
            self._finish()

    def close(self) -> Iterator[FileDescription]:
        """Finish the last file and give the descriptions of all files written."""
        self.flush()
        self._finish()
        yield from self._done
        self._done = []

    def _open(self) -> None:
        kind = self._kind
        name = f"{self._label}-{uuid.uuid4().hex}{'' if kind.content == 'data' else '-deletes'}.{kind.format}"
        self._path = f"{self._layout.folder_of(self._partition.path)}/{name}"
        # No name comes twice: a store need not be asked whether there is such a file.
        self._stream, self._pieces = self._io.new_output(self._path).create(overwrite=True), 0
        match kind.format:
            case "avro":
                self._file = AvroFile(self._stream, kind.schema, self._layout)
            case "orc":
                self._file = OrcFile(self._stream, kind.schema, self._layout, kind.columns)
            case "parquet":
                self._file = ParquetFile(self._stream, kind.schema, self._layout, kind.columns, kind.variants)

    def _finish(self) -> None:
        if self._file is None or self._stream is None:
            return
        size_bytes, statistics = self._file.close()
        self._stream.close()
        # What was gathered is sorted each time: a file of several such pieces is not sorted as a whole.
        order_id = self._layout.order.order_id if self._sorts and self._pieces == 1 else None
        self._done.append(describe_file(self._kind, self._partition, self._path, size_bytes, statistics, order_id))
        self._file = self._stream = None


def describe_file(
    kind: FileKind,
    partition: Partition,
    path: str,
    size_bytes: int,
    statistics: dict[str, Any],
    order_id: int | None = None,
) -> FileDescription:
    """Describe a file, in Iceberg's JSON form of a content file (`org.apache.iceberg.ContentFileParser`)."""
    description: dict[str, Any] = {
        "spec-id": kind.spec_id,
        "content": kind.content,
        "file-path": path,
        "file-format": kind.format,
        "partition": partition.json,
        "file-size-in-bytes": size_bytes,
        "record-count": statistics["record_count"],
        "column-sizes": _to_key_values(statistics["column_sizes"]),
        "value-counts": _to_key_values(statistics["value_counts"]),
        "null-value-counts": _to_key_values(statistics["null_value_counts"]),
        "nan-value-counts": _to_key_values(statistics["nan_value_counts"]),
        "lower-bounds": _to_key_values({k: v.hex().upper() for k, v in statistics["lower_bounds"].items()}),
        "upper-bounds": _to_key_values({k: v.hex().upper() for k, v in statistics["upper_bounds"].items()}),
    }
    if statistics["split_offsets"]:
        description["split-offsets"] = statistics["split_offsets"]
    if kind.equality_ids:
        description["equality-ids"] = list(kind.equality_ids)
    if order_id is not None:
        description["sort-order-id"] = order_id
    if kind.referenced is not None:
        description["referenced-data-file"] = kind.referenced
    return FileDescription.of(description)


@lru_cache(maxsize=1024)
def _select_columns(schema_json: str, columns: tuple[str, ...]) -> Schema:
    schema = parse_schema(schema_json)
    return schema.select(*columns) if columns else schema


def _to_key_values(values: dict[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}
