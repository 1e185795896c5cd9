"""a stream into an index, and SIGKILL of the sink and of the node -> every document is the source's, none is lost.

Every start costs a JVM: `make test-all` kills both a few times, `make soak` more often. The seed is printed;
ICEBRIDGE_SEED repeats a run's plan (not its timing).
"""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.settings.kafka.reading import ReaderKind
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import kills, seeded
from tests.model.events import COLUMNS, Database
from tests.model.life import Life
from tests.runs.processes import Sink

KILLS = kills(4)
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600 + 60 * KILLS)]

KEYS, EVENTS = 300, 2_000
"""Events for each kill."""


NATIVE: ReaderKind = "native"


@pytest.mark.parametrize(("count", "kind"), [(1, NATIVE), (KILLS, NATIVE), (KILLS, "librdkafka")])
def test_killed_again_and_again_every_document_is_the_sources(
    topics: Topics,
    make_workspace: MakeWorkspace,
    search: Search,
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    kind: ReaderKind,
) -> None:
    """Sink and node killed in turn at random moments, the index ends with exactly the source's rows."""
    rng = random.Random(seeded())
    name = f"struck{count}{kind}"
    db = Database(f"{name}.public.t", 3)
    Life(KEYS).live(rng, db, EVENTS * count)
    topics.replay(db.log)
    home: Path = tmp_path_factory.mktemp("struck-node")
    # One kill is the sink's.
    with OpenSearchNode(home) if count > 1 else nullcontext(search) as node:
        extra = {
            "debezium.sink.type": "opensearch",
            "connection.url": node.url,
            "topics": db.topic,
            "consumer.reader": kind,
            "debezium.sink.batch.max-events": "150",
            "debezium.sink.batch.interval-ms": "50",
            "batch.size": "40",
        }
        space = make_workspace(name, extra)
        sink = space.start()
        for number in range(count):
            done = sink.commits()
            assert sink.wait_until(lambda sink=sink, done=done: sink.commits() > done, timeout_s=120), sink.text()[
                -6000:
            ]
            time.sleep(rng.uniform(0, 0.5))
            if number % 2 and isinstance(node, OpenSearchNode):
                node.kill()
                time.sleep(rng.uniform(0, 2))
                node.start()
            else:
                sink.kill()
                if number + 1 < count:
                    sink = space.start()
        if count % 2 == 0:
            _leave(sink)
        last = space.run({"debezium.sink.batch.max-events": "5000"})
        assert last.code == 0, last.text[-6000:]
        found = {i: tuple(d.get(c) for c in COLUMNS) for i, d in Search(node.url).documents(db.topic).items()}
        assert found == {str(key): tuple(one.get(c) for c in COLUMNS) for key, one in db.rows.items()}


def _leave(sink: Sink) -> None:
    """A node that was killed must not have ended the sink."""
    assert sink.process.poll() is None, f"the sink ended by itself:\n{sink.text()[-6000:]}"
    assert sink.terminate().code == 0, sink.text()[-6000:]
