"""Kafka Connect's REST interface: each endpoint with a real client, and what is refused."""

from __future__ import annotations

import base64
import http.client
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from connector.errors import FatalError
from connector.server.rest import requests
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.plugins import find_class, load_config
from connector.server.rest.security import AccessRules
from connector.settings import load
from connector.settings.connector_class import ICEBERG_SINK_CLASS, SOURCE_CLASS
from tests.servers.connectors import SINK, SOURCE, Client, InMemorySource, TestServer, error_of, serving, wait_for


def _status(connection: socket.socket) -> int:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status


def test_a_connector_is_created_shown_and_deleted(server: TestServer) -> None:
    """Answers are those of a Connect worker; a secret leaves none of them."""
    rest = server.rest
    assert (rest.call("GET", "/connectors").body, rest.call("GET", "/connectors?expand=info").body) == ([], {})
    created = rest.call("POST", "/connectors", {"name": "s", "config": SINK})
    config = {**SINK, "name": "s", "consumer.override.sasl.password": "***"}
    info = {"name": "s", "config": config, "tasks": [{"connector": "s", "task": 0}], "type": "sink"}
    assert (created.status, created.body, created.headers["location"]) == (201, info, "/connectors/s")
    assert rest.call("GET", "/connectors").body == ["s"]
    assert rest.call("GET", "/connectors/s").body == info
    assert rest.call("GET", "/connectors/s/config").body == config
    assert rest.call("GET", "/connectors/s/tasks").body == [{"id": {"connector": "s", "task": 0}, "config": config}]
    assert rest.call("GET", "/connectors/s/tasks-config").body == {"s-0": config}
    assert rest.call("GET", "/connectors/s/topics").body == {"s": {"topics": ["t"]}}
    assert rest.call("PUT", "/connectors/s/topics/reset").status == 202
    assert server.store.load()["s"].config["consumer.override.sasl.password"] == "a-secret-word"
    assert rest.call("DELETE", "/connectors/s").status == 204
    assert (rest.call("GET", "/connectors").body, server.store.load()) == ([], {})


def test_who_was_stopped_has_no_task_until_it_runs(server: TestServer, rest: Client) -> None:
    """As in a Connect worker a pause gives none back; one that was running keeps its own while it is paused."""
    rest.call("PUT", "/connectors/s/stop")
    wait_for(lambda: server.connector("s").lifecycle.state == "STOPPED")
    for steps in (["pause"], ["resume", "pause"]):
        for step in steps:
            rest.call("PUT", f"/connectors/s/{step}")
            wait_for(
                lambda step=step: server.connector("s").lifecycle.state == {"pause": "PAUSED"}.get(step, "RUNNING")
            )
        has_task = "resume" in steps
        status = rest.call("GET", "/connectors/s/status").body
        assert (status["connector"]["state"], len(status["tasks"])) == ("PAUSED", has_task)
        assert len(rest.call("GET", "/connectors/s/tasks").body) == has_task
        assert rest.call("GET", "/connectors/s/tasks/0/status").status == (200 if has_task else 404)


def test_a_source_is_one(server: TestServer) -> None:
    """Its class tells."""
    assert server.rest.call("POST", "/connectors", {"name": "o", "config": SOURCE}).body["type"] == "source"


def test_status_pause_resume_stop_restart(server: TestServer, rest: Client) -> None:
    """States follow what is asked for; a stopped connector has no task, a failed one says why."""
    worker = {"worker_id": "127.0.0.1:8083", "version": "0.1.0"}
    lifecycle = server.connector("s").lifecycle
    running = {"state": "RUNNING", **worker}
    status = {"name": "s", "connector": running, "tasks": [{"id": 0, **running}], "type": "sink"}
    assert rest.call("GET", "/connectors/s/status").body == status
    assert rest.call("GET", "/connectors?expand=status").body == {"s": {"status": status}}
    assert rest.call("GET", "/connectors/s/tasks/0/status").body == {"id": 0, **running}
    for action, code, state in (("pause", 202, "PAUSED"), ("stop", 204, "STOPPED"), ("resume", 202, "RUNNING")):
        assert rest.call("PUT", f"/connectors/s/{action}").status == code
        wait_for(lambda state=state: lifecycle.state == state)  # type: ignore[misc]
        shown = rest.call("GET", "/connectors/s/status").body
        assert shown["connector"]["state"] == state
        assert [task["state"] for task in shown["tasks"]] == ([] if state == "STOPPED" else [state])
    starts = lifecycle.starts
    assert rest.call("POST", "/connectors/s/restart").status == 204
    wait_for(lambda: lifecycle.starts == starts + 1)
    server.connector("s").fails = FatalError("no such table")
    assert rest.call("POST", "/connectors/s/tasks/0/restart").status == 204
    wait_for(lambda: lifecycle.state == "FAILED")
    failed = rest.call("GET", "/connectors/s/status").body
    assert (failed["connector"]["state"], failed["tasks"][0]["state"]) == ("RUNNING", "FAILED")
    assert failed["tasks"][0]["trace"] == "FatalError: no such table"
    server.connector("s").fails = None
    assert rest.call("POST", "/connectors/s/restart?includeTasks=true&onlyFailed=true").status == 202
    wait_for(lambda: lifecycle.state == "RUNNING")


