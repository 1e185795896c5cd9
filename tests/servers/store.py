"""empty folder -> an S3 server: one moto process on loopback, objects in memory, buckets by name."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

from pyarrow import Table, parquet
from pyarrow.fs import S3FileSystem

from connector.demo.servers.ports import LOOPBACK, free_ports, is_answering
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server

KEY, SECRET = "AKIAICEBRIDGE00TESTS", "s3-marker-Zk1q9"


class Store(Server):
    """An S3 server over one home folder, where its output goes (`store.log`); it answers after about 2 s."""

    name = "store"
    stop_s = 5.0

    def __init__(self, home: Path, port: int | None = None) -> None:
        """Describe a store; nothing runs yet. `port` None: any that is free."""
        super().__init__(home)
        self._port = port

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Iceberg's properties of it, as its documentation names them."""
        return {
            "s3.endpoint": self.url,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.path-style-access": "true",
            "client.region": "eu-west-1",
        }

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its location."""
        self._open(allow_bucket_creation=True).create_dir(name)
        return f"s3://{name}"

    def rows(self, folder: str) -> Table:
        """The rows of all Parquet files below a folder, `bucket/path`."""
        return parquet.read_table(folder, filesystem=self._open(), partitioning=None)

    def _open(self, *, allow_bucket_creation: bool = False) -> S3FileSystem:
        return S3FileSystem(
            endpoint_override=self.url,
            access_key=KEY,
            secret_key=SECRET,
            region="eu-west-1",
            allow_bucket_creation=allow_bucket_creation,
        )

    def _launch(self) -> ChildProcess:
        self._port = self._port or free_ports(1)[0]
        return ChildProcess([sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self._port)], self.log)

    def _is_answering(self) -> bool:
        if not is_answering(self.port):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False
