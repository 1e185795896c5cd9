"""Iceberg's schema JSON -> the same with other types in places, and its fields at any depth (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from connector.iceberg.types import dotted_names
from connector.iceberg.types.dotted_names import Path

Json = dict[str, Any]
VARIANT_TYPE = "variant"
_SHAPES = ("geometry(", "geography(")


DefaultRule = Callable[[str, Any], Any]
"""A primitive type and a default value of it, as JSON has both -> the value to have instead; None for no default."""
_DEFAULT_KEYS = ("initial-default", "write-default")


def replace_types(kind: Any, rule: Callable[[str], str], default: DefaultRule) -> Any:
    """Return a type, a struct or a schema with each primitive type replaced by what the rule says, and each default."""
    if isinstance(kind, str):
        return rule(kind)
    changed: Json = dict(kind)
    for part in ("element", "key", "value"):
        if part in kind:
            changed[part] = replace_types(kind[part], rule, default)
    if "fields" in kind:
        changed["fields"] = [_replace_field_types(field, rule, default) for field in kind["fields"]]
    return changed


def _replace_field_types(field: Mapping[str, Any], rule: Callable[[str], str], default: DefaultRule) -> Json:
    replaced: Json = {name: part for name, part in field.items() if name not in _DEFAULT_KEYS}
    replaced["type"] = replace_types(field["type"], rule, default)
    for name in _DEFAULT_KEYS:
        value = field.get(name)
        if value is not None and isinstance(field["type"], str):
            value = default(field["type"], value)
        if value is not None:
            replaced[name] = value
    return replaced


def to_pyiceberg(kind: Any, stand_in: str) -> Any:
    """Return a schema that PyIceberg can read: another type for variant, and no defaults, some of which it cannot.

    Reference systems of shapes are left out: it reads them only in quotes, which Iceberg's Java does not write.
    """

    def rule(name: str) -> str:
        if name == VARIANT_TYPE:
            return stand_in
        return name.partition("(")[0] if name.startswith(_SHAPES) else name

    return replace_types(kind, rule, lambda _kind, _value: None)


def field_ids(kind: Any) -> frozenset[int]:
    """Return the ids of all fields of a struct or schema, at any depth."""
    return frozenset(field["id"] for _, field in iter_fields(kind))


def iter_fields(struct: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Return every field with its dotted path, the items of lists and maps included."""
    for field in struct["fields"]:
        yield prefix + field["name"], field
        yield from _iter_inner(field["type"], prefix + field["name"])


def iter_struct_fields(struct: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Return every column and every field of structs with its dotted path; a row has one value of each."""
    for field in struct["fields"]:
        kind = field["type"]
        yield prefix + field["name"], field
        if not isinstance(kind, str) and kind["type"] == "struct":
            yield from iter_struct_fields(kind, f"{prefix}{field['name']}.")


def find_path(struct: Mapping[str, Any], name: str) -> Path | None:
    """Return the names from the top on of the field that a dotted name means; None where there is none."""
    return dotted_names.find_path(_by_name(struct), name, _read_fields)


def _by_name(struct: Mapping[str, Any]) -> dict[str, Json]:
    return {field["name"]: field for field in struct["fields"]}


def _read_fields(field: Json) -> dict[str, Json]:
    kind = field["type"]
    return _by_name(kind) if not isinstance(kind, str) and kind["type"] == "struct" else {}


def _iter_inner(kind: Any, prefix: str) -> Iterator[tuple[str, Json]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from iter_fields(kind, f"{prefix}.")
    for part in ("element", "key", "value"):
        if part in kind:
            yield f"{prefix}.{part}", {"id": kind[f"{part}-id"], "name": part, "type": kind[part]}
            yield from _iter_inner(kind[part], f"{prefix}.{part}")
