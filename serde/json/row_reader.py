"""one message -> one wire row: the fallback for what the columnar reader cannot take; slow and exact."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import NoReturn

import orjson
import pyarrow as pa

from serde.connect.schema_node import MAX_DEPTH, Leaf, List, Map, Node, Struct
from serde.faults import Unfit

_PAIR = 2
FRAME_KEYS = {"schema", "payload"}
"""What Connect's JSON converter writes around a value."""
MAX_TEXT_DEPTH = 100
"""Of messages with a schema, which tells a level of values by two of its own, and of values that stay texts."""

_LONG_NUMBER = re.compile(rb"[0-9]{20}|-[0-9]{19}")
_FRACTION = re.compile(rb"[0-9][.eE]")


def parse_message(text: bytes, *, exact: bool = False, max_depth: int = MAX_DEPTH, framed: bool = True) -> object:
    """Parses one message; integers of any length stay integers, and with `exact` fractions become Decimal.
    Raises Unfit, also where a value without schema nests deeper than `max_depth`; `framed` tells that messages may hold
    their schema.
    """
    try:
        document: object = orjson.loads(text)
        if _LONG_NUMBER.search(text) or (exact and _FRACTION.search(text)):
            document = json.loads(text, parse_float=Decimal if exact else float, parse_constant=_reject_constant)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise Unfit(_describe_invalid(text)) from error
    if text.count(b"{") + text.count(b"[") > max_depth:
        # A frame without schema is no level of its value; one with a schema has two for each of it.
        max_depth = MAX_TEXT_DEPTH if framed and _has_schema(document) else max_depth
        if _nesting_depth(unwrap_payload(document)) > max_depth:
            raise Unfit(f"nested more than {max_depth} deep")
    return document


def unwrap_payload(document: object) -> object:
    """The payload of {"schema":null,"payload":..}, any other document as it is."""
    if isinstance(document, dict) and document.keys() == FRAME_KEYS and document["schema"] is None:
        return document["payload"]
    return document


def _has_schema(document: object) -> bool:
    return isinstance(document, dict) and document.keys() == FRAME_KEYS and isinstance(document["schema"], dict)


def _nesting_depth(document: object) -> int:
    """How deep objects and arrays nest; counts level by level, since recursion is what a deep document breaks."""
    level, depth = [document], 0
    while level:
        nested = [value for value in level if isinstance(value, dict | list)]
        depth += bool(nested)
        level = [child for value in nested for child in (value.values() if isinstance(value, dict) else value)]
    return depth


def _describe_invalid(text: bytes) -> str:
    if text[:1] == b"\0":
        return "not JSON: it starts as Avro of a schema registry does; the AvroConverter reads that"
    return "not JSON" if text.strip() else "empty message"


def _reject_constant(_word: str) -> NoReturn:
    raise ValueError


def read_value(node: Node, value: object) -> object:
    """One JSON value as the wire value of its node; raises Unfit with the path of the field."""
    if value is None:
        return None
    match node:
        case Leaf():
            return node.read(value)
        case Struct():
            return _read_struct(node, value)
        case List():
            return _read_list(node, value)
        case Map():
            return _read_map(node, value)


def _read_struct(node: Struct, value: object) -> object:
    if not isinstance(value, dict):
        raise Unfit("not an object (struct)")
    out: dict[str, object] = {}
    for field in node.fields:
        try:
            out[field.name] = read_value(field.node, value.get(field.name))
        except Unfit as unfit:
            raise unfit.under(field.name) from None
    return out


def _read_list(node: List, value: object) -> object:
    if not isinstance(value, list):
        raise Unfit("not an array (array)")
    return [read_value(node.item, item) for item in value]


def _read_map(node: Map, value: object) -> object:
    if node.text_key and isinstance(value, dict):
        pairs: Sequence[object] = [list(pair) for pair in value.items()]
    elif not node.text_key and isinstance(value, list):
        pairs = value
    else:
        raise Unfit("not an object or array of pairs (map)")
    out = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != _PAIR or pair[0] is None:
            raise Unfit("not a pair of key and value (map)")
        out.append((read_value(node.key, pair[0]), read_value(node.value, pair[1])))
    return out


def to_array(values: list[object], kind: pa.DataType) -> pa.StructArray:
    """Wire rows as a struct array."""
    return pa.array(values, kind)
