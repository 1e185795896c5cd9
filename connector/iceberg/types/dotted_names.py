"""A dotted name of a column or of a field within structs -> the names on the way to it (pure).

Names of columns may have dots themselves, so a field of the whole name comes first, at every level. This is the one
rule for every kind of schema; each kind says what the fields of a struct are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Path = tuple[str, ...]
"""The names of a field and of the structs around it, from the top on."""
Field = TypeVar("Field")


def find_path(
    fields: Mapping[str, Field], name: str, read_fields: Callable[[Field], Mapping[str, Field]]
) -> Path | None:
    """Return the path of the field that a name means; None where there is none.

    Args:
        fields: the columns by name.
        name: of a column, or of a field within structs with the names around it, joined by dots.
        read_fields: the fields within a field that is a struct, by name; none within every other field.
    """
    if name in fields:
        return (name,)
    for first, field in fields.items():
        if name.startswith(f"{first}."):
            rest = find_path(read_fields(field), name.removeprefix(f"{first}."), read_fields)
            if rest is not None:
                return (first, *rest)
    return None
