"""Columns of a row -> 128 bits that are equal exactly when every column is, for any type (pure expressions).

Spark's hashes skip nulls, flatten nested values and refuse maps; here a null, the length of a list and the place of a
nested field all count, a map is the set of its entries (their order in a file means nothing), a variant is its JSON.
Two halves with different salts: 2^-128 for two different rows of one key to be taken for equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType, VariantType

HIGH, LOW = "digest_high", "digest_low"
_SALTS = (17, 1_000_003)
_NULL_BITS = 60


def digest_row(fields: Sequence[StructField]) -> tuple[Column, Column]:
    """Give both halves of the digest of a row's columns."""
    high, low = (_hash_row([(F.col(f"`{f.name}`"), f.dataType) for f in fields], salt) for salt in _SALTS)
    return high.alias(HIGH), low.alias(LOW)


def _hash_row(values: Sequence[tuple[Column, DataType]], salt: int) -> Column:
    parts = [part for value, kind in values for part in _hash_leaf(value, kind, salt)]
    return F.xxhash64(F.lit(salt), *_pack_nulls([value for value, _ in values]), *parts)


def _pack_nulls(values: Sequence[Column]) -> list[Column]:
    """Pack which values are null into numbers, many columns to one."""
    packed = []
    for start in range(0, len(values), _NULL_BITS):
        bits = F.lit(0).cast("long")
        for place, value in enumerate(values[start : start + _NULL_BITS]):
            bits = bits + F.when(value.isNull(), F.lit(1 << place).cast("long")).otherwise(F.lit(0).cast("long"))
        packed.append(bits)
    return packed


def _hash_leaf(value: Column, kind: DataType, salt: int) -> list[Column]:
    """Give what goes into the row's hash for one value that may be null."""
    if isinstance(kind, FloatType | DoubleType):
        # Spark hashes 0.0 and -0.0 alike; the text of a zero tells them apart.
        return [value, (value == 0) & F.startswith(value.cast("string"), F.lit("-"))]
    if isinstance(kind, StructType):
        inner = _hash_row([(value.getField(f.name), f.dataType) for f in kind.fields], salt)
        return [F.when(value.isNotNull(), inner)]
    if isinstance(kind, ArrayType):
        return [F.size(value), F.transform(value, lambda item: _hash_row([(item, kind.elementType)], salt))]
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(value),
            lambda entry: _hash_row([(entry["key"], kind.keyType), (entry["value"], kind.valueType)], salt),
        )
        return [F.size(value), F.array_sort(entries)]
    if isinstance(kind, VariantType):
        return [F.to_json(value)]
    return [value]
