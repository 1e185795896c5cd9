"""column -> which values are Debezium's word for "not sent": TOASTed and LOB columns that an update did not change.

Source: Debezium's `unavailable.value.placeholder` and how its connectors write it per type: text and JSON as it is,
bytes as its bytes (base64 in JSON) or as a text of them (`binary.handling.mode`), arrays of one text or of its bytes as
numbers (dates: as days), arrays of one UUID that is made of it, hstore as one pair; in variants as texts of JSON.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import date, timedelta
from functools import lru_cache
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, longest_text, valid_mask, view_bytes
from serde.events.images.document_patches import PATCH_MARK, find_patches

PLACEHOLDER = "__debezium_unavailable_value"
_HEX_PREFIX = "hex:"
_EPOCH = date(1970, 1, 1)
_SHORTEST = min(len(PLACEHOLDER), len(PATCH_MARK))
"""Bytes of the shortest text that stands for a value that was not sent."""


@lru_cache(maxsize=64)
def _forms(word: str) -> tuple[str, ...]:
    """How a text column has the word: itself, its bytes as `binary.handling.mode` writes them, the only pair of a JSON
    object, and as JSON, which variants are, each array that stands for it.
    """
    codes = word.encode()
    coded = (base64.b64encode(codes).decode(), base64.urlsafe_b64encode(codes).decode(), codes.hex())
    numbers = _number_forms(word)
    days = [[str(_EPOCH + timedelta(days=day)) for day in form] for form in numbers]
    arrays = ([word], [coded[0]], [str(_uuid_form(word))], *numbers, *days)
    documents = (orjson.dumps(each).decode() for each in ({word: word}, *arrays))
    return tuple(dict.fromkeys((word, *coded, *documents)))


@lru_cache(maxsize=64)
def _uuid_form(word: str) -> UUID:
    """The UUID that stands for the word in an array of these: Java's `UUID.nameUUIDFromBytes`."""
    return UUID(bytes=hashlib.md5(word.encode(), usedforsecurity=False).digest(), version=3)


@lru_cache(maxsize=64)
def _number_forms(word: str) -> tuple[list[int], ...]:
    """The word in an array of numbers: its bytes, which have signs in Java."""
    codes = word.encode()
    return [code - 256 if code > 127 else code for code in codes], list(codes)  # noqa: PLR2004 - the greatest byte


def parse_placeholder(text: str) -> str:
    """The word that `unavailable.value.placeholder` means; hex: stands before its bytes. ValueError: it is no text."""
    return bytes.fromhex(text.removeprefix(_HEX_PREFIX)).decode() if text.startswith(_HEX_PREFIX) else text


def find_unavailable(column: pa.Array) -> Mask | None:
    """True where a value is the placeholder, or a patch of a document (`images.document_patches`), None when none is.

    Cost: a look at the lengths; where a text is long enough at the first bytes, and at all bytes of hits.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if not len(column) or longest_text(column) < _SHORTEST:
            return None
        found, patches = _match_texts(column, PLACEHOLDER), find_patches(column)
        return found if patches is None else patches if found is None else found | patches
    return _match_nested(column, PLACEHOLDER)


def use_known_placeholder(column: pa.Array, word: str) -> pa.Array:
    """The column with this source's word for "not sent" as Debezium's default, which the rest of the sink knows."""
    kind = column.type
    plain = pa.types.is_string(kind) or pa.types.is_binary(kind)
    found = _match_texts(column, word) if plain else _match_nested(column, word)
    if found is None:
        return column
    place = np.where(found, len(column), np.arange(len(column)))
    return pa.concat_arrays([column, _known_value(kind)]).take(pa.array(place))


def _known_value(kind: pa.DataType) -> pa.Array:
    """One value of a column that stands for the word."""
    if pa.types.is_list(kind):
        items = kind.value_type
        if isinstance(items, pa.UuidType):
            stored = pa.array([_uuid_form(PLACEHOLDER).bytes], items.storage_type)
            return pa.ListArray.from_arrays([0, 1], pa.ExtensionArray.from_storage(items, stored), type=kind)
        if pa.types.is_date(items):
            return pa.array([[_EPOCH + timedelta(days=code) for code in PLACEHOLDER.encode()]], kind)
        return pa.array([list(PLACEHOLDER.encode()) if pa.types.is_integer(items) else [PLACEHOLDER]], kind)
    if pa.types.is_map(kind):
        return pa.array([[(PLACEHOLDER, PLACEHOLDER)]], kind)
    return pa.array([PLACEHOLDER], pa.string()).cast(kind)


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
    likely = np.flatnonzero(np.logical_or.reduce([sizes == size for size in {len(form.encode()) for form in forms}]))
    if not len(likely):
        return None
    words = pa.array(forms).cast(column.type)
    hits = pc.is_in(column.take(pa.array(likely)), words).to_numpy(zero_copy_only=False)
    return _build_mask(len(column), likely[hits])


def _match_items(column: pa.ListArray, word: str) -> Mask | None:
    items = column.type.value_type
    if not (pa.types.is_integer(items) or pa.types.is_date(items)):
        return _match_single_items(column, column.values, word)
    numbers = _number_forms(word)
    forms = [[_EPOCH + timedelta(days=day) for day in form] for form in numbers] if pa.types.is_date(items) else numbers
    sizes = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    likely = np.flatnonzero(sizes == len(forms[0]))
    values = column.take(pa.array(likely)).to_pylist() if len(likely) else []
    return _build_mask(len(column), likely[[value in forms for value in values]] if len(likely) else likely)


def _match_single_items(column: pa.ListArray | pa.MapArray, values: pa.Array, word: str) -> Mask | None:
    """Lists of one item, or maps of one pair, whose item or key is the placeholder."""
    uuids = isinstance(values.type, pa.UuidType)
    if not len(column) or not (uuids or pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    offsets = column.offsets.to_numpy().astype(np.int64)
    single = np.flatnonzero((np.diff(offsets) == 1) & valid_mask(column))
    if not len(single):
        return None
    items = values.take(pa.array(offsets[single]))
    hits = None if uuids else _match_texts(items, word)
    if uuids or pa.types.is_string(values.type):
        form = _uuid_form(word)
        same = pc.equal(items.storage, form.bytes) if uuids else pc.equal(items, str(form))
        found = np.asarray(same.fill_null(False))
        hits = found if hits is None else hits | found
    return None if hits is None else _build_mask(len(column), single[hits])


def _build_mask(count: int, hits: Ints) -> Mask | None:
    if not len(hits):
        return None
    mask = np.zeros(count, np.bool_)
    mask[hits] = True
    return mask
