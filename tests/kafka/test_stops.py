"""SIGTERM and SIGINT to all processes of a sink or source, at any moment -> one line, exit code 0, the right rows.

The seed is printed; ICEBRIDGE_SEED repeats a run's plan (not its timing), ICEBRIDGE_KILLS stops as often as it says.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.rounds import kills, seeded
from tests.model.events import COLUMNS, Database
from tests.model.life import Life
from tests.runs.processes import Run, Sink, Workspace
from tests.runs.sources import make_source_workspace, replica

STOPS = kills(8)
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(300 + 40 * STOPS)]

TOPIC = "stops.public.t"
TABLE = TOPIC.replace(".", "_")
# What must be seen of a run before it is stopped, and how long after that (s, up to).
MOMENTS: dict[str, tuple[str, float]] = {
    "start": ("", 1.0),
    "Spark's start": ("", 7.0),
    "first batch": ("reading", 2.5),
    "commit": ("snapshot", 0.1),
    "idle": ("batch committed", 2.0),
}
SMALL_BATCHES = {"debezium.sink.batch.max-events": "150", "debezium.sink.batch.interval-ms": "100"}


def test_a_stop_is_one_line_whenever_it_comes(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """No stop shows a traceback or an error; the next start goes on, and the table ends as the source is."""
    seed = seeded()
    rng, db = random.Random(seed), Database(TOPIC, 2)
    topics.create({TOPIC: 2})
    space = make_workspace("stops", {"topics": TOPIC, "debezium.sink.iceberg.upsert-keep-deletes": "false"})
    moments = [list(MOMENTS)[i % len(MOMENTS)] for i in range(STOPS)]
    rng.shuffle(moments)
    for moment in moments:
        written = len(db.log)
        Life(200).live(rng, db, 600)
        topics.replay(db.log[written:], create=False)
        _start_and_stop(space, moment, rng)
    last = space.run({"debezium.sink.batch.max-events": "5000"})
    assert last.code == 0, last.text[-6000:]
    found = Counter(map(_plain, lake(space).many(TABLE)))
    assert found == Counter(map(_plain, db.rows.values()))


def test_a_stop_of_a_source_is_one_line_whenever_it_comes(
    spark: SparkSession, topics: Topics, quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same of a source whose steps are at work in Spark's workers; a consumer ends with the table's rows."""
    rng = random.Random(seeded())
    extra = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false", **quick}
    source = make_source_workspace(spark, topics, tmp_path_factory.mktemp("stopped"), "stopped", extra)
    source.sql(
        "CREATE TABLE T.t (id BIGINT NOT NULL, v STRING, n INT) USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    source.identify("t", "id")
    source.sql("INSERT INTO T.t SELECT id, 'v', 0 FROM range(20000)")
    for number in range(max(2, STOPS // 4)):
        for _ in range(3):
            # Files are written anew, and compared row by row in Python.
            source.sql(f"UPDATE T.t SET n = n + 1 WHERE id % {rng.randint(2, 9)} = 1")
        process = Sink(source.file(), ())

        def is_published(process: Sink = process) -> bool:
            return any(line.get("event") in ("part read", "snapshot published") for line in process.lines())

        run = _stop(process, is_published if number else lambda: True, 1.0 if number else 8.0, rng, f"source {number}")
        _check_stop(run.code, run.text, f"source {number}")
    source.publish()
    assert replica(source.records("t")) == {json.dumps({"id": row["id"]}): row for row in source.rows("t")}


def _start_and_stop(space: Workspace, moment: str, rng: random.Random) -> None:
    awaited, late_s = MOMENTS[moment]
    there = _snapshots(space)
    sink = space.start(SMALL_BATCHES)

    def is_seen() -> bool:
        if awaited == "snapshot":
            return _snapshots(space) > there
        return not awaited or any(line.get("event") == awaited for line in sink.lines())

    run = _stop(sink, is_seen, late_s, rng, moment)
    _check_stop(run.code, run.text, moment)


def _stop(process: Sink, is_seen: Callable[[], bool], late_s: float, rng: random.Random, moment: str) -> Run:
    """Stop a process some time after something was seen of it; Python itself takes 0.1 s to start."""
    try:
        time.sleep(0.15)
        assert process.wait_until(is_seen, 120, 0.005), process.text()[-6000:]
        time.sleep(rng.uniform(0.0, late_s))
        number, workers = rng.choice([(signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGINT, False)])
        sys.stdout.write(f"{signal.Signals(number).name} ({moment}, workers too: {workers})\n")
        run = process.terminate_group(120, number, workers=workers)
        process.wait_for_group(60)
        return run
    finally:
        process.kill()


def _check_stop(code: int, text: str, moment: str) -> None:
    assert code == 0, f"{moment}: exit code {code}\n{text[-6000:]}"
    told = [line for line in text.splitlines() if "stopped a" in line]
    assert len(told) == 1, f"{moment}: {told}\n{text[-6000:]}"
    assert "Traceback" not in text and '"level": "error"' not in text, f"{moment}:\n{text[-6000:]}"


def _snapshots(space: Workspace) -> int:
    return sum(1 for _ in (space.warehouse / "default" / TABLE).glob("metadata/snap-*.avro"))


def _plain(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(found.get(c) for c in COLUMNS)
