"""A sink that runs, watched and steered over HTTP: metrics, health, pause, stop, offsets, a broker that is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connector.demo.servers.kafka_broker import KafkaBroker
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.processes import Sink, Workspace, workspace
from tests.servers.connectors import Client

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "served.t"
SERVED = {
    "topics": TOPIC,
    "listeners": "http://127.0.0.1:0",
    "quarkus.http.port": "0",
    "debezium.sink.batch.interval-ms": "100",
}


def _produce(topics: Topics, first: int, count: int, *, create: bool = False) -> None:
    values = [
        (i, b'{"id":%d,"__op":"c","__source_ts_ns":%d}' % (i, 1_800_000_000_000_000_000 + i)) for i in range(count)
    ]
    topics.replay([Record(TOPIC, 0, first + i, b'{"id":%d}' % i, text, (), 1) for i, text in values], create=create)


@contextmanager
def _started(space: Workspace, extra: Mapping[str, str]) -> Iterator[tuple[Sink, Client, Client]]:
    """Start a sink; with clients of its two ports."""
    sink = space.start(extra)

    def urls() -> list[str]:
        return [str(line["url"]) for line in sink.lines() if line.get("event") == "listening"]

    try:
        assert sink.wait_until(lambda: len(urls()) == 2, 120), sink.text()[-4000:]
        rest, health = urls()
        yield sink, Client(rest), Client(health)
        run = sink.terminate()
        assert run.code == 0, run.text[-4000:]
    finally:
        sink.kill()


def _samples(health: Client) -> dict[str, float]:
    """The values of a scrape by name, summed over labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(health.call("GET", "/metrics").body):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _task_states(rest: Client, name: str) -> list[str]:
    return [task["state"] for task in rest.call("GET", f"/connectors/{name}/status").body["tasks"]]


def test_a_sink_is_watched_and_steered(topics: Topics, make_workspace: MakeWorkspace) -> None:
    """What the batches did is in the metrics; a paused sink reads nothing, a stopped one takes other offsets.

    The run ends by a signal that its JVM and the Python workers get too: a clean stop, whatever was at hand.
    """
    _produce(topics, 0, 10, create=True)
    space = make_workspace("served", SERVED)
    name = "served"
    with _started(space, {}) as (sink, rest, health):
        assert health.call("GET", "/q/health/ready").status in {200, 503}
        assert health.call("GET", "/q/health/live").status == 200
        assert sink.wait_until(lambda: sink.commits() == 1, 120), sink.text()[-4000:]
        assert sink.wait_until(lambda: health.call("GET", "/q/health/ready").status == 200, 60)
        assert health.call("GET", "/q/health").body["status"] == "UP"
        assert rest.call("GET", "/connectors").body == [name]
        assert rest.call("GET", "/").body["kafka_cluster_id"]
        assert sink.wait_until(lambda: "jvm_memory_bytes_used" in _samples(health), 60)
        found = _samples(health)
        assert found["debezium_metrics_TotalNumberOfWrites"] == 10
        assert found["debezium_metrics_TotalNumberOfTablesCreated"] == 1
        assert found["icebridge_events_total"] == 10
        assert (found["icebridge_commits_total"], found["icebridge_data_files_total"]) == (1, 1)
        assert found["icebridge_commit_seconds_total"] > 0
        assert found["icebridge_fetch_seconds_total"] > 0
        assert found["icebridge_decode_seconds_total"] > 0
        assert found["icebridge_newest_event_timestamp_seconds"] == 1_800_000_000
        assert found["kafka_connect_sink_task_partition_count"] == 1
        assert rest.call("PUT", f"/connectors/{name}/pause").status == 202
        assert sink.wait_until(lambda: _task_states(rest, name) == ["PAUSED"], 60)
        _produce(topics, 10, 5)
        lag = {"kafka_connect_sink_task_sink_record_lag_max": 5.0}
        assert sink.wait_until(lambda: lag.items() <= _samples(health).items(), 60)
        assert sink.commits() == 1
        assert health.call("GET", "/q/health").status == 200
        assert rest.call("PUT", f"/connectors/{name}/resume").status == 202
        assert sink.wait_until(lambda: sink.commits() == 2, 60), sink.text()[-4000:]
        assert rest.call("PUT", f"/connectors/{name}/stop").status == 204
        one = {"partition": {"kafka_topic": TOPIC, "kafka_partition": 0}, "offset": {"kafka_offset": 12}}
        altered = rest.call("PATCH", f"/connectors/{name}/offsets", {"offsets": [one]})
        assert altered.status == 200, altered.body
        assert rest.call("GET", f"/connectors/{name}/offsets").body == {"offsets": [one]}
        far = {"offsets": [{**one, "offset": {"kafka_offset": 99}}]}
        assert rest.call("PATCH", f"/connectors/{name}/offsets", far).status == 400
        assert rest.call("PUT", f"/connectors/{name}/resume").status == 202
        assert sink.wait_until(lambda: sink.commits() == 3, 60), sink.text()[-4000:]
        _produce(topics, 15, 2)
        ended = sink.terminate_group()
    assert ended.code == 0, ended.text[-4000:]
    assert "Traceback" not in ended.text
    numbered = [(line["batch"], line["events"]) for line in ended.batches]
    assert numbered in (list(enumerate([10, 5, 3])), list(enumerate([10, 5, 3, 2])))
    sink.wait_for_group(60)
    again = space.run()
    assert (again.code, ended.total("events") + again.total("events")) == (0, 20), again.text[-4000:]


@pytest.mark.thorough
def test_a_broker_that_is_away(tmp_path: Path) -> None:
    """Live it stays, ready it is not, and says why, and it can be paused; when the broker is back nothing was lost."""
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap_servers)
        _produce(topics, 0, 10, create=True)
        (tmp_path / "servedaway").mkdir()
        space = workspace(tmp_path / "servedaway", "servedaway", broker.bootstrap_servers, SERVED)
        with _started(space, {}) as (sink, rest, health):
            assert sink.wait_until(lambda: health.call("GET", "/q/health").status == 200, 120), sink.text()[-4000:]
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                assert sink.wait_until(lambda: health.call("GET", "/q/health/ready").status == 503, 60)
                checks = {one["name"]: one for one in health.call("GET", "/q/health/ready").body["checks"]}
                assert checks["servedaway-broker"]["data"]["reason"]
                assert checks["servedaway-catalog"]["status"] == "UP"
                assert health.call("GET", "/q/health/live").status == 200
                assert _samples(health)["debezium_metrics_Connected"] == 0
                for command, states in (("pause", ["PAUSED"]), ("resume", ["UNASSIGNED"]), ("pause", ["PAUSED"])):
                    assert rest.call("PUT", f"/connectors/servedaway/{command}").status == 202
                    assert sink.wait_until(lambda states=states: _task_states(rest, "servedaway") == states, 60)
                assert rest.call("PUT", "/connectors/servedaway/resume").status == 202
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            assert sink.wait_until(lambda: health.call("GET", "/q/health").status == 200, 120)
            _produce(topics, 10, 5)
            assert sink.wait_until(lambda: sink.commits() == 2, 60), sink.text()[-4000:]
            assert _task_states(rest, "servedaway") == ["RUNNING"]
