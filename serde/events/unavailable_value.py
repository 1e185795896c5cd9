"""column -> which values are Debezium's word for "not sent": TOASTed columns that an update did not change.

Source: Debezium's `unavailable.value.placeholder` and how its PostgreSQL connector writes it per type: text and JSON as
it is, bytes as its bytes (base64 in JSON), arrays of one text or of its character codes, hstore as one pair.
"""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask, view_bytes
from serde.events.document_patches import find_patches

PLACEHOLDER = "__debezium_unavailable_value"
_HEX_PREFIX = "hex:"


@lru_cache(maxsize=64)
def _forms(word: str) -> tuple[str, ...]:
    """How a text column has the word: itself, as base64, as the only pair of a JSON object."""
    return word, base64.b64encode(word.encode()).decode(), f'{{"{word}":"{word}"}}'


def parse_placeholder(text: str) -> str:
    """The word that `unavailable.value.placeholder` means; hex: stands before its bytes. ValueError: it is no text."""
    return bytes.fromhex(text.removeprefix(_HEX_PREFIX)).decode() if text.startswith(_HEX_PREFIX) else text


def find_unavailable(column: pa.Array) -> Mask | None:
    """True where a value is the placeholder, or a patch of a document (`events.document_patches`), None when none is.

    Cost: a look at the lengths and first bytes, all bytes only of hits.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found, patches = _match_texts(column, PLACEHOLDER), find_patches(column)
        return found if patches is None else patches if found is None else found | patches
    return _match_nested(column, PLACEHOLDER)


def use_known_placeholder(column: pa.Array, word: str) -> pa.Array:
    """The column with this source's word for "not sent" as Debezium's default, which the rest of the sink knows."""
    kind = column.type
    plain = pa.types.is_string(kind) or pa.types.is_binary(kind)
    found = _match_texts(column, word) if plain else _match_nested(column, word)
    return column if found is None else pc.if_else(pa.array(found), _known_value(kind), column)


def _known_value(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_list(kind):
        codes = [ord(letter) for letter in PLACEHOLDER]
        return pa.scalar(codes if pa.types.is_integer(kind.value_type) else [PLACEHOLDER], kind)
    if pa.types.is_map(kind):
        return pa.scalar([(PLACEHOLDER, PLACEHOLDER)], kind)
    return pa.scalar(PLACEHOLDER, pa.string()).cast(kind)


def _match_nested(column: pa.Array, word: str) -> Mask | None:
    kind = column.type
    if pa.types.is_list(kind):
        return _match_items(column, word)
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _match_single_items(column, column.keys, word)
    return None


def _match_texts(column: pa.Array, word: str) -> Mask | None:
    if not len(column):
        return None
    _, starts, ends = view_bytes(column)
    sizes, forms = ends - starts, _forms(word)
    first, second, third = (len(form.encode()) for form in forms)
    likely = np.flatnonzero((sizes == first) | (sizes == second) | (sizes == third))
    if not len(likely):
        return None
    words = pa.array(forms).cast(column.type)
    hits = pc.is_in(column.take(pa.array(likely)), words).to_numpy(zero_copy_only=False)
    return _build_mask(len(column), likely[hits])


def _match_items(column: pa.ListArray, word: str) -> Mask | None:
    if pa.types.is_integer(column.type.value_type):
        codes = list(word.encode())
        likely = np.flatnonzero(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False) == len(codes))
        values = column.take(pa.array(likely)).to_pylist() if len(likely) else []
        return _build_mask(len(column), likely[[value == codes for value in values]] if len(likely) else likely)
    return _match_single_items(column, column.values, word)


def _match_single_items(column: pa.ListArray | pa.MapArray, values: pa.Array, word: str) -> Mask | None:
    """Lists of one item, or maps of one pair, whose item or key is the placeholder."""
    if not len(column) or not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    offsets = column.offsets.to_numpy().astype(np.int64)
    single = np.flatnonzero((np.diff(offsets) == 1) & valid_mask(column))
    inner = _match_texts(values.take(pa.array(offsets[single])), word) if len(single) else None
    return None if inner is None else _build_mask(len(column), single[inner])


def _build_mask(count: int, hits: Ints) -> Mask | None:
    if not len(hits):
        return None
    mask = np.zeros(count, np.bool_)
    mask[hits] = True
    return mask
