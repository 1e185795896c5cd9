"""Histories flattened by ExtractNewRecordState with positions by add.fields -> the rows of the source, however cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.rounds import draws
from tests.model.events import COLUMNS, Clock, Database, row
from tests.unit.local_sink import local_sink

pytestmark = [pytest.mark.laws, pytest.mark.timeout(600)]

TOPIC = "s.public.t"
HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
OF_TRANSACTION, OF_ENVELOPE = ("id", "total_order"), ("op", "ts_ms")
ADDED: dict[Clock, tuple[str, ...]] = {
    "postgres": ("op,source.lsn,source.ts_ns,total_order", "lsn,ts_ns,op", "op,source.lsn,transaction.total_order"),
    "mariadb": ("op,gtid,ts_ns,total_order", "op,file,pos,server_id,source.ts_ns"),
    "mysql": ("op,file,pos,source.server_id,source.ts_ns,total_order", "op,source.file,source.pos,source.ts_ms"),
}


def _flatten(value: bytes, added: str) -> bytes:
    """An envelope as the transform leaves it (rewrite), fields found where its page says."""
    event = json.loads(value)
    gone = event["op"] == "d"
    out = {**event["before" if gone else "after"], "__deleted": str(gone).lower()}
    for term in added.split(","):
        struct, _, name = term.rpartition(".")
        if not struct and name not in OF_ENVELOPE:
            struct = "transaction" if name in OF_TRANSACTION else "source"
        told = (event.get(struct) or {}) if struct else event
        out["__" + term.replace(".", "_")] = told.get(name)
    return json.dumps(out).encode()


def _transaction(rng: random.Random, db: Database, step: int) -> list[tuple[Any, ...]]:
    live = set(db.rows)
    changes: list[tuple[Any, ...]] = []
    for _ in range(rng.randrange(1, 4)):
        free, op = sorted(set(range(5)) - live), rng.choice("cudk")
        if op == "c" and free:
            changes.append(("c", row(free[0], f"c{step}", step)))
            live.add(free[0])
        elif op == "u" and live:
            changes.append(("u", row(rng.choice(sorted(live)), f"u{step}", step)))
        elif op == "d" and live:
            changes.append(("d", live.pop()))
        elif op == "k" and live and free:
            changes.append(("k", live.pop(), free[0]))
            live.add(free[0])
    return changes


@settings(max_examples=draws(150), deadline=None)
@given(st.integers(0, 2**32))
def test_flattened_histories_end_in_the_rows_of_the_source(seed: int) -> None:
    """With restarts that send again, incremental reads and changed keys over partitions, in batches of any size."""
    rng = random.Random(seed)
    clock = rng.choice(list(ADDED))
    added = rng.choice(ADDED[clock])
    db = Database(TOPIC, rng.choice([1, 3]), clock=clock, rng=rng)
    for step in range(rng.randrange(3, 25)):
        db.transaction(*_transaction(rng, db, step))
        if rng.random() < 0.1 and db.log:
            db.again(rng.randrange(len(db.log)))
        if rng.random() < 0.1 and db.rows:
            db.read(rng.choice(sorted(db.rows)))
    records = [((r.topic, r.partition), r.key, r.value and _flatten(r.value, added)) for r in db.log]
    size = rng.choice([1, 3, 1000])
    with TemporaryDirectory() as folder:
        sink = local_sink(Path(folder), [f"topics={TOPIC}", HARD])
        for first in range(0, len(records), size):
            assert sink.process(*records[first : first + size]).dead_letters == 0
    found = {
        one["id"]: {name: one.get(name) for name in COLUMNS}
        for table in sink.destination.rows
        for one in sink.rows(table)
    }
    assert found == db.rows
