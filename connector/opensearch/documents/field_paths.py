"""Names of columns and of fields within structs -> the paths that OpenSearch takes them for (pure).

Dots part a path: `a.b` is the field b of an object a, beside which there can be no field a.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def assign_inner_names(names: Sequence[str]) -> list[str]:
    """Return the fields of a struct's fields, in order: their own names, but for those that no field may have.

    Names stand one after the other: what a struct gets later changes none of those before.
    """
    fields = list[str]()
    for name in names:
        field = name if is_path(name) and is_apart(name, fields) else join_path(name)
        while not is_apart(field, fields):
            field = f"{field}_"
        fields.append(field)
    return fields


def is_path(name: str) -> bool:
    """Tell whether OpenSearch takes a name: no part of the path that its dots make is empty, or all spaces."""
    *parts, last = name.split(".")
    # An empty part at the end is none.
    return all(part.strip() for part in (*parts, last or parts[-1])) if parts else bool(name)


def is_apart(name: str, taken: Collection[str]) -> bool:
    """Tell whether a field is no other one, and no part of the path to another."""
    parts, others = name.removesuffix(".").split("."), {other.removesuffix(".") for other in taken}
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return not (above & others) and not any(other.startswith(f"{'.'.join(parts)}.") for other in others)


def join_path(name: str) -> str:
    """Return a name without dots, which is never empty."""
    return name.replace(".", "_") or "_"
