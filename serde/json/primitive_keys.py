"""JSON keys of one value -> JSON keys of one field (`connect.primitive_keys`); what follows knows structs only."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, place_others
from serde.byte_windows import ByteWindows, byte_windows, window_array
from serde.connect.primitive_keys import is_primitive, key_field_name, may_be_primitive, wrap_schema
from serde.faults import Unfit
from serde.json.row_reader import FRAME_KEYS, parse_message
from serde.json.schema_framing import block_prefix

_HEAD = b'{"schema":{"'
_SCHEMA = b'"schema"'
_MAX_SCHEMAS, _SAMPLE = 16, 8
_PRIMITIVE = r'^\s*(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|"(?:[^"\\]|\\.)*")\s*$'


def wrap_values(texts: ByteWindows, nulls: Mask, expected: pa.StructType | None) -> tuple[ByteWindows, Mask]:
    """JSON keys, with each single value in an object; keys that are objects stay as they are.

    Where no table says what a key is, single values count only among their like: a stray one is a fault of its own.
    Cost: a look at the first byte of each key, and at a few keys; only where one is a single value at all of them.
    """
    if not may_be_primitive(expected):
        return texts, nulls
    rows = np.flatnonzero(~nulls & ~texts.equals(b"null"))
    if not _hold_values(texts, rows):
        return texts, nulls
    name = key_field_name(expected)
    wrapped = _wrap_bare(texts, rows, name) | _wrap_blocks(texts, rows, name) | _wrap_loose(texts, rows, name)
    if not wrapped or (expected is None and sum(len(at) for at, _ in wrapped.values()) < len(rows)):
        return texts, nulls
    changed = np.concatenate([np.array(at, np.int64) for at, _ in wrapped.values()])
    whole = pa.concat_arrays([_to_binary_array(texts, nulls), *(array for _, array in wrapped.values())])
    return byte_windows(whole.take(place_others(len(texts), changed)))


def _hold_values(texts: ByteWindows, rows: Ints) -> bool:
    """Tell whether some keys may be single values."""
    if _is_bare(texts, rows).any():
        return True
    few = np.unique(np.linspace(0, max(len(rows) - 1, 0), min(_SAMPLE, len(rows))).astype(np.int64))
    if any(_looks_primitive(texts.text(int(row))) for row in rows[few]):
        return True
    todo = rows[texts.pick(rows).starts_with(_HEAD)]
    for _ in range(_MAX_SCHEMAS if len(few) < len(rows) else 0):
        if not len(todo):
            break
        prefix = block_prefix(texts.text(int(todo[0])))
        if prefix is not None and is_primitive(_parse_prefix(prefix)):
            return True
        todo = todo[1:] if prefix is None else todo[~texts.pick(todo).starts_with(prefix)]
    return False


def _is_bare(texts: ByteWindows, rows: Ints) -> Mask:
    """Mark the keys that are neither in braces nor in brackets, nor begin as Avro does."""
    return ~np.isin(texts.pick(rows).first(), np.frombuffer(b"{[\0", np.uint8))


def _looks_primitive(message: bytes) -> bool:
    if not message.startswith(_HEAD):
        return _wrap_loose_value(message, "") is not None
    prefix = block_prefix(message)
    return prefix is not None and is_primitive(_parse_prefix(prefix))


def _to_binary_array(texts: ByteWindows, nulls: Mask) -> pa.LargeBinaryArray:
    """All texts as an array, null where there is none."""
    return pc.if_else(pa.array(nulls), pa.scalar(None, pa.large_binary()), _window_values(texts))


_WrappedValues = dict[bytes, tuple[list[int], pa.LargeBinaryArray]]


def _wrap_bare(texts: ByteWindows, rows: Ints, name: str) -> _WrappedValues:
    """Values without schema."""
    own = rows[_is_bare(texts, rows)]
    if not len(own):
        return {}
    values = _window_values(texts.pick(own))
    single = _is_primitive_value(values)
    return {
        b"": (
            own[single].tolist(),
            _concat_texts(b"{" + orjson.dumps(name) + b":", values.filter(pa.array(single)), b"}"),
        )
    }


def _wrap_blocks(texts: ByteWindows, rows: Ints, name: str) -> _WrappedValues:
    """Values behind a schema block, one block after the other."""
    wrapped: _WrappedValues = {}
    todo = rows[texts.pick(rows).starts_with(_HEAD)]
    for _ in range(_MAX_SCHEMAS):
        if not len(todo):
            break
        prefix = block_prefix(texts.text(int(todo[0])))
        if prefix is None:
            todo = todo[1:]
            continue
        chosen = texts.pick(todo)
        same = chosen.starts_with(prefix)
        document = _parse_prefix(prefix)
        if is_primitive(document):
            front = (
                b'{"schema":' + orjson.dumps(wrap_schema(document, name)) + b',"payload":{' + orjson.dumps(name) + b":"
            )
            closed = same & (chosen.last() == ord("}"))
            payloads = _window_values(chosen.pick(closed).cut(len(prefix), 1))
            single = _is_primitive_value(payloads)
            wrapped[prefix] = (
                todo[closed][single].tolist(),
                _concat_texts(front, payloads.filter(pa.array(single)), b"}}"),
            )
        todo = todo[~same]
    return wrapped


def _wrap_loose(texts: ByteWindows, rows: Ints, name: str) -> _WrappedValues:
    """Values behind a schema block that is not written as Connect writes it: with spaces, or behind the payload.

    Cost: Python for each of them.
    """
    chosen = texts.pick(rows)
    others = rows[(chosen.first() == ord("{")) & ~chosen.starts_with(_HEAD)]
    others = others[texts.pick(others).contains(_SCHEMA)] if len(others) else others
    values = {int(row): value for row in others if (value := _wrap_loose_value(texts.text(int(row)), name)) is not None}
    return {_SCHEMA: (list(values), pa.array(list(values.values()), pa.large_binary()))} if values else {}


def _wrap_loose_value(message: bytes, name: str) -> bytes | None:
    """The message with its single value in an object; None for any other message."""
    if _SCHEMA not in message:
        return None
    try:
        document = parse_message(message)
    except Unfit:
        return None
    if not isinstance(document, dict) or document.keys() != FRAME_KEYS:
        return None
    schema, value = document["schema"], document["payload"]
    if not is_primitive(schema) or not isinstance(value, str | int | float):
        return None
    return orjson.dumps({"schema": wrap_schema(schema, name), "payload": {name: value}})


def _parse_prefix(prefix: bytes) -> Any:
    try:
        return parse_message(prefix[len(b'{"schema":') : -len(b',"payload":')])
    except Unfit:
        return None


def _window_values(texts: ByteWindows) -> pa.LargeBinaryArray:
    return window_array(texts.data, texts.starts, texts.ends).cast(pa.large_binary())


def _is_primitive_value(values: pa.LargeBinaryArray) -> Mask:
    """True for one whole number, text or flag: whatever else a message holds must not become a field of its own."""
    single: Mask = pc.match_substring_regex(values, _PRIMITIVE).to_numpy(zero_copy_only=False)
    return single


def _concat_texts(front: bytes, values: pa.LargeBinaryArray, behind: bytes) -> pa.LargeBinaryArray:
    parts = [pa.scalar(part, pa.large_binary()) for part in (front, behind, b"")]
    return pc.binary_join_element_wise(parts[0], values, parts[1], parts[2])
