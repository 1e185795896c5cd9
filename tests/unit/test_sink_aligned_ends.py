"""A topic that has grown -> batches that end at one moment in all of its partitions."""

from __future__ import annotations

import time
from bisect import bisect_left
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
OLD, NEW, OTHER = ("t", 0), ("t", 1), ("other", 0)


@attrs.define
class Logs:
    """Partitions, by the times of their records; `asked` counts questions for times."""

    times: dict[TopicPartition, list[int]]
    asked: int = 0

    def fetch_end_offsets(self, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: len(self.times[one]) for one in at}

    def fetch_offsets_from_time(self, at: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        self.asked += 1
        found = {one: bisect_left(self.times[one], ts_ms) for one in at}
        return {one: offset for one, offset in found.items() if offset < len(self.times[one])}


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


def test_records_without_times_are_taken_as_they_come() -> None:
    """What has no time is never found by it, and stands in nobody's way."""
    logs = Logs({OLD: [-1, -1], NEW: [-1]})
    assert end_of(logs, {}, {OLD: 1, NEW: 1}) == {OLD: 1, NEW: 1}


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
