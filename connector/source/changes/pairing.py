"""Gone rows + new rows -> changes: equal ones dropped, pairs of one key updates, the rest deletes and creates.

Multiset-correct: of g gone and n new equal rows, |g - n| are left. Identifiers that are not unique lose nothing and
multiply nothing: within a key the first gone row pairs with the first new one, and so on; what is over is deleted or
created, deletes before updates, so that a key that still has a row ends with one.

Pairing by key comes first, so that a key has at most one event; only what it left over can be a change of key
(`pair_key_changes`). Both must be the only events of their keys: one task then sends all there is of either, and no
consumer sees them out of order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN
from connector.source.changes.rewrites.row_digests import HIGH, LOW

GONE, NEW = 0, 1
IS_ONLY_EVENT = "sole"
"""The column that says whether a change is the only one of its key, as far as order matters."""
_SIDE, _PLACE, _OTHERS, _TURN, _ROW = "side", "place", "others", "turn", "row"


def pair_rows(gone: DataFrame, new: DataFrame, key: Sequence[Column], row: Column, row_id: Column) -> DataFrame:
    """Compare what went with what came.

    Args:
        gone: rows live before and not after, with digests.
        new: rows live after and not before, with the same columns.
        key: the columns that identify a row; empty when nothing does.
        row: the struct of a row as it is handed on.
        row_id: the number of a row, or null.
    """
    names = [f"key{place}" for place in range(len(key))]
    named = [part.alias(name) for part, name in zip(key, names, strict=True)]
    shared = [*named, HIGH, LOW, FILE_COLUMN, POSITION_COLUMN, row.alias(_ROW), row_id.alias("row_id")]
    sides = gone.select(F.lit(GONE).alias(_SIDE), *shared).unionAll(new.select(F.lit(NEW).alias(_SIDE), *shared))
    together = sides.repartition(*(names or [HIGH, LOW]))
    unpaired = _drop_equal_rows(together, [*names, HIGH, LOW])
    return _pair_by_key(unpaired, names) if names else _to_deletes_and_creates(unpaired)


def pair_key_changes(changes: DataFrame, same: Sequence[Column]) -> DataFrame:
    """Join deletes and creates that agree in `same`, columns over `before`, `after` and `row_id` that may be null.

    Where several rows agree, which of them moved where is not known: they stay deletes and creates. Shuffles what was
    deleted or created, nothing else.
    """
    names = [f"same{place}" for place in range(len(same))]
    alone = F.col(IS_ONLY_EVENT) & F.col("op").isin("d", "c")
    for column in same:
        alone = alone & column.isNotNull()
    rest = changes.filter(~alone).drop(IS_ONLY_EVENT)
    known = changes.filter(alone).drop(IS_ONLY_EVENT).withColumns(dict(zip(names, same, strict=True)))
    together = Window.partitionBy(*names)
    deletes, creates = (F.sum(F.when(F.col("op") == op, 1).otherwise(0)).over(together) for op in ("d", "c"))
    arrived = F.first("after", ignorenulls=True).over(together)
    met = known.select("*", ((deletes == 1) & (creates == 1)).alias("met"), arrived.alias("arrived"))
    joined = met.filter(~F.col("met") | (F.col("op") == "d")).select(
        F.when(F.col("met"), "u").otherwise(F.col("op")).alias("op"),
        "before",
        F.when(F.col("met"), F.col("arrived")).otherwise(F.col("after")).alias("after"),
        "row_id",
    )
    return rest.unionByName(joined)


def rows_to_changes(rows: DataFrame, op: str, row: Column, row_id: Column) -> DataFrame:
    """Return rows that need no partner as changes of one kind: `r`, `c` or `d`."""
    value, nothing = row.alias("row"), F.lit(None)
    typed = rows.select(value, row_id.alias("row_id"))
    kind = typed.schema["row"].dataType
    none, some = nothing.cast(kind), F.col("row")
    before, after = (some, none) if op == "d" else (none, some)
    # All changes of a key that come this way are of one kind: their order does not matter.
    sole = F.lit(True).alias(IS_ONLY_EVENT)
    return typed.select(F.lit(op).alias("op"), before.alias("before"), after.alias("after"), F.col("row_id"), sole)


def _drop_equal_rows(sides: DataFrame, same: list[str]) -> DataFrame:
    """Take out as many equal rows on each side as the other has."""
    on_side = Window.partitionBy(*same, _SIDE).orderBy(FILE_COLUMN, POSITION_COLUMN)
    together = Window.partitionBy(*same)
    new = F.sum(F.col(_SIDE)).over(together)
    gone = F.count(F.lit(1)).over(together) - new
    numbered = sides.withColumn(_PLACE, F.row_number().over(on_side))
    return numbered.withColumn(_OTHERS, F.when(F.col(_SIDE) == GONE, new).otherwise(gone)).filter(
        F.col(_PLACE) > F.col(_OTHERS)
    )


def _pair_by_key(rows: DataFrame, key: list[str]) -> DataFrame:
    on_side = Window.partitionBy(*key, _SIDE).orderBy(FILE_COLUMN, POSITION_COLUMN)
    # Counted downwards: rows without a partner come first within their key.
    turns = rows.withColumn(_TURN, -F.row_number().over(on_side))
    pair = Window.partitionBy(*key, _TURN).orderBy(_SIDE)
    partner = F.lead(F.struct(_ROW)).over(pair)
    first = (F.row_number().over(pair) == 1).alias("first")
    sole = (F.min(_TURN).over(Window.partitionBy(*key)) == -1).alias(IS_ONLY_EVENT)
    met = turns.select(*key, _SIDE, _ROW, "row_id", partner.alias("partner"), first, sole).filter("first")
    update = F.col("partner").isNotNull()
    gone, nothing = F.col(_SIDE) == GONE, F.lit(None)
    return met.select(
        F.when(update, "u").when(gone, "d").otherwise("c").alias("op"),
        F.when(gone, F.col(_ROW)).otherwise(nothing).alias("before"),
        F.when(update, F.col("partner").getField(_ROW)).when(~gone, F.col(_ROW)).otherwise(nothing).alias("after"),
        F.col("row_id"),
        F.col(IS_ONLY_EVENT),
    )


def _to_deletes_and_creates(rows: DataFrame) -> DataFrame:
    gone, nothing = F.col(_SIDE) == GONE, F.lit(None)
    return rows.select(
        F.when(gone, "d").otherwise("c").alias("op"),
        F.when(gone, F.col(_ROW)).otherwise(nothing).alias("before"),
        F.when(gone, nothing).otherwise(F.col(_ROW)).alias("after"),
        F.col("row_id"),
        F.lit(False).alias(IS_ONLY_EVENT),
    )