def test_what_was_asked_outlives_the_process(server: TestServer, rest: Client) -> None:
    """A paused connector is stored as one."""
    rest.call("PUT", "/connectors/s/pause")
    assert server.store.load()["s"].target == "PAUSED"


def test_properties_are_replaced_and_changed(server: TestServer, rest: Client) -> None:
    """PUT replaces, PATCH merges, null removes; a mask in place of a secret leaves it as it is."""
    config = rest.call("GET", "/connectors/s/config").body
    changed = rest.call("PUT", "/connectors/s/config", {**config, "topics": "a,b"})
    assert (changed.status, changed.body["config"]["topics"]) == (200, "a,b")
    assert server.connector("s").config["consumer.override.sasl.password"] == "a-secret-word"
    body = {"errors.tolerance": "none", "consumer.override.sasl.password": None}
    patched = rest.call("PATCH", "/connectors/s/config", body)
    kept = {key: text for key, text in SINK.items() if not key.endswith("password")}
    wanted = {**kept, "name": "s", "topics": "a,b", "errors.tolerance": "none"}
    assert (patched.status, patched.body["config"]) == (200, wanted)
    assert rest.call("PUT", "/connectors/new/config", SINK).status == 201


def test_offsets_are_shown_changed_and_forgotten(server: TestServer, rest: Client) -> None:
    """Only of a stopped connector, in Connect's words."""
    one = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}
    assert rest.call("GET", "/connectors/s/offsets").body == {"offsets": [one]}
    other = {"partition": {"kafka_topic": "u", "kafka_partition": "1"}, "offset": {"kafka_offset": "3"}}
    change = {"offsets": [{**one, "offset": {"kafka_offset": 7}}, other]}
    refused = rest.call("PATCH", "/connectors/s/offsets", change)
    assert error_of(refused) == (
        400,
        "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
        "specified connector by issuing a 'PUT' request to the '/connectors/s/stop' endpoint",
    )
    assert rest.call("DELETE", "/connectors/s/offsets").status == 400
    rest.call("PUT", "/connectors/s/stop")
    altered = rest.call("PATCH", "/connectors/s/offsets", change)
    assert altered.body == {"message": "The offsets for this connector have been altered successfully"}
    assert server.connector("s").stored == {("t", 0): 7, ("u", 1): 3}
    reset = rest.call("DELETE", "/connectors/s/offsets")
    assert reset.body == {"message": "The offsets for this connector have been reset successfully"}
    assert rest.call("GET", "/connectors/s/offsets").body == {"offsets": []}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Partitions / offsets need to be provided for an alter offsets request"),
        ({"offsets": []}, "Partitions / offsets need to be provided for an alter offsets request"),
        ({"offsets": [1]}, "an offset is not an object with partition and offset"),
        (
            {"offsets": [{"partition": {"kafka_topic": "t"}, "offset": None}]},
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"x": 1}}]},
            "The offset for a sink connector should either be null or contain the key 'kafka_offset'",
        ),
    ],
    ids=["nothing", "none", "no object", "no partition", "no offset"],
)
def test_offsets_of_another_shape_change_nothing(server: TestServer, rest: Client, given: object, message: str) -> None:
    """400 with Connect's words."""
    rest.call("PUT", "/connectors/s/stop")
    wait_for(lambda: server.connector("s").lifecycle.state == "STOPPED")
    assert error_of(rest.call("PATCH", "/connectors/s/offsets", given)) == (400, message)
    assert server.connector("s").stored == {("t", 0): 5}


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/connectors/x", "Connector x not found"),
        ("GET", "/connectors/x/config", "Connector x not found"),
        ("GET", "/connectors/x/status", "No status found for connector x"),
        ("GET", "/connectors/x/tasks", "Connector x not found"),
        ("GET", "/connectors/x/tasks/0/status", "No status found for task x-0"),
        ("GET", "/connectors/x/offsets", "Connector x not found"),
        ("PUT", "/connectors/x/pause", "Unknown connector x"),
        ("PUT", "/connectors/x/resume", "Unknown connector x"),
        ("PUT", "/connectors/x/stop", "Unknown connector x"),
        ("POST", "/connectors/x/restart?includeTasks=true", "Unknown connector: x"),
        ("DELETE", "/connectors/x", "Connector x not found"),
        ("DELETE", "/connectors/x/offsets", "Connector x not found"),
        ("GET", "/connector-plugins/no.Such/config", "Unknown plugin no.Such."),
        ("GET", "/admin/loggers/nope.x", "Logger nope.x not found."),
        ("GET", "/nothing", "HTTP 404 Not Found"),
    ],
)
def test_what_there_is_not(empty: TestServer, method: str, path: str, message: str) -> None:
    """404 in the words of a Connect worker."""
    assert error_of(empty.rest.call(method, path)) == (404, message)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{bad", 400, "not JSON"),
        (b"", 400, "not JSON"),
        (b"[]", 400, "not an object"),
        (b'{"name":"s"}', 400, "not a JSON object of properties"),
        (b'{"name":"s","config":{}}', 400, "Connector config {name=s} contains no connector type"),
        (b'{"name":"s","config":{"connector.class":"no.Such"}}', 400, "Failed to find any class that implements"),
        (b'{"name":"s","config":{"a":{}}}', 400, "values that are no text: a"),
        (b'{"name":"s","config":{"a":null}}', 400, "no value for a"),
        (b'{"name":"q","config":{"name":"s"}}', 400, "doesn't match connector name in the URL (q)"),
        (b'{"name":"s","config":{},"bad":1}', 400, "not an object with name, config"),
        (b"\xff\xfe", 400, "not JSON"),
    ],
    ids=lambda value: value.decode("latin-1") if isinstance(value, bytes) else None,
)
def test_malformed_requests_create_nothing(empty: TestServer, body: bytes, status: int, words: str) -> None:
    """4xx with Connect's JSON."""
    answer = empty.rest.call("POST", "/connectors", raw=body)
    assert error_of(answer)[0] == status
    assert words in answer.body["message"]
    assert empty.worker.names == []


