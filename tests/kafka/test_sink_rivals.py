"""other writers, compaction, a second sink of the same name -> the same tables, or a clear end."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError, RetriableError
from connector.iceberg.commit import commit
from connector.sink.factory import Sink
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.modes import WRITE_MODES
from tests.model import reference
from tests.model.events import Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

SECONDS = float(os.environ.get("ICEBRIDGE_CONCURRENCY_S", "20"))
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600 + 2 * SECONDS)]

OTHERS = 10**9
"""Keys from here on are other writers' own."""
MODES = {**WRITE_MODES, "append": {"debezium.sink.iceberg.write-mode": "append"}}
KEPT_S = 30
"""So long another writer's maintenance keeps snapshots."""


def _event(topic: str, key: int | None, n: int) -> Record:
    value = {"id": key, "n": n, "__op": "c", "__deleted": "false", "__source_ts_ns": 1000 + n}
    raw = None if key is None else json.dumps({"id": key}).encode()
    return Record(topic, 0, 0, raw, json.dumps(value).encode())


def test_a_second_sink_of_the_same_name_is_fenced(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """The slower of two sinks of one name stops and says why; no row is doubled, not even where rows are appended.

    Holes of Kafka Connect: two coordinators after a rebalance (c 3), files committed twice (c 4).
    """
    topics.replay(
        [*(_event("twin_keyed", key, 1) for key in range(5)), *(_event("twin_log", None, n) for n in range(5))]
    )
    inside = InProcessSink(spark, plain_workspace("twins", {"topics": "twin_keyed,twin_log"}))
    first, second = inside.sink(), inside.sink()
    _run(first)
    with pytest.raises(FatalError, match=r"twins .* another sink"):
        _run(second)
    late = inside.sink()  # starts where the first stands, and lags behind its next batch
    early = inside.sink()
    topics.replay([_event("twin_log", None, 5)], create=False)
    _run(early)
    with pytest.raises(FatalError, match="another sink"):
        _run(late)
    assert sorted(r["id"] for r in inside.lake.many("twin_keyed")) == list(range(5))
    assert sorted(r["n"] for r in inside.lake.many("twin_log")) == list(range(6))


def _run(sink: Sink) -> None:
    try:
        sink.stream.run(once=True)
    finally:
        sink.close()


@contextmanager
def _storm(
    inside: InProcessSink, table: str, monkeypatch: pytest.MonkeyPatch, key: int | None = None
) -> Iterator[list[int]]:
    """Let another writer add a row right before each of the sink's commits: of a key of its own, or always this one."""
    real, seen = commit._build_update, list[int]()

    def after_another(java: Any, *rest: Any) -> Any:
        if java.name.endswith(table):
            seen.append(OTHERS + time.monotonic_ns() if key is None else key)
            inside.spark.sql(f"INSERT INTO {inside.space.name}.`default`.`{table}` (id, n) VALUES ({seen[-1]}, 0)")
        return real(java, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(commit, "_build_update", after_another)
        yield seen


def test_conflicts_are_tried_again_and_then_told(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equality deletes conflict with another writer once; where rows are looked for, its storm over the same rows ends
    in an error that names the table, and nothing of the batch is lost; its dead letters are written once.
    """
    topics.replay([_event("storm", key, 1) for key in range(6)])
    settings = {"topics": "storm", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    inside = InProcessSink(spark, plain_workspace("storm", settings))
    inside.run()
    dead = Record("storm", 0, 0, json.dumps({"id": 9}).encode(), b"{")
    topics.replay([*(_event("storm", key, 2) for key in (4, 5, 6, 7)), dead], create=False)
    with _storm(inside, "storm", monkeypatch) as others:
        reports = inside.run()
    assert len(others) == 2
    assert [report.dead_letters for report in reports] == [len(topics.read("storm-dead-letters"))] == [1]
    ours = {**dict.fromkeys(range(4), 1), **dict.fromkeys(range(4, 8), 2)}
    assert _values(inside) == {**ours, **dict.fromkeys(others, 0)}
    topics.replay([_event("storm", key, 3) for key in (7, 8)], create=False)
    storm = _storm(inside, "storm", monkeypatch, key=8)
    with storm as others, pytest.raises(RetriableError, match=r"default\.storm.*errors\.retry\.timeout"):
        inside.run({"errors.retry.timeout": "1500", "debezium.sink.iceberg.write-mode": "position-delete"})
    assert len(others) > 1
    inside.run()
    kept = {key: n for key, n in _values(inside).items() if key < OTHERS}
    assert kept == {**ours, 7: 3, 8: 3}


def _values(inside: InProcessSink) -> dict[int, int]:
    rows = inside.lake.many("storm")
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["n"] for r in rows}


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_writers_compaction_and_the_sink_at_once(
    mode: str, topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """While two others insert, delete and update rows and a third compacts, the sink's rows are the source's.

    So long as ICEBRIDGE_CONCURRENCY_S says. Hole of Kafka Connect: deletes that do not apply to files of one commit
    (c 4); lost deletes beside compaction.
    """
    name = f"beside_{mode}".replace("-", "_")
    db, rng = Database(name, 2), random.Random(3)
    extra = {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": "false", **MODES[mode]}
    inside = InProcessSink(spark, plain_workspace(name, {**extra, "debezium.sink.batch.interval-ms": "200"}))
    db.transaction(*(("c", row(key, "c", key)) for key in range(200)))
    topics.replay(db.log)
    inside.run()
    full, over = f"{inside.space.name}.`default`.`{name}`", threading.Event()
    theirs: dict[int, set[int]] = {1: set(), 2: set()}
    sink, failures = inside.sink(), list[BaseException]()
    helpers = [
        threading.Thread(target=_until, args=(over, 2, lambda n=n: _write(spark, full, n, theirs[n]))) for n in theirs
    ]
    helpers.append(threading.Thread(target=_until, args=(over, 7, lambda: _compact(inside, name))))
    helpers.append(threading.Thread(target=_streaming, args=(sink, failures)))
    for helper in helpers:
        helper.start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not failures:
        sent = len(db.log)
        Life(300, moved=0.0).live(rng, db, 20)
        topics.replay(db.log[sent:], create=False)
        time.sleep(0.5)
    over.set()
    for helper in helpers[:-1]:
        helper.join()
    sink.stream.stop()
    helpers[-1].join()
    assert failures == []
    inside.run()
    rows = inside.lake.many(name)
    upserted = reference.upsert(db.log, keep_deletes=False).rows.values()
    truth = reference.append(db.log) if mode == "append" else upserted
    ours, others = ([r for r in rows if (r["id"] >= OTHERS) == other] for other in (False, True))
    assert Counter((r["id"], r["n"]) for r in ours) == Counter((r["id"], r["n"]) for r in truth)
    assert Counter(r["id"] for r in others) == Counter(theirs[1] | theirs[2])
    assert theirs[1] and theirs[2]


def _until(over: threading.Event, pause_s: float, step: Callable[[], None]) -> None:
    """Do something again and again; a conflict with the others is no failure."""
    while not over.is_set():
        with suppress(Exception):
            step()
        over.wait(pause_s)


def _write(spark: SparkSession, full: str, number: int, own: set[int]) -> None:
    """Insert a row, and delete one of those inserted before; `own` has those that are there."""
    key = OTHERS * number + len(own) + random.randrange(10**5) * 100
    spark.sql(f"INSERT INTO {full} (id, name, n) VALUES ({key}, 'other', {number})")
    own.add(key)
    if len(own) > 3:
        gone = min(own)
        spark.sql(f"DELETE FROM {full} WHERE id = {gone}")
        own.discard(gone)


def _compact(inside: InProcessSink, name: str) -> None:
    jvm: Any = inside.spark._jvm
    table = inside.lake.java(name)
    # Iceberg finds its staged files by the thread's active session.
    session = inside.spark._jsparkSession
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session)
    actions.rewriteDataFiles(table).option("min-input-files", "2").execute()
    table.refresh()
    table.expireSnapshots().retainLast(5).expireOlderThan(int((time.time() - KEPT_S) * 1000)).commit()


def _streaming(sink: Sink, failures: list[BaseException]) -> None:
    try:
        sink.stream.run(once=False)
    except BaseException as error:  # noqa: BLE001 - told by the test
        failures.append(error)
    finally:
        sink.close()
