"""bytes of messages without schema -> the same, with JSON text in place of each value that becomes a variant.

A variant takes every value as it is. Columns do not: read as one, the numbers of `[5, "x"]` are texts, `5` beside `0.5`
is `5.0`, and `[5, []]` has no type. So these values are not read at all. Python parses each message of a table that has
variants: about 10 microseconds for a small one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa

from connector.sink.model.plan import BatchPlan, TablePlan
from serde.events.kinds.cloudevents import holds_images, is_cloud_document, is_framed
from serde.events.kinds.sourceless import is_sourceless_document
from serde.faults import Unfit
from serde.json.row_reader import MAX_TEXT_DEPTH, parse_message
from serde.messages import DecodedMessages

_OBJECT = b"{"
_ENVELOPE = frozenset({"op", "source"})
_IMAGES = ("before", "after")
_SCALARS: Mapping[type, str] = {bool: "flag", str: "text", int: "number", float: "number", Decimal: "number"}


@attrs.frozen
class VariantColumns:
    """The variants of a run's tables, the columns that are none, and whether nested values of others become some."""

    known: frozenset[str]
    others: frozenset[str]
    fresh: bool
    any_case: bool = False

    @staticmethod
    def of(plan: BatchPlan, table: TablePlan | None, *, every: bool = False) -> VariantColumns:
        """Return those of a table; without one, of all that events may name: a name that is both is no variant.

        every: it is one, for messages that cannot be read otherwise.
        """
        tables = (table,) if table is not None else plan.tables if plan.routing is not None else ()
        variants = {name for each in tables for name in each.layout.variants}
        others = {name for each in tables for name in each.layout.columns.names if name not in each.layout.variants}
        variants, others = (variants, others - variants) if every else (variants - others, others)
        return VariantColumns(
            frozenset(variants), frozenset(others), plan.variants and plan.evolve, plan.case_insensitive
        )

    def __bool__(self) -> bool:
        return bool(self.known) or self.fresh

    def knows(self, name: str) -> bool:
        """Tell whether a column of a table is a variant; where case does not count, if none has just this name."""
        if name in self.known or not self.any_case or name in self.others:
            return name in self.known
        return any(known.lower() == name.lower() for known in self.known)

    def takes(self, name: str, value: object) -> bool:
        """Tell whether a value of a column is to be a document; texts stay, a variant takes them as they are."""
        if value is None or isinstance(value, str):
            return False
        return self.knows(name) or (self.fresh and name not in self.others and _is_nested(value))


def _is_nested(value: object) -> bool:
    """Tell of objects, and of lists that have objects, lists, or values of several kinds."""
    if not isinstance(value, list):
        return isinstance(value, dict)
    return len({_SCALARS.get(type(each), "nested") for each in value if each is not None} - {"nested"}) > 1 or any(
        isinstance(each, dict | list) for each in value
    )


def encode_documents(values: pa.BinaryArray, columns: VariantColumns) -> tuple[pa.BinaryArray, frozenset[str]]:
    """Return the messages, and the names of new columns that have documents; what cannot be parsed stays as it is.

    Cost: Python for each message.
    """
    fresh = set[str]()
    encoded = [_encode(message, columns, fresh) for message in values.to_pylist()]
    return pa.array(encoded, values.type), frozenset(fresh)


def mark_documents(values: DecodedMessages, fresh: frozenset[str]) -> DecodedMessages:
    """Say of new columns that their texts are JSON, wherever a row may be in the message."""
    if not fresh:
        return values
    frames = ("", "data.", "data.payload.")
    images = [f"{around}{image}." for around in frames for image in _IMAGES]
    paths = frozenset(f"{prefix}{name}" for prefix in (*frames, *images) for name in fresh)
    blocks = [
        block if block.schema_id else attrs.evolve(block, documents=block.documents | paths) for block in values.blocks
    ]
    return attrs.evolve(values, blocks=tuple(blocks))


def _encode(message: bytes | None, columns: VariantColumns, fresh: set[str]) -> bytes | None:
    if message is None or message.lstrip()[:1] != _OBJECT:
        return message
    try:
        document = parse_message(message, exact=True, max_depth=MAX_TEXT_DEPTH)
    except Unfit:
        return message
    changed = False
    for row in _find_rows(document):
        for name, value in row.items():
            if columns.takes(name, value):
                row[name], changed = dump_exactly(value), True
                if not columns.knows(name):
                    fresh.add(name)
    return dump_exactly(document).encode() if changed else message


def _find_rows(document: object) -> Iterator[dict[str, Any]]:
    """Return the row of a flattened event, or the images of an envelope."""
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"] if document["schema"] is None else None
    if not isinstance(document, dict):
        return
    if not _is_cloud_event(document):
        is_enveloped = document.keys() >= _ENVELOPE and isinstance(document["source"], dict)
        around = document if is_enveloped or is_sourceless_document(document) else None
    elif is_framed(around := document["data"]):
        around = around["payload"] if around.get("schema") is None else {}
    if isinstance(around, dict) and (around is document or not around.keys().isdisjoint(_IMAGES)):
        yield from (around[image] for image in _IMAGES if isinstance(around.get(image), dict))
    else:
        yield document if around is None else around


def _is_cloud_event(document: Mapping[str, Any]) -> bool:
    data = document.get("data")
    if not isinstance(data, dict) or not is_cloud_document(document):
        return False
    if is_framed(data) and isinstance(data["payload"], dict):
        data = data["payload"]
    return holds_images(document, data)


def dump_exactly(value: object) -> str:
    """Return a value as JSON, numbers with the digits that they have."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{dump_exactly(name)}:{dump_exactly(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump_exactly, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
