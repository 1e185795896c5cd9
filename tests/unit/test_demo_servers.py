"""The demo's servers, without starting one: how their JVMs are started, and how they are asked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import javaproperties
import pytest

from connector.demo.servers.kafka_broker import KafkaBroker, java_options
from connector.demo.servers.ports import DIRECT
from connector.runtime.jvm.collector import EVERY_JAVA, collector_options


@pytest.mark.parametrize("name", EVERY_JAVA)
def test_the_environments_collector_is_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that the environment gives every Java takes the place of the servers' own; other options do not."""
    for each in EVERY_JAVA:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "-Dx=y -XX:+UseStringDeduplication")
    assert collector_options("-XX:+UseSerialGC") == ("-XX:+UseSerialGC",)
    monkeypatch.setenv(name, "-Dx=y -XX:+UseG1GC")
    assert not [option for option in java_options(512) if option.endswith("GC")]


class _Answer(BaseHTTPRequestHandler):
    """Answers with nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_servers_of_this_machine_are_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment, which knows no server of this machine, does not keep one from being found."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with DIRECT.open(f"http://127.0.0.1:{server.server_port}/", timeout=30) as answer:
            assert answer.status == 200


def test_java_reads_the_brokers_folder_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with letters beyond ASCII is the one that the broker keeps its data in, though Java reads Latin-1."""
    monkeypatch.setattr(KafkaBroker, "_format", lambda self, config: None)
    monkeypatch.setattr(KafkaBroker, "_java", lambda self, *words, **options: None)
    home = tmp_path / "Jörg's # lake"
    home.mkdir()
    KafkaBroker(home)._launch()
    with (home / "server.properties").open("rb") as file:
        assert javaproperties.load(file)["log.dirs"] == str(home / "data")
