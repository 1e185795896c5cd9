"""Requests that nobody means well: paths with slashes and codes, and texts that grow what looks at them."""

from __future__ import annotations

import http.client
import socket
import threading
from urllib.parse import quote, urlsplit

import pytest

from connector.redaction import MASK, redact
from connector.server import worker as worker_module
from connector.server.config_store import StoredConnector
from connector.server.connectors.unreadable import UnreadableConnector
from connector.server.http.apps import HealthApi
from connector.server.http.paths import read_path
from connector.server.rest import connect_api
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.signals_api import SignalsApi
from tests.servers.connectors import SINK, Client, TestServer, error_of, wait_for


def _send(client: Client, method: str, path: str, body: bytes | None = None) -> int:
    """The status of an answer; no redirection is followed, as curl follows none."""
    place = urlsplit(client.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=20)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_slash_at_the_end_says_nothing(server: TestServer, rest: Client) -> None:
    """As in Debezium's tutorial, whose client follows no redirection."""
    for path in ("/connectors/", "/connectors/s/", "/connectors/s/status/", "/connectors/s/tasks/0/status//", "/"):
        assert _send(rest, "GET", path) == 200, path
    assert _send(rest, "POST", "/connectors/", b"{}") == 400
    assert _send(rest, "PUT", "/connectors/s/pause/") == 202
    assert _send(rest, "DELETE", "/connectors/s/") == 204
    assert _send(server.health, "GET", "/q/health/live/") == 200


@pytest.mark.parametrize("task", ["1", "9" * 5000, "-1", "x", "\u0660"], ids=lambda task: task[:9])
def test_a_task_that_there_is_not_is_not_found(rest: Client, task: str) -> None:
    """The number of a task may be anything, and an answer says that there is none."""
    assert _send(rest, "GET", f"/connectors/s/tasks/{quote(task)}/status") == 404
    assert _send(rest, "POST", f"/connectors/s/tasks/{quote(task)}/restart") == 404


def test_an_encoded_slash_is_of_a_name(server: TestServer, rest: Client) -> None:
    """It leads to no connector of another name."""
    assert _send(rest, "DELETE", "/connectors/s%2F") == 404
    assert server.worker.names == ["s"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "s%2Foffsets"), ("PUT", "s%2fstop"), ("POST", "s%2Frestart"), ("GET", "s%2Fconfig"), ("GET", "s%252F")],
)
def test_an_encoded_slash_parts_no_path(server: TestServer, rest: Client, method: str, path: str) -> None:
    """A proxy that lets some paths through is not told another one."""
    assert _send(rest, method, f"/connectors/{path}") in {404, 405}
    assert server.connector("s").lifecycle.target == "STARTED"


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (b"/", "/"),
        (b"//", "/"),
        (b"/a", "/a"),
        (b"/a//", "/a"),
        (b"/a%2F", "/a%2F"),
        (b"/a%2f/", "/a%2F"),
        (b"/%61/b", "/a/b"),
        (b"/%C3%BC/", "/ü"),
        (b"/%FF", "/\ufffd"),
        (b"*", "*"),
    ],
)
def test_slashes_of_a_path(raw: bytes, left: str) -> None:
    """Those at the end that are written as such go."""
    assert read_path(raw) == left


def test_what_a_path_can_be_asked_for(rest: Client) -> None:
    """All methods of a path are told, whichever was not one of them."""
    for path, methods in (("/connectors", "GET, HEAD, POST"), ("/connectors/s/config/", "GET, HEAD, PATCH, PUT")):
        answer = rest.call("OPTIONS", path)
        assert (answer.status, answer.headers["allow"], answer.body) == (200, methods, None)
        answer = rest.call("TRACE", path)
        assert (error_of(answer)[0], answer.headers["allow"]) == (405, methods)
    assert rest.call("OPTIONS", "/nothing").status == 404