def test_an_invalid_configuration_is_refused_with_every_fault(empty: TestServer) -> None:
    """Connect's sentence, then a line for each fault."""
    config = {"connector.class": ICEBERG_SINK_CLASS, "errors.tolerance": "some", "topics": "t", "topicz": "x"}
    status, message = error_of(empty.rest.call("POST", "/connectors", {"name": "s", "config": config}))
    assert status == 400
    assert message.startswith("Connector configuration is invalid and contains the following ")
    assert "errors.tolerance: 'some' is not known; write all or none" in message
    assert "topicz: is not a known key; did you mean topics?" in message


def test_two_that_contradict(server: TestServer, rest: Client) -> None:
    """Of two creations at once one wins, the other is told 409; nothing is half done."""
    assert error_of(rest.call("POST", "/connectors", {"name": "s", "config": SINK})) == (
        409,
        "Connector s already exists",
    )
    found: list[int] = []

    def create() -> None:
        found.append(rest.call("POST", "/connectors", {"name": "twice", "config": SINK}).status)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [201, 409, 409, 409, 409, 409]


def test_large_slow_and_strange_requests(empty: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """413, 408, 415, 405: and the server goes on answering others."""
    rest = empty.rest
    assert error_of(rest.call("POST", "/connectors", raw=b"x=1", headers={"Content-Type": "text/plain"})) == (
        415,
        "HTTP 415 Unsupported Media Type",
    )
    assert error_of(rest.call("PUT", "/connectors", {})) == (405, "HTTP 405 Method Not Allowed")
    monkeypatch.setattr(requests, "BODY_TIMEOUT_S", 0.2)
    place = urlsplit(rest.url)
    with socket.create_connection((place.hostname or "", place.port or 0), 20) as slow:
        lines = ("POST /connectors HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Content-Length: 9")
        slow.sendall("\r\n".join([*lines, "", "{"]).encode())
        assert rest.call("GET", "/connectors").status == 200
        assert _status(slow) == 408
    with socket.create_connection((place.hostname or "", place.port or 0), 20) as large:
        lines = (*lines[:3], f"Content-Length: {requests.MAX_BODY_BYTES + 1}")
        large.sendall("\r\n".join([*lines, "", ""]).encode())
        assert _status(large) == 413


def test_a_page_of_another_origin(server: TestServer, rest: Client) -> None:
    """It may neither read nor steer, under whatever name it calls this host; our own page may."""
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        assert rest.call("PUT", "/connectors/s/pause", headers=headers).status == 403
        assert rest.call("GET", "/connectors", headers=headers).status == 403
    assert server.connector("s").lifecycle.state == "RUNNING"
    assert rest.call("GET", "/connectors", headers={"Origin": rest.url}).status == 200


def test_origins_that_are_allowed() -> None:
    """They get what a browser asks for."""
    with serving(AccessRules(("http://good.example",))) as server:
        origin = {"Origin": "http://good.example"}
        answer = server.rest.call("GET", "/connectors", headers=origin)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "http://good.example")
        preflight = {**origin, "Access-Control-Request-Method": "PUT"}
        assert server.rest.call("OPTIONS", "/connectors/s/pause", headers=preflight).status == 200


