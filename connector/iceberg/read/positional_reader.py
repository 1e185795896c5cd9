"""A data file and positions in it -> columns of those rows, by Arrow. On executors.

For columns that Spark cannot read (nested ones beside `time`): Spark tells which rows, this gives their values.
Columns, and fields within structs, are found by their ids; what a file lacks has its `initial-default`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.errors import FatalError
from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.initial_defaults import default_column, field_id_of, parse_initial_defaults
from connector.iceberg.types.values.conversion import convert
from connector.iceberg.types.values.variants import decode_variants
from serde.arrays import Ints

_Defaults = Mapping[int, Any]
NAME_MAPPING_PROPERTY = "schema.name-mapping.default"


def read_rows_at(
    layout: TableLayout, files: pa.Array, positions: pa.Array, fields: Sequence[pa.Field]
) -> list[pa.Array]:
    """Return columns of rows by file path and position, aligned with them.

    Args:
        layout: the table.
        files: the path of each row's data file (text); null for a row that is not there, which gives nulls.
        positions: each row's position in it (int64).
        fields: the wanted columns, with field ids.

    Raises:
        FatalError: a data file is no Parquet, or a default cannot be read.
    """
    codes = pc.dictionary_encode(files)
    which = np.asarray(codes.indices.fill_null(-1), np.int64)
    at = np.asarray(positions.fill_null(0), np.int64)
    parts, order = [], []
    for code, path in enumerate(codes.dictionary.to_pylist()):
        rows = np.flatnonzero(which == code)
        parts.append(_read_from_file(layout, path, at[rows], fields))
        order.append(rows)
    place = np.full(len(files), -1, np.int64)
    found = np.concatenate([np.zeros(0, np.int64), *order])
    place[found] = np.arange(len(found))
    back = pa.array(place, mask=place < 0)
    return [
        pa.concat_arrays([columns[i] for columns in parts]).take(back) if parts else pa.nulls(len(files), field.type)
        for i, field in enumerate(fields)
    ]


def _read_from_file(layout: TableLayout, path: str, at: Ints, fields: Sequence[pa.Field]) -> list[pa.Array]:
    if not path.endswith(".parquet"):
        raise FatalError(
            f"table {layout.name}: its data file {path} is no Parquet, in which rows are looked up; set "
            "write.format.default to parquet and rewrite the file (rewrite_data_files)"
        )
    with (
        file_io_for(layout.io_properties, path).new_input(path).open() as stream,
        pq.ParquetFile(stream) as file,
    ):
        named = _name_columns(layout, file.schema_arrow, path)
        names = [named.get(field_id_of(field)) for field in fields]
        whole = _read_positions(file, at, sorted({name for name in names if name is not None}))
    defaults = parse_initial_defaults(layout.schema_json)
    return [
        default_column(field, len(at), defaults)
        if name is None
        else _to_table_type(layout, whole.column(name).combine_chunks(), field, defaults)
        for field, name in zip(fields, names, strict=True)
    ]


def _name_columns(layout: TableLayout, columns: pa.Schema, path: str) -> dict[int | None, str]:
    """Return the columns of a file by field id; in one that another engine's table had, by the table's name mapping.

    Within structs of such a file fields are known by their names.
    """
    named = {field_id_of(field): field.name for field in columns}
    if named.keys() != {None}:
        return named
    mapping = layout.properties.get(NAME_MAPPING_PROPERTY)
    if mapping is None:
        raise FatalError(
            f"table {layout.name}: its data file {path} has no field ids, and the table no {NAME_MAPPING_PROPERTY}; "
            "rewrite the file (rewrite_data_files)"
        )
    known = {
        name: field["field-id"] for field in orjson.loads(mapping) if "field-id" in field for name in field["names"]
    }
    return {known[name]: name for name in columns.names if name in known}


def _to_table_type(layout: TableLayout, column: pa.Array, field: pa.Field, defaults: _Defaults) -> pa.Array:
    return decode_variants(column) if field.name in layout.variants else _project_column(column, field.type, defaults)


def _project_column(column: pa.Array, kind: pa.DataType, defaults: _Defaults) -> pa.Array:
    """Return a column of a file in the table's type, whatever was added, renamed or dropped within its structs."""
    types, file_type = pa.types, column.type
    null_rows = column.is_null() if column.null_count else None
    if types.is_struct(kind) and types.is_struct(file_type):
        named = any(field_id_of(field) is not None for field in file_type)
        place = {field_id_of(field) if named else field.name: i for i, field in enumerate(file_type)}
        parts, children = column.flatten(), list[pa.Array]()
        for field in kind:
            at = place.get(field_id_of(field) if named else field.name)
            children.append(
                default_column(field, len(column), defaults)
                if at is None
                else _project_column(parts[at], field.type, defaults)
            )
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=null_rows)
    if types.is_list(kind) and types.is_list(file_type):
        column = _drop_slice_offset(column)
        return pa.ListArray.from_arrays(
            column.offsets, _project_column(column.values, kind.value_type, defaults), kind, mask=null_rows
        )
    if types.is_map(kind) and types.is_map(file_type):
        column = _drop_slice_offset(column)
        keys = _project_column(column.keys, kind.key_type, defaults)
        items = _project_column(column.items, kind.item_type, defaults)
        return pa.MapArray.from_arrays(column.offsets, keys, items, kind, mask=null_rows)
    return convert(column, kind)[0]


def _drop_slice_offset(column: pa.Array) -> pa.Array:
    """Return the same rows without an offset: Arrow puts no mask beside offsets that are a slice's."""
    return column.take(pa.array(np.arange(len(column)))) if column.offset else column


def _read_positions(file: pq.ParquetFile, at: Ints, names: list[str]) -> pa.Table:
    """Read the row groups that hold the positions, and of them those rows."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    groups = np.searchsorted(starts, at, side="right") - 1
    used = np.unique(groups).tolist()
    table = file.read_row_groups(used, columns=names) if names else pa.table({})
    before = np.concatenate([[0], np.cumsum([sizes[i] for i in used])])
    place = at - starts[groups] + before[np.searchsorted(used, groups)]
    return table.take(pa.array(place)) if names else table