def test_what_is_no_http_is_not_logged(rest: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reaches the port would write the log."""
    place = urlsplit(rest.url)
    odd = (
        b"no http\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    )
    for sent in odd:
        with socket.create_connection((place.hostname or "", place.port or 0), 20) as client:
            client.sendall(sent)
            assert client.recv(12).startswith(b"HTTP/1.1 ")
    assert caplog.text == ""


LONG = 100_000


@pytest.mark.parametrize("piece", ["a", "${", "${file:", "password", "secret={;", ",", "jdbc:oracle:"])
def test_long_values_take_no_longer_than_their_length(empty: TestServer, piece: str) -> None:
    """A value of many equal pieces is answered as any other; what looks through it again and again would never end."""
    text = (piece * LONG)[:LONG]
    config = {**SINK, "debezium.sink.iceberg.partition-by": text, "errors.tolerance": text, "x.sasl.jaas.config": text}
    answer = empty.rest.call("PUT", "/connector-plugins/IcebergSink/config/validate", config)
    assert answer.status == 200
    assert empty.rest.call("POST", "/connectors", {"name": text, "config": SINK}).status == 400


def test_thousands_of_unknown_keys_are_each_a_fault(empty: TestServer) -> None:
    """Each is named; what may have been meant is looked for among the first hundred."""
    keys = {f"topicz.{number}": "x" for number in range(5000)}
    answer = empty.rest.call("PUT", "/connector-plugins/IcebergSink/config/validate", {**SINK, **keys}).body
    assert answer["error_count"] == len(keys)


@pytest.mark.parametrize("text", ["(" * 30_000, "x{99999999999}"], ids=["deep", "often"])
@pytest.mark.parametrize("key", ["topics.regex", "debezium.sink.iceberg.destination-regexp", "schema.columns"])
def test_expressions_that_no_parser_takes_are_faults(empty: TestServer, key: str, text: str) -> None:
    """400 with the key, for those that are nested too deeply as well."""
    status, message = error_of(empty.rest.call("POST", "/connectors", {"name": "s", "config": {**SINK, key: text}}))
    assert (status, key in message) == (400, True)


def test_types_that_are_nested_too_deeply_are_a_fault(empty: TestServer) -> None:
    """A list of lists of lists has an end."""
    config = {**SINK, "schema.columns": f"a {'list<' * 3000}int{'>' * 3000}"}
    status, message = error_of(empty.rest.call("POST", "/connectors", {"name": "s", "config": config}))
    assert (status, "nested too deeply" in message) == (400, True)


def test_a_turn_that_does_not_come(server: TestServer, rest: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another request waits for the catalog, who wants to change something is told so, and nothing is changed."""
    monkeypatch.setattr(worker_module, "REQUEST_TIMEOUT_S", 0.01)
    asked, released = threading.Event(), threading.Event()

    def put(name: str, connector: StoredConnector) -> None:
        asked.set()
        assert released.wait(20)

    monkeypatch.setattr(server.store, "put", put)
    pausing = threading.Thread(target=rest.call, args=("PUT", "/connectors/s/pause"))
    pausing.start()
    assert asked.wait(20)
    for method, path, body in (
        ("PUT", "/connectors/s/stop", None),
        ("DELETE", "/connectors/s", None),
        ("POST", "/connectors", {"name": "q", "config": SINK}),
    ):
        status, message = error_of(rest.call(method, path, body))
        assert (status, message.startswith("Request timed out.")) == (500, True)
    released.set()
    pausing.join(20)
    assert server.worker.names == ["s"]
    wait_for(lambda: server.connector("s").lifecycle.state == "PAUSED")


def test_a_catalog_that_never_answers_keeps_no_connector_from_being_steered(
    server: TestServer, rest: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that nobody tells are asked for once, whoever polls them gets an answer, and a stop still works."""
    monkeypatch.setattr(connect_api, "REQUEST_TIMEOUT_S", 0.5)
    asked, released = list[int](), threading.Event()

    def hang() -> None:
        asked.append(1)
        released.wait(30)

    server.connector("s").holds = hang
    answers = list[int]()
    polling = [
        threading.Thread(target=lambda: answers.append(_send(rest, "GET", "/connectors/s/offsets"))) for _ in range(60)
    ]
    for thread in polling:
        thread.start()
    for thread in polling:
        thread.join(10)
    stopped = threading.Thread(target=lambda: answers.append(_send(rest, "PUT", "/connectors/s/stop")), daemon=True)
    stopped.start()
    stopped.join(5)
    told = list(answers)
    released.set()
    assert (told, len(asked)) == ([500] * 60 + [204], 1)
    wait_for(lambda: _send(rest, "GET", "/connectors/s/offsets") == 200)


def _fill(path: str) -> str:
    """A route's path with names of what there is."""
    names = {"{name}": "s", "{task}": "0", "{plugin}": "IcebergSink", "{logger}": "connector"}
    for part, name in names.items():
        path = path.replace(part, name)
    return path


def test_every_route_answers(server: TestServer, rest: Client) -> None:
    """Each endpoint knows its method, and a body that is none is no more than refused; others are told which it has."""
    api = ConnectApi(server.worker, "")
    routes = [*api.routes(), *SignalsApi(server.worker).routes(), *HealthApi(server.worker, server.metrics).routes()]
    calls = sorted((method, _fill(one.path)) for one in routes for method in one.methods or ())
    last = [("DELETE", "/connectors/s")]
    for method, path in [call for call in calls if call not in last] + last:
        status = _send(rest, method, path, b"[]" if method in {"POST", "PUT", "PATCH"} else None)
        assert 200 <= status < 500 and status not in {404, 405}, (method, path, status)
        assert _send(rest, "TRACE", path) == 405, path


def test_what_a_request_calls_a_secret_is_masked_for_nobody_else(server: TestServer, rest: Client) -> None:
    """Who validates or offers properties again and again does not fill memory, nor blot out the words of others."""
    word, key = "an-everyday-word", "consumer.override.sasl.password"
    offered = {**SINK, key: word, "errors.tolerance": "x"}
    assert rest.call("PUT", "/connector-plugins/IcebergSink/config/validate", offered).body["error_count"] == 1
    assert rest.call("POST", "/connectors", {"name": "q", "config": offered}).status == 400
    assert redact(word) == word
    assert rest.call("POST", "/connectors", {"name": "q", "config": {**SINK, key: word}}).status == 201
    assert redact(word) == MASK
    assert rest.call("PATCH", "/connectors/q/config", {key: "another-word"}).status == 200
    wait_for(lambda: redact(f"{word} another-word") == f"{word} {MASK}")
    assert rest.call("DELETE", "/connectors/q").status == 204
    wait_for(lambda: redact("another-word") == "another-word")
    assert redact(SINK[key]) == MASK


def test_a_fault_shows_no_secret_that_a_request_brought(rest: Client) -> None:
    """Also where it stands in another value."""
    offered = {**SINK, "consumer.override.sasl.password": "brought-along", "errors.tolerance": "brought-along"}
    answers = [
        rest.call("PUT", "/connector-plugins/IcebergSink/config/validate", offered),
        rest.call("POST", "/connectors", {"name": "q", "config": offered}),
        rest.call("PUT", "/connectors/q/config", offered),
        rest.call("PATCH", "/connectors/s/config", offered),
    ]
    assert [one.status for one in answers] == [200, 400, 400, 400]
    assert [one.body for one in answers if "brought-along" in str(one.body)] == []
    assert all("errors.tolerance" in str(one.body) for one in answers)


def test_thousands_of_secrets_hold_nobody_up(rest: Client) -> None:
    """A body full of them is answered as any other."""
    offered = {**SINK, **{f"x.password.{number}": f"value-{number}" for number in range(3000)}}
    assert rest.call("PUT", "/connector-plugins/IcebergSink/config/validate", offered).status == 200


def test_offsets_of_a_connector_that_cannot_be_read(server: TestServer, rest: Client) -> None:
    """The reason is told at once."""
    lost = UnreadableConnector("lost", SINK, "STOPPED", "ConfigError: topics: is missing")
    server.worker.add(lost)
    for method, body in (("DELETE", None), ("GET", None)):
        status, message = error_of(rest.call(method, "/connectors/lost/offsets", body))
        assert (status, "topics: is missing" in message) == (500, True)
