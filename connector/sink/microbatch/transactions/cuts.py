"""What records tell of transactions -> the first offset to leave out of each topic-partition, in Spark's joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.runtime.topic_partitions import TopicPartition


def is_from(offsets: Mapping[TopicPartition, int]) -> Column:
    """Tell what begins at these offsets or behind them."""
    return any_of([is_in_partition(place) & (F.col("first") >= offset) for place, offset in offsets.items()])


def is_in_partition(place: TopicPartition) -> Column:
    """Tell what a topic-partition has."""
    return (F.col("topic") == place[0]) & (F.col("partition") == place[1])


def any_of(conditions: Sequence[Column]) -> Column:
    """Tell what meets any of the conditions; nothing where there are none."""
    return reduce(lambda one, other: one | other, conditions, F.lit(False))


def find_waiting(counts: DataFrame, let_through: Sequence[str]) -> DataFrame:
    """Return the transactions that are not complete, but those that were let through, and since when they are known."""
    open_ids = _find_incomplete(counts)
    if let_through:
        open_ids = open_ids.where(~F.col("id").isin(list(let_through)))
    return counts.join(open_ids, "id").groupBy("id").agg(F.min("seen").alias("since"))


def find_cuts(
    counts: DataFrame, open_ids: DataFrame, ends: Mapping[TopicPartition, int], let_through: Sequence[str]
) -> dict[TopicPartition, int]:
    """Return the first offset to leave out, of the topic-partitions where there is one; `ends` are some of them."""
    if let_through:
        counts = counts.where(~F.col("id").isin(list(let_through)))
    cuts: dict[TopicPartition, int] = {}
    while True:
        first = counts.join(open_ids, "id").groupBy("topic", "partition").agg(F.min("first").alias("cut")).collect()
        earliest = dict(ends)
        for row in first:
            earliest[row.topic, row.partition] = min(row.cut, earliest.get((row.topic, row.partition), row.cut))
        if earliest == cuts:
            return cuts
        cuts = earliest
        behind = [is_in_partition(place) & (F.col("last") >= cut) for place, cut in cuts.items()]
        open_ids = counts.where(any_of(behind)).select("id").distinct()


def _find_incomplete(counts: DataFrame) -> DataFrame:
    """Return the ids of transactions whose end is not here, or that have fewer events here than their end says."""
    events, ends = counts.where(~F.col("ends")), counts.where(F.col("ends"))
    endless = events.select("id").distinct().join(ends.select("id").distinct(), "id", "left_anti")
    name = F.explode(F.array_distinct(F.array("collection", "with_db", "whole")))
    named = events.select("id", name.alias("said"), "count", "orders")
    here = named.groupBy("id", "said").agg(_count_events().alias("here"))
    there = ends.groupBy("id", "said").agg(F.max("count").alias("there"), F.max("whole").alias("read"))
    counted = there.join(here, ["id", "said"], "left")
    # A table that is not read here counts no events, and is not waited for.
    expected = F.col("here").isNotNull() | F.col("read").isNotNull()
    short = counted.where(expected & (F.coalesce("here", F.lit(0)) < F.col("there")))
    return endless.union(short.select("id")).distinct()


def _count_events() -> Column:
    """How many events of a transaction there are; one that came again counts once, where all tell their numbers."""
    all_tell = F.count("orders") == F.count(F.lit(1))
    return F.when(all_tell, F.size(F.array_distinct(F.flatten(F.collect_list("orders"))))).otherwise(F.sum("count"))


def find_repeated(counts: DataFrame) -> DataFrame:
    """Return the ids of transactions some of whose events, or whose end, came again."""
    events, ends = counts.where(~F.col("ends")).groupBy("id"), counts.where(F.col("ends")).groupBy("id")
    last, place = F.max("last").alias("last"), F.struct("topic", "partition", "first")
    of_events = events.agg(F.sum("count").alias("here"), _count_events().alias("once"), last)
    of_ends = ends.agg(F.count_distinct(place).alias("here"), F.lit(1).alias("once"), last)
    return of_events.unionByName(of_ends).where(F.col("here") > F.col("once")).groupBy("id").agg(last)


def find_last_complete(counts: DataFrame, cuts: Mapping[TopicPartition, int]) -> str:
    """Return the id of the newest end that is not cut off."""
    newest = (
        counts.where(F.col("ends") & ~is_from(cuts))
        .agg(F.max_by("id", F.struct("ts_ms", "first")).alias("id"))
        .collect()
    )
    return str(newest[0].id or "")
