"""a made-up database's transactions -> what each connector says of an event's place in its log, and of its date.

Facts of Debezium's pages and sources ("connectors/<name>", 3.3 to 3.7), with what makes them hard to compare:

    sqlserver   the transactions in order of their commits, dated by their beginnings; within one the statements in
                order, whose change_lsn goes to and fro, and an update counts two events
    oracle      redo threads, each with commits of its own; whole seconds
    oracle_1x   the same, but commit_scn is that of the thread's transaction before
    db2         longer LSNs, both of which rise; a date of microseconds
    informix    decimal LSNs; a date of the connector's own clock
    mongodb     the clock of the node that wrote: another one is behind it; `ord` counts anew each second
    mongodb_3   the second of the cluster's time and the place in it; a transaction has one of both
    vitess      VGTIDs, with ordered transaction metadata; whole seconds
    spanner     commit times; record sequences count anew in each transaction
    cassandra   write times, a node's own files
    cockroachdb, tidb   hybrid clocks, as text or in a field of their own
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from random import Random
from typing import Any, Literal

SECOND_NS, MS_NS, US_NS = 10**9, 10**6, 10**3

Connector = Literal[
    "sqlserver",
    "oracle",
    "oracle_1x",
    "db2",
    "informix",
    "mongodb",
    "mongodb_3",
    "vitess",
    "spanner",
    "cassandra",
    "cockroachdb",
    "tidb",
]
CONNECTORS: tuple[Connector, ...] = Connector.__args__  # type: ignore[attr-defined]
PLACED: dict[str, str] = {
    "sqlserver": "source.commit_lsn,source.change_lsn",
    "oracle": "source.commit_scn,scn,source.redo_thread",
    "oracle_1x": "commit_scn,source.scn,redo_thread",
    "db2": "commit_lsn,source.change_lsn",
    "informix": "source.commit_lsn,change_lsn",
    "mongodb": "source.ts_ms,source.ord,source.wallTime",
    "mongodb_3": "source.ts_ms,ord",
    "mariadb": "source.gtid,source.server_id,source.file,source.pos",
    "mysql_gtid": "source.server_id,source.file,source.pos,source.gtid",
    "vitess": "transaction.transaction_epoch,transaction.transaction_rank,shard",
}
"""Terms of add.fields by which flattened events tell where they stand."""


class SourceLog:
    """What a connector says of each event; `transaction` is that of the event, `order` its place in it."""

    def __init__(self, connector: Connector, rng: Random, start_ns: int) -> None:
        self.connector = connector
        self._start_ns = start_ns
        self._rng = rng
        self._began: dict[int, int] = {}
        self._of: dict[int, dict[str, Any]] = {}
        self._committed: dict[int, int] = defaultdict(int)
        self._skew = 0
        self._as_numbers = rng.random() < 0.5

    def date(self, transaction: int, op: str) -> int:
        """The date of an event in nanoseconds. Of a read it is later than anything."""
        if op == "r":
            return self._start_ns + (transaction + self._rng.randrange(1, 50)) * 7 * MS_NS
        if transaction not in self._began:
            self._began[transaction] = self._begin(transaction)
        return self._began[transaction]

    def _begin(self, transaction: int) -> int:
        commit = self._start_ns + transaction * 7 * MS_NS
        match self.connector:
            case "sqlserver":
                return commit - self._rng.randrange(60) * MS_NS
            case "oracle" | "oracle_1x" | "vitess" | "mongodb_3":
                return commit // SECOND_NS * SECOND_NS
            case "mongodb":
                if self._rng.random() < 0.2:
                    self._skew = self._rng.randrange(-3000, 3000) * MS_NS
                return commit + self._skew
            case "db2" | "cassandra":
                return commit + transaction % 1000 * US_NS
            case _:
                return commit

    def place(self, transaction: int, order: int, op: str) -> dict[str, Any]:  # noqa: PLR0911 - one case per connector
        """The connector's own fields of `source`."""
        if transaction not in self._of:
            self._of[transaction] = self._start(transaction)
        known = self._of[transaction]
        match self.connector:
            case "sqlserver":
                return self._sqlserver(transaction, op)
            case "oracle" | "oracle_1x":
                scn = known["commit"] - 5 + min(order, 10) // 2
                place = {"scn": str(scn), "commit_scn": known["told"], "redo_thread": known["thread"]}
                return {**place, "ssn": self._rng.randrange(3), "rs_id": "0x1", "txId": f"6.28.{transaction}"}
            case "db2":
                lsn = [f"00000000:00000000:{n:016x}" for n in (transaction * 4096, transaction * 4096 - 50 + order)]
                return {"commit_lsn": lsn[0], "change_lsn": None if op == "r" else lsn[1]}
            case "informix":
                lsn = [str(627404540000000 + transaction * 4096 + n) for n in (0, order - 100)]
                return (
                    {"commit_lsn": "0", "change_lsn": "0"}
                    if op == "r"
                    else dict(zip(("commit_lsn", "change_lsn"), lsn, strict=True), txId=str(transaction))
                )
            case "mongodb" | "mongodb_3":
                wall = None if op == "r" or self.connector == "mongodb_3" else self.date(transaction, op) // MS_NS
                return {"collection": "t", "ord": -1 if op == "r" else known["ord"], "wallTime": wall, "lsid": None}
            case "vitess":
                gtid = [{"keyspace": "k", "shard": "-80", "gtid": f"MySQL56/x:1-{transaction}", "table_p_ks": None}]
                return {"keyspace": "k", "shard": "-80", "vgtid": json.dumps(gtid)}
            case "spanner":
                counted = {"server_transaction_id": f"t{transaction}", "mod_number": order % 2}
                return {**counted, "value_capture_type": "NEW_ROW", "number_records_in_transaction": 3}
            case "cassandra":
                node = self._rng.randrange(2)
                return {"file": f"CommitLog-6-{9 - node}{transaction}.log", "pos": self._rng.randrange(9000)}
            case "cockroachdb":
                return {"cluster": "x", "resolved_ts": None, "ts_hlc": f"{self.date(transaction, op)}.000000000{order}"}
            case _:
                stamp = (self._start_ns // MS_NS + transaction * 7) << 18
                return {"server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "commit_ts": stamp}

    def send_again(self, event: dict[str, Any], now: int) -> dict[str, Any]:
        """An event as it is when the connector sends it again, up to transaction `now`."""
        if self.connector != "informix":
            return event
        ts_ns = self._start_ns + now * 7 * MS_NS
        dates = {"ts_ms": ts_ns // MS_NS, "ts_us": ts_ns // US_NS, "ts_ns": ts_ns}
        return {**event, "source": {**event["source"], **dates}}

    def sequence(self, order: int) -> str | None:
        """`source.sequence`."""
        return str(order) if self.connector == "spanner" else "[]" if self.connector == "cockroachdb" else None

    def block(self, transaction: int, order: int) -> dict[str, Any]:
        """What the connector adds to the transaction of an event."""
        if self.connector != "vitess":
            return {}
        # As `decimal.format` of the converter has it.
        rank = transaction if self._as_numbers else base64.b64encode(transaction.to_bytes(9, "big")).decode()
        return {"transaction_epoch": transaction // 8, "transaction_rank": rank}

    def _start(self, transaction: int) -> dict[str, Any]:
        thread, commit = self._rng.choice([1, 2]), 10**17 * 9 + transaction * 10
        told = self._committed[thread] if self.connector == "oracle_1x" else commit
        self._committed[thread] = commit
        # A cluster's second ends within the clock's: then the place in it starts anew.
        second = self._start_ns + transaction * 7 * MS_NS
        ord_ = 1 + second % SECOND_NS // (7 * MS_NS) if self.connector == "mongodb_3" else self._rng.randrange(1, 9)
        return {"thread": thread, "commit": commit, "told": str(told) if told else None, "ord": ord_}

    def _sqlserver(self, transaction: int, op: str) -> dict[str, Any]:
        commit = f"00000027:{transaction * 16:08x}:0005"
        if op == "r":
            first = self._rng.random() < 0.5
            return {"commit_lsn": "00000000:00000000:0000" if first else commit, "change_lsn": None}
        change = f"00000027:{transaction * 16 - self._rng.randrange(1, 15):08x}:{self._rng.randrange(1, 9):04x}"
        return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": 2 if op == "u" else 1}
