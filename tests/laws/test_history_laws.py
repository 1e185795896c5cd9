"""Laws of tables that keep history: the versions follow from the set of changes, whatever came when."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.sink.destinations.iceberg.write_modes.scd2_versions import to_changes, update_versions
from connector.sink.fold.fold import fold
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, gather
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

TIME = pa.timestamp("us", "UTC")
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("valid_from", TIME),
        ("valid_to", TIME),
        ("is_current", pa.bool_()),
    ]
)
# (key, microsecond, whether it deletes)
CHANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.booleans()), unique_by=lambda c: c[:2])
Change = tuple[int, int, bool]
Row = dict[str, Any]


def _part(changes: list[Change]) -> ChangeBatch:
    count = len(changes)
    rows = [{"id": key, "name": f"{key}@{time}", "valid_from": time} for key, time, _ in changes]
    unknown = np.full(count, NO_VALUE, np.int64)
    times = np.array([time for _, time, _ in changes], np.int64)
    op = np.array([ord("d") if gone else ord("u") for *_, gone in changes], np.uint8)
    order = ChangeOrder(
        np.zeros(count, np.int64), np.arange(count), times * 1000, unknown, unknown_positions(count), op
    )
    deleted = np.array([gone for *_, gone in changes], np.bool_)
    return ChangeBatch(pa.RecordBatch.from_pylist(rows, COLUMNS), order, deleted, np.ones(count, np.bool_))


def _expected(changes: list[Change]) -> list[tuple[Any, ...]]:
    """The history by hand: each version ends when the next thing happens to its key."""
    by_key: dict[int, list[Change]] = defaultdict(list)
    for change in sorted(changes):
        by_key[change[0]].append(change)
    return sorted(
        (key, f"{key}@{time}", time, own[i + 1][1] if i + 1 < len(own) else None, i + 1 == len(own))
        for key, own in by_key.items()
        for i, (_, time, gone) in enumerate(own)
        if not gone
    )


def _applied(table: dict[tuple[int, int], Row], batch: list[Change]) -> None:
    """Bring a table up to date as a batch does."""
    part = _part(batch)
    folded = fold([part], ("id", "valid_from"))
    keys = {key for key, *_ in batch}
    held = [row for row in table.values() if row["id"] in keys]
    parts = [to_changes(pa.RecordBatch.from_pylist(held, COLUMNS))] if held else []
    replaced, rows = update_versions(gather(folded.parts, folded.winners), parts, ("id",), COLUMNS)
    for row in replaced.to_pylist():
        table.pop((row["id"], row["valid_from"]), None)
    for row in rows.to_pylist():
        assert (row["id"], row["valid_from"]) not in table
        table[row["id"], row["valid_from"]] = row


def _plain(table: dict[Any, Row]) -> list[tuple[Any, ...]]:
    micros = {t: t.timestamp() * 1e6 for row in table.values() for t in (row["valid_from"], row["valid_to"]) if t}
    return sorted(
        (r["id"], r["name"], round(micros[r["valid_from"]]), round(micros[r["valid_to"]]) if r["valid_to"] else None,
         r["is_current"])
        for r in table.values()
    )  # fmt: skip


@given(CHANGES.filter(bool), st.data())
def test_what_comes_again_changes_no_history(changes: list[Change], data: st.DataObject) -> None:
    """In batches cut anywhere, with any earlier changes among them again, each key gets the versions of all of them."""
    waiting = sorted(changes, key=lambda change: change[1])
    seen: list[Change] = []
    table: dict[tuple[int, int], Row] = {}
    while waiting:
        size = data.draw(st.integers(1, len(waiting)))
        seen, fresh, waiting = seen + waiting[:size], waiting[:size], waiting[size:]
        _applied(table, data.draw(st.permutations([*fresh, *data.draw(st.lists(st.sampled_from(seen), max_size=6))])))
    _applied(table, data.draw(st.lists(st.sampled_from(seen), min_size=1, max_size=6)))
    assert _plain(table) == _expected(changes)


@given(CHANGES.map(lambda changes: [(key, time, False) for key, time, _ in changes]).filter(bool), st.data())
def test_versions_may_come_in_any_order(changes: list[Change], data: st.DataObject) -> None:
    """Without deletes, which leave no trace without a version before them, changes may come in any order at all."""
    waiting = data.draw(st.permutations(changes))
    table: dict[tuple[int, int], Row] = {}
    while waiting:
        size = data.draw(st.integers(1, len(waiting)))
        _applied(table, waiting[:size])
        waiting = waiting[size:]
    assert _plain(table) == _expected(changes)
