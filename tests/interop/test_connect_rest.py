"""One script that drives Kafka Connect by REST, against a real worker and against ours: the same answers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import define, field

from connector.settings.connector_class import ICEBERG_SINK_CLASS
from tests.interop.connect import Connect
from tests.servers.connectors import Client, serving
from tests.unit.test_server_rest import SINK

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

JDBC = "io.debezium.connector.jdbc.JdbcSinkConnector"
OTHERS = {
    "connection.url": "jdbc:postgresql://127.0.0.1:1/none",
    "connection.username": "u",
    "connection.password": "p",
    "primary.key.mode": "record_key",
}
ONE = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 0}}


@define
class Script:
    """A script and what it was answered."""

    rest: Client
    told: list[tuple[str, int, Any]] = field(factory=list)

    def call(self, method: str, path: str, body: object = None) -> None:
        """Ask, and keep the answer."""
        answer = self.rest.call(method, path, body)
        self.told.append((f"{method} {path} {json.dumps(body)[:80]}", answer.status, _plain(answer.body)))

    def wait(self, state: str) -> None:
        """Until connector and tasks have a state: both ask for it at once, and have it a little later."""
        end = time.monotonic() + 60
        while True:
            status = self.rest.call("GET", "/connectors/s/status").body
            if {status["connector"]["state"], *(task["state"] for task in status["tasks"])} == {state}:
                return
            assert time.monotonic() < end, status
            time.sleep(0.2)

    def ask_for_what_is_not_there(self) -> None:
        """Every path of a connector that there is not."""
        for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/topics", "/offsets"):
            self.call("GET", f"/connectors/x{path}")
        for path in ("pause", "resume", "topics/reset"):
            self.call("PUT", f"/connectors/x/{path}")
        self.call("POST", "/connectors/x/restart?includeTasks=true")
        self.call("DELETE", "/connectors/x")
        self.call("PATCH", "/connectors/x/offsets", {"offsets": []})

    def create(self, config: Mapping[str, str]) -> None:
        """A connector that is created stopped, so that no task's failure shows; and what is refused."""
        self.call("POST", "/connectors", {"name": "s", "config": {}})
        self.call("POST", "/connectors", {"name": "q", "config": {**config, "name": "s"}})
        self.call("POST", "/connectors", {"name": "s", "config": dict(config), "initial_state": "STOPPED"})
        self.call("POST", "/connectors", {"name": "s", "config": dict(config)})
        for path in ("/connectors", "/connectors?expand=info", "/connectors/s"):
            self.call("GET", path)
        for path in ("config", "status", "tasks"):
            self.call("GET", f"/connectors/s/{path}")

    def change_offsets(self) -> None:
        """What is no offset, and none at all."""
        self.call("PATCH", "/connectors/s/offsets", {})
        for one in (
            {"partition": {"kafka_topic": "t"}, "offset": None},
            {"partition": None, "offset": None},
            {**ONE, "offset": {"x": 0}},
            {**ONE, "offset": {"kafka_offset": "b"}},
        ):
            self.call("PATCH", "/connectors/s/offsets", {"offsets": [one]})
        self.call("DELETE", "/connectors/s/offsets")
        self.call("GET", "/connectors/s/offsets")

    def pause_and_stop(self) -> None:
        """A paused connector has a task, and its offsets cannot be changed; a stopped one has none."""
        self.call("PUT", "/connectors/s/pause")
        self.wait("PAUSED")
        for path in ("status", "tasks/0/status", "tasks/1/status"):
            self.call("GET", f"/connectors/s/{path}")
        self.call("PATCH", "/connectors/s/offsets", {"offsets": [ONE]})
        self.call("DELETE", "/connectors/s/offsets")
        self.call("PUT", "/connectors/s/stop")
        self.wait("STOPPED")
        self.call("GET", "/connectors/s/status")

    def configure_and_delete(self, config: Mapping[str, str]) -> None:
        """Other properties, what there is no path or level for, and the end."""
        self.call("PATCH", "/connectors/s/config", {"topics": "t,u"})
        self.call("PUT", "/connectors/s/config", {**config, "name": "other"})
        self.call("PUT", "/connectors/s/config", dict(config))
        self.call("PUT", "/connectors/s/stop")
        self.call("GET", "/nothing")
        self.call("PUT", "/connectors", {})
        self.call("PUT", "/admin/loggers/a", {})
        self.call("PUT", "/admin/loggers/a", {"level": "LOUD"})
        self.call("GET", "/admin/loggers/nope.x")
        self.call("DELETE", "/connectors/s")
        self.call("GET", "/connectors")


def _script(rest: Client, config: Mapping[str, str]) -> list[tuple[str, int, Any]]:
    """Drive a connector through its life; return what was answered."""
    script = Script(rest)
    script.ask_for_what_is_not_there()
    script.create(config)
    script.change_offsets()
    script.pause_and_stop()
    script.configure_and_delete(config)
    return script.told


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
    if not isinstance(body, str):
        return body
    # A connector that keeps offsets elsewhere is told that it has to see to them itself.
    body = re.sub(r"^The (Connect framework-managed )?(offsets .* successfully).*", r"The \2", body, flags=re.DOTALL)
    return re.sub(r"\{.*\}", "{}", body)


def test_both_answer_alike(connect: Connect) -> None:
    """Field by field; ours has the names of its own properties."""
    theirs = _script(Client(connect.url), {"connector.class": JDBC, "topics": "t", **OTHERS})
    with serving() as server:
        ours = _script(server.rest, {**SINK, "connector.class": ICEBERG_SINK_CLASS})
    other = {*OTHERS} ^ {*SINK}

    def shared(body: Any) -> Any:
        if isinstance(body, dict):
            return {
                key: [one for one in value if one not in other] if key == "config" else shared(value)
                for key, value in body.items()
                if key not in other
            }
        return [shared(one) for one in body] if isinstance(body, list) else body

    # Bodies of configurations are those of two different connectors.
    texts = [
        [
            (call.partition(" {")[0], status, shared(body) if "/config" not in call else None)
            for call, status, body in told
        ]
        for told in (theirs, ours)
    ]
    assert texts[1] == texts[0]
