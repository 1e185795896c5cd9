"""changes of a made-up table -> Debezium records and the rows they must end in.

A small source database: it writes what the PostgreSQL connector would (envelopes without schema block, default
replica identity: the image of a delete holds its key only), and keeps its own rows as the truth. The shape of the
events: debezium-events (PK change = d + tombstone + c; all events of one transaction share ts_ns).
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.model.recordings import Record

Row = dict[str, Any]
START_NS = 1_700_000_000_000_000_000


class Database:
    """A source table with key `id`; every method appends to `log`, which is in the order of the source."""

    def __init__(self, topic: str, partitions: int, *, keyed: bool = True) -> None:
        self.topic = topic
        self.partitions = partitions
        self.keyed = keyed
        self.rows: dict[int, Row] = {}
        self.log: list[Record] = []
        self._next: Counter[int] = Counter()
        self._lsn = 1000
        self._transaction = 0
        self._events = 0

    def transaction(self, *changes: Sequence[Any]) -> None:
        """Commit changes together: ("c", row), ("u", row), ("d", id), ("k", old id, new id) for a key change."""
        self._transaction += 1
        order = 0
        for change in changes:
            order = self._change(order, *change)

    def _change(self, order: int, op: str, what: Any, new: int = 0) -> int:
        if op == "d":
            del self.rows[what]
            self._event("d", {"id": what}, None, order + 1)
            return order + 1
        if op == "k":
            moved = {**self.rows.pop(what), "id": new}
            self._event("d", {"id": what}, None, order + 1)
            self._event("c", None, moved, order + 2)
            self.rows[new] = moved
            return order + 2
        self.rows[what["id"]] = dict(what)
        self._event(op, None, what, order + 1)
        return order + 1

    def _event(self, op: str, before: Row | None, after: Row | None, order: int) -> None:
        image = after or before or {}
        self._lsn += 8
        self._events += 1
        if before is not None:
            before = {**dict.fromkeys(COLUMNS), **before}
        key = json.dumps({"id": image["id"]}).encode() if self.keyed else None
        value = json.dumps(self._envelope(op, before, after, order)).encode()
        partition = (zlib.crc32(key) if key else self._events) % self.partitions
        self._append(partition, key, value)
        if op == "d" and self.keyed:
            self._append(partition, key, None)

    def _append(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        self.log.append(Record(self.topic, partition, self._next[partition], key, value))
        self._next[partition] += 1

    def _envelope(self, op: str, before: Row | None, after: Row | None, order: int) -> Row:
        ts_ns = START_NS + self._transaction * 1_000_000
        source = {
            "version": "3.7.0.Final",
            "connector": "postgresql",
            "name": self.topic.split(".")[0],
            "ts_ms": ts_ns // 1_000_000,
            "snapshot": "false",
            "db": "made",
            "sequence": f'[null,"{self._lsn}"]',
            "ts_us": ts_ns // 1000,
            "ts_ns": ts_ns,
            "schema": "public",
            "table": self.topic.split(".")[-1],
            "txId": self._transaction,
            "lsn": self._lsn,
            "xmin": None,
        }
        transaction = {"id": f"{self._transaction}:{self._lsn}", "total_order": order, "data_collection_order": order}
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


COLUMNS = ("id", "name", "n", "region")


def row(key: int, name: str, n: int = 0, region: str | None = None) -> Row:
    """One row of the made-up table."""
    return {"id": key, "name": name, "n": n, "region": region}
