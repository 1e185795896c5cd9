"""Rows -> one ORC data file, and what a manifest says of it. Runs on executors.

Arrow's writer keeps statistics in the file, which it does not tell, so bounds are those of the rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from connector.errors import FatalError
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.values.orc_values import EARLY_FRACTIONS, find_early_fractions
from connector.iceberg.write.formats.column_metrics import FileMetrics
from connector.iceberg.write.formats.orc_schema import build_file_columns, to_file_column


class OrcFile:
    """An open file."""

    def __init__(self, stream: OutputStream, schema: Schema, layout: TableLayout, columns: pa.Schema) -> None:
        """Write the header; rows are of this schema, have these columns, and belong to the table of `layout`."""
        self._stream, self._name = stream, layout.name
        self._columns = build_file_columns(schema.model_dump_json(), columns)
        self._metrics = FileMetrics.of(schema, tuple(layout.properties.items()))
        self._writer = orc.ORCWriter(stream, **layout.orc_options())

    def write(self, rows: pa.Table) -> None:
        """Write rows.

        Raises:
            FatalError: a row that the table has already, and that comes along, has a value that ORC does not take.
        """
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if any(find_early_fractions(chunk) is not None for chunk in column.chunks):
                raise FatalError(
                    f"table {self._name}: column {name}: {EARLY_FRACTIONS}; set write.format.default to parquet"
                )
        self._metrics.add(rows)
        columns = [
            to_file_column(column.combine_chunks(), field.type)
            for column, field in zip(rows.columns, self._columns, strict=True)
        ]
        self._writer.write(pa.Table.from_arrays(columns, schema=self._columns))

    def close(self) -> tuple[int, dict[str, Any]]:
        """Return the size in bytes and the statistics; the stream stays open."""
        self._writer.close()
        return self._stream.tell(), self._metrics.describe()
