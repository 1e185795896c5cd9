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

from connector.iceberg.read.frame_columns import quote

HIGH, LOW = "digest_high", "digest_low"
BROADCAST_ROWS = 2_000_000
"""Up to this many digests (16 bytes each) are sent to every task; more are joined by a shuffle."""
_SALTS = (17, 1_000_003)


def with_digest(rows: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Add the digest of the table's columns."""
    wanted = frozenset(columns)
    fields = [field for field in rows.schema.fields if field.name in wanted]
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
    high, low = map(F.expr, write_digests(fields))
    return high.alias(HIGH), low.alias(LOW)


def write_digests(fields: Sequence[StructField], of: str = "") -> tuple[str, str]:
    """Return both halves as SQL, as deep as the columns' types, however many columns there are.

    `of` stands before their names: that of a struct which has them, and a dot.

    As text they are one call of Java's. Put together there they were some twenty for each column, and what Spark does
    with a plan (copies of it, its text, its code) costs more for deep ones than for wide ones.
    """
    values = [(of + quote(field.name), field.dataType) for field in fields]
    high, low = (_hash_row(values, salt) for salt in _SALTS)
    return high, low


def _hash_row(values: Sequence[tuple[str, DataType]], salt: int, depth: int = 0) -> str:
    """Hash a row: first which of its values are null, as the hash skips those, then the values themselves."""
    nulls = (f"{value} IS NULL" for value, _ in values)
    parts = (part for value, kind in values for part in _hash_leaf(value, kind, salt, depth))
    return f"xxhash64({', '.join([str(salt), *nulls, *parts])})"


def _hash_leaf(value: str, kind: DataType, salt: int, depth: int) -> list[str]:
    """Return what goes into the row's hash for one value that may be null; `depth` counts the lambdas around it."""
    item = f"item{depth}"
    if isinstance(kind, FloatType | DoubleType):
        # Spark hashes 0.0 and -0.0 alike; the text of a zero tells them apart.
        return [value, f"{value} = 0 AND startswith(CAST({value} AS STRING), '-')"]
    if isinstance(kind, StructType):
        inner = _hash_row([(f"{value}.{quote(f.name)}", f.dataType) for f in kind.fields], salt, depth)
        return [f"CASE WHEN {value} IS NOT NULL THEN {inner} END"]
    if isinstance(kind, ArrayType):
        inner = _hash_row([(item, kind.elementType)], salt, depth + 1)
        return [f"size({value})", f"transform({value}, {item} -> {inner})"]
    if isinstance(kind, MapType):
        inner = _hash_row([(f"{item}.key", kind.keyType), (f"{item}.value", kind.valueType)], salt, depth + 1)
        return [f"size({value})", f"array_sort(transform(map_entries({value}), {item} -> {inner}))"]
    if isinstance(kind, VariantType):
        return [f"to_json({value})"]
    return [value]
