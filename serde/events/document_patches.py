"""updateDescription -> a patch, as a text that stands in for the document until one is known to apply it to.

MongoDB's change streams tell of an update what it set, removed and cut short (`capture.mode=change_streams`), not what
the document became. A patch is a text of JSON, so that it travels where the document would; patches join to one.
Source: MongoDB's manual, "Change events", update; Debezium's MongoDB page, "update events".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask

PATCH_MARK = '{"__debezium_patch":['
_MEMBER = "__debezium_patch"
_MAX_GAP = 1_000_000
"""No array is filled up by more than so many nulls."""


def format_patch(updated: dict[str, Any], removed: Sequence[str], truncated: Sequence[dict[str, Any]]) -> str:
    """The text of a patch: paths and their new values, paths that are gone, and arrays with their new sizes."""
    return orjson.dumps({_MEMBER: [{"cut": list(truncated), "set": updated, "unset": list(removed)}]}).decode()


def find_patches(column: pa.Array) -> Mask | None:
    """True where a text is a patch, None when none is. Cost: a look at the first bytes."""
    if not (pa.types.is_string(column.type) and len(column)):
        return None
    found = pc.starts_with(column, PATCH_MARK).fill_null(False)
    return np.asarray(found) if pc.any(found).as_py() else None


def apply_patch(base: str, patch: str) -> str:
    """The document that a patch makes of a text: of a document the new one, of a patch both as one."""
    steps = orjson.loads(patch)[_MEMBER]
    if base.startswith(PATCH_MARK):
        return orjson.dumps({_MEMBER: [*orjson.loads(base)[_MEMBER], *steps]}).decode()
    document = orjson.loads(base)
    for step in steps:
        for each in step["cut"]:
            _truncate_array(document, str(each["field"]).split("."), int(each["size"]))
        for path, value in step["set"].items():
            _set(document, path.split("."), value)
        for path in step["unset"]:
            _unset(document, path.split("."))
    return orjson.dumps(document).decode()


def apply_patches(base: pa.Array, patches: pa.Array) -> pa.Array:
    """`apply_patch` for each row, a patch without document as it is. Cost: Python per row; both are JSON texts."""
    pairs = zip(base.to_pylist(), patches.to_pylist(), strict=True)
    return pa.array([patch if text is None else apply_patch(text, patch) for text, patch in pairs], pa.string())


def _find_parent(document: Any, path: list[str], *, make: bool) -> Any:
    """What holds the last part of a path; None where it is not there and not to be made."""
    at = document
    for part in path[:-1]:
        below = _child(at, part)
        if not isinstance(below, dict | list):
            if not make or not isinstance(at, dict | list):
                return None
            below = {}
            _put(at, part, below)
        at = below
    return at


def _child(at: Any, part: str) -> Any:
    if isinstance(at, dict):
        return at.get(part)
    return at[int(part)] if part.isdigit() and int(part) < len(at) else None


def _put(at: Any, part: str, value: Any) -> None:
    if isinstance(at, dict):
        at[part] = value
    elif part.isdigit() and int(part) <= len(at) + _MAX_GAP:
        at.extend([None] * (int(part) + 1 - len(at)))
        at[int(part)] = value


def _set(document: Any, path: list[str], value: Any) -> None:
    at = _find_parent(document, path, make=True)
    if at is not None:
        _put(at, path[-1], value)


def _unset(document: Any, path: list[str]) -> None:
    at = _find_parent(document, path, make=False)
    if isinstance(at, dict):
        at.pop(path[-1], None)
    elif isinstance(at, list) and path[-1].isdigit() and int(path[-1]) < len(at):
        at[int(path[-1])] = None


def _truncate_array(document: Any, path: list[str], size: int) -> None:
    at = _find_parent(document, path, make=False)
    found = None if at is None else _child(at, path[-1])
    if isinstance(found, list):
        del found[size:]
