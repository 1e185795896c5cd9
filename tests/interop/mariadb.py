"""the machine's packages -> a MariaDB server of our own."""

from __future__ import annotations

from tests.interop.binlog_server import BinlogServer
from tests.interop.debian import find_program

_PACKAGE = "mariadb-server"


class MariaDb(BinlogServer):
    """MariaDB as Debian packs it, installed by apt-get when it is missing."""

    name = "mariadb"
    connector_class = "io.debezium.connector.mariadb.MariaDbConnector"

    def server_command(self) -> tuple[str, ...]:
        """As Debian has it."""
        return (find_program("mariadbd", _PACKAGE),)

    def client_command(self) -> tuple[str, ...]:
        """As Debian has it."""
        return (find_program("mariadb", _PACKAGE),)

    def initialize_command(self, common: tuple[str, ...]) -> tuple[str, ...]:
        """A script of MariaDB's."""
        install = find_program("mariadb-install-db", _PACKAGE)
        return (install, *common, "--auth-root-authentication-method=normal", "--skip-test-db")
