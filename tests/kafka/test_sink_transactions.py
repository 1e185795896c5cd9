"""a source that tells its transactions -> commits that hold whole ones only, and say the last."""

from __future__ import annotations

import json
import random
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.sink.batch import Report
from tests.conftest import MakeWorkspace
from tests.inside import Inside
from tests.model.events import START_NS, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

TOPIC, ENDS = "whole.public.t", "whole.transaction"
LIFE = Life(30, moved=0.0, again=0.0)


@attrs.define
class Source:
    """A source, what its table held after each transaction, and its transaction topic of two partitions."""

    db: Database = attrs.field(factory=lambda: Database(TOPIC, 3))
    after: dict[str, dict[int, int]] = attrs.field(factory=dict)
    ends: list[Record] = attrs.field(factory=list)

    def transaction(self, *changes: Any) -> list[Record]:
        """Commit changes; gives their records, and END as the last."""
        before = len(self.db.log)
        self.db.transaction(*changes)
        made = self.db.log[before:]
        number = str(len(self.after) + 1)
        self.after[number] = {key: r["n"] for key, r in self.db.rows.items()}
        events = sum(record.value is not None for record in made)
        said = [
            {"data_collection": "public.t", "event_count": events},
            {"data_collection": "public.elsewhere", "event_count": 3},  # which is not read here
        ]
        end = {"status": "END", "id": f"{number}:{10**6 + len(self.after)}", "event_count": events + 3}
        value = {**end, "data_collections": said, "ts_ms": START_NS // 10**6 + len(self.after)}
        key = json.dumps({"id": end["id"]}).encode()
        return [*made, Record(ENDS, len(self.after) % 2, 0, key, json.dumps(value).encode())]


def test_commits_hold_whole_transactions(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """After every batch the table is the source's after the transaction that its summary names; none is cut.

    One whose end is not there yet is waited for, and let through after the time that is set.
    """
    source, rng = Source(), random.Random(5)
    topics.create({TOPIC: 3, ENDS: 2})
    for _ in range(40):
        topics.replay(source.transaction(*LIFE.steps(rng, set(source.db.rows), 8)), create=False)
    extra = {"topics": TOPIC, "transaction.topic": ENDS, "debezium.sink.batch.max-events": "45"}
    inside = Inside(spark, plain_workspace("whole", {**extra, "debezium.sink.iceberg.upsert-keep-deletes": "false"}))
    named: list[str] = []

    def told(report: Report) -> None:
        if report.tables:
            named.append(report.position.transaction)
            assert _found(inside) == source.after[named[-1]]

    _run(inside, told)
    assert named[-1] == "40"
    assert len(named) > 3
    assert inside.lake.summaries("whole_public_t")[-1]["icebridge.transaction"] == "40"
    # The end of the next one is late, and half of the one behind it is there.
    *events, end = source.transaction(*(("c", row(100 + key, "c", key)) for key in range(6)))
    topics.replay(events, create=False)
    topics.replay(source.transaction(("c", row(200, "c", 1)))[-1:], create=False)
    _run(inside, told)
    assert _found(inside) == source.after["40"]
    topics.replay([end], create=False)
    _run(inside, told)
    assert _found(inside) == source.after["41"]
    # What never becomes whole is not waited for without end.
    _run(inside, told, {"transaction.wait.ms": "0"})
    topics.replay(source.transaction(("c", row(300, "c", 1)))[:1], create=False)
    assert _found(inside) == source.after["41"]
    overdue = inside.sink({"transaction.wait.ms": "0"})
    try:
        overdue.stream.run(once=True)
    finally:
        overdue.close()
    assert 300 in _found(inside)


def _run(inside: Inside, told: Any, extra: dict[str, str] | None = None) -> None:
    sink = inside.sink(extra, told)
    try:
        sink.stream.run(once=True)
    finally:
        sink.close()


def _found(inside: Inside) -> dict[int, int]:
    return {r["id"]: r["n"] for r in inside.lake.many("whole_public_t")}