def test_origins_that_are_allowed_are_told_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser shows its page no answer without a word for its origin: not that a login is missing, or what failed."""
    with serving(AccessRules(("http://good.example",), "me:pass")) as server:
        origin = {"Origin": "http://good.example"}
        login = {"Authorization": f"Basic {base64.b64encode(b'me:pass').decode()}"}

        def call(path: str, headers: dict[str, str]) -> tuple[int, str | None]:
            answer = server.rest.call("GET", path, headers=origin | headers)
            return answer.status, answer.headers.get("access-control-allow-origin")

        assert call("/connectors", {}) == (401, "http://good.example")
        assert call("/connectors/x", login) == (404, "http://good.example")
        monkeypatch.setattr(ConnectApi, "root", lambda _: 1 / 0)
        assert call("/", login) == (500, "http://good.example")
        assert call("/connectors", {"Origin": "http://evil.example"}) == (403, None)
        preflight = {
            **origin,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "authorization",
        }
        assert server.rest.call("OPTIONS", "/connectors/s/pause", headers=preflight).status == 200


def test_a_login() -> None:
    """Without it 401, with it what was asked for; health on its own port needs none."""
    with serving(AccessRules(user_info="me:pass word")) as server:
        assert error_of(server.rest.call("GET", "/connectors")) == (401, "User cannot access the resource.")
        for wrong in ("Basic bWU6bm8=", "Bearer x", "Basic ?", "Basic"):
            assert server.rest.call("GET", "/", headers={"Authorization": wrong}).status == 401
        right = {"Authorization": "Basic bWU6cGFzcyB3b3Jk"}
        assert server.rest.call("GET", "/connectors", headers=right).status == 200
        assert server.health.call("GET", "/q/health/live").status == 200


def test_signals(server: TestServer, rest: Client) -> None:
    """They go to the source; without one, or to a sink, they are refused, and so is what is no signal."""
    signal = {"id": "1", "type": "log", "data": {"message": "hello"}}
    assert "0 sources" in error_of(rest.call("POST", "/api/signals", signal))[1]
    assert "is no source" in error_of(rest.call("POST", "/api/signals?connector=s", signal))[1]
    assert rest.call("POST", "/connectors", {"name": "o", "config": SOURCE}).status == 201
    assert rest.call("POST", "/api/signals", signal).status == 202
    assert rest.call("POST", "/api/signals?connector=o", signal).status == 202
    source = server.worker.get("o")
    assert isinstance(source, InMemorySource)
    assert [one.id for one in source.signals.read(None).signals] == ["1", "1"]
    assert error_of(rest.call("POST", "/api/signals", {"type": "no-such"}))[0] == 400


def test_signals_that_are_not_taken() -> None:
    """503, as Debezium Server's, whatever the body is."""
    with serving(takes_signals=False) as server:
        assert error_of(server.rest.call("POST", "/api/signals", {}))[0] == 503


