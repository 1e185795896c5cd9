"""Truncates: which changes of a batch are still true after one."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold import NONE
from connector.sink.truncates import Cut, Truncate

HERE, THERE = ("t", 0), ("t", 1)


def after(cut: Cut, at: tuple[str, int], offset: int, ts_ns: int = NONE, lsn: int = NONE, total: int = NONE) -> bool:
    """Whether one change counts as later than the truncate."""
    columns = (np.array([value], np.int64) for value in (offset, ts_ns, lsn, total))
    (kept,) = cut.after(at, *columns).tolist()
    return bool(kept)


def truncate(partition: int = 0, offset: int = 10, ts_ns: int = 100, lsn: int = 7, total: int = 2) -> Truncate:
    """A truncate event."""
    return Truncate("t", partition, offset, ts_ns, lsn, total)


def test_kafkas_order_counts_within_the_partition() -> None:
    """In the truncate's own partition its offset decides, whatever the clock says."""
    cut = Cut.of([truncate()])
    assert [after(cut, HERE, offset, ts_ns=1_000 - offset) for offset in (9, 11)] == [False, True]


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ((99,), False),
        ((101,), True),
        ((100, 6), False),
        ((100, 8), True),
        ((100, 7, 1), False),
        ((100, 7, 3), True),
        ((100, 7, NONE), True),
        ((100, NONE), True),
        ((NONE,), True),
    ],
)
def test_the_sources_order_counts_between_partitions(place: tuple[int, ...], kept: bool) -> None:
    """Elsewhere clock, log position and order in the transaction decide; what cannot be told stays."""
    assert after(Cut.of([truncate()]), THERE, 0, *place) is kept


def test_the_latest_of_several_counts() -> None:
    """Of several truncates the latest empties the table, and each one its own partition up to it."""
    cut = Cut.of([truncate(0, 10, 100), truncate(1, 5, 200), truncate(0, 3, 50)])
    assert (cut.ts_ns, cut.offsets) == (200, {HERE: 10, THERE: 5})
    assert [after(cut, HERE, 11, 150), after(cut, HERE, 11, 250), after(cut, THERE, 5, 300)] == [False, True, False]


def test_without_a_clock_only_the_partition_is_known() -> None:
    """A truncate that does not tell when it was empties its partition up to it, and leaves the others alone."""
    cut = Cut.of([truncate(ts_ns=NONE, lsn=NONE)])
    assert [after(cut, HERE, 9, 1), after(cut, THERE, 0, 1)] == [False, True]
