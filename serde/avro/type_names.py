"""writer schema as registered -> the same, checked by fastavro, every name of a type in full."""

from __future__ import annotations

from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

NamedTypes = dict[str, Any]
"""Types by full name: those of schemas that are referred to come first."""

_NESTED = frozenset({"items", "values"})
_KNOWN_TYPES = frozenset(
    {"record", "error", "enum", "fixed", "array", "map", "null", "boolean", "int", "long"}
) | frozenset({"float", "double", "bytes", "string"})
"""What a type may be but a name."""


def resolve_names(schema: Any, named: NamedTypes) -> Any:
    """Return a schema with full names, its own types added to `named`.

    Raises:
        ValueError: it is no schema; the text says why, by names of types and fields only.
        KeyError, TypeError, RecursionError: the same, and nothing to say.
    """
    try:
        return parse_schema(_normalize(schema), named, _write_hint=False)
    except UnknownType as unknown:
        raise ValueError("an unknown type name") from unknown
    except SchemaParseException as error:
        raise ValueError(str(error).partition(":")[0]) from error


def _normalize(schema: Any) -> Any:
    """A schema in the forms that fastavro takes.

    Avro's own parser allows a type within a type; and defaults, which some registries hold of a wrong type, are of no
    use to who reads what was written. A decimal that Avro has none of (Oracle's `NUMBER(20, -2)` and `NUMBER(2, 5)`) is
    no logical type, as Avro has it; what it was in Connect stands beside it.
    """
    if isinstance(schema, list):
        return [_normalize(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _normalize(kind)
    if kind not in _KNOWN_TYPES:
        return kind
    normalized = {name: value for name, value in schema.items() if name not in ("fields", "default")}
    if schema.get("logicalType") == "decimal" and not _is_avro_decimal(schema):
        del normalized["logicalType"]
    normalized |= {name: _normalize(schema[name]) for name in _NESTED & schema.keys()}
    if kind in ("record", "error"):
        normalized["fields"] = [_normalize_field(field) for field in schema["fields"]]
    return normalized


def _is_avro_decimal(schema: dict[str, Any]) -> bool:
    scale, precision = schema.get("scale", 0), schema.get("precision")
    if not isinstance(scale, int) or not isinstance(precision, int):
        return True  # fastavro says what is wrong
    return 0 <= scale <= precision


def _normalize_field(field: Any) -> dict[str, Any]:
    if not isinstance(field, dict):
        raise TypeError("field")
    return {"name": field["name"], "type": _normalize(field["type"])}
