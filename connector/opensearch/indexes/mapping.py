"""Columns -> the mapping of an index (pure): one field type per Iceberg type (docs/how-to/opensearch.md).

An explicit mapping can do what dynamic mapping cannot: doubles keep their range (a float refuses 1e300), bytes are
binary, a decimal is a keyword and nothing else. Values that a field has no room for (NaN, a date of the year 20000)
stay in the document and are left out of the index, rather than the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from connector.opensearch.documents.field_paths import assign_inner_names

FieldMapping = dict[str, Any]

_TEXT_FIELD: FieldMapping = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_KEYWORD_FIELD: FieldMapping = {"type": "keyword", "ignore_above": 8191}
"""What dynamic mapping makes of text; and a keyword of at most 32,766 bytes, Lucene's limit of a term."""

_PRIMITIVE_MAPPINGS: tuple[tuple[Callable[[pa.DataType], bool], FieldMapping], ...] = (
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_integer, {"type": "long"}),
    (pa.types.is_float64, {"type": "double", "ignore_malformed": True}),
    (pa.types.is_floating, {"type": "float", "ignore_malformed": True}),
    (pa.types.is_decimal, _KEYWORD_FIELD),
    (pa.types.is_date, {"type": "date", "ignore_malformed": True}),
    (pa.types.is_timestamp, {"type": "date", "ignore_malformed": True}),
    (pa.types.is_time, _KEYWORD_FIELD),
    (lambda t: isinstance(t, pa.UuidType), _TEXT_FIELD),
    (lambda t: pa.types.is_fixed_size_binary(t) or pa.types.is_binary(t), {"type": "binary"}),
    # Variants: objects in some documents, texts or numbers in others. No other type takes all of them.
    (pa.json_().equals, {"type": "object", "enabled": False}),
)


def map_field(kind: pa.DataType) -> FieldMapping:
    """Return the mapping of one column; a list has that of its items, as OpenSearch has no type for it."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return map_field(kind.value_type)
    if pa.types.is_struct(kind):
        return {
            "properties": map_columns(zip(assign_inner_names(kind.names), (field.type for field in kind), strict=True))
        }
    if pa.types.is_map(kind):
        # Every key would be a field of its own, without end: keys and values are found as texts below one field.
        return {"type": "flat_object"}
    for matches, mapping in _PRIMITIVE_MAPPINGS:
        if matches(kind):
            return dict(mapping)
    return dict(_TEXT_FIELD)


def map_columns(columns: Iterable[tuple[str, pa.DataType]]) -> dict[str, FieldMapping]:
    """Return the mapping of columns by name."""
    return {name: map_field(kind) for name, kind in columns}


def name_inner_path(kind: pa.DataType, path: Iterable[str]) -> list[str]:
    """Return the fields that lead through structs to a value, for the names that lead there in their types."""
    fields = list[str]()
    for name in path:
        place = kind.get_field_index(name)
        fields.append(assign_inner_names(kind.names)[place])
        kind = kind.field(place).type
    return fields


def missing_properties(known: Mapping[str, Any], wanted: Mapping[str, FieldMapping]) -> dict[str, FieldMapping]:
    """Return what an index's properties lack of those wanted; a field that is there stays as it is, whatever its type.

    But an alias goes over to the field that is wanted.
    """
    result: dict[str, FieldMapping] = {}
    for name, field in wanted.items():
        there = _find_field(known, name)
        if there is None:
            result[name] = field
        elif field.get("type") == there.get("type") == "alias":
            if field != there:
                result[name] = field
        elif "properties" in field and "properties" in there:
            inner = missing_properties(there["properties"], field["properties"])
            if inner:
                # Without what an object is besides (`nested`, say) a mapping asks for a plain one, and is refused.
                result[name] = {**there, "properties": inner}
    return result


def _find_field(known: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the field of a name; one with dots is a path through objects."""
    at: Mapping[str, Any] | None = known.get(name)
    if at is None and "." in name:
        first, _, rest = name.partition(".")
        inner = known.get(first, {}).get("properties")
        at = None if inner is None else _find_field(inner, rest)
    return at
