"""keys that are one value -> keys of one field, so that all that follows knows structs only.

Connect's LongConverter, ExtractField and the like make record keys that are a bare number or text. The field has the
name of the table's identifier column, where it has one, else `key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask
from serde.faults import Unfit
from serde.json.json_lines import Texts, texts_of, windows
from serde.json.row_reader import load
from serde.json.schema_framing import block_prefix

_HEAD = b'{"schema":{"'
_NESTED = frozenset({"struct", "array", "map"})
_KINDS, _SAMPLE = 16, 8
_SINGLE = r'^\s*(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|"(?:[^"\\]|\\.)*")\s*$'


def field_name(expected: pa.StructType | None) -> str:
    """The name of the only field of such a key; `expected` are the identifier columns of the table."""
    return expected.field(0).name if expected is not None and expected.num_fields == 1 else "key"


def may_be(expected: pa.StructType | None) -> bool:
    """True where a key may be one value: the table has one identifier column, or there is no table yet."""
    return expected is None or expected.num_fields == 1


def alone(document: object) -> bool:
    """True for the schema of one value."""
    return isinstance(document, Mapping) and document.get("type") not in _NESTED


def framed(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema of a struct with such a value as its only field."""
    return {"type": "struct", "fields": [{**document, "field": name}], "optional": False}


def wrapped(texts: Texts, nulls: Mask, expected: pa.StructType | None) -> tuple[Texts, Mask]:
    """JSON keys, with each single value in an object; keys that are objects stay as they are.

    Where no table says what a key is, single values count only among their like: a stray one is a fault of its own.
    Cost: a look at a few keys; only where one of them is a single value at all of them.
    """
    rows = np.flatnonzero(~nulls)
    few = np.unique(np.linspace(0, max(len(rows) - 1, 0), min(_SAMPLE, len(rows))).astype(np.int64))
    if not may_be(expected) or not any(_looks_single(texts.text(int(row))) for row in rows[few]):
        return texts, nulls
    rows = np.flatnonzero(~nulls & ~texts.equals(b"null"))
    name = field_name(expected)
    made = _bare(texts, rows, name) | _blocks(texts, rows, name)
    if not made or (expected is None and sum(len(at) for at, _ in made.values()) < len(rows)):
        return texts, nulls
    changed = np.concatenate([np.array(at, np.int64) for at, _ in made.values()])
    whole = pa.concat_arrays([_whole(texts, nulls), *(array for _, array in made.values())])
    place = np.arange(len(texts))
    place[changed] = len(texts) + np.arange(len(changed))
    return texts_of(whole.take(pa.array(place)))


def _looks_single(message: bytes) -> bool:
    if not message.startswith(b"{"):
        return not message.startswith((b"[", b"\0")) and message != b"null"
    prefix = block_prefix(message) if message.startswith(_HEAD) else None
    return prefix is not None and alone(_schema(prefix))


def _whole(texts: Texts, nulls: Mask) -> pa.LargeBinaryArray:
    """All texts as an array, null where there is none."""
    return pc.if_else(pa.array(nulls), pa.scalar(None, pa.large_binary()), _array(texts))


_Made = dict[bytes, tuple[list[int], pa.LargeBinaryArray]]


def _bare(texts: Texts, rows: Ints, name: str) -> _Made:
    """Values without schema: not in braces, not in brackets."""
    first = texts.pick(rows).first()
    own = rows[~np.isin(first, np.frombuffer(b"{[\0", np.uint8))]
    if not len(own):
        return {}
    values = _array(texts.pick(own))
    single = _is_single(values)
    return {
        b"": (own[single].tolist(), _joined(b"{" + orjson.dumps(name) + b":", values.filter(pa.array(single)), b"}"))
    }


def _blocks(texts: Texts, rows: Ints, name: str) -> _Made:
    """Values behind a schema block, one block after the other."""
    made: _Made = {}
    todo = rows[texts.pick(rows).starts_with(_HEAD)]
    for _ in range(_KINDS):
        if not len(todo):
            break
        prefix = block_prefix(texts.text(int(todo[0])))
        if prefix is None:
            todo = todo[1:]
            continue
        chosen = texts.pick(todo)
        same = chosen.starts_with(prefix)
        document = _schema(prefix)
        if alone(document):
            front = b'{"schema":' + orjson.dumps(framed(document, name)) + b',"payload":{' + orjson.dumps(name) + b":"
            closed = same & (chosen.last() == ord("}"))
            payloads = _array(chosen.pick(closed).cut(len(prefix), 1))
            single = _is_single(payloads)
            made[prefix] = (todo[closed][single].tolist(), _joined(front, payloads.filter(pa.array(single)), b"}}"))
        todo = todo[~same]
    return made


def _schema(prefix: bytes) -> Any:
    try:
        return load(prefix[len(b'{"schema":') : -len(b',"payload":')])
    except Unfit:
        return None


def _array(texts: Texts) -> pa.LargeBinaryArray:
    return windows(texts.data, texts.starts, texts.ends).cast(pa.large_binary())


def _is_single(values: pa.LargeBinaryArray) -> Mask:
    """True for one whole number, text or flag: whatever else a message holds must not become a field of its own."""
    single: Mask = pc.match_substring_regex(values, _SINGLE).to_numpy(zero_copy_only=False)
    return single


def _joined(front: bytes, values: pa.LargeBinaryArray, behind: bytes) -> pa.LargeBinaryArray:
    parts = [pa.scalar(part, pa.large_binary()) for part in (front, behind, b"")]
    return pc.binary_join_element_wise(parts[0], values, parts[1], parts[2])
