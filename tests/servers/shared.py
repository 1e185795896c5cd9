"""One run of the tests, in however many processes -> one broker, one registry and one search node for all of them.

    test process --connection--> keeper --> servers
The first process that asks starts the keeper, under a file lock as pytest-xdist documents it. The keeper starts a
server when it is first asked for. It ends, and the servers with it, when the last connection to it is closed: the
kernel closes the connection of a process that dies.
"""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from attrs import frozen

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.demo.servers.schema_registry import SchemaRegistryServer
from connector.demo.servers.server import Server
from tests.harness.paths import PROJECT

FIRST_S = 60.0
"""How long a keeper waits for its first connection."""
KINDS: dict[str, Callable[[Path], Server]] = {
    # What was compacted is looked for after fifteen seconds by default.
    "broker": lambda home: KafkaBroker(home, properties={"log.cleaner.backoff.ms": "500"}, short_lived=True),
    "registry": SchemaRegistryServer,
    "search": lambda home: OpenSearchNode(home, settings={"cluster.max_shards_per_node": "10000"}, short_lived=True),
}
ADDRESSES: dict[str, Callable[[Any], str]] = {
    "broker": lambda broker: broker.bootstrap_servers,
    "registry": lambda registry: registry.url,
    "search": lambda node: node.url,
}


@frozen
class SharedBroker:
    """A broker that another process started."""

    bootstrap_servers: str


@frozen
class SharedRegistry:
    """A registry that another process started."""

    url: str


class Servers:
    """The servers of this run; `home` is a folder that all its processes know."""

    def __init__(self, home: Path) -> None:
        """Nothing runs yet."""
        self._home = home
        self._connection: socket.socket | None = None
        self._folder: Path | None = None
        self._unread: list[socket.socket] = []

    def prepare(self, kind: str) -> None:
        """Have a server started beside what comes before somebody asks where it is."""
        self._connected()
        if (found := self._found()) is not None:  # a connection of its own: nobody reads the answer
            found[0].sendall(f"{kind}\n".encode())
            self._unread.append(found[0])

    def address(self, kind: str) -> str:
        """Where clients find a server, which is started when it does not run. RuntimeError with its log's end."""
        answer = _asked(self._connected(), kind)
        if answer is None or "error" in answer:
            raise RuntimeError(f"no {kind}: {answer['error'] if answer else 'the keeper of the servers is gone'}")
        return str(answer["address"])

    def once(self, name: str, work: Callable[[], object]) -> None:
        """Do something to the servers, unless another process of this run has done it."""
        self._connected()
        assert self._folder is not None
        done = self._folder / f"{name}.done"
        with _locked(self._folder / f"{name}.lock"):
            if not done.exists():
                work()
                done.touch()

    def close(self) -> None:
        """Need them no longer."""
        for connection in self._unread:
            connection.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._home.mkdir(parents=True, exist_ok=True)
            with _locked(self._home / "keeper.lock"):
                found = self._found() or self._started()
            self._connection, self._folder = found
        return self._connection

    def _found(self) -> tuple[socket.socket, Path] | None:
        """The keeper that another process started, if it is there still."""
        told = self._home / "keeper"
        return _joined(told.read_text(encoding="utf-8")) if told.exists() else None

    def _started(self) -> tuple[socket.socket, Path]:
        with (self._home / "keeper.log").open("ab") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.shared", str(self._home)],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert keeper.stdout is not None
        with keeper.stdout:
            address = keeper.stdout.readline().strip()
        joined = _joined(address)
        if joined is None:
            raise RuntimeError(f"the keeper of the servers did not start; see {self._home / 'keeper.log'}")
        (self._home / "keeper").write_text(address, encoding="utf-8")
        return joined


def _joined(address: str) -> tuple[socket.socket, Path] | None:
    """A connection to the keeper that listens there, and the folder of its servers; None when there is none."""
    connection = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        connection.connect(address)
        if (answer := _asked(connection, "folder")) is not None:
            return connection, Path(answer["folder"])
    connection.close()
    return None


def _asked(connection: socket.socket, question: str) -> Any:
    """The keeper's answer; None when it is gone."""
    connection.sendall(f"{question}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        more = connection.recv(65536)
        if not more:
            return None
        answer += more
    return json.loads(answer)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Nobody else is in here; a process that dies lets go."""
    with file.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the keeper --------------------------------------------------------------------------------------------------


class Keeper:
    """Starts servers in a folder of its own, and counts who needs them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, Server] = {}
        self._starting = {kind: threading.Lock() for kind in KINDS}
        self._users, self._change = 0, threading.Condition()
        self._ends = False

    def serve(self, listening: socket.socket) -> None:
        """Answer until the last connection is closed, or none comes."""
        listening.settimeout(FIRST_S)
        with suppress(OSError):
            self._welcome(listening.accept()[0])
            listening.settimeout(None)
            threading.Thread(target=self._welcome_all, args=(listening,), daemon=True).start()
            with self._change:
                self._change.wait_for(lambda: self._users == 0)
                self._ends = True

    def kill(self) -> None:
        """End the servers; nobody needs what they hold."""
        for server in self._servers.values():
            server.kill()

    def _welcome_all(self, listening: socket.socket) -> None:
        while True:
            self._welcome(listening.accept()[0])

    def _welcome(self, user: socket.socket) -> None:
        with self._change:
            if self._ends:
                user.close()
                return
            self._users += 1
        threading.Thread(target=self._attend, args=(user,), daemon=True).start()

    def _attend(self, user: socket.socket) -> None:
        try:
            with suppress(OSError), user, user.makefile("rw", encoding="utf-8") as lines:
                for line in lines:
                    lines.write(json.dumps(self._answer(line.strip())) + "\n")
                    lines.flush()
        finally:
            with self._change:
                self._users -= 1
                self._change.notify_all()

    def _answer(self, question: str) -> dict[str, Any]:
        if question == "folder":
            return {"folder": str(self._folder)}
        with self._starting[question]:
            try:
                if question not in self._servers:
                    server = KINDS[question](self._folder / question)
                    self._servers[question] = server.start()
                return {"address": ADDRESSES[question](self._servers[question])}
            except Exception as error:  # noqa: BLE001 - told to whom asked
                return {"error": str(error)}


def _keep(home: Path) -> None:
    keeper = Keeper(Path(mkdtemp(prefix="keeper-", dir=home)))
    # The path of a Unix socket is short: about a hundred characters.
    with TemporaryDirectory(prefix="icebridge-") as beside, socket.socket(socket.AF_UNIX) as listening:
        address = str(Path(beside) / "keeper")
        listening.bind(address)
        listening.listen()
        sys.stdout.write(f"{address}\n")
        sys.stdout.close()
        try:
            keeper.serve(listening)
        finally:
            keeper.kill()


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
