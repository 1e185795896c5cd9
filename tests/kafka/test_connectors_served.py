"""`icebridge serve`: connectors that are created by REST, several in one process, and a restart that continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from connector.settings.connector_class import ICEBERG_SINK_CLASS, SOURCE_CLASS
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.processes import Sink, Workspace
from tests.servers.connectors import Client

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.thorough]

TOPICS = ("servedworker.a", "servedworker.b")


def _produce(topics: Topics, topic: str, first: int, count: int, *, create: bool = False) -> None:
    numbers = range(first, first + count)
    records = [Record(topic, 0, i, b'{"id":%d}' % i, b'{"id":%d,"__op":"c"}' % i, (), 1) for i in numbers]
    topics.replay(records, create=create)


@contextmanager
def _worker(space: Workspace, *, killed: bool = False) -> Iterator[tuple[Sink, Client]]:
    """A worker that ends by SIGTERM, and cleanly, or is `killed`."""
    process = space.start({"listeners": "http://127.0.0.1:0", "quarkus.http.port": "-1"}, command="serve")

    def urls() -> list[str]:
        return [str(line["url"]) for line in process.lines() if line.get("event") == "listening"]

    try:
        assert process.wait_until(lambda: bool(urls()), 120), process.text()[-4000:]
        yield process, Client(urls()[0])
        if not killed:
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
    base = {"connector.class": ICEBERG_SINK_CLASS, "debezium.sink.batch.interval-ms": "100", **create}
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
        bad = {"name": "three", "config": {"connector.class": ICEBERG_SINK_CLASS}}
        assert rest.call("POST", "/connectors", bad).status == 400
    for topic in TOPICS:
        _produce(topics, topic, 4, 3)
    with _worker(space) as (process, rest):
        assert process.wait_until(lambda: rest.call("GET", "/connectors").body == ["one", "two"], 60)
        assert process.wait_until(lambda: _offset(rest, "one") == 7, 120), process.text()[-4000:]
        assert (_state(rest, "two"), _offset(rest, "two")) == ("PAUSED", 4)
        assert rest.call("PUT", "/connectors/two/resume").status == 202
        assert process.wait_until(lambda: _offset(rest, "two") == 7, 120), process.text()[-4000:]


def test_restarts_leave_nothing_behind(topics: Topics, make_workspace: MakeWorkspace) -> None:
    """However often a sink is restarted, the worker has about as many threads and open files as before."""
    _produce(topics, "servedagain", 0, 4, create=True)
    config = {
        "connector.class": ICEBERG_SINK_CLASS,
        "topics": "servedagain",
        "debezium.sink.batch.interval-ms": "100",
        "iceberg.tables.auto-create-enabled": "true",
    }
    with _worker(make_workspace("servedagain", {})) as (process, rest):
        worker = psutil.Process(process.process.pid)

        def runs() -> int:
            return sum(line.get("event") == "reading" for line in process.lines())

        assert rest.call("POST", "/connectors", {"name": "one", "config": config}).status == 201
        assert process.wait_until(lambda: _offset(rest, "one") == 4, 120), process.text()[-4000:]
        before = worker.num_threads(), worker.num_fds()
        for number in range(16):
            assert rest.call("POST", "/connectors/one/restart?includeTasks=true").status in {202, 204}
            assert process.wait_until(lambda begun=number + 2: runs() == begun, 120), process.text()[-4000:]  # type: ignore[misc]
            _produce(topics, "servedagain", 4 + number, 1)
            assert process.wait_until(lambda number=number: _offset(rest, "one") == 5 + number, 120)  # type: ignore[misc]
        after = worker.num_threads(), worker.num_fds()
        assert after[0] < before[0] + 40 and after[1] < before[1] + 60, (before, after)


def test_a_worker_that_is_killed(topics: Topics, make_workspace: MakeWorkspace) -> None:
    """Each connector is as it was: running, paused, stopped, failed; one whose properties are lost says so, and is back
    once they are there; one that was deleted while it ran stays away.
    """
    topic = "killedworker.a"
    _produce(topics, topic, 0, 4, create=True)
    space = make_workspace("killedworker", {})
    secrets = space.home / "names.properties"
    secrets.write_text("id=a-name\n")
    base = {
        "connector.class": ICEBERG_SINK_CLASS,
        "debezium.sink.batch.interval-ms": "100",
        "iceberg.tables.auto-create-enabled": "true",
        "topics": topic,
    }
    own = {
        "runs": {},
        "gone": {},
        "paused": {},
        "stopped": {},
        "fails": {"topics": "killedworker.none", "errors.retry.timeout": "0"},
        "lost": {"consumer.override.client.id": f"${{file:{secrets}:id}}"},
    }
    states = {"paused": "PAUSED", "stopped": "STOPPED"}

    def wanted(process: Sink, rest: Client, expected: dict[str, str]) -> None:
        for name, state in expected.items():
            reached = process.wait_until(lambda name=name, state=state: _state(rest, name) == state, 120)  # type: ignore[misc]
            assert reached, (name, _state(rest, name), process.text()[-4000:])

    with _worker(space, killed=True) as (process, rest):
        for name, more in own.items():
            config = {**base, "debezium.sink.iceberg.table-prefix": f"{name}_", **more}
            state = states.get(name, "RUNNING")
            created = rest.call("POST", "/connectors", {"name": name, "config": config, "initial_state": state})
            assert created.status == 201, created.body
        wanted(process, rest, {"runs": "RUNNING", "lost": "RUNNING", "fails": "FAILED", **states})
        assert process.wait_until(lambda: _offset(rest, "runs") == 4, 120), process.text()[-4000:]
        assert rest.call("DELETE", "/connectors/gone").status == 204
        _produce(topics, topic, 4, 3)
    secrets.unlink()
    with _worker(space, killed=True) as (process, rest):
        assert process.wait_until(lambda: rest.call("GET", "/connectors").body == sorted({*own} - {"gone"}), 60)
        wanted(process, rest, {"runs": "RUNNING", "lost": "FAILED", "fails": "FAILED", **states})
        assert "names.properties" in rest.call("GET", "/connectors/lost/status").body["tasks"][0]["trace"]
        assert process.wait_until(lambda: _offset(rest, "runs") == 7, 120), process.text()[-4000:]
        assert (_offset(rest, "paused"), _offset(rest, "stopped")) == (0, 0)
        secrets.write_text("id=a-name\n")
        assert rest.call("POST", "/connectors/lost/restart").status == 204
        wanted(process, rest, {"lost": "RUNNING"})
        assert rest.call("PUT", "/connectors/paused/resume").status == 202
        assert rest.call("PUT", "/connectors/runs/stop").status == 204
        wanted(process, rest, {"paused": "RUNNING", "runs": "STOPPED"})
    with _worker(space) as (process, rest):
        wanted(process, rest, {"paused": "RUNNING", "runs": "STOPPED", "lost": "RUNNING", "stopped": "STOPPED"})
        assert process.wait_until(lambda: _offset(rest, "paused") == 7, 120), process.text()[-4000:]
