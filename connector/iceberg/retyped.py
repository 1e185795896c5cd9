"""Iceberg's schema JSON -> the same with other types in places, and its fields at any depth (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
VARIANT = "variant"


def retyped(kind: Any, rule: Callable[[str], str]) -> Any:
    """Give a type, a struct or a schema with each primitive type replaced by what the rule says."""
    if isinstance(kind, str):
        return rule(kind)
    changed: Json = dict(kind)
    for part in ("element", "key", "value"):
        if part in kind:
            changed[part] = retyped(kind[part], rule)
    if "fields" in kind:
        changed["fields"] = [{**field, "type": retyped(field["type"], rule)} for field in kind["fields"]]
    return changed


def without_variants(kind: Any, stand_in: str) -> Any:
    """Give a schema with another type for variant, which PyIceberg does not know."""
    return retyped(kind, lambda name: stand_in if name == VARIANT else name)


def fields(struct: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Json]]:
    """Give every field with its dotted path, the items of lists and maps included."""
    for field in struct["fields"]:
        yield prefix + field["name"], field
        yield from _inner(field["type"], prefix + field["name"])


def _inner(kind: Any, prefix: str) -> Iterator[tuple[str, Json]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from fields(kind, f"{prefix}.")
    for part in ("element", "key", "value"):
        if part in kind:
            yield f"{prefix}.{part}", {"id": kind[f"{part}-id"], "name": part, "type": kind[part]}
            yield from _inner(kind[part], f"{prefix}.{part}")
