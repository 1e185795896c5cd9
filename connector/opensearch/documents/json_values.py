"""Arrow columns -> the JSON text of each value, a column at a time. Runs on executors; no Python per row.

A value is written so that nothing of it is lost: a decimal as text with all its digits, bytes as base64, dates and
times as ISO 8601 (which OpenSearch's dynamic mapping knows), numbers that JSON has no form for as Java's words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.opensearch.documents.field_paths import assign_inner_names
from serde.arrays import children, view_bytes
from serde.connect.values.decimal_text import format_decimals

_NULL = pa.scalar("null")
_BASE64_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_SHORT_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_CONTROL_ESCAPES = tuple((chr(code), _SHORT_ESCAPES.get(code, f"\\u{code:04x}")) for code in range(32))
_FLOAT_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_OUT_OF_RANGE_TEXT = "<value out of range"
_SPACE = ord(" ")


def to_json_texts(array: pa.Array, *, named: bool = True) -> pa.StringArray:
    """Return the JSON text of every value; nulls are the word null.

    Args:
        array: the values.
        named: fields of structs have the names of an index's fields (`assign_inner_names`), else those of the type.
    """
    return pc.fill_null(_to_nullable_json(array, named=named), _NULL)


def to_plain_texts(array: pa.Array) -> pa.StringArray:
    """Return the text of every value of a type without parts, without quotes; nulls stay."""
    kind = array.type
    types = pa.types
    if isinstance(kind, pa.UuidType):
        return _uuids_to_text(array)
    if types.is_fixed_size_binary(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return encode_base64(array.cast(pa.binary()))
    if types.is_boolean(kind):
        return pc.if_else(array, "true", "false")
    if types.is_decimal(kind):
        return format_decimals(array)
    if types.is_timestamp(kind):
        return pc.replace_substring(_dates_to_text(array), " ", "T", max_replacements=1)
    return _dates_to_text(array) if types.is_date(kind) else array.cast(pa.string())


def escape_json(text: pa.StringArray) -> pa.StringArray:
    """Escape text for the inside of a JSON string (RFC 8259, section 7); not copied when there is nothing to do."""
    data, starts, ends = view_bytes(text)
    own = data[starts[0] : ends[-1]] if len(text) else data[:0]
    if not ((own < _SPACE) | (own == ord('"')) | (own == ord("\\"))).any():
        return text
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character, form in _CONTROL_ESCAPES:
            text = pc.replace_substring(text, character, form)
    return text


def encode_base64(data: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as base64 text (RFC 4648, section 4)."""
    flat, starts, ends = view_bytes(data)
    sizes = np.where(data.is_valid(), ends - starts, 0)
    triples = -(-sizes // 3)
    places = np.concatenate([[0], np.cumsum(triples)])
    padded = np.zeros(int(places[-1]) * 3, np.uint8)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    padded[np.repeat(places[:-1] * 3, sizes) + within] = flat[np.repeat(starts, sizes) + within]
    three = padded.reshape(-1, 3).astype(np.uint32)
    word = (three[:, 0] << 16) | (three[:, 1] << 8) | three[:, 2]
    digits = _BASE64_ALPHABET[(word[:, None] >> np.array([18, 12, 6, 0], np.uint32)) & 63].reshape(-1)
    last = places[1:] * 4
    digits[last[sizes % 3 == 1] - 2] = ord("=")
    digits[last[sizes % 3 > 0] - 1] = ord("=")
    return _build_strings(digits, places * 4, data)


def _to_nullable_json(array: pa.Array, *, named: bool) -> pa.StringArray:
    """The JSON text of every value; null where it is."""
    kind = array.type
    types = pa.types
    if types.is_nested(kind):
        return _nested_to_json(array, named=named)
    if types.is_floating(kind):
        return _floats_to_json(array)
    text = to_plain_texts(array)
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind):
        return text
    text = escape_json(text) if types.is_string(kind) or types.is_large_string(kind) else text
    return concat_texts('"', text, '"')


def _nested_to_json(array: pa.Array, *, named: bool) -> pa.StringArray:
    if pa.types.is_struct(array.type):
        return _structs_to_json(array, named=named)
    if pa.types.is_map(array.type):
        return _maps_to_json(array)
    return _join_items(array, to_json_texts(array.flatten(), named=named), "[", "]")


