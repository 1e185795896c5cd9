"""Laws of documents: ids that never meet, texts that read back, requests within their limits."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.opensearch.bulk.bulk_processor import BulkActions, split_actions
from connector.opensearch.documents.document_ids import MAX_ID_BYTES, build_document_ids
from connector.opensearch.documents.json_values import to_json_texts

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("\\-e#a", max_size=6) | st.text("ä-", min_size=300)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_two_keys_never_share_an_id(keys: list[tuple[str, str]]) -> None:
    """Ids are as many as keys, whatever separators, escapes and lengths values have, never too long and never empty."""
    ids = build_document_ids([pa.array([a for a, _ in keys]), pa.array([b for _, b in keys])]).to_pylist()
    assert len(set(ids)) == len(set(keys))
    assert all(0 < len(i.encode()) <= MAX_ID_BYTES for i in ids)


@given(st.lists(TEXTS, min_size=1, max_size=30))
def test_single_keys_never_share_an_id(keys: list[str]) -> None:
    """A key of one column is its own id but for what has to be escaped, and no two of them meet."""
    ids = build_document_ids([pa.array(keys)]).to_pylist()
    assert len(set(ids)) == len(set(keys))
    assert all(0 < len(i.encode()) <= MAX_ID_BYTES for i in ids)


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(codec="utf-8")),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=40),
    pa.decimal128(20, 4): st.decimals("-1e10", "1e10", places=4),
    pa.list_(pa.string()): st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=4), max_size=4),
    pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.floats(0, 1), max_size=3)}
    ),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(0, 9)),
}


@given(st.data())
def test_every_value_reads_back_from_its_text(data: st.DataObject) -> None:
    """The JSON text of a value reads back as the value: numbers as such, decimals as their digits, bytes as base64."""
    kind = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=12))
    start = data.draw(st.integers(0, len(values)))
    array = pa.array([list(v.items()) if pa.types.is_map(kind) and v is not None else v for v in values], kind)
    texts = to_json_texts(array[start:]).to_pylist()
    assert [json.loads(text) for text in texts] == [_plain(value, kind) for value in values[start:]]


def _plain(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(pa.scalar(value, kind).as_py()) if isinstance(value, Decimal) else value


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 9), st.integers(1, 120))
def test_requests_hold_every_action_once_and_keep_their_limits(sizes: list[int], most: int, most_bytes: int) -> None:
    """Pieces are the actions in order, none lost, each within both limits or of one action, and count their deletes."""
    lines = ["x" * (size - 1) + "\n" for size in sizes]
    deletes = len(sizes) // 3
    found = list(
        split_actions(BulkActions(pa.array(lines, pa.string()), np.arange(len(sizes)), deletes), most, most_bytes)
    )
    assert b"".join(piece.body for piece in found).decode() == "".join(lines)
    assert [int(tag) for piece in found for tag in piece.tags] == list(range(len(sizes)))
    assert sum(piece.deletes for piece in found) == deletes
    assert all(len(p) <= most and (len(p.body) <= most_bytes or len(p) == 1) for p in found)
