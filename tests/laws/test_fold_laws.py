"""any cut, redelivery or interleaving -> the same table: laws of the fold, against the reference.

The sink's fold works on columns of numbers; the reference (tests/model) on one event at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connector.sink.fold.order.winners import Decision, find_row_images
from connector.sink.model.change_rows import ChangeOrder
from connector.sink.model.event_age import select_proven_dates, select_proven_places
from serde.events.kinds.operations import TOMBSTONE
from serde.events.positions.log_positions import NO_VALUE, source_number, unknown_positions
from tests.model import reference
from tests.model.events import CLOCKS, OUTLIVING, Clock, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.model.reference import Event

pytestmark = [pytest.mark.laws, pytest.mark.timeout(120)]

LIFE = Life(4, updated=0.4, again=0.0)
Rows = dict[reference.Key, reference.Row]
seeds = st.integers(0, 2**32 - 1)


# --- the sink's fold as a function of events ---------------------------------------------------------------------


def _order(events: Sequence[Event]) -> ChangeOrder:
    def column(values: Iterable[int | None]) -> Any:
        return np.array([NO_VALUE if v is None else v for v in values], np.int64)

    ops = (TOMBSTONE if e.kind == "tombstone" else ord(e.op or "\0") for e in events)
    op = np.fromiter(ops, np.uint8, len(events))
    gone = np.array([e.kind != "row" for e in events], np.bool_)
    dedup = column(e.ts_ns for e in events)
    place = unknown_positions(len(events))
    for at, event in enumerate(events):
        place[at, 0] = source_number(event.log)
        place[at, 1 : 1 + len(event.source or ())] = event.source or ()
    told = (dedup, op, gone)
    where = (column(e.partition for e in events), column(e.offset for e in events))
    dates, places = select_proven_dates(*told, reference.SECOND_NS), select_proven_places(place, *told, declared=False)
    return ChangeOrder(*where, dedup, dates, places, op)


def _folded(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """(winners, what a later fold needs): the winners and the images they stand on."""
    keys = sorted({e.key for e in events if e.key is not None})
    codes = np.array([keys.index(e.key) for e in events if e.key is not None], np.int64)
    order = _order(events)
    decision = Decision(codes, order)
    winning = decision.winners
    standing = find_row_images(codes, order, winning, np.array([e.kind in {"row", "delete"} for e in events]))
    left = np.union1d(decision.rows_to_keep(), standing[standing >= 0])
    return [events[i] for i in winning], [events[int(i)] for i in left]


def _apply(table: Rows, batch: Sequence[Event]) -> None:
    """What one commit does to a table whose deletes are hard."""
    if not batch:
        return
    for event in _folded(batch)[0]:
        assert event.key is not None
        if event.kind == "row":
            table[event.key] = event.row
        else:
            table.pop(event.key, None)


def _alive(events: Iterable[Event]) -> dict[reference.Key | None, tuple[int, int]]:
    """Which event each living key ends in; a delete and the tombstone behind it are the same end."""
    return {e.key: (e.partition, e.offset) for e in events if e.kind == "row"}


def _truth(db: Database) -> dict[int, Any]:
    return {key: row["n"] for key, row in db.rows.items()}


def _numbers(table: Rows) -> dict[int, Any]:
    return {dict(key)["id"]: row["n"] for key, row in table.items()}


# --- streams -----------------------------------------------------------------------------------------------------


def _stream(seed: int, partitions: int, clock: Clock = "postgres") -> Database:
    """A short random life of a few keys: key changes, several changes per transaction, transactions side by side,
    rows that are read.
    """
    rng = random.Random(seed)
    db = Database("law.public.t", partitions, clock=clock, rng=random.Random(seed))
    for _ in range(rng.randint(1, 12)):
        one = LIFE.steps(rng, set(db.rows), 4)
        other = [("c", row(key, "side", rng.randrange(10**6))) for key in (100, 101) if key not in db.rows]
        if clock == "postgres" and other and rng.random() < 0.5:
            db.side_by_side(one, other)
        else:
            db.transaction(*one)
        if clock in OUTLIVING and rng.random() < 0.2:
            db.fail_over()
        if rng.random() < 0.4:
            db.read(rng.randrange(4))
    return db


def _interleaved(records: Sequence[Record], rng: random.Random) -> list[Record]:
    """The same partitions, read in another order between them; each partition's own order stays."""
    lanes = [[r for r in records if r.partition == p] for p in sorted({r.partition for r in records})]
    out: list[Record] = []
    while any(lanes):
        out.append(rng.choice([lane for lane in lanes if lane]).pop(0))
    return out


