"""Arrow batches -> Parquet files of a table, and their descriptions for the commit. Runs on executors.

A file's description is Iceberg's own JSON form of a content file (`ContentFileParser`): the driver gets column bounds
and counts with it and never opens a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from connector.iceberg.annotation import Annotated
from connector.iceberg.layout import TableLayout, schema_of
from connector.iceberg.partitions import Partition
from connector.iceberg.sorting import in_order, sortable
from connector.iceberg.variants import STORED, encoded

ROW_GROUP_BYTES = 32 * 1024**2
"""Arrow bytes gathered before a row group is written: bounds a task's memory, and small enough to stay in it."""

_NO_METRICS = MetricsMode(MetricModeTypes.NONE)


@attrs.frozen
class FileKind:
    """What a file holds: all columns of a table, the keys of an equality delete, or positions in a data file.

    `columns` are those of the batches that are written; the text of `variants` among them is stored as variants.
    `referenced` is the path of the data file that positions are in.
    """

    content: str
    spec_id: int
    schema: Schema
    columns: pa.Schema
    target_bytes: int
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    variants: frozenset[str] = frozenset()

    @property
    def stored(self) -> pa.Schema:
        """The columns as they are in files."""
        return pa.schema([f.with_type(STORED) if f.name in self.variants else f for f in self.columns])

    @staticmethod
    def data(layout: TableLayout) -> FileKind:
        """Rows of the table, under its current spec."""
        target_bytes = layout.target_file_size_bytes
        return FileKind(
            "data", layout.spec.spec_id, layout.schema, layout.columns, target_bytes, variants=layout.variants
        )

    @staticmethod
    def equality_deletes(layout: TableLayout) -> FileKind:
        """Keys of rows that are gone, under the unpartitioned spec: a global delete (spec, "Equality Delete Files")."""
        schema = _selected(layout.schema_json, layout.keys)
        columns = pa.schema([layout.columns.field(name) for name in layout.keys])
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
        self._io: FileIO = load_file_io(dict(layout.io_properties), layout.location)
        self._sorts = not kind.equality_ids and sortable(layout.order, kind.schema)
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._stream: OutputStream | None = None
        self._annotated: Annotated | None = None
        self._path = ""
        self._done: list[bytes] = []

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
        if self._writer is None:
            self._open()
        assert self._writer is not None and self._stream is not None
        table = pa.Table.from_batches(self._waiting, self._kind.columns)
        if self._sorts:
            table = in_order(table, self._layout.order, self._kind.schema)
        table = self._stored(table)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting, self.waiting_bytes = [], 0
        if self._stream.tell() >= self._kind.target_bytes:
            self._finish()

    def close(self) -> Iterator[bytes]:
        """Finish the last file and give the descriptions of all files written."""
        self.flush()
        self._finish()
        yield from self._done
        self._done = []

    def _open(self) -> None:
        name = f"{self._label}-{uuid.uuid4().hex}{'' if self._kind.content == 'data' else '-deletes'}.parquet"
        self._path = "/".join(part for part in (self._layout.data_path, self._partition.path, name) if part)
        self._stream = self._io.new_output(self._path).create()
        self._annotated = Annotated(self._stream, self._kind.variants) if self._kind.variants else None
        self._writer = pq.ParquetWriter(
            self._annotated or self._stream,
            self._kind.stored,
            store_decimal_as_integer=True,
            **self._layout.compression,
        )

    def _stored(self, table: pa.Table) -> pa.Table:
        for name in self._kind.variants:
            at = table.column_names.index(name)
            table = table.set_column(at, self._kind.stored.field(at), encoded(table.column(at)))
        return table

    def _finish(self) -> None:
        if self._writer is None or self._stream is None:
            return
        if self._annotated is not None:
            self._annotated.hold()
        self._writer.close()
        size_bytes = self._stream.tell() if self._annotated is None else self._annotated.release()
        self._stream.close()
        self._done.append(self._description(self._writer.writer.metadata, size_bytes))
        self._writer = self._stream = None

    def _description(self, metadata: pq.FileMetaData, size_bytes: int) -> bytes:
        properties = tuple(self._layout.properties.items())
        wanted, places = _statistics_plan(self._kind.schema.model_dump_json(), properties, self._kind.variants)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata, stats_columns=wanted, parquet_column_mapping=places
        )
        # Row groups are sorted one by one: a file of several is not sorted as a whole.
        order_id = self._layout.order.order_id if self._sorts and metadata.num_row_groups == 1 else None
        told = statistics.to_serialized_dict()
        return describe(self._kind, self._partition, self._path, size_bytes, told, order_id)


def describe(
    kind: FileKind,
    partition: Partition,
    path: str,
    size_bytes: int,
    statistics: dict[str, Any],
    order_id: int | None = None,
) -> bytes:
    """Give Iceberg's JSON form of a content file (`org.apache.iceberg.ContentFileParser`)."""
    description: dict[str, Any] = {
        "spec-id": kind.spec_id,
        "content": kind.content,
        "file-path": path,
        "file-format": "parquet",
        "partition": partition.json if not kind.equality_ids else [],
        "file-size-in-bytes": size_bytes,
        "record-count": statistics["record_count"],
        "column-sizes": _by_id(statistics["column_sizes"]),
        "value-counts": _by_id(statistics["value_counts"]),
        "null-value-counts": _by_id(statistics["null_value_counts"]),
        "nan-value-counts": _by_id(statistics["nan_value_counts"]),
        "lower-bounds": _by_id({k: v.hex().upper() for k, v in statistics["lower_bounds"].items()}),
        "upper-bounds": _by_id({k: v.hex().upper() for k, v in statistics["upper_bounds"].items()}),
        "split-offsets": statistics["split_offsets"],
    }
    if kind.equality_ids:
        description["equality-ids"] = list(kind.equality_ids)
    if order_id is not None:
        description["sort-order-id"] = order_id
    if kind.referenced is not None:
        description["referenced-data-file"] = kind.referenced
    return orjson.dumps(description)


# As a table's files are alike, what its schema says of them is worked out once per process.


@lru_cache(maxsize=1024)
def _selected(schema_json: str, columns: tuple[str, ...]) -> Schema:
    schema = schema_of(schema_json)
    return schema.select(*columns) if columns else schema


@lru_cache(maxsize=1024)
def _statistics_plan(
    schema_json: str, properties: tuple[tuple[str, str], ...], variants: frozenset[str]
) -> tuple[dict[int, StatisticsCollector], dict[str, int]]:
    schema = Schema.model_validate_json(schema_json)
    wanted, places = compute_statistics_plan(schema, dict(properties)), parquet_path_to_id_mapping(schema)
    for name in variants:
        number = places.pop(name)
        places |= {f"{name}.{part.name}": number for part in STORED}
        wanted[number] = replace(wanted[number], mode=_NO_METRICS)
    return wanted, places


def _by_id(values: dict[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}
