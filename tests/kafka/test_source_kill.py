"""A source, and SIGKILL again and again, in full read and changes -> a consumer still ends with the table's rows.

Every start costs a JVM: `make test-all` has a few kills, `make soak` more. The seed is printed; ICEBRIDGE_SEED repeats
a run's plan (not its timing).
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import defaultdict

import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.harness.rounds import kills, seeded
from tests.runs.processes import Sink
from tests.runs.sources import SourceWorkspace, in_order, make_source_workspace, payload, replica

KILLS = kills(4)
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600 + 60 * KILLS)]

FILES, ROWS = 6, 400
"""Files for each kill, and rows of a file."""
STEPS = ("part read", "snapshot published")
PROPERTIES = {
    "max.batch.size": str(ROWS),
    "provide.transaction.metadata": "false",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


@pytest.mark.parametrize("count", [1, KILLS])
def test_killed_again_and_again_the_replica_equals_the_source(
    spark: SparkSession,
    topics: Topics,
    quick: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
) -> None:
    """Killed in the full read and in changes, the topic gives the table's rows, in order, repeats byte for byte."""
    rng = random.Random(seeded())
    name = f"killed{count}"
    source = make_source_workspace(spark, topics, tmp_path_factory.mktemp(name), name, {**PROPERTIES, **quick})
    _fill(source, FILES * count)
    for number in range(count):
        if number >= count / 2:
            _change(source, rng)
        _live_and_die(source, rng, number)
    _change(source, rng)
    source.publish()
    records = source.records("t")
    assert replica(records) == {json.dumps({"id": row["id"]}): row for row in source.rows("t")}
    assert in_order(records)
    _assert_repeats_are_equal(source)


def _fill(source: SourceWorkspace, files: int) -> None:
    source.sql(
        "CREATE TABLE T.t (id BIGINT NOT NULL, v STRING, n INT) USING iceberg TBLPROPERTIES "
        "('format-version'='2','write.delete.mode'='merge-on-read')"
    )
    source.identify("t", "id")
    # One commit of many files: the full read takes them part by part.
    rows = source.spark.range(0, files * ROWS, 1, files).selectExpr("id", "concat('v', id) AS v", "0 AS n")
    rows.writeTo(f"{source.name}.db.t").option("distribution-mode", "none").append()


def _change(source: SourceWorkspace, rng: random.Random) -> None:
    for _ in range(rng.randint(2, 4)):
        share, base = rng.randint(5, 40), rng.randrange(FILES * ROWS)
        fresh = 100_000 + time.time_ns() // 1000
        source.sql(
            rng.choice(
                [
                    f"UPDATE T.t SET n = n + 1, v = 'u{base}' WHERE id % {share} = 1",
                    f"DELETE FROM T.t WHERE id BETWEEN {base} AND {base + 50}",
                    f"INSERT INTO T.t SELECT id, 'new', 1 FROM range({fresh}, {fresh} + 20)",
                ]
            )
        )


def _live_and_die(source: SourceWorkspace, rng: random.Random, number: int) -> None:
    """Kill at a random moment: while it starts, or some time after it has done a step or two."""
    process = Sink(source.file(), ())
    steps = rng.choice([1, 1, 2])
    if number % 5 != 4:
        process.wait_until(lambda: _steps(process) >= steps, timeout_s=90)
        time.sleep(rng.uniform(0, 1.2))
    else:
        time.sleep(rng.uniform(3, 12))
    assert process.process.poll() is None, f"the source ended by itself:\n{process.text()[-6000:]}"
    sys.stdout.write(f"killed after {_steps(process)} steps\n")
    process.kill()


def _steps(process: Sink) -> int:
    return sum(1 for line in process.lines() if line.get("event") in STEPS)


def _assert_repeats_are_equal(source: SourceWorkspace) -> None:
    """Events of one key and snapshot are the same bytes, however often they were sent."""
    seen: dict[tuple[bytes | None, int, str], set[bytes]] = defaultdict(set)
    for record in source.records("t"):
        if record.value is not None:
            event = payload(record.value)
            seen[record.key, event["source"]["snapshot_id"], event["op"]].add(record.value)
    assert all(len(values) == 1 for values in seen.values())


def test_sigterm_ends_after_the_step_at_hand(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A source that is asked to stop finishes its step, leaves with code 0, and the next run goes on from there."""
    few_parts = {**PROPERTIES, "max.batch.size": str(6 * ROWS)}
    source = make_source_workspace(spark, topics, tmp_path_factory.mktemp("asked"), "asked", few_parts)
    _fill(source, 4 * FILES)
    process = Sink(source.file(), ())
    process.wait_until(lambda: _steps(process) >= 1, timeout_s=90)
    ended = process.terminate()
    assert ended.code == 0, ended.text[-4000:]
    assert source.publish()
    # Nothing is there twice.
    assert len(source.records("t")) == 4 * FILES * ROWS
