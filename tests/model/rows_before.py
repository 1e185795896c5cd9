"""changes of key, and rows -> what each row was before its key changed: in plain Python, and by the sink's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from connector.sink.destinations.iceberg.lookups.key_changes import chain_task, gather_keys, link_rows
from connector.sink.destinations.join_columns import column_aliases
from connector.sink.model.change_rows import RECORD_BITS
from serde.events.positions.log_positions import NO_VALUE

Place = tuple[int, int]


@frozen
class Event:
    """A change of key (of the key before), or a row, with its values; null: not sent.

    `at` is where the create of either stands in Kafka: topic-partition and offset; `moved` tells that a change of key
    made the row. The other fields tell when it was, of a row that `ended` when that was.
    """

    key: int
    at: Place
    is_row: bool
    values: tuple[str | None, ...] = ()
    moved: bool = False
    dedup: int | None = None
    source: int = 7
    position: tuple[int, int, int] | None = None
    ended: bool = False

    def is_no_later(self, other: Event) -> bool:
        """Tell whether it stands before another in its source's log, or at its place; by dates where none is told."""
        if self.source == other.source and self.position is not None and other.position is not None:
            return self.position <= other.position
        return self.dedup is None or other.dedup is None or self.dedup <= other.dedup

    def rank(self, change: Event) -> tuple[Any, ...]:
        """The later of two is greater; of one date the one that ended by it, then the one before it in Kafka."""
        follows = self.at[0] == change.at[0] and self.at[1] < change.at[1]
        position = self.position or (NO_VALUE,) * 3
        return position, NO_VALUE if self.dedup is None else self.dedup, self.ended, self.source, follows, self.at


@frozen
class Before:
    """What a row was: the key before the batch, its values, and the date of the change that took that key away."""

    key: int
    values: tuple[str | None, ...]
    changed: int | None


def follow(events: Sequence[Event]) -> dict[Place, Before]:
    """Follow each change of key back, one after the other. Circles count as begun by what comes first in Kafka."""
    changes = {event.at: event for event in events if not event.is_row}
    result = {}
    for at, change in changes.items():
        links, known = [change], list[Event]()
        while True:
            before = [row for row in events if row.is_row and row.key == links[-1].key and row.is_no_later(links[-1])]
            if not before:
                break
            known.append(row := max(before, key=lambda one: one.rank(links[-1])))
            other = changes.get(row.at) if row.moved else None
            if other is None or all(value is not None for value in row.values):
                break
            if other in links:
                links.append(min(links[links.index(other) :], key=lambda one: one.at))
                break
            links.append(other)
        width = max((len(event.values) for event in events), default=0)
        result[at] = Before(links[-1].key, _join(known) or (None,) * width, links[-1].dedup)
    return result


def _join(rows: Sequence[Event]) -> tuple[str | None, ...]:
    columns = zip(*(row.values for row in rows), strict=True)
    return tuple(next((value for value in column if value is not None), None) for column in columns)


def find_by_tasks(events: Sequence[Event], width: int, cut: int = 3) -> dict[Place, Before]:
    """As `follow`, by the tasks that Spark runs, on batches of `cut` events; its joins are dicts here."""
    keys, values = ["_old_0"], column_aliases("before", width)
    made = ["_at", *keys, *values, "_changed", "_changed_place", "_before_record", "_known", "_took", "_took_place"]
    whole = to_columns(sorted(events, key=lambda event: event.key), values)
    batches = iter([whole.slice(start, cut) for start in range(0, len(events), cut)])
    linked = [row for some in gather_keys(batches, keys) for row in link_rows(some, keys, values, made).to_pylist()]
    told = {row["_at"]: row for row in linked}
    narrow = [row for row in linked if row["_before_record"] is not None]
    found = {row["_at"]: _as_before(row, row, values) for row in linked if row["_before_record"] is None}
    sources = dict[int, list[tuple[int, list[bool], int]]]()
    for of, source, columns, depth in _follow_chains(narrow, width):
        if source in told:
            sources.setdefault(of, []).append((source, columns, depth))
    for of, each in sources.items():
        own = {
            name: told[source][name]
            for source, columns, _ in each
            for name, mark in zip(values, columns, strict=True)
            if mark
        }
        root = told[max(each, key=lambda one: one[2])[0]]
        found[of] = _as_before(root, {**dict.fromkeys(values), **own}, values)
    return {(at >> RECORD_BITS, at & ((1 << RECORD_BITS) - 1)): one for at, one in found.items()}


