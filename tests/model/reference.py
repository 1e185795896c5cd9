"""Kafka records -> the table they must end in: the sink's rules in plain Python, one record at a time.

Slow and obvious on purpose; shares no code with the sink. Rules: design.md section 4 (fold) and
docs of the columns that Debezium's ExtractNewRecordState adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from attrs import evolve, field, frozen

from tests.model.connect_json import decode
from tests.model.recordings import Record

Row = dict[str, Any]
Key = tuple[tuple[str, Any], ...]
Kind = Literal["row", "delete", "tombstone", "other"]
# When nothing else orders two events of one key: create wins, delete loses.
PRIORITY = {"c": 4, "r": 3, "u": 2, "d": 1, "": 0}


@frozen
class Event:
    """One record as the sink understands it; `row` holds the columns of the table."""

    topic: str
    partition: int
    offset: int
    kind: Kind
    key: Key | None
    row: Row = field(factory=dict)
    op: str = ""
    ts_ns: int | None = None
    source: tuple[int, int] | None = None


@frozen
class Table:
    """A table's rows by key; `bare` are keys ended by a tombstone that no delete event explains."""

    rows: Mapping[Key, Row]
    bare: frozenset[Key]


def read(record: Record) -> Event:
    """What one record says."""
    key_payload, _ = decode(record.key)
    key = tuple(sorted(key_payload.items())) if isinstance(key_payload, dict) else None
    value, _ = decode(record.value)
    kind, row, op, ts_ns, source = _meaning(value)
    return Event(record.topic, record.partition, record.offset, kind, key, row, op, ts_ns, source)


def upsert(records: Iterable[Record], *, keep_deletes: bool) -> Table:
    """One row per key: the newest event's; deletes leave none, or their own image when they are kept.

    A table that keeps deletes says of every row whether it is one, also where events do not.
    """
    last = fold(read(r) for r in records)
    bare = frozenset(k for k, e in last.items() if e.kind == "tombstone")
    kept = {"row", "delete"} if keep_deletes else {"row"}
    rows = {k: e.row for k, e in last.items() if e.kind in kept}
    return Table({k: {"__deleted": "false", **r} if keep_deletes else r for k, r in rows.items()}, bare)


def append(records: Iterable[Record]) -> list[Row]:
    """One row per event; tombstones and events without a row make none."""
    return [e.row for e in map(read, records) if e.kind in {"row", "delete"}]


def fold(events: Iterable[Event]) -> dict[Key, Event]:
    """The one event that decides each key (design.md section 4, rules 1 and 2)."""
    by_key: dict[Key, dict[tuple[str, int], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.key is not None and event.kind != "other":
            by_key[event.key][event.topic, event.partition].append(event)
    return {key: _across([_within(e) for e in parts.values()]) for key, parts in by_key.items()}


def _within(events: list[Event]) -> Event:
    """Rule 1: greatest dedup column, then greatest offset."""
    return max(_dated(events), key=lambda e: (e.ts_ns or 0, e.offset))


def _dated(events: list[Event]) -> list[Event]:
    """Tombstones carry no time and no position: each stands with the event of its key that it follows.

    After a delete event it says nothing new.
    """
    out: list[Event] = []
    for event in sorted(events, key=lambda e: e.offset):
        if event.kind != "tombstone":
            out.append(event)
        elif not out or out[-1].kind != "delete":
            ts_ns, source = (out[-1].ts_ns, out[-1].source) if out else (None, None)
            out.append(evolve(event, ts_ns=ts_ns, source=source))
    return out


def _across(events: list[Event]) -> Event:
    """Rule 2: dedup column, the source's position if all have one, op priority, topic, partition, offset."""
    newest = max(e.ts_ns or 0 for e in events)
    rivals = [e for e in events if (e.ts_ns or 0) == newest]
    placed = all(e.source is not None for e in rivals)

    def order(e: Event) -> tuple[Any, ...]:
        source = e.source if placed else None
        return (source or (0, 0), PRIORITY.get(e.op, 0), e.topic, e.partition, e.offset)

    return max(rivals, key=order)


Meaning = tuple[Kind, Row, str, int | None, tuple[int, int] | None]


def _meaning(value: Any) -> Meaning:
    if value is None:
        return "tombstone", {}, "", None, None
    if "source" in value and "op" in value:
        return _envelope(value)
    op = value.get("__op", "")
    deleted = value.get("__deleted") == "true" or op == "d"
    known = "__op" in value or "__deleted" in value
    kind: Kind = "other" if not known else "delete" if deleted else "row"
    return kind, dict(value), op, value.get("__source_ts_ns"), None


def _envelope(value: Row) -> Meaning:
    op, source = value["op"], value["source"]
    if op not in {"c", "r", "u", "d"}:
        return "other", {}, op, source["ts_ns"], None
    image = value["before"] if op == "d" else value["after"]
    added = {
        "__deleted": "true" if op == "d" else "false",
        "__op": op,
        "__table": source["table"],
        "__source_ts_ns": source["ts_ns"],
        "__db": source["db"],
        "__ts_ms": value["ts_ms"],
    }
    return "delete" if op == "d" else "row", {**image, **added}, op, source["ts_ns"], _position(value)


def _position(value: Row) -> tuple[int, int] | None:
    """(lsn, total_order): the place in the source's log, where the event carries both."""
    lsn, transaction = value["source"].get("lsn"), value.get("transaction")
    return None if lsn is None or not transaction else (lsn, transaction["total_order"])
