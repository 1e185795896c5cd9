"""Sizes of records so far -> batches of at most so many bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from connector.runtime.topic_partitions import TopicPartition
from connector.sink.microbatch.size_estimates import (
    SAMPLED_PARTITIONS,
    SAMPLES_PER_PARTITION,
    UNSEEN_EVENT_BYTES,
    ByteLimit,
)

START, END = {("a", 0): 100}, {("a", 0): 900, ("b", 0): 200}


def test_a_batch_that_fits_is_not_cut() -> None:
    """A range whose events are within max-bytes is one batch."""
    assert ByteLimit(1_000 * UNSEEN_EVENT_BYTES).end(START, END) == END


def test_batches_follow_the_size_of_events() -> None:
    """A range is cut by the size of the events before, evenly over topic-partitions, and comes to its end."""
    cuts = ByteLimit(500 * UNSEEN_EVENT_BYTES)
    first = cuts.end(START, END)
    assert first == {("a", 0): 500, ("b", 0): 100}
    cuts.note(500, 500 * 5 * UNSEEN_EVENT_BYTES)
    second = cuts.end(first, END)
    assert 80 <= sum(second.values()) - sum(first.values()) <= 110
    at, batches = second, 2
    while at != END:
        cuts.note(100, 100 * UNSEEN_EVENT_BYTES // 10)
        at, batches = cuts.end(at, END), batches + 1
    assert batches <= 5


def test_a_first_batch_of_which_nothing_is_seen_is_small() -> None:
    """Where nothing tells sizes before records are read, large events stay within max-bytes too; small ones are known
    by the next batch."""
    for size in (50_000, 200):
        cuts, at, end = ByteLimit(10**9), {("a", 0): 0}, {("a", 0): 10**6}
        first = cuts.end(at, end)["a", 0]
        assert first >= 1_000 and first * size <= 10**9
        cuts.note(first, first * size)
        second = cuts.end({("a", 0): first}, end)["a", 0] - first
        assert second == pytest.approx(min(10**9 / size, 10**6 - first), rel=0.01)


def test_a_batch_always_moves_on() -> None:
    """An event larger than max-bytes is a batch of its own, and the range still ends."""
    cuts, at = ByteLimit(1), dict(START)
    cuts.note(1, 10_000_000)
    moved = cuts.end(at, END)
    assert moved != at
    assert all(moved[place] <= END[place] for place in END)


def _looking(size: Mapping[TopicPartition, Sequence[int]]) -> tuple[ByteLimit, list[int]]:
    """Cuts of a megabyte, of a range of 1000 events whose sizes are told, and how many looks were taken."""
    looks: list[int] = []

    def look(places: Mapping[TopicPartition, Sequence[int]]) -> Mapping[TopicPartition, Sequence[float]]:
        looks.append(sum(map(len, places.values())))
        return {at: [float(size[at][offset]) for offset in offsets] for at, offsets in places.items()}

    return ByteLimit(10**6, look), looks


@pytest.mark.parametrize(
    "sizes",
    [[20_000] * 1000, [100] * 500 + [50_000] * 500, [50_000] * 500 + [100] * 500, [i * 50 for i in range(1, 1001)]],
)
def test_the_first_batch_is_bounded_too(sizes: list[int]) -> None:
    """Before any batch was read, and where events grow, what is looked at keeps each batch within max-bytes."""
    cuts, _ = _looking({("a", 0): sizes})
    at, batches = 0, 0
    while at < len(sizes):
        until = cuts.end({("a", 0): at}, {("a", 0): len(sizes)})["a", 0]
        size = sum(sizes[at:until])
        assert at < until
        assert size <= 1_200_000
        cuts.note(until - at, size)
        at, batches = until, batches + 1
    assert batches <= 3 * sum(sizes) / 10**6 + 5


def test_small_ranges_cost_no_look_and_large_ones_few() -> None:
    """The first range is looked at, and then only those that may be too large by the batches before."""
    sizes = {("t", partition): [100] * 1000 for partition in range(50)}
    cuts, looks = _looking(sizes)
    assert cuts.end({}, dict.fromkeys(sizes, 1)) == dict.fromkeys(sizes, 1)
    cuts.note(50, 5_000)
    assert cuts.end({}, dict.fromkeys(sizes, 10)) == dict.fromkeys(sizes, 10)
    assert looks == [SAMPLES_PER_PARTITION * SAMPLED_PARTITIONS]
    large = cuts.end({}, dict.fromkeys(sizes, 1000))
    assert 8_000 <= sum(large.values()) <= 10_000
    assert len(looks) == 2
