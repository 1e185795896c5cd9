"""Requests that nobody means well: paths with slashes and codes, and texts that grow what looks at them."""

from __future__ import annotations

import http.client
import threading
from urllib.parse import urlsplit

import pytest

from connector.server import worker as worker_module
from connector.server.config_store import StoredConnector
from connector.server.http.apps import HealthApi
from connector.server.http.paths import strip_slashes
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.signals_api import SignalsApi
from tests.connectors import SINK, Client, TestServer, error_of, wait_for


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


def test_an_encoded_slash_is_of_a_name(server: TestServer, rest: Client) -> None:
    """It leads to no connector of another name."""
    assert _send(rest, "DELETE", "/connectors/s%2F") == 404
    assert server.worker.names == ["s"]


@pytest.mark.parametrize(
    ("path", "raw", "left"),
    [
        ("/", b"/", "/"),
        ("//", b"//", "/"),
        ("/a", b"/a", "/a"),
        ("/a//", b"/a//", "/a"),
        ("/a/", b"/a%2F", "/a/"),
        ("/a//", b"/a%2F/", "/a/"),
        ("/ü/", b"/%C3%BC/", "/ü"),
    ],
)
def test_slashes_of_a_path(path: str, raw: bytes, left: str) -> None:
    """Those that are written as such go."""
    assert strip_slashes(path, raw) == left


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


def _fill(path: str) -> str:
    """A route's path with names of what there is."""
    names = {"{name}": "s", "{task:int}": "0", "{plugin}": "IcebergSink", "{logger}": "connector"}
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