def _batches(events: Sequence[Event], rng: random.Random) -> list[Sequence[Event]]:
    points = sorted(rng.sample(range(len(events) + 1), rng.randint(0, len(events))))
    return [events[a:b] for a, b in zip([0, *points], [*points, len(events)], strict=True)]


def _sent_again(db: Database, rng: random.Random) -> list[Record]:
    """The source restarts a few times, and sends everything from some point once more, at new offsets."""
    for _ in range(rng.randint(1, 2)):
        db.again(rng.randrange(len(db.log)))
    return db.log


# --- the laws ----------------------------------------------------------------------------------------------------

clocks = st.sampled_from(CLOCKS)


@given(seeds, st.integers(1, 3), clocks)
def test_any_cut_and_interleaving_gives_the_source_table(seed: int, partitions: int, clock: Clock) -> None:
    """However partitions are interleaved and the stream is cut into batches, the table is the source's."""
    rng, db = random.Random(seed), _stream(seed, partitions, clock)
    table: Rows = {}
    for batch in _batches([reference.read(r) for r in _interleaved(db.log, rng)], rng):
        _apply(table, batch)
    assert _numbers(table) == _truth(db)
    assert table == reference.upsert(db.log, keep_deletes=False).rows


@given(seeds, st.integers(1, 3), clocks)
def test_a_suffix_sent_again_changes_nothing(seed: int, partitions: int, clock: Clock) -> None:
    """When the source sends a suffix of the stream again, in whatever batches, the table ends the same."""
    rng, db = random.Random(seed), _stream(seed, partitions, clock)
    table: Rows = {}
    for batch in _batches([reference.read(r) for r in _sent_again(db, rng)], rng):
        _apply(table, batch)
    assert _numbers(table) == _truth(db)


@given(seeds, st.integers(1, 3), clocks)
def test_folding_parts_and_folding_their_winners_is_folding_the_whole(seed: int, partitions: int, clock: Clock) -> None:
    """The fold before the shuffle and the one after it give together what one fold of everything gives."""
    rng, db = random.Random(seed), _stream(seed, partitions, clock)
    events = [reference.read(r) for r in _sent_again(db, rng)]
    kept = [e for p in range(partitions) for e in _survivors([e for e in events if e.partition == p], rng)]
    assert _alive(_folded(kept)[0]) == _alive(_folded(events)[0])


def _survivors(events: list[Event], rng: random.Random) -> list[Event]:
    """What the first fold of each piece of a partition hands on."""
    return [e for piece in _batches(events, rng) if piece for e in _folded(piece)[1]]


places = st.tuples(st.integers(1, 4), st.integers(1, 2))
changes = st.tuples(
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from(["c", "r", "u", "d", ""]),
    st.integers(1, 3) | st.just(reference.SECOND_NS),
    st.none() | places,
    st.sampled_from(["a", "a", "b"]),
)


@given(st.lists(changes, min_size=1, max_size=12))
@example([(0, 0, "d", 1, (1, 2), "a"), (0, 0, "", 1, None, "a"), (0, 1, "c", 1, (1, 1), "a")])
def test_any_events_are_decided_as_the_rules_say(drawn: list[tuple[Any, ...]]) -> None:
    """Several partitions, sources and logs, equal times, whole seconds, missing positions, reads, bare tombstones."""
    events = [_event(offset, *change) for offset, change in enumerate(drawn)]
    assert _alive(_folded(events)[0]) == _alive(reference.fold(events).values())


@given(st.lists(changes, min_size=1, max_size=12), seeds)
def test_any_events_folded_in_parts_are_decided_as_the_rules_say(drawn: list[tuple[Any, ...]], seed: int) -> None:
    """The same, cut anywhere and folded part by part; deletes and their tombstones stay together."""
    events = [_event(offset, *change) for offset, change in enumerate(drawn) if change[2]]
    kept = _survivors(events, random.Random(seed)) if events else []
    assert not events or _alive(_folded(kept)[0]) == _alive(reference.fold(events).values())


def _event(
    offset: int, key: int, partition: int, op: str, ts_ns: int, place: tuple[int, int] | None, log: str
) -> Event:
    kind: reference.Kind = "tombstone" if not op else "delete" if op == "d" else "row"
    where = ("law", partition, offset, kind, (("id", key),), {"id": key, "n": offset})
    return Event(*where) if not op else Event(*where, op, ts_ns, place, log)
