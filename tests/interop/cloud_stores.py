"""empty folder -> an emulator of Google's or Azure's store: fake-gcs-server (a Go module), Azurite (an npm package).

Built or installed once, into the cache folder, by the go and npm that are on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path

from pyarrow.fs import AzureFileSystem

from connector.demo.servers.ports import LOOPBACK, free_ports, is_answering
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.errors import FatalError
from connector.runtime.jvm.cache import cache_dir
from tests.interop.binlog_server import run_checked

GCS_SERVER, AZURITE = "github.com/fsouza/fake-gcs-server@v1.56.1", "azurite@3.37.0"
TOKEN, ACCOUNT, KEY = "gcs-marker-Wq8s1", "icebridge", "YWRscy1tYXJrZXItTTRrN3otdGhhdC1pcy1hLWtleQ=="
_INSTALL_S, _GO_TRIES = 900.0, 3
_BY_AZURE = "dfs.core.windows.net"


class CloudStore(Server):
    """What both emulators share: objects in memory, a port of loopback."""

    name = "store"
    stop_s = 10.0
    secret = ""
    lists_folders = True

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Iceberg's properties of it, as its documentation names them."""
        raise NotImplementedError

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its location."""
        raise NotImplementedError

    def _take_port(self) -> int:
        self._port = self._port or free_ports(1)[0]
        return self._port

    def _is_answering(self) -> bool:
        return is_answering(self.port)


class GoogleStore(CloudStore):
    """fake-gcs-server; it takes any token."""

    name, secret = "fake-gcs-server", TOKEN

    @property
    def properties(self) -> dict[str, str]:
        """Its address, and a token: without one Google's libraries look for the machine's own login."""
        return {"gcs.service.host": self.url, "gcs.oauth2.token": TOKEN}

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its location."""
        body = json.dumps({"name": name}).encode()
        asked = urllib.request.Request(f"{self.url}/storage/v1/b?project=tests", body)
        asked.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(asked, timeout=20):
            return f"gs://{name}"

    def _launch(self) -> ChildProcess:
        address = f"{LOOPBACK}:{self._take_port()}"
        where = ["-scheme", "http", "-host", LOOPBACK, "-port", str(self.port), "-backend", "memory"]
        shown = ["-public-host", address, "-external-url", f"http://{address}"]
        return ChildProcess([str(_build_gcs_server()), *where, *shown], self.log)


class AzureStore(CloudStore):
    """Azurite's blobs, with one account; it has no interface of folders, so Java's client cannot list one."""

    name, secret = "azurite", KEY
    lists_folders = False

    @property
    def properties(self) -> dict[str, str]:
        """The account's key, and the address that stands for the account's host."""
        return {
            "adls.auth.shared-key.account.name": ACCOUNT,
            "adls.auth.shared-key.account.key": KEY,
            f"adls.connection-string.{ACCOUNT}.{_BY_AZURE}": f"{self.url}/{ACCOUNT}",
        }

    def make_bucket(self, name: str) -> str:
        """Make a container; its location."""
        address = f"{LOOPBACK}:{self.port}"
        schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        authorities = {"blob_storage_authority": address, "dfs_storage_authority": address}
        AzureFileSystem(account_name=ACCOUNT, account_key=KEY, **schemes, **authorities).create_dir(name)
        return f"abfss://{name}@{ACCOUNT}.{_BY_AZURE}"

    def _launch(self) -> ChildProcess:
        where = ["--blobHost", LOOPBACK, "--blobPort", str(self._take_port()), "--inMemoryPersistence"]
        # Java's and Arrow's clients speak newer versions of the protocol than the emulator knows.
        quiet = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        environ = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        return ChildProcess([_find("node"), str(_install_azurite()), *where, *quiet], self.log, environ)


def missing_program(*names: str) -> str:
    """The first of some programs that is not on the path; empty where all are."""
    return next((name for name in names if shutil.which(name) is None), "")


def _build_gcs_server() -> Path:
    folder = cache_dir() / "tests" / GCS_SERVER.replace("/", "_")
    program = folder / "fake-gcs-server"
    if not program.exists():
        _install_by_go(folder)
    return program


def _install_by_go(folder: Path) -> None:
    """Install it; other than apt-get and npm, go gives up when a module's host does not answer at once."""
    command, environ = (_find("go"), "install", GCS_SERVER), {**os.environ, "GOBIN": str(folder)}
    for _ in range(_GO_TRIES - 1):
        with suppress(FatalError):
            run_checked(command, environ=environ, timeout_s=_INSTALL_S)
            return
    run_checked(command, environ=environ, timeout_s=_INSTALL_S)


def _install_azurite() -> Path:
    folder = cache_dir() / "tests" / AZURITE
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Cut short, npm leaves some of the packages: the program without what it imports.
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            made = Path(name, "made")
            made.mkdir()
            command = (_find("npm"), "install", "--prefix", str(made), "--no-audit", "--no-fund", AZURITE)
            run_checked(command, timeout_s=_INSTALL_S)
            made.replace(folder)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _find(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FatalError(f"there is no {name} on the path")
    return found