def _floats_to_json(array: pa.Array) -> pa.StringArray:
    """A whole number keeps a point, so that an index that guesses types does not take the field for one of longs."""
    text = array.cast(pa.string())
    whole = pc.match_substring_regex(text, r"^-?[0-9]+$")
    text = pc.if_else(whole, concat_texts(text, ".0"), text)
    odd = pc.is_in(text, pa.array(list(_FLOAT_WORDS)))
    if not pc.any(odd).as_py():
        return text
    for word, written in _FLOAT_WORDS.items():
        text = pc.if_else(pc.equal(text, word), written, text)
    return text


def _structs_to_json(array: pa.StructArray, *, named: bool) -> pa.StringArray:
    """Structs as objects, null fields included."""
    names = assign_inner_names(array.type.names) if named else array.type.names
    if not names:
        objects = pa.array(["{}"] * len(array), pa.string())
    else:
        objects = build_objects(names, [to_json_texts(child, named=named) for child in children(array)])
    return objects if not array.null_count else pc.if_else(array.is_valid(), objects, None)


def build_objects(names: Sequence[str], texts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Return one JSON object per row, of the JSON texts of its fields; at least one field."""
    pieces: list[pa.Array | str] = []
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        pieces += [f"{',' if place else '{'}{quote_json(name)}:", text]
    return concat_texts(*pieces, "}")


def concat_texts(*pieces: pa.Array | str) -> pa.StringArray:
    """Put texts side by side; null where one of them is."""
    scalars = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*scalars, "", null_handling="emit_null")


def quote_json(text: str) -> str:
    """Return a text as a JSON string."""
    return f'"{escape_json(pa.array([text]))[0].as_py()}"'


def _maps_to_json(array: pa.MapArray) -> pa.StringArray:
    """Maps as objects; keys are texts. What is in them is one flat object to an index, and no fields."""
    pairs = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    keys, values = children(pairs.flatten())
    key = escape_json(to_plain_texts(keys))
    return _join_items(pairs, concat_texts('"', key, '":', to_json_texts(values, named=False)), "{", "}")


def _join_items(array: pa.ListArray, items: pa.StringArray, begin: str, end: str) -> pa.StringArray:
    """Items of each list between commas and brackets; null for null lists."""
    sizes = pc.fill_null(pc.list_value_length(array), 0)
    bounds = np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(np.int32)
    inside = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), items), ",")
    lists = concat_texts(begin, inside, end)
    return lists if not array.null_count else pc.if_else(array.is_valid(), lists, None)


def _dates_to_text(array: pa.Array) -> pa.StringArray:
    """Dates and timestamps as ISO 8601; the number itself where a year has more digits than that knows."""
    utc = pa.types.is_timestamp(array.type) and array.type.tz == "UTC"
    # Arrow looks every value up in its time zone database, UTC too: thirty times the rest of the work.
    text = (array.cast(pa.timestamp(array.type.unit)) if utc else array).cast(pa.string())
    instants = concat_texts(text, "Z") if utc else text
    if not pc.any(pc.starts_with(text, _OUT_OF_RANGE_TEXT)).as_py():
        return instants
    number = array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).cast(pa.string())
    return pc.if_else(pc.starts_with(text, _OUT_OF_RANGE_TEXT), number, instants)


def _uuids_to_text(array: pa.Array) -> pa.StringArray:
    """Uuids as text, 8-4-4-4-12."""
    raw = array.storage
    data = np.frombuffer(raw.buffers()[1], np.uint8).reshape(-1, 16)[raw.offset : raw.offset + len(raw)]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    letters = np.full((len(raw), 36), ord("-"), np.uint8)
    places = [i for i in range(36) if i not in (8, 13, 18, 23)]
    letters[:, places[0::2]] = digits[data >> 4]
    letters[:, places[1::2]] = digits[data & 15]
    return _build_strings(letters.reshape(-1), np.arange(len(raw) + 1) * 36, raw)


def _build_strings(data: np.ndarray, bounds: np.ndarray, like: pa.Array) -> pa.StringArray:
    """Bytes and bounds as an array, null where another is."""
    strings = pa.Array.from_buffers(
        pa.string(), len(like), [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    )
    return strings if not like.null_count else pc.if_else(like.is_valid(), strings, None)
