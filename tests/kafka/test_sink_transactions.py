"""a source that tells its transactions -> commits that hold whole ones only, and say the last."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.kafka.admin import KafkaAdmin
from connector.runtime.monitoring.listeners import BatchReport
from connector.sink.factory import Sink
from connector.sink.microbatch.transactions.transactions import Transactions
from connector.sink.model.micro_batch import MicroBatch
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.model.events import START_NS, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink, run_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

TOPIC, ENDS = "whole.public.t", "whole.transaction"
LIFE = Life(30, moved=0.0, again=0.0)


@attrs.define
class Source:
    """A source, what its table held after each transaction, and its transaction topic of two partitions."""

    db: Database = attrs.field(factory=lambda: Database(TOPIC, 3))
    told_in: str = ENDS
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
        return [*made, Record(self.told_in, len(self.after) % 2, 0, key, json.dumps(value).encode())]


def test_commits_hold_whole_transactions(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """After every batch the table is the source's after the transaction that its summary names; none is cut.

    One whose end is not there yet is waited for, and let through after the time that is set.
    """
    source, rng = Source(), random.Random(5)
    topics.create({TOPIC: 3, ENDS: 2})
    count, size = (40, 45) if THOROUGH else (12, 25)
    for _ in range(count):
        topics.replay(source.transaction(*LIFE.steps(rng, set(source.db.rows), 8)), create=False)
    extra = {"topics": TOPIC, "transaction.topic": ENDS, "debezium.sink.batch.max-events": str(size)}
    inside = InProcessSink(
        spark, plain_workspace("whole", {**extra, "debezium.sink.iceberg.upsert-keep-deletes": "false"})
    )
    named: list[str] = []

    def told(report: BatchReport) -> None:
        if report.tables:
            named.append(report.transaction)
            assert _found(inside) == source.after[named[-1]]

    _run(inside, told)
    assert named[-1] == str(count)
    assert len(named) > 3
    assert inside.lake.summaries("whole_public_t")[-1]["icebridge.transaction"] == str(count)
    # The end of the next one is late, and half of the one behind it is there.
    *events, end = source.transaction(*(("c", row(100 + key, "c", key)) for key in range(6)))
    topics.replay(events, create=False)
    topics.replay(source.transaction(("c", row(200, "c", 1)))[-1:], create=False)
    _run(inside, told)
    assert _found(inside) == source.after[str(count)]
    topics.replay([end], create=False)
    _run(inside, told)
    assert _found(inside) == source.after[str(count + 1)]
    # What never becomes whole is not waited for without end.
    _run(inside, told, {"transaction.wait.ms": "0"})
    topics.replay(source.transaction(("c", row(300, "c", 1)))[:1], create=False)
    assert _found(inside) == source.after[str(count + 1)]
    overdue = inside.sink({"transaction.wait.ms": "0"})
    try:
        overdue.stream.run(once=True)
    finally:
        overdue.close()
    assert 300 in _found(inside)


def _run(inside: InProcessSink, told: Any, extra: dict[str, str] | None = None) -> None:
    sink = inside.sink(extra, told)
    try:
        sink.stream.run(once=True)
    finally:
        sink.close()


def _found(inside: InProcessSink, table: str = "whole_public_t") -> dict[int, int]:
    return {r["id"]: r["n"] for r in inside.lake.many(table)}


def _creates(*keys: int) -> list[Any]:
    return [("c", row(key, "c", key)) for key in keys]


@attrs.define
class Steps:
    """A sink whose batches the test makes, up to the ends of the topics, at times that it says."""

    topics: Topics
    inside: InProcessSink
    table: str
    sink: Sink = attrs.field(init=False)
    at: dict[tuple[str, int], int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start a sink, which knows what its predecessor has committed, and nothing of what that had waited for."""
        self.sink = self.inside.sink(
            {"transaction.wait.ms": "10000", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
        )
        self.at = dict(self.sink.stream.position.offsets)

    @property
    def transactions(self) -> Transactions:
        """What the sink waits for."""
        assert self.sink.batches.transactions is not None
        return self.sink.batches.transactions

    def step(self, now: float, *records: Record) -> dict[int, int]:
        """Produce records, and let a batch be made at this second; gives the table's rows."""
        self.topics.replay(records, create=False)
        transactions = self.transactions
        transactions._clock = lambda: now
        ends = KafkaAdmin(self.sink.stream.settings.kafka).fetch_end_offsets(self.at)
        batch = MicroBatch(int(now * 10), dict(self.at), ends)
        self.at.update(self.sink.batches.process(batch).end)
        assert transactions.find_unread(attrs.evolve(batch, start=dict(self.at))).events == 0
        return _found(self.inside, self.table)


@pytest.fixture
def make_steps(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> Iterator[Callable[..., Steps]]:
    """make_steps(name) gives the batches of a sink over `name`.public.t and its transaction topic."""
    made: list[Steps] = []

    def make(name: str) -> Steps:
        topics.create({f"{name}.public.t": 2, f"{name}.transaction": 2})
        extra = {"topics": f"{name}.public.t", "transaction.topic": f"{name}.transaction"}
        made.append(Steps(topics, InProcessSink(spark, plain_workspace(name, extra)), f"{name}_public_t"))
        return made[-1]

    yield make
    for one in made:
        one.sink.close()


@pytest.mark.thorough
def test_each_transaction_is_waited_for_by_itself(make_steps: Callable[..., Steps]) -> None:
    """One that never ends is let through when its time is over, however much goes on; younger ones are waited for.

    What was read of those that wait is not read again, and the rest of one that was let through is not waited for.
    """
    source, steps = Source(Database("wait.public.t", 2), "wait.transaction"), make_steps("wait")
    step = steps.step
    step(0.0, *source.transaction(*_creates(1, 2, 3, 4)))
    *dead, dead_end = source.transaction(*_creates(10, 11, 12, 13))
    assert step(1.0, *dead) == source.after["1"]
    step(4.0, *source.transaction(*_creates(20, 21, 22, 23)))
    *late, late_end = source.transaction(*_creates(30, 31, 32, 33))
    assert step(7.0, *late) == source.after["1"]
    assert not steps.transactions.overdue
    # Every batch moves some cut, as more comes.
    assert step(10.9, *source.transaction(*_creates(40, 41, 42, 43))) == source.after["1"]
    assert step(11.1) == source.after["3"]
    assert step(12.0, late_end) == source.after["5"]
    assert step(13.0, dead_end, *source.transaction(*_creates(50, 51))) == source.after["6"]
    assert not steps.transactions.overdue


@pytest.mark.thorough
def test_events_that_come_again_count_once(make_steps: Callable[..., Steps]) -> None:
    """A connector that starts again within a transaction sends its events twice: it is whole once all are here, and of
    one that is here nothing more is waited for.
    """
    source, steps = Source(Database("again.public.t", 2), "again.transaction"), make_steps("again")
    step = steps.step
    step(0.0, *source.transaction(*_creates(1, 2, 3, 4)))
    *events, end = source.transaction(*_creates(10, 11, 12, 13))
    half, rest = events[:2], events[2:]
    assert step(1.0, *half, *half, end) == source.after["1"]
    assert step(2.0, *rest) == source.after["2"]
    *events, end = source.transaction(*_creates(20, 21, 22, 23))
    assert step(3.0, *events, end, *events[:2]) == source.after["3"]
    assert step(4.0, *events[2:], end, *source.transaction(*_creates(30, 31))) == source.after["4"]
    assert not steps.transactions.overdue
    assert steps.transactions._due is None


@pytest.mark.thorough
def test_several_are_overdue_and_the_sink_starts_again(make_steps: Callable[..., Steps]) -> None:
    """All that are overdue are let through at once; a sink that starts waits anew, and loses nothing of what waited."""
    source, steps = Source(Database("overdue.public.t", 2), "overdue.transaction"), make_steps("overdue")
    steps.step(0.0, *source.transaction(*_creates(0)))
    *first, first_end = source.transaction(*_creates(1, 2, 3, 4))
    *second, _ = source.transaction(*_creates(10, 11, 12))
    assert steps.step(0.0, *first) == source.after["1"]
    assert steps.step(2.0, *second) == source.after["1"]
    assert steps.step(3.0, *source.transaction(*_creates(20, 21))) == source.after["1"]
    assert not steps.transactions.overdue
    steps.transactions._clock = lambda: 12.5
    assert steps.transactions.overdue
    assert steps.step(12.5) == source.after["4"]
    assert not steps.transactions.overdue
    *third, third_end = source.transaction(*_creates(30, 31, 32, 33))
    assert steps.step(20.0, *third) == source.after["4"]
    steps.sink.close()
    steps.start()
    assert steps.step(100.0) == source.after["4"]
    assert steps.step(109.9) == source.after["4"]
    assert steps.step(110.1) == source.after["5"]
    # Ends of what was let through, by this sink and by the one before it, hold nothing back for longer than that.
    steps.step(111.0, third_end, first_end, *source.transaction(*_creates(40, 41)))
    assert steps.step(121.1) == source.after["6"]


@pytest.mark.thorough
def test_a_run_with_an_end_lets_through_what_is_old(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Each run would wait anew: by the times of its records an incomplete transaction is let through, or waited for."""
    source = Source(Database("ended.public.t", 1), "ended.transaction")
    topics.create({"ended.public.t": 1, "ended.transaction": 2})
    whole, (*dead, _), (*young, end) = (source.transaction(*_creates(n, n + 1)) for n in (1, 3, 5))
    extra = {"topics": "ended.public.t", "transaction.topic": "ended.transaction", "transaction.wait.ms": "600000"}
    inside = InProcessSink(spark, plain_workspace("ended", extra))
    topics.replay([attrs.evolve(one, timestamp_ms=START_NS // 10**6) for one in (*whole, *dead)], create=False)
    topics.replay(young, create=False)
    inside.run()
    assert _found(inside, "ended_public_t") == source.after["2"]
    topics.replay([end], create=False)
    inside.run()
    assert _found(inside, "ended_public_t") == source.after["3"]


@pytest.mark.thorough
def test_quiet_topics_are_let_through_too(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """When nothing more comes, what was waited for long enough is brought in all the same."""
    source, now = Source(Database("quiet.public.t", 1), "quiet.transaction"), [0.0]
    topics.create({"quiet.public.t": 1, "quiet.transaction": 2})
    whole, (*dead, _) = source.transaction(*_creates(1, 2)), source.transaction(*_creates(3, 4))
    topics.replay([*whole, *dead], create=False)
    extra = {"topics": "quiet.public.t", "transaction.topic": "quiet.transaction"}
    inside, reports = InProcessSink(spark, plain_workspace("quiet", extra)), list[BatchReport]()

    def told(report: BatchReport) -> None:
        reports.append(report)
        now[0] += 100

    sink = inside.sink({"transaction.wait.ms": "10000"}, told)
    assert sink.batches.transactions is not None
    sink.batches.transactions._clock = lambda: now[0]
    run_until(sink, lambda: len(reports) == 2)
    assert [report.metrics.events for report in reports] == [3, 2]
    assert _found(inside, "quiet_public_t") == source.after["2"]
