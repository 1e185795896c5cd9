"""`icebridge serve`: connectors that are created by REST, several in one process, and a restart that continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from connector.server.rest.plugins import SINK_CLASS
from connector.settings.source.settings import SOURCE_CLASS
from tests.conftest import MakeWorkspace
from tests.connectors import Client
from tests.model.recordings import Record
from tests.running import Sink, Workspace
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.thorough]

TOPICS = ("servedworker.a", "servedworker.b")


def _produce(topics: Topics, topic: str, first: int, count: int, *, create: bool = False) -> None:
    numbers = range(first, first + count)
    records = [Record(topic, 0, i, b'{"id":%d}' % i, b'{"id":%d,"__op":"c"}' % i, (), 1) for i in numbers]
    topics.replay(records, create=create)


@contextmanager
def _worker(space: Workspace) -> Iterator[tuple[Sink, Client]]:
    process = space.start({"listeners": "http://127.0.0.1:0", "quarkus.http.port": "-1"}, command="serve")

    def urls() -> list[str]:
        return [str(line["url"]) for line in process.lines() if line.get("event") == "listening"]

    try:
        assert process.wait_until(lambda: bool(urls()), 120), process.text()[-4000:]
        yield process, Client(urls()[0])
        assert process.terminate().code == 0, process.text()[-4000:]
    finally:
        process.kill()


def _state(rest: Client, name: str) -> str:
    body = rest.call("GET", f"/connectors/{name}/status").body
    return str(body["tasks"][0]["state"] if body.get("tasks") else body["connector"]["state"])


def _offset(rest: Client, name: str) -> int:
    offsets = rest.call("GET", f"/connectors/{name}/offsets").body.get("offsets", [])
    return int(offsets[0]["offset"]["kafka_offset"]) if offsets else 0


def test_connectors_of_one_process(topics: Topics, make_workspace: MakeWorkspace) -> None:
    """Two sinks and a source, each with its own state; a restart finds a paused one paused, a deleted one gone."""
    for topic in TOPICS:
        _produce(topics, topic, 0, 4, create=True)
    space = make_workspace("servedworker", {})
    # The class is Iceberg Kafka Connect's, whose default it is to create no tables.
    create = {"iceberg.tables.auto-create-enabled": "true"}
    base = {"connector.class": SINK_CLASS, "debezium.sink.batch.interval-ms": "100", **create}
    source = {
        "connector.class": SOURCE_CLASS,
        "topic.prefix": "servedworker.out",
        "table.include.list": ".*servedworker_a",
        "poll.interval.ms": "200",
    }
    with _worker(space) as (process, rest):
        for name, topic in zip(("one", "two"), TOPICS, strict=True):
            created = rest.call("POST", "/connectors", {"name": name, "config": {**base, "topics": topic}})
            assert created.status == 201, created.body
        for name in ("one", "two"):
            assert process.wait_until(lambda name=name: _offset(rest, name) == 4, 120), process.text()[-4000:]  # type: ignore[misc]
        created = rest.call("POST", "/connectors", {"name": "back", "config": source})
        assert created.status == 201, created.body
        assert process.wait_until(lambda: len(topics.read("servedworker.out.default.servedworker_a")) >= 4, 120)
        assert rest.call("PUT", "/connectors/two/pause").status == 202
        assert process.wait_until(lambda: _state(rest, "two") == "PAUSED", 60)
        assert rest.call("DELETE", "/connectors/back").status == 204
        bad = {"name": "three", "config": {"connector.class": SINK_CLASS}}
        assert rest.call("POST", "/connectors", bad).status == 400
    for topic in TOPICS:
        _produce(topics, topic, 4, 3)
    with _worker(space) as (process, rest):
        assert process.wait_until(lambda: rest.call("GET", "/connectors").body == ["one", "two"], 60)
        assert process.wait_until(lambda: _offset(rest, "one") == 7, 120), process.text()[-4000:]
        assert (_state(rest, "two"), _offset(rest, "two")) == ("PAUSED", 4)
        assert rest.call("PUT", "/connectors/two/resume").status == 202
        assert process.wait_until(lambda: _offset(rest, "two") == 7, 120), process.text()[-4000:]
