"""Truncates: which changes of a batch are still true after one."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from connector.iceberg.commit.kafka_offsets import LastTruncate, Watermark
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.truncates import ChangeTimes, TableTruncate, Truncate, is_repeated, mark_before_truncate
from serde.events.positions.log_positions import NO_VALUE, source_number, unknown_positions

HERE, THERE = ("t", 0), ("t", 1)
SECOND = 1_000_000_000
SOURCE = 5


def change_time(ts_ns: int, place: int, op: str = "u", source: int = SOURCE) -> ChangeTimes:
    """When one change was."""
    where = unknown_positions(1, source)
    where[0, 1] = place
    return ChangeTimes(np.array([ts_ns]), np.array([ord(op)], np.uint8), np.array([op == "d"]), where)


def judged(
    cut: TableTruncate,
    at: tuple[str, int],
    offset: int,
    ts_ns: int = NO_VALUE,
    place: int = NO_VALUE,
    op: str = "u",
    source: int = SOURCE,
) -> tuple[bool, bool]:
    """Whether one change counts as later than the truncate, and whether that is a guess."""
    (kept,), (untold,) = cut.after(at, np.array([offset]), change_time(ts_ns, place, op, source))
    return bool(kept), bool(untold)


def after(
    cut: TableTruncate, at: tuple[str, int], offset: int, ts_ns: int = NO_VALUE, place: int = NO_VALUE, op: str = "u"
) -> bool:
    """Whether one change counts as later than the truncate."""
    return judged(cut, at, offset, ts_ns, place, op)[0]


def truncate(partition: int = 0, offset: int = 10, ts_ns: int = 100, place: int = 7) -> Truncate:
    """A truncate event."""
    return Truncate("t", partition, offset, ts_ns, () if place == NO_VALUE else (SOURCE, place, 0, 0))


def repeated(cut: TableTruncate, at: tuple[str, int], offset: int, ts_ns: int, place: int) -> bool:
    """Whether one change comes again behind a truncate."""
    return bool(cut.mark_repeated(at, np.array([offset]), change_time(ts_ns, place))[0])


@pytest.mark.parametrize(
    ("at", "offset", "place", "ts_ns", "told"),
    [
        (HERE, 11, 6, 100, True),
        (HERE, 9, 6, 100, False),
        (HERE, 11, 8, 100, False),
        (HERE, 11, 6, 101, False),  # a source that moved has small places again
        (HERE, 11, NO_VALUE, 90, False),
        (THERE, 21, 7, 150, True),
        (THERE, 19, 7, 150, False),
        (HERE, 11, 7, 150, False),  # the truncate behind it is in the other partition
        (("other", 0), 21, 6, 100, False),
    ],
)
def test_what_comes_again_behind_a_truncate_of_its_partition(
    at: tuple[str, int], offset: int, place: int, ts_ns: int, *, told: bool
) -> None:
    """A change comes again where a truncate that is proven to be later is in front of it in its own partition."""
    cut = TableTruncate.of([truncate(0, 10, 100, 7), truncate(1, 20, 200, 9)])
    assert repeated(cut, at, offset, ts_ns, place) is told


def test_kafkas_order_counts_within_the_partition() -> None:
    """In the truncate's own partition its offset decides, whatever the clock says."""
    cut = TableTruncate.of([truncate()])
    assert [after(cut, HERE, offset, ts_ns=1_000 - offset) for offset in (9, 11)] == [False, True]


@pytest.mark.parametrize(
    ("offset", "place", "ts_ns", "kept"),
    [
        (11, 6, 100, False),  # sent again behind the truncate
        (9, 8, 100, True),  # the truncate is what is sent again
        (11, 6, 101, True),  # a source that moved has small places again
        (9, 8, 99, False),
        (9, 8, SECOND, True),  # whole seconds prove nothing against a place
        (11, 7, 100, True),
    ],
)
def test_within_the_partition_a_place_proves_what_comes_again(offset: int, place: int, ts_ns: int, kept: bool) -> None:
    """A connector that restarts repeats changes behind a truncate of theirs, and a truncate behind later changes."""
    assert after(TableTruncate.of([truncate()]), HERE, offset, ts_ns, place) is kept


