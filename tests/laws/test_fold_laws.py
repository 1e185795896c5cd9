"""any cut, redelivery or interleaving -> the same table: laws of the fold, against the reference.

The sink's fold works on columns of numbers; the reference (tests/model) on one event at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connector.sink.fold import NONE, Order, images, winners
from tests.model import reference
from tests.model.events import Database
from tests.model.life import Life
from tests.model.recordings import Record
from tests.model.reference import Event

pytestmark = [pytest.mark.laws, pytest.mark.timeout(120)]

LIFE = Life(4, updated=0.4, again=0.0)
Rows = dict[reference.Key, reference.Row]
seeds = st.integers(0, 2**32 - 1)


# --- the sink's fold as a function of events ---------------------------------------------------------------------


def _order(events: Sequence[Event]) -> Order:
    def column(values: Iterable[int | None]) -> Any:
        return np.array([NONE if v is None else v for v in values], np.int64)

    return Order(
        partition=column(e.partition for e in events),
        offset=column(e.offset for e in events),
        dedup=column(e.ts_ns for e in events),
        lsn=column(e.source and e.source[0] for e in events),
        total_order=column(e.source and e.source[1] for e in events),
        op=np.array([ord(e.op) if e.op else 0 for e in events], np.uint8),
    )


def _folded(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """(winners, what a later fold needs): the winners and the images they stand on."""
    keys = sorted({e.key for e in events if e.key is not None})
    codes = np.array([keys.index(e.key) for e in events if e.key is not None], np.int64)
    order = _order(events)
    winning = winners(codes, order)
    standing = images(codes, order, winning, np.array([e.kind in {"row", "delete"} for e in events]))
    kept = np.union1d(winning, standing[standing >= 0])
    return [events[i] for i in winning], [events[int(i)] for i in kept]


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


# --- streams -----------------------------------------------------------------------------------------------------


def _stream(seed: int, partitions: int) -> list[Record]:
    """A short random life of a few keys, key changes and several changes per transaction included."""
    rng, db = random.Random(seed), Database("law.public.t", partitions)
    for _ in range(rng.randint(1, 12)):
        db.transaction(*LIFE.steps(rng, set(db.rows), 4))
    return db.log


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


def _sent_again(records: Sequence[Record], rng: random.Random) -> list[Record]:
    """The source restarts and sends everything from some point once more, at new offsets."""
    again = records[rng.randint(0, len(records)) :]
    ends = {r.partition: 1 + max(x.offset for x in records if x.partition == r.partition) for r in records}
    out = list(records)
    for record in again:
        out.append(attrs.evolve(record, offset=ends[record.partition]))
        ends[record.partition] += 1
    return out


# --- the laws ----------------------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 3))
def test_any_cut_and_interleaving_gives_the_source_table(seed: int, partitions: int) -> None:
    """However partitions are interleaved and the stream is cut into batches, the table is the reference's."""
    rng, records = random.Random(seed), _stream(seed, partitions)
    table: Rows = {}
    for batch in _batches([reference.read(r) for r in _interleaved(records, rng)], rng):
        _apply(table, batch)
    assert table == reference.upsert(records, keep_deletes=False).rows


@given(seeds, st.integers(1, 3))
def test_a_suffix_sent_again_changes_nothing(seed: int, partitions: int) -> None:
    """When the source sends a suffix of the stream again, in whatever batches, the table ends the same."""
    rng, records = random.Random(seed), _stream(seed, partitions)
    table: Rows = {}
    for batch in _batches([reference.read(r) for r in _sent_again(records, rng)], rng):
        _apply(table, batch)
    assert table == reference.upsert(records, keep_deletes=False).rows


@given(seeds, st.integers(1, 3))
def test_folding_parts_and_folding_their_winners_is_folding_the_whole(seed: int, partitions: int) -> None:
    """The fold before the shuffle and the one after it give together what one fold of everything gives."""
    rng, records = random.Random(seed), _stream(seed, partitions)
    events = [reference.read(r) for r in _sent_again(records, rng)]
    kept = [e for p in range(partitions) for e in _survivors([e for e in events if e.partition == p], rng)]
    assert _alive(_folded(kept)[0]) == _alive(_folded(events)[0])


def _survivors(events: list[Event], rng: random.Random) -> list[Event]:
    """What the first fold of each piece of a partition hands on."""
    return [e for piece in _batches(events, rng) if piece for e in _folded(piece)[1]]


positions = st.tuples(st.integers(1, 4), st.integers(1, 2))
changes = st.builds(
    lambda key, partition, op, ts, position: (key, partition, op, ts, position),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from(["c", "r", "u", "d", ""]),
    st.integers(1, 3),
    st.none() | positions,
)


@given(st.lists(changes, min_size=1, max_size=12))
@example([(0, 0, "d", 1, (1, 2)), (0, 0, "", 1, None), (0, 1, "c", 1, (1, 1))])  # a tombstone hides its delete's place
def test_any_events_are_decided_as_the_rules_say(drawn: list[tuple[Any, ...]]) -> None:
    """Keys over several partitions, equal times, missing positions, bare tombstones: decided as the rules say."""
    events = [_event(offset, *change) for offset, change in enumerate(drawn)]
    assert _alive(_folded(events)[0]) == _alive(reference.fold(events).values())


def _event(offset: int, key: int, partition: int, op: str, ts_ns: int, position: tuple[int, int] | None) -> Event:
    kind: reference.Kind = "tombstone" if not op else "delete" if op == "d" else "row"
    where = ("law", partition, offset, kind, (("id", key),), {"id": key, "n": offset})
    return Event(*where) if not op else Event(*where, op, ts_ns, position)
