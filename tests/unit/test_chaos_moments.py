"""What connectors send -> the moments at which `make chaos` kills them: seen on the wire, before it passes."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from connector.demo.servers.ports import LOOPBACK
from tests.chaos.connectors import GROUPS, Connector
from tests.chaos.kills import Kills
from tests.chaos.moments import Moment, moments_of
from tests.harness.waiting import wait_until
from tests.servers.relay import Relay
from tests.unit.chaos_scene import SLEEP, Scene, Script, Servers, Start, start_and_kill

SEEN = re.compile(b"commit")
CONNECTORS = {one.name: one for group in GROUPS for one in group}


@pytest.fixture
def started() -> Iterator[Start]:
    """Start connectors, which are killed after the test."""
    yield from start_and_kill()


def test_a_connector_is_killed_at_its_moment(tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request passes after its death: the server hears it, and nobody hears the answer."""
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    heard: list[bytes] = []
    moments = (Moment("as it commits", "catalog", SEEN),)
    with socket.create_server((LOOPBACK, 0)) as server, Relay(server.getsockname()[1]) as relay:
        threading.Thread(target=_hear, args=(server, heard), daemon=True).start()
        talk = f"import socket, time\none = socket.create_connection(({LOOPBACK!r}, {relay.port}))\n"
        # Time enough for who listens: what is said before that is missed.
        one = started(Script(tmp_path, f"{talk}while True: time.sleep(0.2); one.sendall(b'commit')", moments=moments))
        scene = Scene([one], Servers({}, {"catalog": [relay]}))
        scene.acts.pace = 0.5
        kills = scene.kills()
        for _ in range(20):
            scene.do(kills.kill_at_moment)
            if scene.acts.kills:
                break
        assert scene.acts.kills == 1
        assert {"SIGKILL one as it commits", "SIGKILL one soon after: as it commits"} & scene.acts.counts.keys()
        assert (one.starts, one.is_running, scene.failures) == (2, True, [])
        assert b"commit" in b"".join(heard)


def test_a_moment_that_does_not_come_kills_nothing(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connector that commits nothing while it is waited for is left alone."""
    monkeypatch.setattr(Kills, "_depth", lambda *_: 0)
    one = started(Script(tmp_path, SLEEP, moments=(Moment("as it commits", "catalog", SEEN),)))
    with Relay(1) as relay:
        scene = Scene([one], Servers({}, {"catalog": [relay]}))
        scene.acts.pace = 0.0
        assert scene.do(scene.kills().kill_at_moment) == {}
    assert one.starts == 1


COMMIT = b"B\0\0UPDATE /lake/warehouse/%s/default/%s/metadata/00007-a1b2.metadata.json\0"
GROUP = b"\0\0\1\0\0\x08\0\x09\0\0\0\7\0\x07rdkafka\0\x16connect-chaos-%s\0"
PRODUCE = b"\0\0\1\0\0\0\0\x0b\0\0\0\7\0\nproducer-1\0\x1elake.default.chaos_public_people\0"
REQUESTS = {
    ("equality", "as it commits"): COMMIT % (b"equality", b"chaos_public_people"),
    ("equality", "as its offsets are stored"): COMMIT % (b"equality", b"_debezium_offset_storage"),
    ("equality", "as its group follows"): GROUP % b"equality",
    ("replica", "as it commits"): COMMIT % (b"replica", b"lake_default_chaos_public_people"),
    ("search", "as it writes documents"): b"POST /_bulk HTTP/1.1\r\n",
    ("source", "as it sends events"): PRODUCE,
}


@pytest.mark.parametrize("one", CONNECTORS.values(), ids=CONNECTORS.keys())
def test_moments_are_those_of_their_connector(one: Connector) -> None:
    """A request is seen by the moment that it stands for, and by none of another connector."""
    seen = {
        (one.name, moment.name) for moment in moments_of(one) for data in REQUESTS.values() if moment.is_seen_in(data)
    }
    assert seen == {place for place in REQUESTS if place[0] == one.name}
    assert not any(moment.is_seen_in(b"\0\0\1\0\0\x03\0\x09lake.default.x") for moment in moments_of(one))


def test_a_listener_hears_what_clients_send_while_it_listens() -> None:
    """A relay tells what passes before it passes it on, and nothing after the listening is over."""
    heard: list[bytes] = []
    told: list[bytes] = []
    with socket.create_server((LOOPBACK, 0)) as server, Relay(server.getsockname()[1]) as relay:
        threading.Thread(target=_hear, args=(server, heard), daemon=True).start()
        with socket.create_connection((LOOPBACK, relay.port), 10) as client:
            with relay.heard_by(told.append):
                client.sendall(b"one")
                wait_until(lambda: heard == [b"one"], 60, "nothing came")
            client.sendall(b"two")
            wait_until(lambda: heard == [b"one", b"two"], 60, "nothing came")
    assert told == [b"one"]


def _hear(server: socket.socket, heard: list[bytes]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            threading.Thread(target=_read, args=(client, heard), daemon=True).start()


def _read(client: socket.socket, heard: list[bytes]) -> None:
    with suppress(OSError), client:
        while data := client.recv(100):
            heard.append(data)
