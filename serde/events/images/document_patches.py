"""updateDescription -> a patch, as a text that stands in for the document until one is known to apply it to.

MongoDB's change streams tell of an update what it set, removed and cut short (`capture.mode=change_streams`), not what
the document became. A patch is a text of JSON, so that it travels where the document would; patches join to one.
Source: MongoDB's manual, "Change events", update; Debezium's MongoDB page, "update events".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, valid_mask, view_bytes

PATCH_MARK = '{"__debezium_patch":['
PATCH_COLUMN = "__debezium_patch"
"""The member of a document of which only changes are known that has their text (`format_partial_document`)."""
_MEMBER = PATCH_COLUMN
_NULLS = "nulls"
"""The columns, by their whole names, that a row gives as null."""
_MAX_GAP = 1_000_000
"""No array is filled up by more than so many nulls."""


def format_patch(updated: dict[str, Any], removed: Sequence[str], truncated: Sequence[dict[str, Any]]) -> str:
    """The text of a patch: paths and their new values, paths that are gone, and arrays with their new sizes."""
    return orjson.dumps({_MEMBER: [{"cut": list(truncated), "set": updated, "unset": list(removed)}]}).decode()


def format_row_patches(
    names: Sequence[str], given: Mask, values: Sequence[pa.Array], partial: Mask, *, more: bool = False
) -> pa.Array | None:
    """The patch of each row that does not give all of its columns: it makes null what was given as null, and leaves
    what was not given as it is. None where no row has one.

    Args:
        names: of the columns.
        given: which of them each row gives, a column each.
        values: the columns.
        partial: the rows that may leave some out.
        more: whether there are columns that none of the rows gives.
    """
    partial = partial if more else partial & ~given.all(axis=1)
    if not partial.any():
        return None
    nulls = given & ~np.column_stack([valid_mask(value) for value in values])
    forms, which = np.unique(nulls[partial], axis=0, return_inverse=True)
    texts = [_format_nulls([name for name, null in zip(names, form, strict=True) if null]) for form in forms]
    places = np.full(len(partial), -1)
    places[partial] = which.reshape(-1)
    return pa.array(texts, pa.string()).take(pa.array(places, mask=places < 0))


def _format_nulls(names: Sequence[str]) -> str:
    return orjson.dumps({_MEMBER: [{"cut": [], "set": {}, "unset": [], _NULLS: list(names)}]}).decode()


def find_null_columns(patch: str) -> frozenset[str] | None:
    """The columns that a patch of a row makes null; None where it is one of a document.

    What such a patch sets stands in its row, so that it takes the rows of those before it too.
    """
    steps = orjson.loads(patch)[_MEMBER]
    if any(_NULLS not in step for step in steps):
        return None
    return frozenset(name for step in steps for name in step[_NULLS])


def find_patches(column: pa.Array) -> Mask | None:
    """True where a text is a patch, None when none is. Cost: a look at the first bytes."""
    if not (pa.types.is_string(column.type) and len(column)):
        return None
    _, starts, ends = view_bytes(column)
    if not np.any(ends - starts >= len(PATCH_MARK)):
        return None
    found = pc.starts_with(column, PATCH_MARK).fill_null(False)
    return np.asarray(found) if pc.any(found).as_py() else None


class PatchedDocument:
    """A document, or no more than a patch of one, that patches change in turn; read once, whatever comes."""

    def __init__(self, text: str) -> None:
        """Read the text of either."""
        self._content: Any = orjson.loads(text)
        self._is_patch = text.startswith(PATCH_MARK)

    def apply(self, patch: str) -> None:
        """Do what a patch says; two patches are one that does both."""
        if self._is_patch:
            self._content[_MEMBER] += orjson.loads(patch)[_MEMBER]
        else:
            change_document(self._content, patch)

    @property
    def text(self) -> str:
        """What it has become."""
        return orjson.dumps(self._content).decode()


def apply_patch(base: str, patch: str) -> str:
    """The document that a patch makes of a text: of a document the new one, of a patch both as one."""
    document = PatchedDocument(base)
    document.apply(patch)
    return document.text


def format_partial_document(patch: str, expected: pa.StructType | None) -> str:
    """The text of a document with no more than a patch sets, so that types are found as in whole ones; and the patch.

    expected: the types of members that are known: where one is a list a number is a place in it.
    """
    document: dict[str, Any] = {}
    types = {} if expected is None else {field.name: field.type for field in expected}
    for step in orjson.loads(patch)[_MEMBER]:
        for path, value in step["set"].items():
            first, *rest = path.split(".")
            made = _nest(rest, value, types.get(first))
            document[first] = _merge(document.get(first), made)
    return orjson.dumps({**document, _MEMBER: patch}).decode()


def _nest(path: list[str], value: Any, kind: pa.DataType | None) -> Any:
    """A value within objects, and lists of one item, under a path."""
    if not path:
        return value
    first, *rest = path
    inner: pa.DataType | None = None
    if kind is None or pa.types.is_null(kind):
        listed = first.isdigit()
    elif listed := first.isdigit() and pa.types.is_list(kind):
        inner = kind.value_type
    elif pa.types.is_struct(kind) and kind.get_field_index(first) >= 0:
        inner = kind.field(first).type
    made = _nest(rest, value, inner)
    return [made] if listed else {first: made}


def _merge(one: Any, other: Any) -> Any:
    """What both say of a value's type."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{name: _merge(one.get(name), value) for name, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    return other


def join_patches(patches: Sequence[str]) -> str:
    """One patch that does what these do in turn; at least one."""
    return orjson.dumps({_MEMBER: [step for patch in patches for step in orjson.loads(patch)[_MEMBER]]}).decode()


def find_members(patch: str) -> frozenset[str]:
    """The members of a document that a patch changes."""
    steps = orjson.loads(patch)[_MEMBER]
    paths = (path for step in steps for path in (*step["set"], *step["unset"], *(str(c["field"]) for c in step["cut"])))
    nulls = (name for step in steps for name in step.get(_NULLS, ()))
    return frozenset([*(path.partition(".")[0] for path in paths), *nulls])


def rename_members(patch: str, names: Mapping[str, str]) -> str:
    """The patch with members of the document under other names."""

    def rename(path: str) -> str:
        first, dot, rest = path.partition(".")
        return f"{names.get(first, first)}{dot}{rest}"

    steps = [
        {
            "cut": [{**each, "field": rename(str(each["field"]))} for each in step["cut"]],
            "set": {rename(path): value for path, value in step["set"].items()},
            "unset": [rename(path) for path in step["unset"]],
            **({_NULLS: [names.get(name, name) for name in step[_NULLS]]} if _NULLS in step else {}),
        }
        for step in orjson.loads(patch)[_MEMBER]
    ]
    return orjson.dumps({_MEMBER: steps}).decode()


def change_document(document: dict[str, Any], patch: str) -> None:
    """Do what a patch says to a document."""
    for step in orjson.loads(patch)[_MEMBER]:
        for each in step["cut"]:
            _truncate_array(document, str(each["field"]).split("."), int(each["size"]))
        for path, value in step["set"].items():
            _set(document, path.split("."), value)
        for path in step["unset"]:
            _unset(document, path.split("."))
        for name in step.get(_NULLS, ()):
            document.pop(name, None)


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
