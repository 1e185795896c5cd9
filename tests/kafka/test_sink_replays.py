"""a source that sends again what it had sent -> tables as they were: nothing old wins, no deleted row comes back."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.modes import WRITE_MODES
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model import reference
from tests.model.events import Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

LIFE = Life(12, updated=0.5, moved=0.3, again=0.0)
SMALL = {"debezium.sink.batch.max-events": "60"}
LARGER = {"debezium.sink.batch.max-events": "60" if THOROUGH else "110"}


@attrs.define
class Source:
    """A source table, and what it sent; `ends` are places in its log behind a transaction."""

    db: Database
    rng: random.Random
    ends: list[int] = attrs.field(factory=lambda: [0])
    sent: int = 0

    def change(self, transactions: int) -> list[Record]:
        """Make transactions, and give their records."""
        for _ in range(transactions):
            self.db.transaction(*LIFE.steps(self.rng, set(self.db.rows), 4))
            self.ends.append(len(self.db.log))
        fresh, self.sent = self.db.log[self.sent :], len(self.db.log)
        return fresh

    def again(self) -> list[Record]:
        """Give some old part of the log: from any event to the end of a transaction.

        It begins with no tombstone: the source sends that together with its delete.
        """
        end = self.rng.choice(self.ends[1:])
        start = self.rng.choice([at for at in range(end) if self.db.log[at].value is not None])
        return self.db.log[start:end]


@pytest.mark.parametrize(
    ("mode", "keep"),
    tiered(
        product(WRITE_MODES, ["false", "true"]),
        [("equality-delete", "false")],
        lambda case: f"{case[0]}-{'soft' if case[1] == 'true' else 'hard'}",
    ),
)
def test_what_comes_again_changes_nothing(
    mode: str, keep: str, topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """After old parts of the stream came again, in later batches and after restarts, the table is the source's.

    Holes of peers: a2 1 (a create that comes again doubles its row), Kafka Connect's late records (c 4).
    """
    name = f"again_{mode}_{keep}".replace("-", "_")
    source = Source(Database(name, 2), random.Random(7))
    extra = {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": keep, **LARGER, **WRITE_MODES[mode]}
    sink = InProcessSink(spark, plain_workspace(name, extra))
    topics.replay(source.change(40))
    sink.run()
    _is_source(sink, source, keep)
    late = 0
    for _ in range(2 if THOROUGH else 1):
        parts = [source.again() for _ in range(4)]
        for part in (*parts, source.change(8), source.again()):
            topics.replay(part, create=False)
        late += sum(report.metrics.late for report in sink.run())
        _is_source(sink, source, keep)
    assert late > 0


def _is_source(sink: InProcessSink, source: Source, keep: str) -> None:
    truth = reference.upsert(source.db.log, keep_deletes=keep == "true").rows
    found = sink.lake.many(source.db.topic)
    assert len(found) == len({r["id"] for r in found})
    names = ("id", "__op", "__source_ts_ns", *(("__deleted",) if keep == "true" else ()), "name", "n")
    assert {_picked(r, names) for r in found} == {_picked(r, names) for r in truth.values()}


def _picked(found: dict[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(found.get(name) for name in names)


@pytest.mark.thorough
def test_dates_that_go_to_and_fro(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """A clock like MySQL's, reads in between, restarts: in many batches the table ends as the source's."""
    name, rng = "clocks", random.Random(5)
    db = Database(name, 2, clock="mysql", rng=rng)
    for _ in range(60):
        db.transaction(*LIFE.steps(rng, set(db.rows), 4))
        if rng.random() < 0.3:
            db.read(rng.randrange(12))
        if rng.random() < 0.05:
            db.again(rng.randrange(len(db.log)))
    extra = {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": "false", **SMALL}
    fields = "op,table,source.ts_ns,source.file,source.pos,source.server_id"
    sink = InProcessSink(spark, plain_workspace(name, {**extra, "debezium.transforms.unwrap.add.fields": fields}))
    topics.replay(db.log)
    late = sum(report.metrics.late for report in sink.run())
    assert {r["id"]: r["n"] for r in sink.lake.many(name)} == {key: r["n"] for key, r in db.rows.items()}
    assert late > 0, "what came again is told by its position"


def test_own_tables_are_tidied_by_what_they_hold(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short each run: many small files of deleted keys become one, or a day later; snapshots stay few; and no
    key is forgotten before time.
    """
    monkeypatch.setattr("connector.iceberg.state.deleted_keys_table.MAX_SNAPSHOTS", 5)
    monkeypatch.setattr("connector.iceberg.state.system_tables.MAX_SNAPSHOTS", 4)
    monkeypatch.setattr("connector.iceberg.state.system_tables.RETAINED_SNAPSHOTS", 2)
    db = Database("tidied", 1)
    extra = {"topics": "tidied", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    sink = InProcessSink(spark, plain_workspace("tidied", extra))
    db.transaction(*(("c", row(key, "c")) for key in range(6)))
    topics.replay(db.log)
    sink.run()
    property_ = "icebridge.tidied-at-ms"
    for key in range(6):
        made = len(db.log)
        db.transaction(("d", key))
        topics.replay(db.log[made:], create=False)
        if key == 5:
            sink.lake.java("_debezium_deleted_keys").updateProperties().set(property_, "0").commit()
        sink.run()
        files = [file["record_count"] for file in sink.lake.files("_debezium_deleted_keys")]
        assert sorted(files) == [[1], [1] * 2, [1] * 3, [1] * 4, [5], [1, 5]][key]
    assert sink.lake.java("_debezium_deleted_keys").properties().get(property_) != "0"
    assert sink.lake.many("tidied") == []
    assert len(sink.lake.many("_debezium_deleted_keys")) == 6
    assert len(sink.lake.summaries("_debezium_offset_storage")) < 4
