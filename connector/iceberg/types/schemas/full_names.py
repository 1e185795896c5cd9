"""columns -> those that one schema can have: no two fields have the same full name. Pure.

Iceberg names a field within a struct by its path: a column `a.b` and a field `b` of a struct `a` are one name, which no
schema may have twice (its libraries look fields up by it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def find_ambiguous_columns(known: Iterable[pa.Field], columns: Iterable[pa.Field]) -> frozenset[str]:
    """Return the names of columns that no schema can have beside the known ones, or beside those before them.

    A column of a known name stands in its place. Cost: the names.
    """
    known = list(known)
    names = {field.name for field in known}
    # What is in a known column's place, and has nothing within it, brings no name.
    columns = [field for field in columns if field.name not in names or pa.types.is_nested(field.type)]
    if not columns:
        return frozenset()
    if not any("." in name for field in (*known, *columns) for name in _list_names(field)):
        return frozenset()
    owners: dict[str, str] = {path: field.name for field in known for path in _list_paths(field)}
    lost = set[str]()
    for field in columns:
        paths = list(_list_paths(field))
        if any(owners.get(path, field.name) != field.name for path in paths) or len({*paths}) < len(paths):
            lost.add(field.name)
        else:
            owners.update(dict.fromkeys(paths, field.name))
    return frozenset(lost)


def _list_names(field: pa.Field) -> Iterator[str]:
    yield field.name
    for path in _list_children(field.type):
        yield from _list_names(path)


def _list_paths(field: pa.Field, above: str = "") -> Iterator[str]:
    """Return the names that Iceberg has for a field and those within it."""
    path = f"{above}{field.name}"
    yield path
    for child in _list_children(field.type):
        yield from _list_paths(child, f"{path}.")


def _list_children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
    return [pa.field("element", kind.value_type)] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []
