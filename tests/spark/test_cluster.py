"""executors in processes of their own -> the same table: no part of the sink shares memory with the driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.events import COLUMNS, Database, row

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.thorough
def test_executors_in_other_processes_give_the_same_table(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """On local-cluster, whose executors are other processes, a stream of upserts ends in the source's rows."""
    database = Database("cluster.public.t", 3)
    for key in range(3000):
        database.transaction(("c", row(key % 700, f"c{key}", key)) if key < 700 else ("u", row(key % 700, "u", key)))
    database.transaction(*(("d", key) for key in range(0, 700, 7)))
    topics.replay(database.log)
    extra = {
        "topics": database.topic,
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.batch.max-events": "1500",
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "768m",
    }
    space = make_workspace("cluster", extra)
    run = space.start(None, "--once").wait(240)
    assert run.code == 0, run.text[-6000:]
    assert len(run.batches) > 1
    rows = lake(space).many("cluster_public_t")
    found, wanted = Counter(map(_plain, rows)), Counter(map(_plain, database.rows.values()))
    assert (found - wanted, wanted - found) == (Counter(), Counter()), run.batches


def _plain(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(str(found.get(c)) for c in COLUMNS)
