"""column -> which values are Debezium's word for "not sent": TOASTed columns that an update did not change.

Source: Debezium's `unavailable.value.placeholder` and how its PostgreSQL connector writes it per type: text and JSON as
it is, bytes as its bytes (base64 in JSON), arrays of one text or of its character codes, hstore as one pair.
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask, view_bytes
from serde.events.document_patches import find_patches

PLACEHOLDER = "__debezium_unavailable_value"
_PAIR_PLACEHOLDER = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'
_PLACEHOLDERS = (PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode(), _PAIR_PLACEHOLDER)
_PLACEHOLDER_SIZES = tuple(len(text) for text in _PLACEHOLDERS)


def find_unavailable(column: pa.Array) -> Mask | None:
    """True where a value is the placeholder, or a patch of a document (`events.document_patches`), None when none is.

    Cost: a look at the lengths and first bytes, all bytes only of hits.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found, patches = _match_texts(column), find_patches(column)
        return found if patches is None else patches if found is None else found | patches
    if pa.types.is_list(kind):
        return _match_items(column)
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _match_single_items(column, column.keys)
    return None


def _match_texts(column: pa.Array) -> Mask | None:
    if not len(column):
        return None
    _, starts, ends = view_bytes(column)
    sizes = ends - starts
    likely = np.flatnonzero(
        (sizes == _PLACEHOLDER_SIZES[0]) | (sizes == _PLACEHOLDER_SIZES[1]) | (sizes == _PLACEHOLDER_SIZES[2])
    )
    if not len(likely):
        return None
    words = pa.array(_PLACEHOLDERS).cast(column.type)
    hits = pc.is_in(column.take(pa.array(likely)), words).to_numpy(zero_copy_only=False)
    return _build_mask(len(column), likely[hits])


def _match_items(column: pa.ListArray) -> Mask | None:
    if pa.types.is_integer(column.type.value_type):
        codes = [ord(letter) for letter in PLACEHOLDER]
        likely = np.flatnonzero(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False) == len(codes))
        values = column.take(pa.array(likely)).to_pylist() if len(likely) else []
        return _build_mask(len(column), likely[[value == codes for value in values]] if len(likely) else likely)
    return _match_single_items(column, column.values)


def _match_single_items(column: pa.ListArray | pa.MapArray, values: pa.Array) -> Mask | None:
    """Lists of one item, or maps of one pair, whose item or key is the placeholder."""
    if not len(column) or not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    offsets = column.offsets.to_numpy().astype(np.int64)
    single = np.flatnonzero((np.diff(offsets) == 1) & valid_mask(column))
    inner = find_unavailable(values.take(pa.array(offsets[single]))) if len(single) else None
    return None if inner is None else _build_mask(len(column), single[inner])


def _build_mask(count: int, hits: Ints) -> Mask | None:
    if not len(hits):
        return None
    mask = np.zeros(count, np.bool_)
    mask[hits] = True
    return mask
