"""Rows of rewritten files -> those of them that may have changed.

A rewritten file is mostly rows that stayed. Their digests alone are shuffled and counted, gone against new; only rows
whose counts differ are read in full. What is left may still hold equal pairs: `pairing` takes those out exactly.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.source.changes.rewrites.row_digests import HIGH, LOW, digest_row

BROADCAST_ROWS = 2_000_000
"""Up to this many digests (16 bytes each) are sent to every task; more are joined by a shuffle."""


def with_digest(rows: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Add the digest of the table's columns."""
    fields = [field for field in rows.schema.fields if field.name in columns]
    return rows.select("*", *digest_row(fields))


def remove_carryovers(gone: DataFrame, new: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Give the rows whose digest is not as often in `gone` as in `new`; both have digests.

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
