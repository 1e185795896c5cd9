"""a random number generator -> a source table whose rows change their keys, and whose updates leave large values out.

Events are PostgreSQL's, as Debezium writes them: a changed key is a delete and a create at one place of the log, each
with the other's key in a header, and a value that no update touched is a placeholder. Each row keeps a number of its
own through all its keys, which is in its large value too: so a value that is of another row is seen.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from random import Random
from typing import Any, Literal

import attrs
from attrs import define, field

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.model.recordings import Record

START_NS = 1_700_000_000_000_000_000
Tells = Literal["places", "places in transactions", "dates"]
"""What events tell of their order: a place in the log, with the place in their transaction, or dates alone."""

Header = tuple[str, bytes]


@define(eq=False, slots=False)
class MovingRows:
    """A table with the key `id`, the row's own number `of`, a counter `n` and a large value `big`."""

    topic: str
    rng: Random
    partitions: int = 1
    keys: int = 6
    tells: Tells = "places"
    whole: float = 0.1
    """How many of the rows whose key changes are sent with all their values."""
    rows: dict[int, dict[str, Any]] = field(factory=dict)
    log: list[Record] = field(factory=list)
    ends: list[int] = field(factory=list)
    """Where in the log transactions end."""
    _offsets: Counter[int] = field(factory=Counter)
    _made: int = 0
    _lsn: int = 1000
    _transactions: int = 0
    _order: int = 0
    _events: int = 0

    def live(self, transactions: int) -> None:
        """Commit so many."""
        for _ in range(transactions):
            self._transactions += 1
            self._order = 0
            self._step()
            self.ends.append(len(self.log))

    def send_again(self, first: int) -> None:
        """Send all records from one on again, as a connector that restarts does; the time of processing goes on."""
        self._transactions += 2_000
        for record in self.log[first:]:
            value = record.value
            if value is not None:
                value = json.dumps({**json.loads(value), "ts_ns": self._processed_ns()}).encode()
            self.log.append(attrs.evolve(record, offset=self._offsets[record.partition], value=value))
            self._offsets[record.partition] += 1
        self.ends.append(len(self.log))

    def _step(self) -> None:
        rng = self.rng
        key, other = rng.randrange(self.keys), rng.randrange(self.keys)
        if key not in self.rows:
            self.create(key)
            return
        kind = rng.random()
        if kind < 0.3:
            self.update(key, sent=rng.random() < 0.3)
        elif kind < 0.65:
            free = [one for one in range(self.keys) if one not in self.rows]
            if free:
                self.move(key, rng.choice(free))
        elif kind < 0.75 and other in self.rows and other != key:
            self.swap(key, other)
        elif kind < 0.85:
            self.delete(key)
            self.create(key)
        elif kind < 0.9:
            self.delete(key)

    def create(self, key: int) -> None:
        """A new row."""
        self._made += 1
        self.rows[key] = {"id": key, "of": self._made, "n": 0, "big": f"{self._made}-0"}
        self._tell("c", None, self.rows[key])

    def update(self, key: int, *, sent: bool) -> None:
        """Count, and give the row another large value where it is `sent`."""
        row = self.rows[key]
        row["n"] += 1
        if sent:
            row["big"] = f"{row['of']}-{row['n']}"
        self._tell("u", None, row if sent else {**row, "big": PLACEHOLDER})

    def delete(self, key: int, header: Header | None = None) -> None:
        """Take a row out."""
        gone = dict.fromkeys(self.rows.pop(key))
        self._tell("d", {**gone, "id": key}, None, header)
        self._append(key, None, header)

    def move(self, old: int, new: int) -> None:
        """Give a row another key."""
        row = self.rows[old]
        self.delete(old, ("__debezium.newkey", _key(new)))
        self.rows[new] = {**row, "id": new}
        told = self.rows[new] if self.rng.random() < self.whole else {**self.rows[new], "big": PLACEHOLDER}
        self._tell("c", None, told, ("__debezium.oldkey", _key(old)), moved=True)

    def swap(self, one: int, other: int) -> None:
        """Swap two keys by way of a third, in one transaction."""
        self.move(one, self.keys)
        self.move(other, one)
        self.move(self.keys, other)

    def _tell(
        self,
        op: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        header: Header | None = None,
        *,
        moved: bool = False,
    ) -> None:
        self._lsn += 0 if moved else 8
        self._order += 1
        ts_ns = START_NS + self._transactions * 1_000_000 + 1000
        source = {"name": "s", "db": "d", "schema": "public", "table": "t", "connector": "postgresql", "ts_ns": ts_ns}
        source |= {} if self.tells == "dates" else {"lsn": self._lsn}
        event = {"before": before, "after": after, "source": source, "op": op, "ts_ns": self._processed_ns()}
        if self.tells == "places in transactions":
            event["transaction"] = {"id": str(self._transactions), "total_order": self._order}
        self._append((after or before or {})["id"], event, header)

    def _processed_ns(self) -> int:
        self._events += 1
        return START_NS + self._transactions * 1_000_000 + 777 * self._events

    def _append(self, key: int, event: dict[str, Any] | None, header: Header | None) -> None:
        at = zlib.crc32(_key(key)) % self.partitions
        value = None if event is None else json.dumps(event).encode()
        headers = () if header is None else (header,)
        self.log.append(Record(self.topic, at, self._offsets[at], _key(key), value, headers=headers))
        self._offsets[at] += 1


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()
