"""Changes of key of an index -> the documents that move: in the order of the fold, and below their creates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, Watermark
from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import mark_key_changes
from connector.sink.destinations.opensearch.write.key_changes import announce_key_changes, read_key_changes
from connector.sink.destinations.opensearch.write.moved_documents import DocumentMove, find_moves, sort_moves
from connector.sink.fold.fold import fold
from connector.sink.model.change_rows import ChangeBatch
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.unit.sink_plans import DATED, plan, run, upsert

NOON = 1_700_000_000
SECOND = 1_000_000_000
TABLE = upsert(0, DATED, ("id",), numbered=True)
Told = tuple[str, int, int, int, str]
"""Operation, key, seconds after noon, position (0: not told), what a header says: `>2` goes to a key, `<1` comes from
one.
"""


def _event(told: Told, number: int) -> dict[str, Any]:
    op, key, seconds, place, _ = told
    log = {"server_id": 1, "file": "bin.000001", "pos": place} if place else {}
    source = {"name": "s", "db": "d", "table": "t", "ts_ns": (NOON + seconds) * SECOND, **log}
    row = {"id": key, "name": op, "n": number, "region": None}
    image = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**image, "source": source, "op": op, "ts_ms": 0, "transaction": None}


def _header(said: str) -> bytes:
    return orjson.dumps({"id": int(said[1:])})


def _read(events: Sequence[Told], partition: int, before: int) -> tuple[ChangeBatch, list[bytes]]:
    """The changes of a topic-partition that has given versions up to `before` (seconds); what both keys are told."""
    read = run(*(_event(one, n) for n, one in enumerate(events)), keys=[{"id": one[1]} for one in events])
    said = [one[4] for one in events]
    headers = {
        name: pa.array([_header(each) if each[:1] == sign else None for each in said], pa.binary())
        for name, sign in ((OLD_KEY_HEADER, "<"), (NEW_KEY_HEADER, ">"))
    }
    read = attrs.evolve(read, partition=partition, headers=headers).with_headers(OLD_KEY_HEADER, NEW_KEY_HEADER)
    table = attrs.evolve(TABLE, watermarks={("t", partition): {ALL_SOURCES: Watermark(version=_at(before))}})
    planned = plan(table, ranks={("t", 0): 0, ("t", 1): 1})
    (part,) = decode(read, planned).parts
    old = read.old_key
    part = part if old is None else mark_key_changes(part, read.offset, old)
    return part, [output.payload for output in announce_key_changes(part, read, table)]


def _at(seconds: int) -> int:
    return (NOON + seconds) * SECOND


def _moves(*partitions: Sequence[Told], before: Sequence[int] = (0, 0)) -> tuple[list[DocumentMove], dict[int, int]]:
    """The moves of a batch, in the order of `sort_moves`, and the versions of the creates by their keys."""
    read = [_read(events, number, before[number]) for number, events in enumerate(partitions)]
    parts = [part for part, _ in read]
    keys = read_key_changes([one for _, told in read for one in told], TABLE, TABLE.layout.rows)
    # Where the create has all values nothing moves; here it counts as if its partition lagged.
    keys = attrs.evolve(keys, after=_find_targets(read))
    found = find_moves(fold(parts, ("id",)), keys, TABLE, versioned=True)
    whole = ChangeBatch.concat(parts)
    created = np.flatnonzero(whole.order.op == ord("C"))
    ids = whole.rows.column("id").to_pylist()
    return sort_moves(found), {ids[row]: int(whole.order.dedup[row]) for row in created}


def _find_targets(read: Sequence[tuple[ChangeBatch, list[bytes]]]) -> Any:
    left = [one for _, told in read for one in told if one.partition(b"\n")[2][:1] == b">"]
    return read_key_changes(left, TABLE, TABLE.layout.rows).after


TO_AND_FRO: list[Told] = [
    ("c", 1, 16, 10, ""),
    ("d", 1, -1, 20, ""),
    ("c", 1, 12, 30, ""),
    ("d", 1, -9, 40, ">3"),
]
CREATE: Told = ("c", 3, -9, 40, "<1")


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("before", [-100, 0, 60])
def test_a_document_moves_below_its_create(before: int, together: bool, placed: bool) -> None:
    """Dates fall, and the old key's partition has given greater versions: the move takes the last row that the key had
    before the delete, and its number is the delete's own.
    """
    events = [(*one[:3], one[3] * placed, one[4]) for one in (*TO_AND_FRO, CREATE)]
    split = [events] if together else [events[:-1], events[-1:]]
    (move,), created = _moves(*split, before=(before, -100))
    assert move.row is not None and move.row.rows.column("n").to_pylist() == [2]
    assert move.number == _at(-9)
    assert move.number - 1 < created[3]
    assert move.version >= _at(max(before, -9))


def test_moves_without_places_are_in_the_order_of_kafka() -> None:
    """1 becomes 2, and 2 becomes 3, whatever their dates; those of another partition come where its dates had come."""
    chain: list[Told] = [
        ("c", 1, 1, 0, ""),
        ("d", 1, 50, 0, ">2"),
        ("c", 2, 50, 0, "<1"),
        ("d", 2, 20, 0, ">3"),
        ("c", 3, 20, 0, "<2"),
    ]
    other: list[Told] = [("c", 5, 1, 0, ""), ("d", 5, 30, 0, ">6"), ("c", 6, 30, 0, "<5")]
    moves, _ = _moves(chain, other)
    assert [(move.old, move.new) for move in moves] == [("5", "6"), ("1", "2"), ("2", "3")]


def test_what_repeats_moves_nothing() -> None:
    """A connector that restarted sends the change again: the key has another row by then."""
    first: list[Told] = [("c", 1, 1, 10, ""), ("d", 1, 2, 20, ">2"), ("c", 1, 3, 30, ""), ("u", 1, 4, 40, "")]
    (move,), _ = _moves([*first, *first[1:3]])
    assert move.place.order.offset.tolist() == [101]
