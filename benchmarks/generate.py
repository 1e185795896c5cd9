"""seed -> rows: the events of the benchmark and the tables they must end in.

The rows are one Arrow table in produce order, made with numpy from a seed; messages are JSON of those rows
(`messages.py`) and the reference is a filter of them, so both come from one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_APPEND_SEED = 3
BASE_TS_NS = 1_790_000_000_000_000_000
"""Commit time (epoch nanoseconds) of the first transaction; prefilled rows are one second older."""
EVENTS_PER_TRANSACTION = 3
CREATE_SHARE, UPDATE_SHARE, ACTIVE_SHARE = 0.2, 0.7, 0.8
DATABASE = "shop"
STATUSES = ("created", "paid", "packed", "shipped", "delivered", "returned")
WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "larch")

VALUE_COLUMNS = ("id", "quantity", "price", "discount", "status", "note", "active", "updated_at")
META_COLUMNS = ("__deleted", "__op", "__table", "__source_ts_ns", "__db")
FLATTENED_COLUMNS = VALUE_COLUMNS + META_COLUMNS
ENVELOPE_COLUMNS = (*FLATTENED_COLUMNS, "__ts_ms")


@attrs.frozen
class Events:
    """Events in produce order: `rows` has one row per event, its columns are those of the final table."""

    table: str
    rows: Any  # pyarrow.Table
    ids: NDArray[np.int64]
    first: int = 0

    def part(self, start: int, count: int) -> Events:
        """`count` events from `start` on; they know their place in the stream."""
        rows, ids = self.rows.slice(start, count), self.ids[start : start + count]
        return attrs.evolve(self, rows=rows, ids=ids, first=self.first + start)

    def stamped(self, updated_at_ms: NDArray[np.int64]) -> Events:
        """The same events with other `updated_at` values (epoch milliseconds), shape (len(self),)."""
        place = self.rows.column_names.index("updated_at")
        return attrs.evolve(self, rows=self.rows.set_column(place, "updated_at", pa.array(updated_at_ms)))

    def __len__(self) -> int:
        """Number of events."""
        return len(self.ids)


def append_events(count: int, table: str) -> Events:
    """`count` flattened events of 13 fields with ids 0..count-1, all creates."""
    rng = np.random.default_rng(_APPEND_SEED)
    ids = np.arange(count, dtype=np.int64)
    columns = _values(rng, ids) | _meta(table, np.full(count, "c"), _commit_ts_ns(count))
    return Events(table, pa.table({name: columns[name] for name in FLATTENED_COLUMNS}), ids)


def upsert_events(count: int, keys: int, stride: int, table: str, seed: int = 5) -> Events:
    """`count` envelopes over `keys` ids (0, stride, 2*stride, ...): every batch has the mix 20 % c, 70 % u, 10 % d.

    Ids and operations are drawn independently, so that each batch is like the next and batch times compare.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, keys, count, dtype=np.int64) * stride
    draw = rng.random(count)
    op = np.where(draw < CREATE_SHARE, "c", np.where(draw < CREATE_SHARE + UPDATE_SHARE, "u", "d"))
    ts_ns = _commit_ts_ns(count)
    columns = _values(rng, ids) | _meta(table, op, ts_ns) | {"__ts_ms": pa.array(ts_ns // 1_000_000 + 180)}
    return Events(table, pa.table({name: columns[name] for name in ENVELOPE_COLUMNS}), ids)


def spread(events: Events, tables: Sequence[str], stride: int) -> Events:
    """The same events, each of one of the source's tables: which, its id decides."""
    place = events.rows.column_names.index("__table")
    names = pa.array(tables).take(pa.array(events.ids // stride % len(tables)))
    return attrs.evolve(events, rows=events.rows.set_column(place, "__table", names))


def prefilled_rows(count: int, table: str) -> Any:
    """The `count` rows (ids 0..count-1) that the big table holds at start; `prefill.py` says the same in SQL."""
    ids = np.arange(count, dtype=np.int64)
    columns = {
        "id": pa.array(ids),
        "quantity": pa.array(ids % 50 + 1),
        "price": pa.array((ids % 10_000) / 100.0),
        "discount": pa.array((ids % 20) / 20.0),
        "status": _take(STATUSES, ids % len(STATUSES)),
        "note": pc.binary_join_element_wise("prefilled row number", pc.cast(pa.array(ids), pa.string()), " "),
        "active": pa.array(ids % 2 == 0),
        "updated_at": pa.array(ids + BASE_TS_NS // 1_000_000 - 10_000_000),
    }
    old_ts_ns = np.full(count, BASE_TS_NS - 1_000_000_000)
    columns |= _meta(table, np.full(count, "c"), old_ts_ns) | {"__ts_ms": pa.array(old_ts_ns // 1_000_000)}
    return pa.table({name: columns[name] for name in ENVELOPE_COLUMNS})


def final_rows(events: Events, consumed: NDArray[np.bool_], before: Any | None = None) -> Any:
    """The upserted table (hard delete): the last consumed event per id, on top of the rows `before`."""
    positions = np.flatnonzero(consumed)[::-1]
    ids, newest = np.unique(events.ids[positions], return_index=True)
    live = events.rows.take(pa.array(positions[newest]))
    live = live.filter(pc.not_equal(live["__op"], "d"))
    if before is None:
        return live
    untouched = ~np.isin(before["id"].to_numpy(), ids)
    return pa.concat_tables([before.filter(pa.array(untouched)), live])


def rows_before(events: Events) -> Any:
    """The values that each event's key had before it: those of its last event, of itself where it is the first."""
    places = np.arange(len(events))
    order = np.lexsort((places, events.ids))
    again = np.flatnonzero(events.ids[order][1:] == events.ids[order][:-1]) + 1
    before = places.copy()
    before[order[again]] = order[again - 1]
    return events.rows.select(VALUE_COLUMNS).take(pa.array(before))


def appended_rows(events: Events, consumed: NDArray[np.bool_]) -> Any:
    """The appended table: one row per consumed event."""
    return events.rows.filter(pa.array(consumed))


def _commit_ts_ns(count: int) -> NDArray[np.int64]:
    return BASE_TS_NS + np.arange(count, dtype=np.int64) // EVENTS_PER_TRANSACTION * 1_000_000


def _values(rng: np.random.Generator, ids: NDArray[np.int64]) -> dict[str, Any]:
    count = len(ids)
    return {
        "id": pa.array(ids),
        "quantity": pa.array(rng.integers(1, 50, count, dtype=np.int64)),
        "price": pa.array(rng.integers(100, 100_000, count) / 100.0),
        "discount": pa.array(rng.integers(0, 20, count) / 20.0),
        "status": _take(STATUSES, rng.integers(0, len(STATUSES), count)),
        "note": _notes(rng, count),
        "active": pa.array(rng.random(count) < ACTIVE_SHARE),
        "updated_at": pa.array(BASE_TS_NS // 1_000_000 + rng.integers(0, 1_000_000, count, dtype=np.int64)),
    }


def _notes(rng: np.random.Generator, count: int) -> Any:
    words = [_take(WORDS, rng.integers(0, len(WORDS), count)) for _ in range(3)]
    number = pc.cast(pa.array(rng.integers(0, 1_000_000_000, count)), pa.string())
    return pc.binary_join_element_wise(*words, number, " ")


def _meta(table: str, op: NDArray[np.str_], ts_ns: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "__deleted": pc.if_else(pa.array(op == "d"), "true", "false"),
        "__op": pa.array(op.tolist(), pa.string()),
        "__table": pa.array(np.repeat(table, len(op)).tolist(), pa.string()),
        "__source_ts_ns": pa.array(ts_ns),
        "__db": pa.array(np.repeat(DATABASE, len(op)).tolist(), pa.string()),
    }


def _take(choices: tuple[str, ...], index: NDArray[np.int64]) -> Any:
    return pa.array(choices, pa.string()).take(pa.array(index))
