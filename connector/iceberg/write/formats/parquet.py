"""Rows -> one Parquet file, and what a manifest says of it. Runs on executors."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.values.variants import VARIANT_STORAGE, encode_variants
from connector.iceberg.write.formats.column_metrics import plan_statistics
from connector.iceberg.write.formats.parquet_footer import read_statistics
from connector.iceberg.write.formats.parquet_variants import VariantAnnotator
from connector.iceberg.write.formats.required_fields import fill_below_nulls, has_required_fields
from connector.iceberg.write.formats.value_bounds import UNORDERED_TYPES

_SAMPLE_ROWS = 2048
"""So many rows tell whether values repeat; files with fewer are written as they are."""

_NO_METRICS = MetricsMode(MetricModeTypes.NONE)


class ParquetFile:
    """An open file; each write is a row group."""

    def __init__(
        self,
        stream: OutputStream,
        schema: Schema,
        layout: TableLayout,
        columns: pa.Schema,
        variants: frozenset[str] = frozenset(),
    ) -> None:
        """Write the header.

        Args:
            stream: where the bytes go.
            schema: of the rows.
            layout: the table.
            columns: the rows' columns, with field ids.
            variants: those columns whose text is stored as variants.
        """
        self._stream, self._variants = stream, variants
        self._stored = pa.schema([f.with_type(VARIANT_STORAGE) if f.name in variants else f for f in columns])
        self._annotated = VariantAnnotator(stream, variants) if variants else None
        wanted, places = self._plan = _plan_statistics(
            schema.model_dump_json(), tuple(layout.properties.items()), variants
        )
        # Readers compare with footers as they do with bounds.
        without = frozenset(number for number, each in wanted.items() if isinstance(each.iceberg_type, UNORDERED_TYPES))
        with_statistics = [path for path, number in places.items() if number not in without] if without else True
        tops = {field.name: field.field_id for field in schema.fields if field.field_id in without}
        self._nulls, self._uncounted = dict.fromkeys(tops.values(), 0), tops
        # Footers say nothing of NaN; without counts readers take it that bounds hold for every row.
        self._floats = {
            field.name: field.field_id
            for field in schema.fields
            if isinstance(field.field_type, FloatType | DoubleType)
            and wanted[field.field_id].mode.type != MetricModeTypes.NONE
        }
        self._nans = dict.fromkeys(self._floats.values(), 0)
        self._required = [f.name for f in columns if f.name not in variants and has_required_fields(f.type)]
        self._writer: Any = None  # pq.ParquetWriter, once there are rows
        self._places = tuple(places)
        self._options = {
            "store_decimal_as_integer": True,
            "write_statistics": with_statistics,
            **layout.parquet_compression(),
        }

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        for name in self._variants:
            at = rows.column_names.index(name)
            rows = rows.set_column(at, self._stored.field(at), encode_variants(rows.column(at)))
        for name, number in self._uncounted.items():
            self._nulls[number] += rows.column(name).null_count
        for name, number in self._floats.items():
            self._nans[number] += pc.sum(pc.is_nan(rows.column(name))).as_py() or 0
        for name in self._required:
            rows = rows.set_column(
                rows.column_names.index(name), self._stored.field(name), fill_below_nulls(rows[name])
            )
        if self._writer is None:
            self._writer = self._open(rows)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        """Write the header. Columns whose values seldom repeat get no dictionary: it takes time, and more bytes."""
        varied = {name for name, column in zip(rows.column_names, rows.columns, strict=True) if seldom_repeats(column)}
        repeated = [path for path in self._places if path not in varied]
        return pq.ParquetWriter(
            self._annotated or self._stream, self._stored, use_dictionary=repeated if varied else True, **self._options
        )

    def close(self) -> tuple[int, dict[str, Any]]:
        """Return the size in bytes and the statistics; the stream stays open."""
        if self._annotated is not None:
            self._annotated.hold_footer()
        if self._writer is None:
            self._writer = self._open(self._stored.empty_table())
        self._writer.close()
        size_bytes = self._stream.tell() if self._annotated is None else self._annotated.release()
        return size_bytes, read_statistics(self._writer.writer.metadata, *self._plan, self._nulls, self._nans)


def seldom_repeats(column: pa.ChunkedArray) -> bool:
    """Tell whether most of the first values of a column are there once: so a dictionary of all would be as large.

    Cost: less than 0.1 ms.
    """
    some = column.slice(0, _SAMPLE_ROWS)
    if len(some) < _SAMPLE_ROWS or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return False
    storage = some.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else some
    return int(pc.count_distinct(storage).as_py()) * 2 > len(some) - some.null_count > 0


# As a table's files are alike, what its schema says of them is worked out once per process.


@lru_cache(maxsize=1024)
def _plan_statistics(
    schema_json: str, properties: tuple[tuple[str, str], ...], variants: frozenset[str]
) -> tuple[dict[int, StatisticsCollector], dict[str, int]]:
    schema = Schema.model_validate_json(schema_json)
    wanted, places = plan_statistics(schema, properties), parquet_path_to_id_mapping(schema)
    for name in variants:
        number = places.pop(name)
        places |= {f"{name}.{part.name}": number for part in VARIANT_STORAGE}
        wanted[number] = replace(wanted[number], mode=_NO_METRICS)
    return wanted, places
