"""A topic that has grown -> batches that end at one moment in all of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import pytest

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.fold.grown_topics import PARTITIONS_BEFORE
from connector.sink.fold.watermarks import GROWN_PARTITION
from connector.sink.microbatch import aligned_ends, processor
from connector.sink.microbatch.aligned_ends import TopicGrowth, align_ends, find_grown_topics
from connector.sink.model.micro_batch import MicroBatch
from tests.unit.local_sink import BEGINNING, local_sink

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
OLD, NEW, OTHER = ("t", 0), ("t", 1), ("other", 0)


@attrs.define
class Logs:
    """Partitions, by the times of their records; `asked` counts questions for times."""

    times: dict[TopicPartition, list[int]]
    asked: int = 0

    def fetch_log_ends(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: len(self.times[one]) for one in at}

    def fetch_offsets_from_time(self, at: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        self.asked += 1
        found = {one: [offset for offset, ms in enumerate(self.times[one]) if ms >= ts_ms][:1] for one in at}
        return {one: first[0] for one, first in found.items() if first}


def end_of(logs: Logs, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return dict(align_ends(MicroBatch(0, start, end), {"t"}, logs, 5).end)


@pytest.mark.parametrize("age_ms", [0, 5, 4_000, 90_000_000_000])
def test_a_partition_waits_for_what_another_has_from_before(age_ms: int) -> None:
    """The batch leaves two records of the old partition for later: of the new one it takes what is older than those."""
    at_ms = NOW_MS - age_ms - 10
    logs = Logs({OLD: [at_ms + ms for ms in (0, 1, 2, 6)], NEW: [at_ms + ms for ms in (1, 3, 5)], OTHER: [at_ms + 9]})
    end = end_of(logs, {OLD: 1}, {OLD: 2, NEW: 3, OTHER: 0})
    assert end == {OLD: 2, NEW: 1, OTHER: 0}
    assert logs.asked < 100


def test_what_is_all_there_is_needs_no_times() -> None:
    """Where a batch takes the whole topic, the ends stay, and nobody is asked for times."""
    logs = Logs({OLD: [1, 2], NEW: [1]})
    assert end_of(logs, {}, {OLD: 2, NEW: 1}) == {OLD: 2, NEW: 1}
    assert not logs.asked


def test_what_an_open_transaction_hides_is_waited_for() -> None:
    """Another source's open transaction hides what this one wrote to the old partition before it wrote to the new one:
    a batch that has all that can be read ends before that too.
    """
    logs = Logs({OLD: [10, 20, 30], NEW: [15, 25]})
    assert end_of(logs, {}, {OLD: 1, NEW: 2}) == {OLD: 1, NEW: 1}


def test_a_partition_that_was_read_further_waits() -> None:
    """What was read before the topic grew may be of different moments: the partition that is ahead stays there."""
    logs = Logs({OLD: [10, 20, 30, 40], NEW: [15, 35, 45]})
    assert end_of(logs, {OLD: 0, NEW: 2}, {OLD: 2, NEW: 3}) == {OLD: 2, NEW: 2}


def test_records_of_one_moment_stay_together() -> None:
    """A batch that would end among records of one millisecond ends before them, in every partition."""
    logs = Logs({OLD: [10, 20, 20, 20], NEW: [20, 30]})
    assert end_of(logs, {}, {OLD: 2, NEW: 2}) == {OLD: 1, NEW: 0}


def test_more_records_of_one_moment_than_a_batch_may_have_are_not_held_back() -> None:
    """Tools that copy topics may give all records one time: a batch would else never end before all of them."""
    logs = Logs({OLD: [20] * 9, NEW: [20] * 9})
    assert end_of(logs, {OLD: 1}, {OLD: 3, NEW: 2}) == {OLD: 1, NEW: 0}
    assert end_of(logs, {OLD: 1}, {OLD: 4, NEW: 2}) == {OLD: 4, NEW: 2}


def test_others_wait_for_more_of_one_moment_than_a_batch_may_have() -> None:
    """What is let through is what has them: of another partition later records go on waiting."""
    logs = Logs({OLD: [20] * 9, NEW: [30] * 9})
    assert end_of(logs, {}, {OLD: 4, NEW: 9}) == {OLD: 0, NEW: 0}
    assert end_of(logs, {}, {OLD: 5, NEW: 9}) == {OLD: 5, NEW: 0}


def test_more_than_a_batch_may_have_waits_for_what_spark_has_yet_to_give() -> None:
    """The new partition is far ahead of the old one, of which the batch has nothing more: it waits all the same."""
    logs = Logs({OLD: [10, 20, 30, 40], NEW: [50 + ms for ms in range(20)]})
    assert end_of(logs, {OLD: 2, NEW: 0}, {OLD: 2, NEW: 19}) == {OLD: 2, NEW: 0}
    assert end_of(logs, {OLD: 2, NEW: 0}, {OLD: 3, NEW: 19}) == {OLD: 3, NEW: 0}
    assert end_of(logs, {OLD: 3, NEW: 0}, {OLD: 4, NEW: 20}) == {OLD: 4, NEW: 20}


def test_records_without_times_are_taken_as_they_come() -> None:
    """What has no time is never found by it, and stands in nobody's way."""
    logs = Logs({OLD: [-1, -1], NEW: [-1]})
    assert end_of(logs, {}, {OLD: 1, NEW: 1}) == {OLD: 1, NEW: 1}
    logs.times[NEW] = [10, 20]
    assert end_of(logs, {}, {OLD: 1, NEW: 1}) == {OLD: 1, NEW: 1}


