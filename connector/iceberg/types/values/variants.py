"""JSON text <-> variant, a column at a time: variant columns are text on their way, and variants in files only.

A variant is two binary values, metadata and value (Parquet's "Variant Binary Encoding"). PySpark's own encoder makes
them, a document at a time: about 25 microseconds for a small one, each distinct one once.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from math import isfinite
from typing import Any, NoReturn

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkValueError
from pyspark.sql.variant_utils import VariantBuilder, VariantUtils

from connector.errors import FatalError
from serde.json.scalars import holds_exactly

VARIANT_STORAGE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
MAX_VARIANT_BYTES = 16 * 1024**2
"""Documents beyond this are no variants: Spark reads none that are larger."""

_MAX_ENCODED_BYTES = 1 << 30
_FLOAT_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_MAX_DECIMAL_DIGITS, _CONTEXT_DIGITS = 38, 100
_UNFIT_NUMBER = re.compile(r"NaN|Infinity|[0-9]{39}|[eE]\+?[0-9]{3}")
"""What a number that is none, or that a variant has no room for, looks like."""


def to_json_text(column: pa.Array, *, keep_nulls: bool) -> pa.Array:
    """Return a column of events as JSON texts; text stays as it is.

    Args:
        column: of any type.
        keep_nulls: whether a member that is null is written. Events without schema do not tell such a member from one
            that is missing.
    """
    if pa.types.is_string(column.type):
        return column
    plain = _json_converter(column.type, keep_nulls=keep_nulls)
    texts = [None if value is None else orjson.dumps(plain(value)).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def encode_variants(texts: pa.ChunkedArray) -> pa.StructArray:
    """Return JSON texts as variants (type `VARIANT_STORAGE`); text that is no JSON is the variant of that text.

    So is a document with a number that a variant has no room for: beyond doubles, or whole and of more than 38 digits.
    """
    distinct = pc.dictionary_encode(texts).combine_chunks()
    encoded = [_encode_text(text) for text in distinct.dictionary.to_pylist()]
    columns = [pa.array([pair[side] for pair in encoded], pa.binary()) for side in (1, 0)]
    expanded = [column.take(distinct.indices).fill_null(b"") for column in columns]
    return pa.StructArray.from_arrays(expanded, fields=list(VARIANT_STORAGE), mask=distinct.is_null())


def decode_variants(column: pa.StructArray) -> pa.Array:
    """Return variants as JSON texts.

    Raises:
        FatalError: they are shredded.
    """
    if {field.name for field in column.type} != {"metadata", "value"}:
        raise FatalError("a variant column is shredded, which cannot be read here; rewrite its files unshredded")
    pairs = zip(column.field("value").to_pylist(), column.field("metadata").to_pylist(), strict=True)
    valid = np.asarray(column.is_valid())
    # Decimals of a variant have up to 38 digits, Python's usual context rounds to 28.
    with localcontext(prec=_CONTEXT_DIGITS):
        texts = [VariantUtils.to_json(*pair) if there else None for pair, there in zip(pairs, valid, strict=True)]
    return pa.array(texts, pa.string())


def _encode_text(text: str) -> tuple[bytes, bytes]:
    try:
        if _UNFIT_NUMBER.search(text):
            json.loads(text, parse_constant=_reject_constant, parse_int=_check_integer, parse_float=_check_float)
        return VariantBuilder(_MAX_ENCODED_BYTES).build(text)
    except (PySparkValueError, ValueError, RecursionError):
        return VariantBuilder(_MAX_ENCODED_BYTES).build(orjson.dumps(text).decode())


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _check_integer(text: str) -> None:
    if len(text.lstrip("-")) > _MAX_DECIMAL_DIGITS and not holds_exactly(int(text), 64):
        raise ValueError("a whole number of more digits than a decimal has")


def _check_float(text: str) -> None:
    if not isfinite(float(text)):
        raise ValueError("a number beyond doubles")


@cache
def _json_converter(kind: pa.DataType, *, keep_nulls: bool) -> Callable[[Any], Any]:
    """Return what turns a Python value of an Arrow type into one that orjson writes."""
    types = pa.types
    if types.is_struct(kind):
        parts = {field.name: _json_converter(field.type, keep_nulls=keep_nulls) for field in kind}
        return lambda value: {
            name: None if value[name] is None else part(value[name])
            for name, part in parts.items()
            if keep_nulls or value[name] is not None
        }
    if types.is_map(kind):
        part = _json_converter(kind.item_type, keep_nulls=keep_nulls)
        return lambda value: {str(name): None if item is None else part(item) for name, item in value}
    if types.is_list(kind) or types.is_large_list(kind):
        part = _json_converter(kind.value_type, keep_nulls=keep_nulls)
        return lambda value: [None if item is None else part(item) for item in value]
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else value
    if types.is_floating(kind):
        return lambda value: value if isfinite(value) else _FLOAT_WORDS[str(value)]
    return _format_decimal if types.is_decimal(kind) else lambda value: value


def _format_decimal(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(format(value, "f"))
