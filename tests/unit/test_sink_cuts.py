"""Cuts: batches of at most so many bytes."""

from __future__ import annotations

from connector.sink.cuts import EVENT_BYTES, Cuts

START, END = {("a", 0): 100}, {("a", 0): 900, ("b", 0): 200}


def test_a_batch_that_fits_is_not_cut() -> None:
    """A range whose events are within max-bytes is one batch."""
    assert Cuts(1_000 * EVENT_BYTES).end(START, END) == END


def test_batches_follow_the_size_of_events() -> None:
    """A range is cut by the size of the events before, evenly over topic-partitions, and comes to its end."""
    cuts = Cuts(500 * EVENT_BYTES)
    first = cuts.end(START, END)
    assert first == {("a", 0): 500, ("b", 0): 100}
    cuts.note(500, 500 * 5 * EVENT_BYTES)
    second = cuts.end(first, END)
    assert 80 <= sum(second.values()) - sum(first.values()) <= 110
    at, batches = second, 2
    while at != END:
        cuts.note(100, 100 * EVENT_BYTES // 10)
        at, batches = cuts.end(at, END), batches + 1
    assert batches <= 5


def test_a_batch_always_moves_on() -> None:
    """An event larger than max-bytes is a batch of its own, and the range still ends."""
    cuts, at = Cuts(1), dict(START)
    cuts.note(1, 10_000_000)
    moved = cuts.end(at, END)
    assert moved != at
    assert all(moved[place] <= END[place] for place in END)
