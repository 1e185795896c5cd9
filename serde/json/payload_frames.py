"""JSON messages -> the same without a frame that has a payload and no schema beside it.

TiCDC writes keys and values so with `debezium-disable-schema=true`: {"payload":{...}}; Kafka Connect's converters never
do. A row may have one column of that name: only what tells of a change, or of DDL, is taken out of it, and keys unless
their table has a struct of that name.
Source: PingCAP's page "TiCDC Debezium Protocol"; TiCDC's codec "debezium".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from serde.arrays import Mask
from serde.byte_windows import ByteWindows
from serde.faults import Stage, Unfit
from serde.json.row_reader import parse_message

_PAYLOAD = "payload"
_WORD = b'"payload"'
_FRAME = b'{"payload":'
_HEAD = _FRAME + b'{"source":{'
"""How TiCDC's values begin. Others are looked at one by one."""
_SCHEMAS = (b'"schema":{', b'"schema": {')
_SPACES = np.frombuffer(b" \t\r\n", np.uint8)
_SAMPLE = 16


def drop_payload_frames(
    texts: ByteWindows, nulls: Mask, stage: Stage, expected: pa.StructType | None = None
) -> ByteWindows:
    """Return the messages, those in such a frame without it; `expected` as in `wire_format.Deserializer.decode`."""
    framed = _mark_candidates(texts) & ~nulls
    if not framed.any() or _has_struct(expected):
        return texts
    sure = framed & texts.starts_with(_HEAD) & texts.ends_with(b"}}")
    if not all(_is_frame(texts.text(row), stage) for row in np.flatnonzero(sure)[:_SAMPLE].tolist()):
        sure[:] = False
    starts, ends = texts.starts.copy(), texts.ends.copy()
    starts[sure] += len(_FRAME)
    ends[sure] -= 1
    for row in np.flatnonzero(framed & ~sure).tolist():
        text = texts.text(row)
        if _is_frame(text, stage):
            starts[row] += text.index(b"{", text.index(_WORD))
            ends[row] -= len(text) - text.rindex(b"}", 0, text.rindex(b"}")) - 1
    return ByteWindows(texts.data, starts, ends)


def _mark_candidates(texts: ByteWindows) -> Mask:
    """Mark the objects that begin with the frame's member, perhaps behind spaces, and have no schema in sight."""
    marked = texts.starts_with(_FRAME + b"{") | texts.starts_with(_FRAME + b" {")
    spaced = texts.is_object()
    spaced[spaced] = np.isin(texts.view[texts.starts[spaced] + 1], _SPACES)
    if spaced.any():
        marked[spaced] = texts.pick(spaced).contains(_WORD)
    for word in _SCHEMAS if marked.any() else ():
        marked[marked] = ~texts.pick(marked).contains(word)
    return marked


def _has_struct(expected: pa.StructType | None) -> bool:
    place = -1 if expected is None else expected.get_field_index(_PAYLOAD)
    return expected is not None and place >= 0 and pa.types.is_struct(expected.field(place).type)


def _is_frame(text: bytes, stage: Stage) -> bool:
    try:
        document = parse_message(text)
    except Unfit:
        return False
    payload = document.get(_PAYLOAD) if isinstance(document, Mapping) and len(document) == 1 else None
    if not isinstance(payload, Mapping):
        return False
    if stage == "KEY_CONVERTER":
        return True
    told = isinstance(payload.get("op"), str) or "ddl" in payload
    return told and isinstance(payload.get("source"), Mapping)
