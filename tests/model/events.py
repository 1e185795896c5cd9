"""changes of a made-up table -> Debezium records and the rows they must end in.

A small source database: it writes what a connector would (envelopes without schema block, default replica identity: the
image of a delete holds its key only), and keeps its own rows as the truth. The events are Debezium's: a
changed key is a delete, a tombstone and a create; all events of one transaction share ts_ns. Its clock is one of

    postgres  positions of changes, dates of commits: of transactions that ran side by side positions go to and fro
    mariadb   the same dates; numbers of transactions, which outlive a server, and positions of its log, which do not
    mysql     positions of the log, dates of whole seconds in which statements began: they go to and fro
    mysql_gtid  the same, and numbers of transactions, which outlive a server
    seconds   such dates without positions, as flattened events may have them

or a connector of `tests.model.source_logs`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.model.recordings import Record
from tests.model.source_logs import Connector, SourceLog

Row = dict[str, Any]
Headers = tuple[tuple[str, bytes | None], ...]
START_NS = 1_700_000_000_000_000_000
Clock = Literal["postgres", "mariadb", "mysql", "mysql_gtid", "seconds"]
CLOCKS: tuple[Clock, ...] = ("postgres", "mariadb", "mysql", "mysql_gtid", "seconds")
OUTLIVING: tuple[Clock, ...] = ("mariadb", "mysql_gtid")
"""Those whose connector may go on at another server."""

_FIRST_FILE = 999_996
"""Log files of so great numbers soon have one more digit."""
_UUID = "8a94f357-aab4-11df-86ab-c80aa9429562"


class Database:
    """A source table with key `id`; every method appends to `log`, which is in the order of the source."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        *,
        keyed: bool = True,
        clock: Clock | Connector = "postgres",
        rng: Random | None = None,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.keyed = keyed
        self.clock = clock
        self.rng = rng or Random(0)
        self._source = None if clock in CLOCKS else SourceLog(clock, self.rng, START_NS)  # type: ignore[arg-type]
        self.rows: dict[int, Row] = {}
        self.log: list[Record] = []
        self._next: Counter[int] = Counter()
        self._lsn = 1000
        self._transaction = 0
        self._events = 0
        self._behind = 0

    def transaction(self, *changes: Sequence[Any]) -> None:
        """Commit changes together: ("c", row), ("u", row), ("d", id), ("k", old id, new id) for a key change."""
        self._transaction += 1
        order = 0
        for change in changes:
            order = self._change(order, *change)

    def side_by_side(self, one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> None:
        """Commit two transactions of different rows: the second one's changes lie before the first one's."""
        start = self._lsn
        self._lsn = start + 800
        self.transaction(*one)
        end, self._lsn = self._lsn, start + 4
        self.transaction(*other)
        self._lsn = max(end, self._lsn) + 8

    def read(self, key: int) -> None:
        """Read a row, as a snapshot does: dated when it was read, at a place that the log has come to."""
        if key in self.rows:
            self._event("r", None, self.rows[key], 0)

    def truncate(self) -> None:
        """Empty the table: an event without key and images, in any partition."""
        self._transaction += 1
        self.rows.clear()
        self._lsn += 8
        value = json.dumps(self._envelope("t", None, None, 1)).encode()
        self._append(self.rng.randrange(self.partitions), None, value)

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic: keys move."""
        self.partitions = partitions

    def fail_over(self) -> None:
        """Another server takes over: in its log all transactions stand elsewhere, mostly in files of small numbers."""
        self._behind = self._lsn - self.rng.randrange(400)

    def again(self, first: int) -> None:
        """Restart: everything from an event on is sent again, in order, up to now; reads are not.

        A tombstone comes with its delete.
        """
        first -= self.log[first].value is None
        for record in self.log[first:]:
            op = json.loads(record.value)["op"] if record.value else ""
            if op != "r":
                place = record.partition if op == "t" else self._partition(record.key)
                self._append(place, record.key, self._sent_again(record.value), record.headers)

    def _sent_again(self, value: bytes | None) -> bytes | None:
        """Give an event as it is in the log of the server that there is now."""
        if value is not None and self._source:
            return json.dumps(self._source.send_again(json.loads(value), self._transaction)).encode()
        if value is None or not self._behind or self.clock not in OUTLIVING:
            return value
        event = json.loads(value)
        number = int(re.split("[-:]", event["source"]["gtid"])[-1])
        event["source"] |= {"file": "bin.log.000001", "pos": number * 100 + event["transaction"]["total_order"]}
        return json.dumps(event).encode()

    def _change(self, order: int, op: str, what: Any, new: int = 0) -> int:
        if op == "d":
            del self.rows[what]
            self._event("d", {"id": what}, None, order + 1)
            return order + 1
        if op == "k":
            moved = {**self.rows.pop(what), "id": new}
            self._event("d", {"id": what}, None, order + 1, headers=_key_header(NEW_KEY_HEADER, new))
            self._event("c", None, moved, order + 2, headers=_key_header(OLD_KEY_HEADER, what))
            self.rows[new] = moved
            return order + 2
        self.rows[what["id"]] = dict(what)
        self._event(op, None, what, order + 1)
        return order + 1

    def _event(self, op: str, before: Row | None, after: Row | None, order: int, *, headers: Headers = ()) -> None:
        image = after or before or {}
        self._lsn += 8
        self._events += 1
        if before is not None:
            before = {**dict.fromkeys(COLUMNS), **before}
        key = json.dumps({"id": image["id"]}).encode() if self.keyed else None
        value = json.dumps(self._envelope(op, before, after, order)).encode()
        partition = self._partition(key)
        self._append(partition, key, value, headers)
        if op == "d" and self.keyed:
            self._append(partition, key, None, headers)

    def _partition(self, key: bytes | None) -> int:
        return (zlib.crc32(key) if key else self._events) % self.partitions

    def _date(self, op: str) -> int:
        """The date of an event. Of a read it is later than anything, to the microsecond."""
        now = START_NS + self._transaction * 1_000_000
        if self._source:
            return self._source.date(self._transaction, op)
        if op == "r":
            return now + self.rng.randrange(1, 50_000) * 1_000_000
        if self.clock == "postgres":
            return now
        # A statement that waited for a lock, or after SET timestamp, is dated before others that were done earlier.
        return START_NS + (self._transaction + self.rng.randrange(-30, 30)) * 1_000_000_000

    def _place(self, op: str, order: int) -> Row:
        if self._source:
            return self._source.place(self._transaction, order, op)
        if self.clock == "postgres":
            # A read has the snapshot's place: transactions that were open then go on at smaller ones.
            return {"lsn": self._lsn + 500 * (op == "r"), "xmin": None, "txId": self._transaction}
        if self.clock in ("mysql", *OUTLIVING):
            behind = self._behind
            number, pos = divmod(max(self._lsn - behind, 0) + 1000 * (behind > 0), 200)
            number += _FIRST_FILE * (behind == 0)
            owner = {"mariadb": "0-7-", "mysql_gtid": f"{_UUID}:"}.get(self.clock)
            gtid = owner and f"{owner}{self._transaction}"
            return {"server_id": 7, "gtid": gtid, "file": f"bin.log.{number:06d}", "pos": pos, "row": 0}
        return {}

    def _append(self, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        self.log.append(Record(self.topic, partition, self._next[partition], key, value, headers))
        self._next[partition] += 1

    def _envelope(self, op: str, before: Row | None, after: Row | None, order: int) -> Row:
        ts_ns = self._date(op)
        source = {
            "version": "3.7.0.Final",
            "connector": "postgresql" if self.clock == "postgres" else self.clock if self._source else "mysql",
            "name": self.topic.split(".")[0],
            "ts_ms": ts_ns // 1_000_000,
            "snapshot": "false",
            "db": "made",
            "sequence": self._source.sequence(order) if self._source else f'[null,"{self._lsn}"]',
            "ts_us": ts_ns // 1000,
            "ts_ns": ts_ns,
            "schema": "public",
            "table": self.topic.split(".")[-1],
            **self._place(op, order),
        }
        transaction = {"id": f"{self._transaction}:{self._lsn}", "total_order": order, "data_collection_order": order}
        if self._source:
            transaction |= self._source.block(self._transaction, order)
        return {
            "before": before,
            "after": after,
            "source": source,
            "transaction": transaction,
            "op": op,
            "ts_ms": ts_ns // 1_000_000 + 5,
            "ts_us": ts_ns // 1000 + 5000,
            "ts_ns": ts_ns + 5_000_000,
        }


def _key_header(name: str, key: int) -> Headers:
    """As Kafka Connect's own header converter writes a key."""
    return ((name, json.dumps({"id": key}).encode()),)


COLUMNS = ("id", "name", "n", "region")


def row(key: int, name: str, n: int = 0, region: str | None = None) -> Row:
    """One row of the made-up table."""
    return {"id": key, "name": name, "n": n, "region": region}