def _follow_chains(narrow: Sequence[dict[str, Any]], width: int) -> Iterator[tuple[int, int, list[bool], int]]:
    columns = [pa.array([row[name] for row in narrow], pa.int64()) for name in ("_at", "_before_record")]
    known = pa.array([row["_known"] for row in narrow], pa.list_(pa.bool_()))
    batch = pa.RecordBatch.from_arrays([*columns, known], ["_at", "_before_record", "_known"])
    for found in chain_task(width)(iter([batch] if narrow else [])):
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


def _as_before(root: dict[str, Any], own: dict[str, Any], values: Sequence[str]) -> Before:
    return Before(root["_old_0"], tuple(own[name] for name in values), root["_changed"])


def to_columns(events: Sequence[Event], values: Sequence[str]) -> pa.RecordBatch:
    """Return events in the columns of the sink's frames."""
    none = (NO_VALUE,) * 3
    record = [(event.at[0] << RECORD_BITS) | event.at[1] for event in events]
    ages = np.array(
        [
            [event.dedup if event.dedup is not None else NO_VALUE, event.source, *(event.position or none)]
            for event in events
        ],
        np.int64,
    ).reshape(-1, 5)
    columns = {
        "_old_0": pa.array([event.key for event in events], pa.int64()),
        "_at": pa.array(record, pa.int64()),
        "_at_moved": pa.array([event.moved for event in events], pa.bool_()),
        **{
            name: pa.array(ages[:, place])
            for place, name in enumerate(("_dedup", "_source", "_first", "_second", "_third"))
        },
        "_time": pa.array([event.dedup for event in events], pa.int64()),
        "_place": pa.nulls(len(events), pa.int64()),
        "_ended": pa.array([event.ended for event in events], pa.bool_()),
        "_suspect": pa.array([False] * len(events), pa.bool_()),
        **{
            name: pa.array([event.values[place] if event.is_row else None for event in events], pa.string())
            for place, name in enumerate(values)
        },
        "_is_row": pa.array([event.is_row for event in events], pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _draw_age(rng: Random, how: str) -> dict[str, Any]:
    """A date and a place, out of few, so that many are equal; `mixed` logs tell one, both or nothing."""
    dated = how == "dates" or rng.random() < 0.8
    placed = how == "places" or (how == "mixed" and rng.random() < 0.7)
    return {
        "dedup": rng.randrange(4) if dated else None,
        "position": (rng.randrange(5), rng.randrange(2), 0) if placed else None,
        "source": rng.choice([7, 8, 9]) if how == "mixed" else 7,
    }


def draw_events(rng: Random, width: int, *, keys: int, most: int) -> list[Event]:
    """Up to so many changes of a few keys, and as many rows, of which some were made by them; at least one change."""
    how = rng.choice(["places", "dates", "mixed"])
    places = [(rng.randrange(2), offset) for offset in rng.sample(range(3 * most), 2 * most)]
    count = rng.randrange(most // 2, most)
    changes = [Event(rng.randrange(keys), at, is_row=False, **_draw_age(rng, how)) for at in places[:count]]
    rows = []
    for at in places[count:][: rng.randrange(most // 2, most)]:
        made_at = rng.choice(places[:count]) if rng.random() < 0.6 else None
        values = tuple(rng.choice([None, None, f"{at}-{column}"]) for column in range(width))
        rows.append(
            Event(
                rng.randrange(keys),
                made_at or at,
                is_row=True,
                values=values,
                moved=made_at is not None,
                ended=rng.random() < 0.5,
                **_draw_age(rng, how),
            )
        )
    # What tells all the same is one row.
    rows = list({(row.key, row.at, row.dedup, row.position, row.source, row.ended): row for row in rows}.values())
    return rng.sample([*changes, *rows], len(changes) + len(rows))
