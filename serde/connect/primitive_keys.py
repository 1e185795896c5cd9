"""keys that are one value -> keys of one field: what is the same in all formats.

Connect's LongConverter, ExtractField and the like make record keys that are a bare number or text. The field has the
name of the table's identifier column, where it has one, else `key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_EARLIER = {b"earlier-name": b""}
_NESTED = frozenset({"struct", "array", "map"})


def mark_earlier(field: pa.Field) -> pa.Field:
    """The expected field as one that another has under an earlier name: no single value is it."""
    return field.with_metadata(_EARLIER)


def _own_names(expected: pa.StructType) -> list[str]:
    return [field.name for field in expected if (field.metadata or {}).keys().isdisjoint(_EARLIER)]


def key_field_name(expected: pa.StructType | None) -> str:
    """The name of the only field of such a key; `expected` are the identifier columns of the table."""
    names = [] if expected is None else _own_names(expected)
    return names[0] if len(names) == 1 else "key"


def may_be_primitive(expected: pa.StructType | None) -> bool:
    """True where a key may be one value: the table has one identifier column, or there is no table yet."""
    return expected is None or len(_own_names(expected)) == 1


def is_primitive(document: object) -> bool:
    """True for the schema of one value."""
    kind = document.get("type") if isinstance(document, Mapping) else None
    return isinstance(kind, str) and kind not in _NESTED


def wrap_schema(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema of a struct with such a value as its only field."""
    return {"type": "struct", "fields": [{**document, "field": name}], "optional": False}
