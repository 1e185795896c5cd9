"""Health and metrics: what probes and Prometheus get, also while something takes long."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connector.errors import FatalError
from connector.runtime.lifecycle import Lifecycle, NotWanted
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.server.config_store import InMemoryConfigStore
from connector.server.connectors.port import Check
from connector.server.health import check_live, check_ready, check_started, health_document
from connector.server.http.apps import HealthApi
from connector.server.worker import Worker
from connector.server.worker_metrics import WorkerMetrics
from tests.runs.metrics import scrape
from tests.servers.connectors import IdleRun, InMemoryConnector, TestServer, serving


@pytest.fixture
def server() -> Iterator[TestServer]:
    with serving() as running:
        yield running


def _connector(state: str = "RUNNING", *checks: Check) -> InMemoryConnector:
    connector = InMemoryConnector("s", {}, Lifecycle(), told=list(checks))
    connector.lifecycle.state = state  # type: ignore[assignment]
    return connector


def test_live_while_the_loop_moves() -> None:
    """A loop that stands still is not live, nor a connector that failed; one that waits for a start is."""
    connector = _connector()
    connector.lifecycle.beat()
    now = connector.lifecycle.beat_at or 0.0
    assert check_live([connector], lambda: now + 100)[0].is_up
    assert not check_live([connector], lambda: now + 130)[0].is_up
    assert check_live([_connector("UNASSIGNED")])[0].is_up
    assert not check_live([_connector("FAILED")])[0].is_up


def test_a_connector_that_failed_ends_no_others() -> None:
    """Where several share a process it stays live, and says why: a probe's kill would end those that run. One that
    stands still is not live there either.
    """
    failed = _connector("FAILED")
    failed.lifecycle.beat()
    now = failed.lifecycle.beat_at or 0.0
    (told,) = check_live([failed], lambda: now + 9999, is_shared=True)
    assert (told.is_up, told.data["state"], "reason" in told.data) == (True, "FAILED", True)
    failed.lifecycle.state = "RUNNING"
    assert not check_live([failed], lambda: now + 9999, is_shared=True)[0].is_up


@pytest.mark.parametrize(("takes", "status"), [(True, 200), (False, 503)])
def test_who_asks_a_worker_is_told_that_it_lives(takes: bool, status: int) -> None:
    """A worker's process stays, that of one connector's file does not."""
    worker = Worker((lambda *_: _connector()) if takes else None, InMemoryConfigStore(), MetricsRegistry())
    worker.add(_connector("FAILED"))
    answer = asyncio.run(HealthApi(worker, MetricsRegistry()).live(cast("Any", None)))
    assert answer.status_code == status


def test_ready_when_everything_answers() -> None:
    """Every check counts; a connector that was paused on purpose has nothing to answer."""
    up, down = Check("broker", True), Check("catalog", False, {"reason": "away"})
    assert all(one.is_up for one in check_ready([_connector("RUNNING", up)]))
    assert not all(one.is_up for one in check_ready([_connector("RUNNING", up, down)]))
    assert all(one.is_up for one in check_ready([_connector("PAUSED", down)]))
    assert not all(one.is_up for one in check_ready([_connector("FAILED", up)]))
    assert not check_started([_connector("UNASSIGNED")])[0].is_up


def test_a_sink_that_waits_for_its_topics_is_started() -> None:
    """A startup probe kills no process that waits, however long, for a broker, a catalog or topics; it is not ready."""
    connector = _connector("UNASSIGNED")
    assert not check_started([connector])[0].is_up
    waiting, ended = threading.Event(), threading.Event()

    def begin() -> IdleRun:
        waiting.set()
        ended.wait(20)
        raise NotWanted

    living = threading.Thread(target=lambda: connector.lifecycle.live(begin, survives=True), daemon=True)
    living.start()
    assert waiting.wait(20)
    told = check_started([connector])[0].is_up, check_ready([connector])[-1].is_up, check_live([connector])[0].is_up
    connector.lifecycle.stop()
    ended.set()
    living.join(20)
    assert told == (True, False, True)


def test_the_document() -> None:
    """It is MicroProfile's, with 503 where one check is down."""
    assert health_document([Check("a", True), Check("b", False, {"x": 1})]) == (
        503,
        {
            "status": "DOWN",
            "checks": [{"name": "a", "status": "UP", "data": {}}, {"name": "b", "status": "DOWN", "data": {"x": 1}}],
        },
    )
    assert health_document([])[0] == 200