@pytest.mark.parametrize(("age_ms", "most"), [(HOUR_MS, 24), (24 * HOUR_MS, 24)])
def test_the_end_is_found_with_few_questions(age_ms: int, most: int) -> None:
    """Each asks the cluster: a batch that lacks a few of its events is not looked for a later end."""
    times = [NOW_MS - age_ms + at * age_ms // 10_000 for at in range(10_000)]
    logs = Logs({OLD: times, NEW: times})
    end = end_of(logs, {OLD: 4_000, NEW: 4_000}, {OLD: 4_600, NEW: 5_000})
    assert end[OLD] == end[NEW]
    assert 4_560 <= end[OLD] <= 4_600
    assert logs.asked <= most


@pytest.mark.parametrize("read", [0, 3])
def test_a_partition_with_a_record_from_the_future_does_not_wait_for_that_time(read: int) -> None:
    """By its time all that is behind it would be of the future. Others are read on, so that no batch is without events;
    they go by the times that can be.
    """
    at_ms, third = NOW_MS - 1_000, ("t", 2)
    logs = Logs({OLD: [at_ms, NOW_MS + 9 * HOUR_MS, *[at_ms] * 6], NEW: [at_ms, at_ms + 9], third: [at_ms + 5] * 2})
    end = end_of(logs, {OLD: read}, {OLD: 5, NEW: 1, third: 1})
    assert end == {OLD: 5, NEW: 1, third: 0}
    assert end_of(logs, {OLD: read}, {OLD: 5, NEW: 2, third: 2}) == {OLD: 5, NEW: 2, third: 2}


def test_a_topic_has_grown_until_all_is_read_from_before() -> None:
    """A topic counts whose partitions are more than the table has seen, and then until it is known of each source how
    far it had come when its keys moved.
    """
    plan = Mock(ranks=dict.fromkeys([OLD, NEW, OTHER], 0))
    plan.has_grown.side_effect = lambda topic, table: table.partitions.get(topic, 2) < 2
    plan.tables = (Mock(watermarks={}, partitions={"t": 1}),)
    assert find_grown_topics(plan) == {"t"}
    mark, grown = Watermark(5), ("t", GROWN_PARTITION)
    before = {PARTITIONS_BEFORE: Watermark(1)}
    for limits, topics in (
        (before, {"t"}),
        ({**before, "one": mark}, {"t"}),
        ({**before, "one": mark, PARTITIONS_BEFORE + "two": Watermark()}, {"t"}),
        ({**before, "one": mark, "two": mark}, set[str]()),
    ):
        plan.tables = (Mock(watermarks={OLD: {"one": mark, "two": mark}, grown: limits}, partitions={}),)
        assert find_grown_topics(plan) == topics
    read = {"one @0/mysql-bin": Watermark(version=9)}
    for limits, topics in (
        (before, {"t"}),
        ({**before, PARTITIONS_BEFORE + "one @7/mysql-bin": Watermark()}, {"t"}),
        ({**before, "one @7/mysql-bin": mark}, set[str]()),
    ):
        plan.tables = (Mock(watermarks={OLD: {**read, "one @7/mysql-bin": mark}, grown: limits}, partitions={}),)
        assert find_grown_topics(plan) == topics, "MySQL's snapshots name a log that has no changes"


def test_topics_are_looked_at_until_they_settle() -> None:
    """No job is planned once more for topics that have not grown, until there are other partitions."""
    growth, planned = TopicGrowth(100), list[int]()
    grown = {"t": 1, "other": 2}

    def plan(batch: MicroBatch) -> Any:
        planned.append(batch.id)
        tables = (Mock(watermarks={}, partitions=grown),)
        told = Mock(ranks=batch.end, tables=tables)
        told.has_grown.side_effect = lambda topic, table: (topic, table.partitions[topic]) in batch.end
        return told

    logs = Logs({OLD: [1, 2], NEW: [1], OTHER: [1, 2]})
    for number, end in enumerate(
        ({OLD: 1}, {OLD: 1}, {OLD: 1, NEW: 0}, {OLD: 1, NEW: 0}, {OLD: 0, NEW: 0, OTHER: 1}, {OTHER: 1})
    ):
        growth.align(MicroBatch(number, {}, end), plan, logs)
        if number == 3:
            grown["t"] = 2
    assert planned == [0, 2, 3, 4, 5]


def test_a_table_that_is_met_later_may_be_behind() -> None:
    """Where events name their tables a process knows none at first: once it does, its topics are looked at again."""
    growth, batch = TopicGrowth(100), MicroBatch(0, {}, {OLD: 1, NEW: 1})
    logs = Logs({OLD: [10, 20], NEW: [30]})

    def plan(*tables: Mock) -> Any:
        told = Mock(ranks=batch.end, tables=tables)
        told.has_grown.side_effect = lambda topic, table: (topic, table.partitions[topic]) in batch.end
        return told

    table = Mock(watermarks={}, partitions={"t": 1})
    assert growth.align(batch, lambda _: plan(), logs) == batch
    assert growth.align(batch, lambda _: plan(table), logs, ["a table"]).end == {OLD: 1, NEW: 0}


def test_ends_of_logs_are_those_behind_open_transactions(tmp_path: Path) -> None:
    """Another source's open transaction hides records of a topic-partition that keys have moved away from, which are to
    be read before it is known how far their own source had come.
    """
    sink = local_sink(tmp_path, ["topics=t"])
    sink.process((OLD, b'{"id":1}', b'{"id":1,"__op":"c","__source_ts_ns":5,"__deleted":"false"}'))
    batches: Any = sink.batches
    tables = batches._targets._known
    waiting = {("t", GROWN_PARTITION): {PARTITIONS_BEFORE: Watermark(1), PARTITIONS_BEFORE + "one": Watermark()}}
    tables["t"] = attrs.evolve(tables["t"], watermarks=waiting)
    batches._cluster.fetch_end_offsets.side_effect = lambda at: dict.fromkeys(at, 3)
    batches._cluster.fetch_log_ends.side_effect = lambda at: dict.fromkeys(at, 7)
    plan, _ = sink.batches.plan(MicroBatch(1, {OLD: 1}, {OLD: 2, NEW: 1}))
    assert plan.log_ends == {OLD: 7}


def test_what_is_cut_off_comes_once_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of which nothing is left yet runs no job, and the stream knows that something waits."""
    monkeypatch.setattr(aligned_ends, "find_grown_topics", lambda _: {"t"})
    monkeypatch.setattr(processor, "LOOK_AGAIN_S", 0.0)
    sink = local_sink(tmp_path, ["topics=t"])
    batches: Any = sink.batches
    batches._cluster, ran = Logs({OLD: [10, 12], NEW: [15]}), []

    def attempt(batch: MicroBatch, _: object) -> tuple[BatchReport, dict[str, Any]]:
        ran.append(batch.end)
        return BatchReport(batch.id, 0.0, batch.end), {}

    monkeypatch.setattr(batches, "_attempt", attempt)
    monkeypatch.setattr(batches, "plan", lambda _: (None, []))
    monkeypatch.setattr(batches, "_end_position", lambda _: BEGINNING)
    report = sink.batches.process(MicroBatch(0, {OLD: 1}, {OLD: 1, NEW: 1}))
    assert (report.end, ran, sink.batches.overdue) == ({OLD: 1, NEW: 0}, [], True)
    report = sink.batches.process(MicroBatch(0, {OLD: 1}, {OLD: 2, NEW: 1}))
    assert (report.end, len(ran), sink.batches.overdue) == ({OLD: 2, NEW: 1}, 1, False)
