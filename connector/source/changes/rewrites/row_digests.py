"""Rows of rewritten files -> digests of them -> the rows that may have changed.

A rewritten file is mostly rows that stayed. Their digests alone are shuffled and counted, removed against added; only
rows whose counts differ are read in full. What is left may still hold equal pairs: `pairing` takes those out exactly.

A digest is 128 bits, equal exactly when every column is, for any type.
Spark's hashes skip nulls, flatten nested values and refuse maps; here a null, the length of a list and the place of a
nested field all count, a map is the set of its entries (their order in a file means nothing), a variant is its JSON.
Two halves with different salts: 2^-128 for two different rows of one key to be taken for equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType, VariantType

HIGH, LOW = "digest_high", "digest_low"
BROADCAST_ROWS = 2_000_000
"""Up to this many digests (16 bytes each) are sent to every task; more are joined by a shuffle."""
_SALTS = (17, 1_000_003)
_NULL_BITS = 60


def with_digest(rows: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Add the digest of the table's columns."""
    fields = [field for field in rows.schema.fields if field.name in columns]
    return rows.select("*", *digest_row(fields))


def remove_carryovers(gone: DataFrame, new: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows whose digest is not as often in `gone` as in `new`; both have digests.

    Runs one job (the digests of both), so that the rows can then be picked by a bounded broadcast.
    """
    sides = gone.select(HIGH, LOW, F.lit(-1).alias("side")).unionAll(new.select(HIGH, LOW, F.lit(1).alias("side")))
    counted = sides.groupBy(HIGH, LOW).agg(F.sum("side").alias("net"))
    unequal = counted.filter(F.col("net") != 0).select(HIGH, LOW).localCheckpoint()
    return keep_wanted(gone, unequal, (HIGH, LOW)), keep_wanted(new, unequal, (HIGH, LOW))


def keep_wanted(rows: DataFrame, wanted: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Keep the rows that `wanted`, a checkpointed frame of their keys, names."""
    bounded = F.broadcast(wanted) if wanted.count() <= BROADCAST_ROWS else wanted
    return rows.join(bounded, list(by), "left_semi")


def digest_row(fields: Sequence[StructField]) -> tuple[Column, Column]:
    """Return both halves of the digest of a row's columns."""
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
    """Return what goes into the row's hash for one value that may be null."""
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
