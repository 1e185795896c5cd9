"""What to do next with a table, the pure decision; what is stored of it, and the times of its events."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connector.source.snapshots.next_step import (
    Ancestor,
    Completed,
    Decision,
    Fail,
    Idle,
    ReadSnapshot,
    SkipSnapshot,
    SnapshotLine,
    SnapshotMode,
    SnapshotOffset,
    SnapshotProgress,
    StartStreaming,
    StreamChanges,
    TableHead,
    decide_next_step,
)
from connector.source.snapshots.snapshot_info import event_ts_ns
from connector.source.snapshots.table_offset import TableOffset

pytestmark = pytest.mark.unit
ALL = list(SnapshotMode)
FOLLOWING = [m for m in ALL if m != SnapshotMode.INITIAL_ONLY]


def _chain(*ids: int, first_parent: int | None = None, operations: dict[int, str] | None = None) -> SnapshotLine:
    parents = [first_parent, *ids]
    ancestors = tuple(
        Ancestor(i, parent, n, 1000 * n, (operations or {}).get(i, "append"))
        for n, (i, parent) in enumerate(zip(ids, parents, strict=False), start=1)
    )
    return SnapshotLine(ancestors, frozenset(ids))


def _never() -> SnapshotLine:
    raise AssertionError("the history was read")


def _decide(
    position: SnapshotOffset | None,
    mode: SnapshotMode,
    head: int | None,
    history: SnapshotLine | Callable[[], SnapshotLine] = _never,
    *,
    starting: bool = False,
    uuid: str = "u",
) -> Decision:
    give = history if callable(history) else lambda: history
    return decide_next_step("db.t", position, mode, TableHead(uuid, head), give, starting=starting)


@pytest.mark.parametrize(
    ("mode", "decision"),
    [
        (SnapshotMode.INITIAL, ReadSnapshot(9)),
        (SnapshotMode.NO_DATA, StartStreaming(9)),
        (SnapshotMode.INITIAL_ONLY, ReadSnapshot(9)),
        (SnapshotMode.WHEN_NEEDED, ReadSnapshot(9)),
        (SnapshotMode.ALWAYS, ReadSnapshot(9)),
    ],
)
def test_first_contact(mode: SnapshotMode, decision: Decision) -> None:
    """Without a position each mode reads the newest snapshot in full, but for no_data, which starts behind it."""
    assert _decide(None, mode, 9) == decision


@pytest.mark.parametrize("mode", FOLLOWING)
def test_empty_table_begins_before_its_first_snapshot(mode: SnapshotMode) -> None:
    """A table without snapshots needs no first read; its first snapshot is then a change like any other."""
    assert _decide(None, mode, None) == StartStreaming(None)
    history = _chain(5, 6)
    assert _decide(SnapshotOffset("u", None), mode, 6, history) == StreamChanges(history.ancestors[0])


def test_initial_only_waits_for_the_first_snapshot() -> None:
    """There is nothing to read yet, so initial_only stores nothing."""
    assert _decide(None, SnapshotMode.INITIAL_ONLY, None) == Idle()


@pytest.mark.parametrize("mode", FOLLOWING)
def test_nothing_new_asks_for_no_history(mode: SnapshotMode) -> None:
    """An idle poll looks at the newest snapshot's id and nothing else."""
    assert _decide(SnapshotOffset("u", 7), mode, 7) == Idle()
    assert _decide(SnapshotOffset("u", None), mode, None) == Idle()


@pytest.mark.parametrize("mode", FOLLOWING)
def test_one_snapshot_at_a_time_oldest_first(mode: SnapshotMode) -> None:
    """The next snapshot is the child of the stored one, however far the head is."""
    history = _chain(5, 6, 7, 8)
    assert _decide(SnapshotOffset("u", 5), mode, 8, history) == StreamChanges(history.ancestors[1])
    assert _decide(SnapshotOffset("u", 7), mode, 8, history) == StreamChanges(history.ancestors[3])


def test_compaction_is_passed_over() -> None:
    """A replace snapshot changed no row."""
    history = _chain(5, 6, 7, operations={6: "replace"})
    assert _decide(SnapshotOffset("u", 5), SnapshotMode.INITIAL, 7, history) == SkipSnapshot(history.ancestors[1])


def test_initial_only_ends_after_its_read() -> None:
    """initial_only never follows changes."""
    assert _decide(SnapshotOffset("u", 5), SnapshotMode.INITIAL_ONLY, 8) == Completed()


def test_always_reads_at_each_start_and_then_follows() -> None:
    """always reads in full when the run starts, and only then."""
    history = _chain(5, 6)
    assert _decide(SnapshotOffset("u", 5), SnapshotMode.ALWAYS, 6, history, starting=True) == ReadSnapshot(6)
    assert _decide(SnapshotOffset("u", 5), SnapshotMode.ALWAYS, 6, history) == StreamChanges(history.ancestors[1])