def test_root_and_plugins(empty: TestServer) -> None:
    """Who answers, which kinds of connectors there are, and their options."""
    rest = empty.rest
    assert rest.call("GET", "/").body == {"version": "0.1.0", "commit": "", "kafka_cluster_id": None}
    assert rest.call("GET", "/health").body["status"] == "healthy"
    listed = rest.call("GET", "/connector-plugins").body
    assert {"class": ICEBERG_SINK_CLASS, "type": "sink", "version": "0.1.0"} in listed
    options = {one["name"]: one for one in rest.call("GET", f"/connector-plugins/{ICEBERG_SINK_CLASS}/config").body}
    assert options["errors.tolerance"]["default_value"] == "all"
    assert options["errors.tolerance"]["importance"] == "HIGH"
    assert {one["class"] for one in listed} == {
        one["class"] for one in listed if rest.call("GET", f"/connector-plugins/{one['class']}/config").status == 200
    }


def test_validation(empty: TestServer) -> None:
    """Each fault stands with its option; unknown keys are listed too, and nothing is created."""
    path = "/connector-plugins/IcebergSink/config/validate"
    good = empty.rest.call("PUT", path, SINK)
    assert (good.status, good.body["error_count"]) == (200, 0)
    assert "a-secret-word" not in str(good.body)
    bad = empty.rest.call("PUT", path, {**SINK, "errors.tolerance": "some", "topicz": "x"}).body
    faults = {one["value"]["name"]: one["value"]["errors"] for one in bad["configs"] if one["value"]["errors"]}
    assert faults == {
        "errors.tolerance": ["'some' is not known; write all or none"],
        "topicz": ["is not a known key; did you mean topics?"],
    }
    assert (bad["error_count"], empty.worker.names) == (2, [])
    other = empty.rest.call("PUT", path, SOURCE)
    assert error_of(other) == (400, f"Included connector type {SOURCE_CLASS} does not match request type IcebergSink")
    assert error_of(empty.rest.call("PUT", path, {})) == (400, "Connector config {} contains no connector type")


def test_the_class_of_what_a_file_describes(tmp_path: Path) -> None:
    """Tools find name and class in every configuration, also where a properties file says neither."""
    texts = {
        ICEBERG_SINK_CLASS: "topics=t\ndebezium.sink.iceberg.warehouse=/w\n",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector": (
            "topics=t\ndebezium.sink.type=opensearch\nconnection.url=http://h:1\ndebezium.sink.iceberg.warehouse=/w\n"
        ),
    }
    for wanted, text in texts.items():
        (tmp_path / "s.properties").write_text(f"bootstrap.servers=h:1\n{text}")
        assert find_class(load([tmp_path / "s.properties"], environ={})) == wanted
    assert find_class(load_config({**SOURCE, "name": "o"})) == SOURCE_CLASS


def test_loggers(empty: TestServer) -> None:
    """Levels are shown and set."""
    rest = empty.rest
    assert "root" in rest.call("GET", "/admin/loggers").body
    assert rest.call("GET", "/admin/loggers/root").body["level"] in {"WARN", "INFO", "ERROR"}
    assert rest.call("PUT", "/admin/loggers/pyiceberg", {"level": "error"}).body == ["pyiceberg"]
    assert rest.call("GET", "/admin/loggers/pyiceberg").body["level"] == "ERROR"
    assert error_of(rest.call("PUT", "/admin/loggers/a", {})) == (
        400,
        "Desired 'level' parameter was not specified in request.",
    )
    assert error_of(rest.call("PUT", "/admin/loggers/a", {"level": "LOUD"})) == (404, "invalid log level 'LOUD'.")


def test_the_page(empty: TestServer) -> None:
    """A browser gets a page that loads nothing from elsewhere, and its data."""
    page = empty.rest.call("GET", "/", headers={"Accept": "text/html,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.body and "https://" not in page.body
    assert empty.rest.call("GET", "/api/overview").body == {"connectors": []}
