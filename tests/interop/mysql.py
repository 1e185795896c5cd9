"""Debian's unstable packages, unpacked into the cache -> a MySQL server of our own.

Debian's stable releases have no MySQL. Its newest packages need newer libraries than this machine's, so they are not
installed: the server runs by the loader and the libraries that are unpacked beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from connector.errors import FatalError
from connector.runtime.jvm.cache import cache_dir
from tests.interop.binlog_server import BinlogServer, run_checked

_SUITE = "sid main"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PACKAGES = ("mysql-server-core", "mysql-client-core")
_DOWNLOAD_S = 500.0


class MySql(BinlogServer):
    """MySQL as Debian's unstable packs it."""

    name = "mysql"
    connector_class = "io.debezium.connector.mysql.MySqlConnector"

    def server_command(self) -> tuple[str, ...]:
        """The program by its own loader."""
        return _run_unpacked("usr/sbin/mysqld")

    def client_command(self) -> tuple[str, ...]:
        """The program by its own loader."""
        return _run_unpacked("usr/bin/mysql")

    def initialize_command(self, common: tuple[str, ...]) -> tuple[str, ...]:
        """The server itself makes its data folder."""
        return (*self.server_command(), *common, *self.settings(), "--initialize-insecure")

    def settings(self) -> tuple[str, ...]:
        """Where the package has what the server says, and what MariaDB does not know."""
        share = unpack_packages() / "usr" / "share" / "mysql"
        places = (f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}")
        return (*places, "--mysqlx=OFF", "--secure-file-priv=NULL", "--gtid-mode=ON", "--enforce-gtid-consistency=ON")


def _run_unpacked(program: str) -> tuple[str, ...]:
    root = unpack_packages()
    (loader,) = root.glob("usr/lib/*/ld-linux-*.so.*")
    return str(loader), "--library-path", str(loader.parent), str(root / program)


@lru_cache(maxsize=1)
def unpack_packages() -> Path:
    """Return the folder with MySQL and all that it needs, filled once. FatalError where Debian's tools are missing."""
    folder = cache_dir() / "mysql-sid"
    if folder.exists():
        return folder
    if shutil.which("apt-get") is None or not Path(_KEYRING).exists():
        raise FatalError("the interop tests take MySQL from Debian's packages: they need apt-get and Debian's keyring")
    with tempfile.TemporaryDirectory(prefix="icebridge-apt-", dir=folder.parent) as name:
        apt = Path(name)
        for part in ("lists/partial", "cache/archives/partial", "root"):
            (apt / part).mkdir(parents=True)
        (apt / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {_find_mirror()} {_SUITE}\n")
        (apt / "status").touch()
        (apt / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{apt}/sources.list";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{apt}/lists";\nDir::State::status "{apt}/status";\nDir::Cache "{apt}/cache";\n'
            'Debug::NoLocking "true";\nAPT::Sandbox::User "";\n'
        )
        environ = {**os.environ, "APT_CONFIG": f"{apt}/apt.conf", "DEBIAN_FRONTEND": "noninteractive"}
        get = ("install", "--yes", "--download-only", "--no-install-recommends", *_PACKAGES)
        for words in (("update",), get):
            run_checked(("apt-get", "-q", *words), environ=environ, timeout_s=_DOWNLOAD_S)
        for package in sorted((apt / "cache" / "archives").glob("*.deb")):
            run_checked(("dpkg-deb", "-x", str(package), str(apt / "root")))
        (apt / "root").rename(folder)
    return folder


def _find_mirror() -> str:
    """Return where this machine has Debian's packages from. FatalError where apt knows no such place."""
    run_checked(("apt-get", "-q", "update"), timeout_s=_DOWNLOAD_S)
    known = run_checked(("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"))
    if not known:
        raise FatalError("the interop tests take MySQL from Debian's packages: apt's sources name no Debian archive")
    return known.split()[0]