@pytest.mark.parametrize(
    ("change", "kept", "untold"),
    [
        ({"ts_ns": 99}, False, False),
        ({"ts_ns": 100}, True, False),
        ({"ts_ns": 101}, True, False),
        ({"ts_ns": 99, "place": 8}, True, False),  # a date that goes back proves nothing beside the place
        ({"ts_ns": 101, "place": 6}, False, False),
        ({"ts_ns": 100, "place": 7}, False, False),
        ({"ts_ns": 99, "place": 8, "source": 6}, False, False),  # places of another server do not compare
        ({"ts_ns": SECOND}, True, True),  # a whole second proves nothing
        ({}, True, True),
        ({"op": "r", "ts_ns": 99}, False, False),  # what was read before holds nothing that came after
        ({"op": "r", "ts_ns": 101, "place": 6}, False, False),
        ({"op": "r", "ts_ns": 101}, True, True),
        ({"op": "r", "ts_ns": 100}, True, True),
    ],
)
def test_the_sources_order_counts_between_partitions(change: dict[str, int], kept: bool, untold: bool) -> None:
    """Elsewhere the place in the log decides, else a precise date; what cannot be told stays, and is counted."""
    assert judged(TableTruncate.of([truncate()]), THERE, 0, **change) == (kept, untold)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "ts_ns", "kept", "untold"),
    [
        ("u", 99, True, True),  # a precise date beside one of whole seconds
        ("u", SECOND, True, True),
        ("r", 99, False, False),
        ("\0", 99, False, False),  # rows that are read without an operation
        ("\1", SECOND, True, True),
    ],
)
def test_a_truncate_of_a_whole_second_proves_nothing_about_changes(
    op: str, ts_ns: int, kept: bool, untold: bool
) -> None:
    """A truncate whose date is a whole second took what was read before it, and cannot tell what was changed before."""
    cut = TableTruncate.of([truncate(ts_ns=2 * SECOND, place=NO_VALUE)])
    assert judged(cut, THERE, 0, ts_ns, op=op) == (kept, untold)


def test_a_delete_without_an_operation_is_no_read() -> None:
    """A record without operation that deletes its key may have come behind the truncate: it stays, and is counted."""
    cut = TableTruncate.of([truncate(ts_ns=2 * SECOND, place=NO_VALUE)])
    moments = ChangeTimes(np.array([SECOND]), np.zeros(1, np.uint8), np.array([True]), unknown_positions(1, SOURCE))
    kept, untold = cut.after(THERE, np.array([0]), moments)
    assert (kept.tolist(), untold.tolist()) == ([True], [True])


@pytest.mark.parametrize(("place", "kept"), [(6, False), (8, True), (NO_VALUE, True)])
def test_a_row_of_the_same_second_goes_by_its_place(place: int, kept: bool) -> None:
    """MySQL dates a truncate and the rows around it by one second: the position in its log tells them apart."""
    cut = TableTruncate.of([truncate(ts_ns=SECOND)])
    assert judged(cut, THERE, 0, SECOND, place) == (kept, place == NO_VALUE)


def test_the_latest_of_several_counts() -> None:
    """Of several truncates the latest empties the table, and each one its own partition up to it."""
    cut = TableTruncate.of(
        [truncate(0, 10, 100, NO_VALUE), truncate(1, 5, 200, NO_VALUE), truncate(0, 3, 50, NO_VALUE)]
    )
    assert (cut.ts_ns, cut.offsets) == (200, {HERE: 10, THERE: 5})
    assert [after(cut, HERE, 11, 150), after(cut, HERE, 11, 250), after(cut, THERE, 5, 300)] == [False, True, False]
    assert TableTruncate.of([truncate(0, 1, 300, 6), truncate(1, 5, 200, 8)]).place[1] == 8, (
        "by places where all tell them"
    )


def test_places_of_two_servers_do_not_tell_the_latest() -> None:
    """Of truncates in logs of two servers the one with the later date is the latest."""
    one, other = truncate(0, 1, 300, 6), Truncate("t", 0, 2, 200, (SOURCE + 1, 9, 0, 0), 3, "s")
    assert TableTruncate.of([one, other]).ts_ns == 300
    latest = TableTruncate.of([attrs.evolve(one, ts_ns=100), other])
    assert (latest.ts_ns, latest.total_order, latest.source) == (200, 3, "s")


def test_a_truncate_may_be_the_first_record() -> None:
    """Behind a truncate at offset 0 the partition's next record is one that came after it."""
    cut = TableTruncate.of([truncate(offset=0, place=NO_VALUE)])
    assert cut.offsets == {HERE: 0}
    assert [after(cut, HERE, 0), after(cut, HERE, 1)] == [False, True]


