"""What clients do wrong, and what goes wrong: bodies, names, slow clients, secrets, long batches, lost properties."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from connector.errors import FatalError
from connector.redaction import is_secret
from connector.runtime.lifecycle import describe_error
from connector.server.config_store import InMemoryConfigStore, StoredConnector, parse_connector
from connector.server.connectors.unreadable import UnreadableConnector
from connector.server.http import protocol as http_protocol
from connector.server.http import server as http_server
from connector.server.rest.plugins import all_plugins
from connector.settings.connector_class import SOURCE_CLASS
from connector.source.snapshots.table_offset import TableOffset
from tests.servers.connectors import SINK, SOURCE, Answer, Client, TestServer, error_of, is_closed, serving, wait_for


@pytest.mark.parametrize(
    "body",
    [
        {"name": {"a": 1}, "config": SINK},
        {"name": ["s"], "config": SINK},
        {"name": "", "config": SINK},
        {"name": "  ", "config": SINK},
        {"name": None, "config": SINK},
        {"name": "a/b", "config": SINK},
        {"name": "a\nb", "config": SINK},
        {"name": "x" * 201, "config": SINK},
        {"name": "s", "config": SINK, "initial_state": []},
        {"name": "s", "config": SINK, "initial_state": "ASLEEP"},
        {"name": "s", "config": "topics=t"},
        {"name": "s", "config": [SINK]},
        {"name": "s", "config": {**SINK, "tasks.max": {"a": 1}}},
        {"name": "s", "config": {**SINK, "consumer.override.sasl.password": "***"}},
    ],
    ids=lambda body: json.dumps({key: value for key, value in body.items() if value is not SINK})[:40],
)
def test_bodies_of_another_shape_create_nothing(empty: TestServer, body: object) -> None:
    """400 with Connect's JSON."""
    assert error_of(empty.rest.call("POST", "/connectors", body))[0] == 400
    assert empty.worker.names == []


@pytest.mark.parametrize("name", ["a%2Fb", "%0A", "%20", "x" * 201], ids=["slash", "newline", "blank", "long"])
def test_names_that_no_path_can_have_are_refused_in_paths_too(empty: TestServer, name: str) -> None:
    """4xx, and nothing is created."""
    assert 400 <= error_of(empty.rest.call("PUT", f"/connectors/{name}/config", SINK))[0] < 500
    assert empty.worker.names == []


@pytest.mark.parametrize("body", [None, 5, "text", [], {"level": 5}, {"level": None}, {"level": ["INFO"]}], ids=str)
def test_levels_of_another_shape_change_nothing(empty: TestServer, body: object) -> None:
    """400, whatever the body is."""
    assert error_of(empty.rest.call("PUT", "/admin/loggers/a", body, raw=json.dumps(body).encode()))[0] == 400


@pytest.mark.parametrize("name", ["py4j", "py4j.java_gateway", "opensearch"])
def test_loggers_that_would_show_rows_stay_quiet(empty: TestServer, name: str) -> None:
    """Their lines have the content of rows in them."""
    assert error_of(empty.rest.call("PUT", f"/admin/loggers/{name}", {"level": "DEBUG"}))[0] == 400


@pytest.mark.parametrize(
    "headers", [{"Host": "[::1"}, {"Host": "["}, {"Origin": "http://["}, {"Origin": "//[x"}], ids=str
)
def test_a_host_or_origin_that_is_none_is_refused(empty: TestServer, headers: dict[str, str]) -> None:
    """403, as any foreign one."""
    assert error_of(empty.rest.call("GET", "/connectors", headers=headers))[0] == 403


def test_what_is_no_http_is_told_so(empty: TestServer) -> None:
    """400 in Connect's JSON, and the connection is closed."""
    with _connect(empty.rest) as client:
        client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["error_code"]) == (400, 400)


def _connect(rest: Client) -> socket.socket:
    place = urlsplit(rest.url)
    return socket.create_connection((place.hostname or "", place.port or 0), 20)


@pytest.mark.parametrize("sent", [b"", b"GET /connectors HTT", b"GET /connectors HTTP/1.1\r\nHost: 127.0.0.1\r\nX:"])
def test_a_client_that_never_sends_its_request_is_let_go(
    empty: TestServer, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """The connection is closed when the head of a request did not arrive in time."""
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.1)
    with _connect(empty.rest) as slow:
        slow.sendall(sent)
        assert is_closed(slow)