@pytest.mark.parametrize("mode", ALL)
def test_interrupted_read_goes_on_where_it_was(mode: SnapshotMode) -> None:
    """A first read goes on at its part of its own snapshot, although the table has moved on meanwhile."""
    reading = SnapshotOffset("u", None, SnapshotProgress(5, 3, 1 << 20))
    assert _decide(reading, mode, 7, _chain(5, 6, 7), starting=True) == ReadSnapshot(5, 3, 1 << 20)


LOST = {
    "rolled back": (
        SnapshotOffset("u", 7),
        SnapshotLine(_chain(5, 6).ancestors, frozenset({5, 6, 7})),
        "u",
        "rolled back",
    ),
    "expired": (SnapshotOffset("u", 4), _chain(6, 7, first_parent=5), "u", "expired"),
    "parent expired": (SnapshotOffset("u", 5), _chain(6, 7, first_parent=5), "u", "expired"),
    "foreign": (SnapshotOffset("u", 99), _chain(5, 6, 7), "u", "never belonged"),
    "replaced": (SnapshotOffset("old", 5), _chain(5, 6, 7), "u", "replaced by another table"),
    "beginning expired": (SnapshotOffset("u", None), _chain(6, 7, first_parent=5), "u", "have expired"),
    "expired while read": (
        SnapshotOffset("u", None, SnapshotProgress(4, 2, 1)),
        _chain(6, 7, first_parent=5),
        "u",
        "being read",
    ),
}


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("mode", [SnapshotMode.INITIAL, SnapshotMode.NO_DATA, SnapshotMode.ALWAYS])
def test_lost_position_stops(case: str, mode: SnapshotMode) -> None:
    """Where history does not connect, the table stops with table, both snapshots and the way out."""
    position, history, uuid, why = LOST[case]
    decision = _decide(position, mode, 7 if case != "rolled back" else 6, history, uuid=uuid)
    assert isinstance(decision, Fail)
    stored = position.reading.snapshot_id if position.reading else position.snapshot_id
    for part in ("db.t", str(stored or "none"), "when_needed", why):
        assert part in decision.reason


def test_always_reads_a_replaced_table_at_a_start() -> None:
    """At each start means whichever table it is then; while the source runs, a replaced one stops."""
    assert _decide(SnapshotOffset("old", 5), SnapshotMode.ALWAYS, 7, starting=True) == ReadSnapshot(7)
    assert isinstance(_decide(SnapshotOffset("old", 5), SnapshotMode.ALWAYS, 7), Fail)


@pytest.mark.parametrize("case", LOST)
def test_lost_position_is_read_again_when_needed(case: str) -> None:
    """when_needed reads the newest snapshot in full instead."""
    position, history, uuid, _ = LOST[case]
    newest = 6 if case == "rolled back" else 7
    assert _decide(position, SnapshotMode.WHEN_NEEDED, newest, history, uuid=uuid) == ReadSnapshot(newest)


def test_replaced_by_an_empty_table() -> None:
    """when_needed begins an empty successor at its beginning; other modes stop."""
    assert _decide(SnapshotOffset("old", 5), SnapshotMode.WHEN_NEEDED, None) == StartStreaming(None)
    assert isinstance(_decide(SnapshotOffset("old", 5), SnapshotMode.INITIAL, None), Fail)


def test_table_emptied_by_rollback() -> None:
    """A table whose branch points nowhere any more has lost the stored snapshot."""
    assert isinstance(
        _decide(SnapshotOffset("u", 5), SnapshotMode.INITIAL, None, SnapshotLine((), frozenset({5}))), Fail
    )


def test_head_behind_an_expired_ancestor_of_a_known_one() -> None:
    """Only the child of the stored snapshot itself will do, not a later descendant."""
    assert isinstance(_decide(SnapshotOffset("u", 3), SnapshotMode.INITIAL, 7, _chain(6, 7, first_parent=4)), Fail)


@pytest.mark.parametrize(
    ("ms", "before", "expected"),
    [(5, None, 5_000_000), (5, 4_999_000, 5_000_000), (5, 5_000_000, 5_001_000), (5, 7_000_000, 7_001_000)],
)
def test_times_of_snapshots_only_grow(ms: int, before: int | None, expected: int) -> None:
    """Two snapshots of one millisecond, or one that is dated back, still have rising event times."""
    assert event_ts_ns(ms, before) == expected


@pytest.mark.parametrize("reading", [None, SnapshotProgress(5, 3, 1000)])
def test_a_stored_offset_is_read_back(reading: SnapshotProgress | None) -> None:
    """What is stored of a table's position is what is read."""
    offset = TableOffset(SnapshotOffset("u", 1, reading), 3)
    assert TableOffset.parse(offset.json()) == offset
