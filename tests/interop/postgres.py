"""the machine's packages -> a PostgreSQL cluster of our own in a temporary folder, rows read back as Python values.

The server refuses to run as root: there the cluster is owned by another user. `setpriv --pdeathsig keep` changes to
that user because the kernel forgets the signal that ties a child to its parent when a process changes its user.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.errors import FatalError
from tests.interop.debian import install

OTHER_USERS = ("postgres", "nobody")
USER = "bridge"
DATABASE = "postgres"
_READY_S = 30.0
_STOP_S = 20.0
_COMMAND_S = 60.0
_PACKAGES = Path("/usr/lib/postgresql")
# A test's data may be lost with the machine; a missing sync makes every commit some ms faster.
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "log_min_error_statement": "error",
}


def programs() -> Path:
    """Return the folder of initdb, postgres, psql, installed by apt-get when missing. FatalError when it cannot be."""
    found = _installed()
    if found is None:
        install("postgresql")
        found = _installed()
    if found is None:
        raise FatalError("PostgreSQL was installed but its initdb is nowhere below /usr/lib/postgresql nor on PATH")
    return found


class Postgres:
    """A cluster of its own on a free loopback port; folder and process are gone after `stop`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Describe it; nothing runs yet. `settings` win over those of tests."""
        self._settings = {**_SETTINGS, **(settings or {})}
        self._bin = programs()
        self._home = Path(tempfile.mkdtemp(prefix="icebridge-postgres-"))
        self._port = free_ports(1)[0]
        self._child: ChildProcess | None = None

    @property
    def jdbc_url(self) -> str:
        """The database's address for a JDBC driver; user is USER, any password will do."""
        return f"jdbc:postgresql://{LOOPBACK}:{self._port}/{DATABASE}"

    @property
    def port(self) -> int:
        """The port that it listens on, also after it was killed and started again."""
        return self._port

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    def start(self) -> Self:
        """Make the cluster and start it (about 2 s). FatalError with the log's end when it does not come up."""
        if os.getuid() == 0:
            user = _other_user()
            os.chown(self._home, user.pw_uid, user.pw_gid)
        initdb = ("initdb", "-D", str(self._home / "data"), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        _checked(self._as_owner(*initdb), cwd=self._home)
        self._launch()
        if not self._wait_ready():
            self._give_up()
        return self

    def kill(self) -> None:
        """Kill it as a crash would (SIGKILL): the processes of its connections end by themselves."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def start_again(self) -> None:
        """Start what was killed, as soon as the last of its processes has let go. FatalError when it does not come."""
        limit = time.monotonic() + _READY_S
        while True:
            self._launch()
            if self._wait_ready():
                return
            if time.monotonic() > limit:
                self._give_up()
            self.kill()
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop it (SIGINT, its fast shutdown) and remove its folder."""
        if self._child is not None:
            if self._child.returncode is None:
                os.kill(self._child.pid, signal.SIGINT)
                self._child.wait(_STOP_S)
            self._child.kill()
            self._child = None
        shutil.rmtree(self._home, ignore_errors=True)

    def run(self, sql: str) -> str:
        """Run SQL and return what psql prints, unaligned and without heads. FatalError with the server's message."""
        return _checked((*self._psql(), "-v", "ON_ERROR_STOP=1", "-c", sql))

    def run_script(self, sql: str) -> str:
        """Run many statements one by one, up to the first that fails. FatalError with the server's message."""
        return _checked((*self._psql(), "-v", "ON_ERROR_STOP=1", "-f", "-"), told=sql.encode())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows as PostgreSQL's JSON has them: numbers with a point are Decimal, bytea `\\x...`, times ISO."""
        lines = self.run(f"SELECT row_to_json(t) FROM {table} t").split("\n")
        return [json.loads(line, parse_float=Decimal) for line in lines if line]

    def types(self, table: str) -> dict[str, str]:
        """Column -> type as PostgreSQL writes it (`numeric(10,2)`), in the table's order."""
        lines = self.run(
            "SELECT row_to_json(c) FROM (SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM "
            f"pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum) c"
        )
        columns = [json.loads(line) for line in lines.splitlines()]
        return {column["name"]: column["type"] for column in columns}

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _psql(self) -> tuple[str, ...]:
        where = ("-h", LOOPBACK, "-p", str(self._port), "-U", USER, "-d", DATABASE)
        return (str(self._bin / "psql"), "-X", "-q", "-A", "-t", *where)

    def _as_owner(self, program: str, *arguments: str) -> tuple[str, ...]:
        command = (str(self._bin / program), *arguments)
        if os.getuid() != 0:
            return command
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise FatalError(
                "PostgreSQL does not run as root and there is no setpriv (package util-linux) to change user"
            )
        user = _other_user()
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        return (setpriv, *ids, "--pdeathsig", "keep", *command)

    def _launch(self) -> None:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        server = self._as_owner("postgres", "-D", str(self._home / "data"), "-p", str(self._port), *settings)
        self._child = ChildProcess(server, self._home / "postgres.log")

    def _wait_ready(self) -> bool:
        assert self._child is not None
        limit = time.monotonic() + _READY_S
        while time.monotonic() < limit and self._child.returncode is None:
            if subprocess.run((*self._psql(), "-c", "SELECT 1"), capture_output=True, check=False).returncode == 0:
                return True
            time.sleep(0.1)
        return False

    def _give_up(self) -> NoReturn:
        assert self._child is not None
        end = self._child.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        self.stop()
        raise FatalError(f"PostgreSQL did not start; the end of its log:\n{end}")


def _installed() -> Path | None:
    """The newest packaged server's folder, else that of the initdb on PATH."""
    packaged = [file.parent for file in _PACKAGES.glob("*/bin/initdb") if file.parents[1].name.isdigit()]
    if packaged:
        return max(packaged, key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _other_user() -> pwd.struct_passwd:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    found = next((known[name] for name in OTHER_USERS if name in known), None)
    if found is None:
        raise FatalError(f"PostgreSQL does not run as root and there is no user {' nor '.join(OTHER_USERS)} here")
    return found


def _checked(command: Sequence[str], cwd: Path | None = None, told: bytes = b"") -> str:
    done = subprocess.run(command, cwd=cwd, timeout=_COMMAND_S, input=told, capture_output=True, check=False)
    if done.returncode != 0:
        raise FatalError(f"{Path(command[0]).name} failed ({done.returncode}): {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()
