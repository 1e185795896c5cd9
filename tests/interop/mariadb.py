"""the machine's packages -> a MariaDB server of our own."""

from __future__ import annotations

import os
import shutil

from connector.errors import FatalError
from tests.interop.binlog_server import BinlogServer, run_checked

_INSTALL_S = 500.0


class MariaDb(BinlogServer):
    """MariaDB as Debian packs it, installed by apt-get when it is missing."""

    name = "mariadb"
    connector_class = "io.debezium.connector.mariadb.MariaDbConnector"

    def server_command(self) -> tuple[str, ...]:
        """As Debian has it."""
        return (_find_program("mariadbd"),)

    def client_command(self) -> tuple[str, ...]:
        """As Debian has it."""
        return (_find_program("mariadb"),)

    def initialize_command(self, common: tuple[str, ...]) -> tuple[str, ...]:
        """A script of MariaDB's."""
        install = _find_program("mariadb-install-db")
        return (install, *common, "--auth-root-authentication-method=normal", "--skip-test-db")


def _find_program(name: str) -> str:
    """Return the path of one of MariaDB's programs. FatalError when it cannot be installed."""
    found = shutil.which(name)
    if found is None:
        _install()
        found = shutil.which(name)
    if found is None:
        raise FatalError(f"MariaDB was installed but its {name} is not on PATH")
    return found


def _install() -> None:
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise FatalError("the interop tests need a MariaDB server: install it (Debian: apt-get install mariadb-server)")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", "mariadb-server")):
        run_checked(("apt-get", "-q", *words), environ=environ, timeout_s=_INSTALL_S)
