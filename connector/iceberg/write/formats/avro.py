"""Rows -> one Avro data file, and what a manifest says of it. Runs on executors.

Datums are made a column at a time (`avro.encoder`). Avro keeps no statistics, so bounds are those of the rows.
"""

from __future__ import annotations

import secrets
from typing import Any

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.write.formats.avro_schema import build_file_schema
from connector.iceberg.write.formats.column_metrics import FileMetrics
from serde.avro.encoder import encode_records
from serde.avro.object_file import Container

_SYNC_BYTES = 16


class AvroFile:
    """An open file."""

    def __init__(self, stream: OutputStream, schema: Schema, layout: TableLayout) -> None:
        """Write the header; rows are of this schema, and of the table of `layout`."""
        self._stream = stream
        self._schema = build_file_schema(schema.model_dump_json())
        self._container = Container(self._schema.text, layout.avro_compression(), secrets.token_bytes(_SYNC_BYTES))
        self._metrics = FileMetrics.of(schema, tuple(layout.properties.items()))
        stream.write(self._container.header())

    def write(self, rows: pa.Table) -> None:
        """Write rows.

        Raises:
            serde.faults.Unfit: a null in a required column; names the column.
        """
        self._metrics.add(rows)
        columns = [_single_array(column) for column in rows.columns]
        for block in self._container.blocks(encode_records(self._schema.codec, columns, rows.num_rows)):
            self._stream.write(block)

    def close(self) -> tuple[int, dict[str, Any]]:
        """Return the size in bytes and the statistics; the stream stays open."""
        return self._stream.tell(), self._metrics.describe()


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
