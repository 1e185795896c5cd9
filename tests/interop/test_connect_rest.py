"""One script that drives Kafka Connect by REST, against a real worker and against ours: the same answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from connector.server.rest.plugins import SINK_CLASS
from tests.connectors import Client, serving
from tests.interop.connect import Connect
from tests.unit.test_server_rest import SINK

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

JDBC = "io.debezium.connector.jdbc.JdbcSinkConnector"
OTHERS = {
    "connection.url": "jdbc:postgresql://127.0.0.1:1/none",
    "connection.username": "u",
    "connection.password": "p",
    "primary.key.mode": "record_key",
}
ONE = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 0}}


def _script(rest: Client, config: Mapping[str, str]) -> list[tuple[str, int, Any]]:
    """Drive a connector that is created stopped, so that no task's failure shows; give what was answered."""
    told: list[tuple[str, int, Any]] = []

    def call(method: str, path: str, body: object = None) -> None:
        answer = rest.call(method, path, body)
        told.append((f"{method} {path}", answer.status, _plain(answer.body)))

    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/topics", "/offsets"):
        call("GET", f"/connectors/x{path}")
    call("PUT", "/connectors/x/pause")
    call("PUT", "/connectors/x/resume")
    call("PUT", "/connectors/x/topics/reset")
    call("POST", "/connectors/x/restart?includeTasks=true")
    call("DELETE", "/connectors/x")
    call("PATCH", "/connectors/x/offsets", {"offsets": []})
    call("POST", "/connectors", {"name": "s", "config": {}})
    call("POST", "/connectors", {"name": "q", "config": {**config, "name": "s"}})
    call("POST", "/connectors", {"name": "s", "config": dict(config), "initial_state": "STOPPED"})
    call("POST", "/connectors", {"name": "s", "config": dict(config)})
    call("GET", "/connectors")
    call("GET", "/connectors?expand=info")
    call("GET", "/connectors/s")
    call("GET", "/connectors/s/config")
    call("GET", "/connectors/s/status")
    call("GET", "/connectors/s/tasks")
    call("PATCH", "/connectors/s/offsets", {})
    call("PATCH", "/connectors/s/offsets", {"offsets": [{"partition": {"kafka_topic": "t"}, "offset": None}]})
    call("PATCH", "/connectors/s/offsets", {"offsets": [{**ONE, "offset": {"x": 0}}]})
    call("PATCH", "/connectors/s/offsets", {"offsets": [{**ONE, "offset": {"kafka_offset": "b"}}]})
    call("PATCH", "/connectors/s/config", {"topics": "t,u"})
    call("PUT", "/connectors/s/config", {**config, "name": "other"})
    call("PUT", "/connectors/s/config", dict(config))
    call("PUT", "/connectors/s/stop")
    call("GET", "/nothing")
    call("PUT", "/connectors", {})
    call("PUT", "/admin/loggers/a", {})
    call("PUT", "/admin/loggers/a", {"level": "LOUD"})
    call("GET", "/admin/loggers/nope.x")
    call("DELETE", "/connectors/s")
    call("GET", "/connectors")
    return told


def _plain(body: Any) -> Any:
    """Leave out what differs by who answers: classes, addresses, versions, and the values of properties."""
    if isinstance(body, dict):
        return {
            key: sorted(value) if key == "config" else _plain(value)
            for key, value in body.items()
            if key not in {"worker_id", "version"}
        }
    if isinstance(body, list):
        return [_plain(one) for one in body]
    return re.sub(r"\{.*\}", "{}", body) if isinstance(body, str) else body


def test_both_answer_alike(connect: Connect) -> None:
    """Field by field; ours has the names of its own properties."""
    theirs = _script(Client(connect.url), {"connector.class": JDBC, "topics": "t", **OTHERS})
    with serving() as server:
        ours = _script(server.rest, {**SINK, "connector.class": SINK_CLASS})
    other = {*OTHERS} ^ {*SINK}

    def shared(body: Any) -> Any:
        if isinstance(body, dict):
            return {
                key: [one for one in value if one not in other] if key == "config" else shared(value)
                for key, value in body.items()
                if key not in other
            }
        return [shared(one) for one in body] if isinstance(body, list) else body

    texts = [
        {call: (status, shared(body) if "/config" not in call else status) for call, status, body in told}
        for told in (theirs, ours)
    ]
    assert texts[1] == texts[0]
