"""changes -> the same changes in one order, numbered from 1: what `provide.transaction.metadata` asks for.

Every event then carries its place in the snapshot (`transaction.total_order`), the same in every replay: the order is
that of the key, or of the whole row where there is no key. Costs a sort, and the snapshot's changes kept on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

_ROW = (1 << 33) - 1
"""What of `monotonically_increasing_id` counts the rows of a partition."""


@attrs.frozen(eq=False)
class NumberedChanges:
    """Changes with `total_order`, that of their first event, and how many events there are."""

    changes: DataFrame
    count: int


@contextmanager
def number_changes(
    changes: DataFrame, order: list[Column], together: list[Column], events: Column | None = None
) -> Iterator[NumberedChanges]:
    """Number changes by `order`; they are kept on disk until the end of the block.

    Args:
        changes: of one snapshot.
        order: what they are sorted by.
        together: with which `order` begins: changes that agree there are in one partition, so that one task brings
            them out, in their order.
        events: how many events a change gives, one if not given.
    """
    ordered = changes.repartitionByRange(*together).sortWithinPartitions(*order)
    if events is not None:
        ordered = ordered.withColumn("nth", F.explode(F.sequence(F.lit(1), events)))
    placed = ordered.withColumn("place", F.spark_partition_id())
    kept = placed.withColumn("row", F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW)))
    kept = kept.persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row["place"]: row["count"] for row in kept.groupBy("place").count().collect()}
        whole = _add_offsets(kept, counts).drop("place", "row")
        yield NumberedChanges(whole if events is None else whole.filter("nth = 1").drop("nth"), sum(counts.values()))
    finally:
        kept.unpersist()


def _add_offsets(kept: DataFrame, counts: dict[int, int]) -> DataFrame:
    """Add the number of rows in the partitions before each row's own."""
    before, starts = 0, []
    for place in sorted(counts):
        starts += [F.lit(place), F.lit(before)]
        before += counts[place]
    if not starts:
        return kept.withColumn("total_order", F.lit(0).cast("bigint"))
    start = F.element_at(F.create_map(*starts), F.col("place"))
    return kept.withColumn("total_order", (F.col("row") + start + 1).cast("bigint"))
