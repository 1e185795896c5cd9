"""programs of a MariaDB or MySQL -> a server of our own with a binary log, rows read back as text."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.errors import FatalError

USER = PASSWORD = "bridge"
DATABASE = "shop"
_READY_S, _STOP_S, _COMMAND_S = 60.0, 30.0, 120.0
_SETTINGS = (
    f"--bind-address={LOOPBACK}",
    "--server-id=7",
    "--log-bin=bin",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=0",
    "--default-time-zone=+00:00",
    "--sql-mode=NO_ENGINE_SUBSTITUTION",
    "--character-set-server=utf8mb4",
)


class BinlogServer(ABC):
    """A server on a free loopback port; folder and process are gone after `stop`."""

    name: str
    connector_class: str

    def __init__(self) -> None:
        """Describe it; nothing runs yet."""
        self._home = Path(tempfile.mkdtemp(prefix=f"icebridge-{self.name}-"))
        self.port = free_ports(1)[0]
        self._child: ChildProcess | None = None

    @abstractmethod
    def server_command(self) -> tuple[str, ...]:
        """The words that run the server's program."""

    def settings(self) -> tuple[str, ...]:
        """Settings of this kind of server alone."""
        return ()

    @abstractmethod
    def client_command(self) -> tuple[str, ...]:
        """The words that run the client's program."""

    @abstractmethod
    def initialize_command(self, common: tuple[str, ...]) -> tuple[str, ...]:
        """The words that make the data folder which `common` names."""

    def start(self) -> Self:
        """Make the data folder and start the server. FatalError with the log's end when it does not come up."""
        data, owner = self._home / "data", "root" if os.getuid() == 0 else os.environ.get("USER", "mysql")
        common = ("--no-defaults", f"--datadir={data}", f"--user={owner}")
        run_checked(self.initialize_command(common))
        setup = self._home / "setup.sql"
        setup.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'%';\n",
            encoding="utf-8",
        )
        paths = (f"--socket={self._home}/socket", f"--pid-file={self._home}/pid", f"--init-file={setup}")
        settings = (*_SETTINGS, *self.settings(), *paths, f"--port={self.port}")
        command = (*self.server_command(), *common, *settings)
        self._child = ChildProcess(command, self._home / "server.log")
        self._wait_ready()
        return self

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self._child is not None:
            if self._child.returncode is None:
                os.kill(self._child.pid, signal.SIGTERM)
                self._child.wait(_STOP_S)
            self._child.kill()
            self._child = None
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, sql: str) -> str:
        """Run statements in the database and return what the client prints. FatalError with the server's message."""
        return run_checked(self._client("--batch", "--skip-column-names", "--raw", DATABASE), sql)

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns, in order."""
        return self.run(
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_schema = '{DATABASE}' AND table_name = '{table}' ORDER BY ordinal_position;"
        ).split()

    def rows(self, table: str, columns: dict[str, str]) -> list[dict[str, str | None]]:
        """All rows, each column as the text that an SQL expression of it gives (column -> expression)."""
        pairs = ", ".join(f"'{name}', CAST({expression} AS CHAR)" for name, expression in columns.items())
        lines = self.run(f"SELECT JSON_OBJECT({pairs}) FROM `{table}`;").splitlines()
        return [json.loads(line) for line in lines]

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _client(self, *words: str) -> tuple[str, ...]:
        login = (
            f"--host={LOOPBACK}",
            f"--port={self.port}",
            f"--user={USER}",
            f"--password={PASSWORD}",
            "--default-character-set=utf8mb4",
        )
        return (*self.client_command(), "--no-defaults", *login, *words)

    def _wait_ready(self) -> None:
        assert self._child is not None
        limit = time.monotonic() + _READY_S
        while time.monotonic() < limit and self._child.returncode is None:
            try:
                self.run("SELECT 1;")
            except FatalError:
                time.sleep(0.3)
            else:
                return
        end = self._child.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        self.stop()
        raise FatalError(f"{self.name} did not start; the end of its log:\n{end}")


def run_checked(
    command: Sequence[str],
    text: str | None = None,
    environ: dict[str, str] | None = None,
    timeout_s: float = _COMMAND_S,
) -> str:
    """Run a program with this text on its standard input and return what it prints. FatalError when it fails."""
    given = None if text is None else text.encode()
    stdin = {"input": given} if given is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(command, env=environ, timeout=timeout_s, capture_output=True, check=False, **stdin)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise FatalError(f"{Path(command[0]).name} failed ({done.returncode}): {done.stderr.decode(errors='replace')}")
    return str(done.stdout.decode())
