"""changes, paired by key -> the same with rows whose key changed: a delete and a create that are one row become `u`.

Pairing by key comes first, so that a key has at most one event; only what it left over can be a change of key. Both
must be the only events of their keys: one task then sends all there is of either, and no consumer sees them out of
order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from connector.source.changes.pairing import IS_ONLY_EVENT


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
