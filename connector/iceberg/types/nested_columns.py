"""Names of columns, dotted where they lie within structs -> those columns of rows, flat; and back into them. Pure.

A name is looked for among the columns first, and then inside structs, so that a dot in a column's own name stays what
it is. What lies in lists and maps has no such name: a row has many of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types import dotted_names
from connector.iceberg.types.dotted_names import Path
from serde.arrays import child_at, children


def find_path(fields: Iterable[pa.Field], name: str) -> Path | None:
    """Find a column or a field within structs; None where there is none of that name."""
    return dotted_names.find_path({field.name: field for field in fields}, name, _read_fields)


def _read_fields(field: pa.Field) -> dict[str, pa.Field]:
    return {inner.name: inner for inner in field.type} if pa.types.is_struct(field.type) else {}


def find_field(columns: pa.Schema, name: str) -> pa.Field:
    """Return a column's field, or that of a field within structs under its full name.

    Raises:
        KeyError: there is none.
    """
    place = columns.get_field_index(name)
    if place >= 0:
        return columns.field(place)
    path = find_path(columns, name)
    if path is None:
        raise KeyError(name)
    field = columns.field(path[0])
    for part in path[1:]:
        field = field.type.field(part)
    return field.with_name(name)


def leaf_names(kind: pa.DataType, name: str) -> list[str]:
    """Return the names of all fields within a struct of this name that are no structs; the name itself for others."""
    if not pa.types.is_struct(kind):
        return [name]
    return [found for field in kind for found in leaf_names(field.type, f"{name}.{field.name}")]


def read_column(rows: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as it is, or a field within structs: null where one of them is.

    Raises:
        KeyError: there is none.
    """
    place = rows.schema.get_field_index(name)
    if place >= 0:
        return rows.column(place)
    path = find_path(rows.schema, name)
    if path is None:
        raise KeyError(name)
    return read_path(rows.column(path[0]), path[1:])


def read_columns(rows: pa.RecordBatch, names: Iterable[str]) -> list[pa.Array]:
    """Return several of them. Cost: nothing for columns; a mask for each struct around others."""
    return [read_column(rows, name) for name in names]


def read_batch(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return several of them as a batch of flat columns under these names."""
    return pa.RecordBatch.from_arrays(read_columns(rows, names), list(names))


def read_path(column: pa.Array, path: Path) -> pa.Array:
    """Return the field of a struct column at a path; the column itself at an empty one."""
    for name in path:
        column = child_at(column, column.type.get_field_index(name))
    return column


def set_column(columns: dict[str, pa.Array], path: Path, leaf: pa.Array) -> None:
    """Set a column, or a field within a struct column: structs around a value are there, even if they were null."""
    columns[path[0]] = _set_nested(columns[path[0]], path[1:], leaf) if len(path) > 1 else leaf


def _set_nested(column: pa.StructArray, path: Path, leaf: pa.Array) -> pa.Array:
    if not path:
        return leaf
    parts, place = children(column), column.type.get_field_index(path[0])
    parts[place] = _set_nested(parts[place], path[1:], leaf)
    absent = pc.and_(pc.is_null(column), pc.is_null(parts[place]))
    return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=absent)


def set_type(fields: Iterable[pa.Field], path: Path, kind: pa.DataType) -> list[pa.Field]:
    """Return fields with a type at a path; what is missing of it comes first.

    Raises:
        ValueError: a column on the way is no struct.
    """
    fields = list(fields)
    head, rest = path[0], path[1:]
    place = next((i for i, field in enumerate(fields) if field.name == head), None)
    before = pa.struct([]) if place is None else fields[place].type
    if rest and not pa.types.is_struct(before):
        raise ValueError(f"{head} is no struct")
    inner = pa.struct(set_type(before, rest, kind)) if rest else kind
    if place is None:
        return [pa.field(head, inner), *fields]
    return [*fields[:place], fields[place].with_type(inner), *fields[place + 1 :]]


def require_fields(fields: Iterable[pa.Field], paths: Iterable[Path]) -> list[pa.Field]:
    """Return fields of which those at the paths, and the structs around them, are not nullable."""
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return [_require_field(field, below[field.name]) if field.name in below else field for field in fields]


def _require_field(field: pa.Field, paths: Iterable[Path]) -> pa.Field:
    inner = [path for path in paths if path]
    return field.with_type(pa.struct(require_fields(field.type, inner)) if inner else field.type).with_nullable(False)


def select_fields(fields: Iterable[Mapping[str, Any]], paths: Iterable[Path]) -> list[Mapping[str, Any]]:
    """Return of a schema's fields, as Iceberg's JSON has them, those at the paths, with the structs around them."""
    below: dict[str, list[Path]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return [_select_field(field, below[field["name"]]) for field in fields if field["name"] in below]


def _select_field(field: Mapping[str, Any], paths: Iterable[Path]) -> Mapping[str, Any]:
    inner = [path for path in paths if path]
    if not inner:
        return field
    return {**field, "type": {**field["type"], "fields": select_fields(field["type"]["fields"], inner)}}