def test_endpoints(server: TestServer) -> None:
    """Both ports answer, with the state of now."""
    server.worker.add(_connector("RUNNING", Check("broker", False)))
    for client in (server.health, server.rest):
        assert client.call("GET", "/q/health/live").status == 200
        assert client.call("GET", "/q/health/started").body["checks"][0]["status"] == "UP"
        assert client.call("GET", "/q/health/ready").status == 503
        assert client.call("GET", "/q/health").body["status"] == "DOWN"
    assert server.health.call("GET", "/connectors").status == 404


def test_a_scrape_while_everything_else_waits(server: TestServer) -> None:
    """Requests that take long, more than there are threads, hold up no probe, no scrape, and not the page."""
    held, asked = threading.Event(), threading.Semaphore(0)
    connector = _connector("RUNNING")

    def slow() -> None:
        asked.release()
        held.wait()

    connector.holds = slow
    server.worker.add(connector)
    waiting = [
        threading.Thread(target=lambda: server.rest.call("GET", "/connectors/s/topics"), daemon=True) for _ in range(60)
    ]
    for thread in waiting:
        thread.start()
    for _ in range(30):
        assert asked.acquire(timeout=20)
    try:
        for path in ("/metrics", "/q/health/live", "/q/health/ready"):
            assert server.health.call("GET", path).status == 200
            assert server.rest.call("GET", path).status == 200
        for path in ("/", "/api/overview", "/connectors?expand=status"):
            assert server.rest.call("GET", path).status == 200
    finally:
        held.set()
    for thread in waiting:
        thread.join(20)


@pytest.mark.parametrize(("is_up", "code"), [(True, 0), (False, 1)])
def test_the_check_of_the_image_asks_no_proxy(server: TestServer, *, is_up: bool, code: int) -> None:
    """The health of a container is its own, whatever proxy its environment names for all else."""
    server.worker.add(_connector("RUNNING", Check("broker", is_up)))
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9")
    environ = {"PATH": os.environ["PATH"], **proxies, "ICEBRIDGE_HEALTH": f"{server.health.url}/q/health"}
    check = [sys.executable, "-I", "-S", Path(__file__).parents[2] / "docker" / "healthcheck.py"]
    told = subprocess.run(check, env=environ, capture_output=True, text=True, check=False)
    assert (told.returncode, '"status":"UP"' in told.stdout) == (code, True), told.stdout


def test_metrics_can_be_parsed(server: TestServer) -> None:
    """Prometheus' own parser reads the scrape."""
    server.worker.add(_connector())
    answer = server.health.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {sample.name for family in text_string_to_metric_families(answer.body) for sample in family.samples}
    assert {"kafka_connect_worker_connector_count", "debezium_metrics_TotalNumberOfEventsSeen"} <= names


def test_starts_are_counted_for_as_long_as_the_process_lives() -> None:
    """Totals of a worker's starts never go back: a run that fails after its start was one, and a deleted one's too."""
    connectors = [_connector("UNASSIGNED"), _connector("UNASSIGNED")]
    worker = WorkerMetrics(lambda: connectors)

    def told() -> list[float]:
        found = scrape(worker)
        names = ("attempts", "success", "failure")
        return [found[f"kafka_connect_worker_connector_startup_{name}_total"][()] for name in names]

    def fail() -> IdleRun:
        raise FatalError("no broker")

    for connector, begin in zip(connectors, (fail, lambda: IdleRun(FatalError("later"))), strict=True):
        with pytest.raises(FatalError):
            connector.lifecycle.live(begin, survives=False)
    assert told() == [2, 1, 1]
    connectors.pop(0)
    assert told() == [2, 1, 1]
    connectors[:] = [_connector("UNASSIGNED")]
    assert told() == [2, 1, 1]