def test_a_client_that_goes_on_sending_after_its_answer_is_let_go(
    empty: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that nobody asked for holds no place."""
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.1)
    with _connect(empty.rest) as slow:
        slow.sendall(b"PUT /connectors/x/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        answer = http.client.HTTPResponse(slow)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["error_code"]) == (404, 404)
        assert is_closed(slow)


def test_idle_connections_take_nobodys_place() -> None:
    """With more of them than there is room for, others are answered at once, on both ports."""
    with serving() as server:
        for client in (server.rest, server.health):
            idle = [_connect(client) for _ in range(http_server.CONNECTIONS + 20)]
            try:
                for one in idle[::2]:
                    try:
                        one.sendall(b"GET /q/health/live HTTP/1.1\r\nHost:")
                    except ConnectionError:
                        continue  # It had to make room.
                assert client.call("GET", "/q/health/live").status == 200
            finally:
                for one in idle:
                    one.close()


def test_a_connector_is_deleted_while_it_commits(server: TestServer, rest: Client) -> None:
    """The answer waits for no batch; one of the same name begins when the batch is over."""
    old = server.connector("s")
    old.committed.clear()
    assert rest.call("DELETE", "/connectors/s").status == 204
    assert rest.call("GET", "/connectors").body == []
    assert rest.call("POST", "/connectors", {"name": "s", "config": SINK}).status == 201
    new = server.connector("s")
    assert rest.call("GET", "/connectors/s/status").body["connector"]["state"] == "UNASSIGNED"
    assert not new.began.is_set()
    assert rest.call("PUT", "/connectors/s/config", {**SINK, "topics": "u"}).status == 200
    third = server.connector("s")
    assert not third.began.is_set()
    old.committed.set()
    wait_for(lambda: third.lifecycle.state == "RUNNING")
    assert not new.lifecycle.starts


def test_others_do_not_wait_for_a_connector_that_stops(server: TestServer, rest: Client) -> None:
    """A change of offsets waits for the end of a batch, and holds up nobody else."""
    assert rest.call("POST", "/connectors", {"name": "other", "config": SINK}).status == 201
    stubborn = server.connector("s")
    stubborn.lifecycle.target = "STOPPED"  # Asked for, and its batch goes on.
    answers: list[Answer] = []
    body = {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]}
    waiting = threading.Thread(target=lambda: answers.append(rest.call("PATCH", "/connectors/s/offsets", body)))
    waiting.start()
    assert rest.call("PUT", "/connectors/other/pause").status == 202
    assert rest.call("PUT", "/connectors/s/resume").status == 202

    def is_answered() -> bool:
        stubborn.lifecycle.state = "STOPPED"  # Again and again: its own thread tells how it is too.
        return bool(answers)

    wait_for(is_answered)
    waiting.join(20)
    assert error_of(answers[0])[0] == 400  # It was asked to run meanwhile.
    assert stubborn.stored == {("t", 0): 5}


def test_an_invalid_configuration_of_a_running_connector_changes_nothing(server: TestServer, rest: Client) -> None:
    """It goes on with the one that it has, by PUT and by PATCH."""
    connector = server.connector("s")
    assert error_of(rest.call("PUT", "/connectors/s/config", {**SINK, "errors.tolerance": "some"}))[0] == 400
    assert error_of(rest.call("PATCH", "/connectors/s/config", {"topicz": "x"}))[0] == 400
    assert server.connector("s") is connector
    assert (connector.lifecycle.state, server.store.load()["s"].config) == ("RUNNING", {**SINK, "name": "s"})


def test_restarts_while_it_starts(server: TestServer, rest: Client) -> None:
    """Each is taken; in the end it runs."""
    for _ in range(10):
        assert rest.call("POST", "/connectors/s/restart").status == 204
        assert rest.call("POST", "/connectors/s/restart?includeTasks=true").status == 202
    wait_for(lambda: server.connector("s").lifecycle.state == "RUNNING")


def test_pause_and_resume_at_once(server: TestServer, rest: Client) -> None:
    """Of many that contradict one is the last: what is stored is what is."""
    actions = ["pause", "resume", "stop"] * 8
    threads = [threading.Thread(target=rest.call, args=("PUT", f"/connectors/s/{one}")) for one in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lifecycle = server.connector("s").lifecycle
    assert lifecycle.target == server.store.load()["s"].target
    shown = {"STARTED": "RUNNING", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
    wait_for(lambda: lifecycle.state == shown[lifecycle.target])


def test_a_stored_connector_that_cannot_be_read_any_more() -> None:
    """It is listed as failed with its reason, starts once it can be read, and can be deleted."""
    store = InMemoryConfigStore()
    store.put("bad", StoredConnector({**SINK, "name": "bad", "errors.tolerance": "some"}))
    store.put("gone", StoredConnector({}, "STOPPED"))
    store.put("good", StoredConnector({**SINK, "name": "good"}))
    with serving(store=store) as server:
        with server.worker.starting_stored():
            pass
        rest = server.rest
        assert rest.call("GET", "/connectors").body == ["bad", "gone", "good"]
        task = rest.call("GET", "/connectors/bad/status").body["tasks"][0]
        assert (task["state"], "errors.tolerance" in task["trace"]) == ("FAILED", True)
        task = rest.call("GET", "/connectors/gone/status").body["tasks"][0]
        assert (task["state"], bool(task["trace"])) == ("FAILED", True), "also one that was stopped"
        assert rest.call("GET", "/connectors?expand=status&expand=info").status == 200
        assert rest.call("GET", "/api/overview").status == 200
        assert server.health.call("GET", "/metrics").status == 200
        assert error_of(rest.call("GET", "/connectors/bad/offsets"))[0] == 500
        assert rest.call("POST", "/connectors/bad/restart").status == 204
        assert isinstance(server.worker.get("bad"), UnreadableConnector)
        assert rest.call("PATCH", "/connectors/bad/config", {"errors.tolerance": "all"}).status == 200
        wait_for(lambda: server.connector("bad").lifecycle.state == "RUNNING")
        assert rest.call("DELETE", "/connectors/gone").status == 204
        assert sorted(store.load()) == ["bad", "good"]


def test_requests_while_a_worker_starts() -> None:
    """Stored connectors are there with the first answer; what changes one waits, and changes the one that is there."""
    store, answers = InMemoryConfigStore(), list[Answer]()
    store.put("s", StoredConnector({**SINK, "name": "s"}, "PAUSED"))
    with serving(store=store) as server:

        def change() -> None:
            answers.append(server.rest.call("PUT", "/connectors/s/config", {**SINK, "name": "s", "tasks.max": "1"}))

        changing = threading.Thread(target=change)
        with server.worker.starting_stored():
            assert server.rest.call("GET", "/connectors").body == ["s"]
            assert server.rest.call("GET", "/connectors/s/status").status == 200
            changing.start()
            changing.join(0.2)
            assert not answers
        changing.join(20)
        assert [answer.status for answer in answers] == [200]  # 201 for one that is made
        wait_for(lambda: server.connector("s").lifecycle.state == "PAUSED")
        assert store.load()["s"].target == "PAUSED"


GOOD = {"table-uuid": "u", "snapshot-id": 7, "ts-ns": 1, "schema-id": 0}
READ = {"snapshot-id": 7, "part": 1, "part-bytes": 100}


@pytest.mark.parametrize(
    "given", [GOOD, {"table-uuid": "u"}, {**GOOD, "full-read": READ}], ids=["all", "least", "read"]
)
def test_an_offset_of_a_source_that_a_user_gives(given: dict[str, object]) -> None:
    """What it leaves out is nothing; what it has is stored as it is."""
    offset = TableOffset.of_document(given)
    assert TableOffset.parse(offset.json()) == offset
    assert json.loads(offset.json()).items() >= given.items()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {**GOOD, "table-uuid": 5},
        {**GOOD, "table-uuid": ""},
        {**GOOD, "snapshot-id": "7"},
        {**GOOD, "snapshot-id": True},
        {**GOOD, "snapshot-id": 1.5},
        {**GOOD, "snapshot-id": 2**63},
        {**GOOD, "ts-ns": "now"},
        {**GOOD, "place": 1},
        {**GOOD, "full-read": []},
        {**GOOD, "full-read": {**READ, "part": -1}},
        {**GOOD, "full-read": {**READ, "part-bytes": 0}},
        {**GOOD, "full-read": {"snapshot-id": 1}},
    ],
    ids=lambda given: json.dumps(given)[:60],
)
def test_an_offset_of_a_source_that_is_none(given: dict[str, object]) -> None:
    """It is refused before it is stored, with what is wrong with it."""
    with pytest.raises(ValueError, match=r"is no|too small"):
        TableOffset.of_document(given)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"x"', "{}", '{"config": {}, "target": "LOST"}', '{"config": {"a": 1}, "target": "STARTED"}'],
)
def test_a_stored_row_that_is_none(text: str) -> None:
    """It becomes a connector without properties that does not run."""
    assert parse_connector("x", text) == StoredConnector({}, "STOPPED")


def test_masked_values_are_put_back_as_they_were(server: TestServer) -> None:
    """What GET shows may be put back, also where a secret is a part of a value."""
    config = {
        **SINK,
        "value.converter.schema.registry.url": "http://me:hunter22@registry:8081",
        "consumer.override.sasl.jaas.config": 'x required username="u" password="hunter22";',
        "consumer.override.sasl.password": "${env:HOME}",
    }
    rest = server.rest
    created = rest.call("POST", "/connectors", {"name": "s", "config": config})
    assert created.status == 201, created.body
    shown = rest.call("GET", "/connectors/s/config").body
    assert "hunter22" not in json.dumps(shown)
    assert rest.call("PUT", "/connectors/s/config", shown).status == 200
    assert rest.call("PATCH", "/connectors/s/config", {**shown, "errors.tolerance": "none"}).status == 200
    assert dict(server.connector("s").config) == {**config, "name": "s", "errors.tolerance": "none"}
    assert error_of(rest.call("PATCH", "/connectors/s/config", {"iceberg.catalog.token": "***"}))[0] == 400


def test_a_mask_within_a_changed_value_is_refused(server: TestServer) -> None:
    """It stands for a part of the value that was there, and would be stored as the secret itself."""
    key, rest = "value.converter.schema.registry.url", server.rest
    config = {**SINK, key: "http://me:hunter22@registry:8081", "name": "s"}
    assert rest.call("POST", "/connectors", {"name": "s", "config": config}).status == 201
    changed = {**rest.call("GET", "/connectors/s/config").body, key: "http://***@other:8081"}
    for method, body in (("PATCH", {key: changed[key]}), ("PUT", changed)):
        status, message = error_of(rest.call(method, "/connectors/s/config", body))
        assert (status, key in message) == (400, True)
    assert dict(server.connector("s").config) == config


MARK = "Hunter2-in-the-clear"


def _secret_keys() -> dict[str, list[str]]:
    """Of each plugin the options that are secrets, and some of its families."""
    families = (
        "consumer.override.sasl.password",
        "consumer.override.ssl.keystore.key",
        "iceberg.catalog.header.Authorization",
        "iceberg.catalog.s3.secret-access-key",
        "iceberg.catalog.adls.sas-token.a.b",
        "spark.hadoop.fs.s3a.secret.key",
        "value.converter.basic.auth.user.info",
        "pasword.of.nobody.secret",
    )
    return {
        plugin.name: sorted(
            {*(name for _, option in plugin.options if option.secret for name in option.names), *families}
        )
        for plugin in all_plugins()
    }


@pytest.mark.parametrize("plugin", list(_secret_keys()))
def test_no_answer_has_a_secret(plugin: str) -> None:
    """Neither what is created, shown, expanded, validated or refused, nor traces and health."""
    keys = _secret_keys()[plugin]
    base = {**(SOURCE if plugin == SOURCE_CLASS else SINK), "connector.class": plugin}
    if "Opensearch" in plugin:
        base["connection.url"] = "http://h:1"
    answers: list[Answer] = []
    with serving() as server:

        def call(method: str, path: str, body: object = None) -> Answer:
            answers.append(server.rest.call(method, path, body))
            return answers[-1]

        for place, key in enumerate(keys):
            # What need not be secret by its name, such as a URI, may have a login in it.
            config = {**base, key: MARK if place % 2 and is_secret(key) else f"https://me:{MARK}@host/x"}
            call("PUT", f"/connector-plugins/{plugin}/config/validate", config)
            call("PUT", f"/connector-plugins/{plugin}/config/validate", {**config, "connector.class": ""})
            call("POST", "/connectors", {"name": "s", "config": {**config, "connector.class": "no.Such"}})
            call("POST", "/connectors", {"name": "s", "config": {**config, "errors.retry.timeout": "x"}})
            if call("POST", "/connectors", {"name": "s", "config": config}).status == 201:
                lifecycle = server.connector("s").lifecycle
                lifecycle.state = "FAILED"
                lifecycle.error = describe_error(FatalError(f"no login with {key}={config[key]}"))
                for path in ("", "/config", "/tasks", "/tasks-config", "/tasks/0/status", "/status"):
                    call("GET", f"/connectors/s{path}")
                call("GET", "/connectors?expand=info&expand=status")
                call("GET", "/api/overview")
                call("PATCH", "/connectors/s/config", {"topicz": "x"})
                call("DELETE", "/connectors/s")
    assert {answer.status for answer in answers} >= {200, 201, 204, 400}
    told = [answer.body for answer in answers if MARK in json.dumps(answer.body)]
    assert told == []
