"""Ports and child processes of the embedded servers, without a server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from connector.demo.servers.kafka_broker import KafkaBroker, server_properties
from connector.demo.servers.ports import LOOPBACK, free_ports, is_answering, is_free
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.errors import FatalError

SLEEP = "/bin/sleep"


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _gone(pid: int, limit_s: float = 60.0) -> bool:
    limit = time.monotonic() + limit_s
    while _alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not _alive(pid)


@pytest.mark.parametrize("server", ["kafka_broker", "opensearch_node", "schema_registry"])
def test_a_server_needs_neither_spark_nor_arrow(server: str) -> None:
    """What starts a server for a test or a benchmark does not import what only the demo itself needs."""
    code = f"import sys, connector.demo.servers.{server}; print(*{{'pyspark', 'pyarrow', 'rich'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not done.stdout.split()


def test_free_ports_differ_and_are_free() -> None:
    """Ports chosen together differ and can be listened on; one that is taken is told apart."""
    first, second = free_ports(2)
    assert first != second
    with socket.socket() as server:
        server.bind((LOOPBACK, first))
        server.listen()
        assert not is_free(first)
        assert is_answering(first)
    assert is_free(first)
    assert not is_answering(first)


def test_child_ends_with_its_signal(tmp_path: Path) -> None:
    """Stop and kill end the child and leave its signal as exit code."""
    child = ChildProcess([SLEEP, "60"], tmp_path / "log")
    assert child.returncode is None
    child.stop(5)
    assert child.returncode == -signal.SIGTERM
    other = ChildProcess([SLEEP, "60"], tmp_path / "log")
    other.kill()
    assert other.returncode == -signal.SIGKILL


def test_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """After the time limit SIGKILL follows SIGTERM."""
    child = ChildProcess(["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], tmp_path / "log")
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    child.stop(0.2)
    assert child.returncode == -signal.SIGKILL


def test_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """A child started by a short-lived thread stays until it is stopped."""
    made: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: made.append(ChildProcess([SLEEP, "60"], tmp_path / "log")))
    thread.start()
    thread.join()
    assert not made[0].wait(0.5)
    made[0].kill()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux only")
class _Silent(Server):
    """A server that runs and never answers; somebody stops to wait for it."""

    def _launch(self) -> ChildProcess:
        return ChildProcess([SLEEP, "600"], self.log)

    def _is_answering(self) -> bool:
        raise KeyboardInterrupt


def test_a_server_that_nobody_waits_for_is_gone(tmp_path: Path) -> None:
    """A start that is cut off leaves no process."""
    server = _Silent(tmp_path)
    started = list[ChildProcess]()
    launch = server._launch
    server._launch = lambda: started.append(launch()) or started[-1]  # type: ignore[func-returns-value,method-assign]
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert server.pid is None and _gone(started[0].pid)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_child_dies_with_a_killed_parent(tmp_path: Path, end: signal.Signals) -> None:
    """A Python process that is killed leaves no child behind."""
    code = (
        "import sys,time,pathlib; from connector.demo.servers.process import ChildProcess\n"
        f"child = ChildProcess(['{SLEEP}', '60'], pathlib.Path(sys.argv[1])); "
        "print(child.pid, flush=True); time.sleep(60)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _alive(pid)
        parent.send_signal(end)
    assert _gone(pid)


def test_overrides_win() -> None:
    """Broker properties of the caller replace the defaults; both listeners are on loopback."""
    values = server_properties(Path("/h"), 1, 2, {"auto.create.topics.enable": "true"})
    assert values["auto.create.topics.enable"] == "true"
    assert values["listeners"] == values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert values["log.dirs"] == "/h/data"


def test_a_broker_that_was_not_started_has_no_address(tmp_path: Path) -> None:
    """Asking for the address too early is an error that says what to call; stopping is allowed."""
    broker = KafkaBroker(tmp_path)
    broker.stop()
    with pytest.raises(FatalError, match=r"start\(\)"):
        _ = broker.bootstrap_servers