@pytest.mark.parametrize(
    ("ts_ns", "place", "kept"),
    [
        (SECOND // 2, 6, False),  # the truncate's whole second does not make an older place newer
        (3 * SECOND // 2 + 1, 6, False),
        (SECOND // 2, 8, True),
    ],
)
def test_a_truncate_of_a_whole_second_proves_nothing_by_its_date(ts_ns: int, place: int, kept: bool) -> None:
    """Places decide then, whichever side precise dates are on; where there are none, Kafka's order does."""
    cut = TableTruncate.of([truncate(ts_ns=SECOND)])
    assert after(cut, HERE, 11 if not kept else 9, ts_ns, place) is kept
    assert after(cut, HERE, 11, ts_ns) and not after(cut, HERE, 9, ts_ns)


def test_without_a_clock_only_the_partition_is_known() -> None:
    """A truncate that does not tell when it was empties its partition up to it, and leaves the others alone."""
    cut = TableTruncate.of([truncate(ts_ns=NO_VALUE, place=NO_VALUE)])
    assert [after(cut, HERE, 9, 1), after(cut, THERE, 0, 1)] == [False, True]


def test_what_came_before_a_truncate_of_an_earlier_batch() -> None:
    """By its place where both tell one, else by a precise date."""
    place = unknown_positions(5, SOURCE)
    place[:3, 1] = (6, 7, 8)
    date = np.array([NO_VALUE, NO_VALUE, 50, 99, 100])
    order = ChangeOrder(np.zeros(5, np.int64), np.arange(5), date, date, place, np.full(5, ord("u"), np.uint8))
    assert mark_before_truncate(order, 100, (SOURCE, 7, 0, 0)).tolist() == [True, True, False, True, False]
    assert mark_before_truncate(order, 100, ()).tolist() == [False, False, True, True, False]
    read = attrs.evolve(
        order, dedup=date, date=np.full(5, NO_VALUE), place=unknown_positions(5), op=np.full(5, ord("r"), np.uint8)
    )
    assert mark_before_truncate(read, 100, ()).tolist() == [False, False, True, True, False], "by when it was read"


SERVER = -7


@pytest.mark.parametrize(
    ("places", "latest"),
    [
        ([(8, 0, 0), (5, 0, 0)], (8, 0, 0)),
        ([(8, SERVER, 3), (5, SERVER, 9)], (5, SERVER, 9)),  # a server took over, and its files have small numbers
        ([(8, 0, 0), (5, SERVER, 1)], (5, SERVER, 1)),
        ([(8, 5, 9), (9, 1, 0)], (9, 1, 0)),  # a positive number is no server's
    ],
)
def test_the_latest_truncate_goes_by_the_number_of_its_transaction(
    places: list[tuple[int, int, int]], latest: tuple[int, int, int]
) -> None:
    """Where MySQL numbers transactions the greatest number counts, else the place in the log."""
    for some in (places, places[::-1]):
        truncates = [Truncate("t", 0, 10 + at, SECOND, (SOURCE, *place)) for at, place in enumerate(some)]
        assert TableTruncate.of(truncates).place == (SOURCE, *latest)


def test_of_truncates_of_one_second_in_a_partition_the_last_one_is_the_latest() -> None:
    """Kafka's order tells more than dates of whole seconds."""
    some = [truncate(0, offset, SECOND, NO_VALUE) for offset in (20, 30, 10)]
    assert TableTruncate.of(some).latest[HERE].offset == 30


def test_a_truncate_that_comes_again() -> None:
    """By its place, else by a precise date; what proves nothing is done again."""
    assert [is_repeated(truncate(place=p), LastTruncate(500, (SOURCE, 7, 0, 0))) for p in (6, 7, 8)] == [
        True,
        False,
        False,
    ]
    assert [is_repeated(truncate(ts_ns=t, place=NO_VALUE), LastTruncate(100)) for t in (99, 100, 101)] == [
        True,
        False,
        False,
    ]
    assert not is_repeated(truncate(ts_ns=SECOND, place=NO_VALUE), LastTruncate(2 * SECOND))
    assert is_repeated(truncate(ts_ns=SECOND + 1, place=NO_VALUE), LastTruncate(2 * SECOND))
    assert is_repeated(truncate(ts_ns=50, place=NO_VALUE), LastTruncate(100, (SOURCE, 7, 0, 0))), "by dates then"
    assert is_repeated(truncate(ts_ns=50, place=6), LastTruncate(0, (SOURCE, 7, 0, 0))), "no date to contradict it"
    whole = LastTruncate(SECOND, (SOURCE, 7, 0, 0))
    assert is_repeated(truncate(ts_ns=2 * SECOND, place=6), whole), "whole seconds prove nothing against a place"
    assert not is_repeated(truncate(ts_ns=2 * SECOND + 1, place=6), whole)


def test_a_source_that_moved_has_small_places_again() -> None:
    """What is dated after a truncate came after it, and a truncate that is dated after another is no repetition."""
    place = unknown_positions(3, SOURCE)
    place[:, 1] = 6
    date = np.array([100, 101, NO_VALUE])
    order = ChangeOrder(np.zeros(3, np.int64), np.arange(3), date, date, place, np.full(3, ord("u"), np.uint8))
    assert mark_before_truncate(order, 100, (SOURCE, 7, 0, 0)).tolist() == [True, False, True]
    assert mark_before_truncate(order, 0, (SOURCE, 7, 0, 0)).tolist() == [True, True, True]
    assert [is_repeated(truncate(ts_ns=t, place=6), LastTruncate(100, (SOURCE, 7, 0, 0))) for t in (100, 101)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("alone", "ts_ns", "place", "last", "limit"),
    [
        (True, SECOND + 5, (), (), SECOND + 5),
        (False, SECOND + 5, (), (), SECOND + 4),
        (True, SECOND, (), (), None),  # Kafka's order: whatever their dates are, they came before
        (False, SECOND, (), (), SECOND - 1),
        (True, SECOND, (SOURCE, 7, 0, 0), (SOURCE, 6, 0, 0), None),
        (True, SECOND + 5, (SOURCE, 7, 0, 0), (SOURCE, 6, 0, 0), None),
        (True, SECOND, (SOURCE, 7, 0, 0), (SOURCE, 7, 0, 0), SECOND),  # the last one, once more
        (True, NO_VALUE, (), (), None),
        (False, NO_VALUE, (), (), None),
    ],
)
def test_rows_of_earlier_batches(
    alone: bool, ts_ns: int, place: tuple[int, ...], last: tuple[int, ...], limit: int | None
) -> None:
    """Rows with the truncate's date go where Kafka's order says that they came before, and stay where nothing does."""
    cut = TableTruncate.of([Truncate("t", 0, 10, ts_ns, place)], alone=alone)
    assert cut.deletes_until(last) == limit


@pytest.mark.parametrize(
    ("ts_ns", "place", "last", "again"),
    [
        (SECOND + 5, (), LastTruncate(SECOND + 5), True),
        (SECOND + 5, (), LastTruncate(SECOND + 4), False),
        (SECOND, (), LastTruncate(SECOND), False),  # within a second nothing tells
        (SECOND + 5, (), LastTruncate(), False),  # the first one
        (NO_VALUE, (), LastTruncate(SECOND + 5), False),
        (SECOND, (SOURCE, 7, 0, 0), LastTruncate(SECOND, (SOURCE, 7, 0, 0)), True),
        (SECOND + 5, (SOURCE, 8, 0, 0), LastTruncate(SECOND + 5, (SOURCE, 7, 0, 0)), False),
        (SECOND + 5, (SOURCE, 7, 0, 0), LastTruncate(SECOND + 5), True),
    ],
)
def test_a_truncate_that_comes_again_is_known(
    ts_ns: int, place: tuple[int, ...], last: LastTruncate, again: bool
) -> None:
    """By its place in its source's log, else by a date of less than seconds."""
    assert TableTruncate.of([Truncate("t", 0, 10, ts_ns, place)]).comes_again(last) is again


NAME, HERE_TOO = "s.shop.t @0-7-", "s.shop.t @0-8-"
LATEST = (source_number(NAME), 59, 0, 0)


@pytest.mark.parametrize(
    ("marks", "limit"),
    [
        ([(NAME, Watermark(place=(58, 0, 0)))], SECOND),
        ([(NAME, Watermark(place=(58, 0, 0))), (NAME, Watermark(place=(57, 0, 0)))], SECOND),
        ([(NAME, Watermark(place=(58, 0, 0))), ("s.shop.t @7/bin", Watermark())], SECOND),  # a snapshot's rows
        ([(NAME, Watermark(place=(58, 0, 0))), (NAME, Watermark(place=(60, 0, 0)))], SECOND - 1),
        ([(NAME, Watermark(place=(59, 0, 0)))], SECOND - 1),
        ([(HERE_TOO, Watermark(place=(58, 0, 0)))], SECOND - 1),  # another server's numbers
        ([(NAME, Watermark(date=5))], SECOND - 1),  # a source that tells dates only
        ([(NAME, Watermark(place=(58, 0, 0))), ("*", Watermark(date=5))], SECOND - 1),
        ([], SECOND - 1),
    ],
)
def test_places_tell_that_all_rows_came_before(marks: list[tuple[str, Watermark]], limit: int) -> None:
    """Rows of the truncate's own second go where the table has come no further in the source's log than before it."""
    cut = TableTruncate.of([Truncate("t", 0, 10, SECOND, LATEST)])
    assert cut.deletes_until((), marks) == limit
