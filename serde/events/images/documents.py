"""MongoDB's envelopes, whose images are JSON texts -> texts of plain JSON per event, and what is known of each.

Source: Debezium's MongoDB page, "Data change events" (capture modes, updateDescription).
"""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from attrs import frozen

from serde.arrays import column_at
from serde.events.images.document_patches import apply_patch, format_patch
from serde.events.images.extended_json import format_id, is_date, read_plain
from serde.events.kinds.event_kind import is_envelope

ID_COLUMN = "_id"
_IMAGES = ("before", "after")


@frozen(eq=False)
class DocumentImage:
    """One event: the text of its document in plain JSON with `_id` as text, or a patch; None without either.

    dates: names of the members that are dates; fault: why it cannot be read.
    """

    text: str | None
    patch: bool = False
    dates: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    fault: str | None = None


def holds_documents(kind: pa.StructType) -> bool:
    """True for envelopes whose images are texts, or that tell of an update what it changed."""
    if not is_envelope(kind):
        return False
    types = {field.name: field.type for field in kind}
    images = [types[name] for name in _IMAGES if name in types and not pa.types.is_null(types[name])]
    if any(pa.types.is_string(one) for one in images):
        return True
    told = types.get("updateDescription")
    return not images and (told is not None or "collection" in {field.name for field in types["source"]})


def read_documents(fields: pa.StructArray) -> list[DocumentImage]:
    """The image that each event has: after, for deletes before, for updates without both what they changed.

    Cost: Python per event; documents are JSON inside of JSON.
    """
    empty: list[Any] = [None] * len(fields)
    op, after, before = (_texts(fields, name) or empty for name in ("op", "after", "before"))
    updated = _texts(fields, "updateDescription.updatedFields") or empty
    removed, truncated = (_lists(fields, f"updateDescription.{name}") for name in ("removedFields", "truncatedArrays"))
    events = zip(op, after, before, updated, removed or empty, truncated or empty, strict=True)
    return [_read_event(*event) for event in events]


def _texts(fields: pa.StructArray, path: str) -> list[Any] | None:
    column = column_at(fields, path)
    return column.to_pylist() if column is not None and pa.types.is_string(column.type) else None


def _lists(fields: pa.StructArray, path: str) -> list[Any] | None:
    column = column_at(fields, path)
    return column.to_pylist() if column is not None and pa.types.is_list(column.type) else None


def _read_event(
    op: str | None, after: str | None, before: str | None, updated: str | None, removed: Any, truncated: Any
) -> DocumentImage:
    try:
        if op == "d":
            return DocumentImage(None) if before is None else _read_document(before)
        if after is not None:
            return _read_document(after)
        if op != "u" or (updated is None and not removed and not truncated):
            return DocumentImage(None)
        told = orjson.loads(updated or "{}")
        patch = format_patch(read_plain(told), removed or (), truncated or ())
        if before is None:
            dates, others = _find_dates({name: value for name, value in told.items() if "." not in name})
            return DocumentImage(patch, patch=True, dates=dates, others=others)
        found = _read_document(before)
        return DocumentImage(apply_patch(found.text or "{}", patch), dates=found.dates, others=found.others)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return DocumentImage(None, fault="the document is no JSON object")


def _read_document(text: str) -> DocumentImage:
    document = orjson.loads(text)
    if not isinstance(document, dict):
        return DocumentImage(None, fault="the document is no JSON object")
    dates, others = _find_dates(document)
    plain = {name: read_plain(value) for name, value in document.items()} if '"$' in text else document
    if ID_COLUMN in document:
        plain[ID_COLUMN] = format_id(document[ID_COLUMN])
    return DocumentImage(orjson.dumps(plain).decode(), dates=dates, others=others)


def _find_dates(document: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The members that are dates, and those that are something else."""
    dates = frozenset(name for name, value in document.items() if is_date(value))
    return dates, frozenset(name for name, value in document.items() if value is not None and name not in dates)


def find_ids(images: list[DocumentImage]) -> pa.Array:
    """The `_id` of each document, null where it is not told."""
    texts = [None if one.text is None or one.patch else orjson.loads(one.text).get(ID_COLUMN) for one in images]
    return pa.array([text if isinstance(text, str) else None for text in texts], pa.string())


def find_date_columns(images: list[DocumentImage]) -> frozenset[str]:
    """The members that are dates in each document that has them."""
    dates = frozenset[str]().union(*(one.dates for one in images))
    return dates - frozenset[str]().union(*(one.others for one in images))
