"""Kafka records -> the table they must end in: the sink's rules in plain Python, one record at a time.

Slow and obvious on purpose; shares no code with the sink. Rules: docs/decisions/0024 and the
docs of the columns that Debezium's ExtractNewRecordState adds.
"""

from __future__ import annotations

import re
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
    """One record as the sink understands it; `row` holds the columns of the table.

    `source` is where it stands in the source's log, comparable with others of the same `log`.
    """

    topic: str
    partition: int
    offset: int
    kind: Kind
    key: Key | None
    row: Row = field(factory=dict)
    op: str = ""
    ts_ns: int | None = None
    source: tuple[int, ...] | None = None
    log: str = ""


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
    kind, row, op, ts_ns, log, source = _meaning(value)
    return Event(record.topic, record.partition, record.offset, kind, key, row, op, ts_ns, source, log)


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
    """The one event that decides each key (rules 1 and 2)."""
    by_key: dict[Key, dict[tuple[str, int], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.key is not None and event.kind != "other":
            by_key[event.key][event.topic, event.partition].append(event)
    return {key: _across([(_within(e), e) for e in parts.values()]) for key, parts in by_key.items()}


SECOND_NS = 1_000_000_000
NUMBERING = 1
"""Which number of a place is negative where a number of its transaction follows it."""


def position(event: Event) -> tuple[int, ...] | None:
    """Where an event provably stands: reads say nothing, as transactions that were open then have smaller places."""
    return None if event.op in {"r", ""} and event.kind == "row" else event.source


def date(event: Event) -> int | None:
    """When an event provably was: a whole second is when a statement began, a read's date when it was read."""
    if event.ts_ns is None or event.ts_ns % SECOND_NS == 0 or (event.op in {"r", ""} and event.kind == "row"):
        return None
    return event.ts_ns


def repeats(event: Event, before: Iterable[Event]) -> bool:
    """Rule 1: whether an event is proven to repeat an older one, by what came before it in its partition."""
    same = [other for other in before if other.log == event.log]
    places = [place for other in same if (place := position(other)) is not None]
    dates = [when for other in same if (when := date(other)) is not None]
    place, when = position(event), date(event)
    if place is not None and places:
        newer = when is not None and bool(dates) and when > max(dates)
        return place < max(places) and not newer and not _is_new_transaction(place, places)
    return when is not None and bool(dates) and when < max(dates)


def _is_new_transaction(place: tuple[int, ...], before: list[tuple[int, ...]]) -> bool:
    """Whether MySQL numbers its transaction, and no greater number came before: in another log it stands elsewhere."""
    if len(place) <= NUMBERING or place[NUMBERING] >= 0:
        return False
    return all(
        place[2] >= one[2] for one in before if one[NUMBERING : NUMBERING + 1] == place[NUMBERING : NUMBERING + 1]
    )


def _within(events: list[Event]) -> Event:
    """Rule 1: Kafka's order, without what is proven to repeat."""
    told = _told(events)
    return [event for at, event in enumerate(told) if not repeats(event, told[:at])][-1]


def _told(events: list[Event]) -> list[Event]:
    """Tombstones carry no time and no position: each stands with the event of its key that it follows.

    After a delete event it says nothing new.
    """
    out: list[Event] = []
    for event in sorted(events, key=lambda e: e.offset):
        if event.kind != "tombstone" or not out:
            out.append(event)
        elif out[-1].kind != "delete":
            last = out[-1]
            known = {} if last.op in {"r", ""} and last.kind == "row" else {"source": last.source, "log": last.log}
            out.append(evolve(event, ts_ns=last.ts_ns, **known))
    return out


def _across(winners: list[tuple[Event, list[Event]]]) -> Event:
    """Rule 2: the source's position if all have a comparable one, dates, op priority, topic, partition, offset.

    A read has no later date than the latest change.
    """
    stands = [(_standing(event, others), event) for event, others in winners]
    events = [stand for stand, _ in stands]
    placed = all(position(e) is not None for e in events) and len({e.log for e in events}) == 1
    dated = all(e.ts_ns is not None for e in events)
    latest = max((e.ts_ns or 0 for e in events if e.op != "r"), default=None)

    def order(e: Event) -> tuple[Any, ...]:
        when = (e.ts_ns or 0) if dated else 0
        when = min(when, latest) if e.op == "r" and latest is not None else when
        place = position(e) if placed else ()
        return (place or (), when, PRIORITY.get(e.op, 0), e.topic, e.partition, e.offset)

    return max(stands, key=lambda both: order(both[0]))[1]


def _standing(event: Event, others: list[Event]) -> Event:
    """A read with what the change of its key and partition with the greatest place tells, where all are of one log."""
    told = [e for e in sorted(others, key=lambda e: e.offset) if e.kind != "tombstone" and position(e) is not None]
    if event.op != "r" or len({e.log for e in told}) != 1:
        return event
    top = max(told, key=lambda e: position(e) or ())
    return evolve(event, source=top.source, log=top.log, ts_ns=top.ts_ns, op=top.op)


Meaning = tuple[Kind, Row, str, int | None, str, tuple[int, ...] | None]


def _meaning(value: Any) -> Meaning:
    if value is None:
        return "tombstone", {}, "", None, "", None
    if "source" in value and "op" in value:
        return _envelope(value)
    op = value.get("__op", "")
    deleted = value.get("__deleted") == "true" or op == "d"
    known = "__op" in value or "__deleted" in value
    kind: Kind = "other" if not known else "delete" if deleted else "row"
    return kind, dict(value), op, value.get("__source_ts_ns"), "", None


def _envelope(value: Row) -> Meaning:
    op, source = value["op"], value["source"]
    if op not in {"c", "r", "u", "d"}:
        return "other", {}, op, source["ts_ns"], "", None
    image = value["before"] if op == "d" else value["after"]
    added = {
        "__deleted": "true" if op == "d" else "false",
        "__op": op,
        "__table": source["table"],
        "__source_ts_ns": source["ts_ns"],
        "__db": source["db"],
        "__ts_ms": value["ts_ms"],
    }
    return "delete" if op == "d" else "row", {**image, **added}, op, source["ts_ns"], *_place(value)


def _place(value: Row) -> tuple[str, tuple[int, ...] | None]:
    """The log of an event, and where it stands there, as far as it tells."""
    source = value["source"]
    name = ".".join(str(source.get(part) or "") for part in ("name", "db", "table"))
    if source.get("lsn") is not None:
        return name, (source["lsn"], (value.get("transaction") or {}).get("total_order", 0))
    numbered = re.fullmatch(r"[0-9a-f-]{36}:(\d+)", source.get("gtid") or "")
    if source.get("gtid") and not numbered:
        server, _, number = source["gtid"].rpartition("-")
        return f"{name}@{server}", (int(number),)
    if source.get("file"):
        stem, _, number = source["file"].rpartition(".")
        if numbered:
            at = int(number) << 32 | source["pos"]
            return f"{name}@{source.get('server_id', '')}/{stem}", (at, -1, int(numbered[1]))
        return f"{name}@{source.get('server_id', '')}/{stem}", (int(number), source["pos"], source.get("row") or 0)
    return name, None
