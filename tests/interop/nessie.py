"""S3 server -> a Nessie that serves its Iceberg REST interface over a warehouse there; its commits end with it."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home
from tests.servers.store import KEY, SECRET, Store

WAREHOUSE = "lake"
_JAVA = 21
_SERVICE = "nessie.catalog.service.s3.default-options"


class Nessie(Server):
    """One Nessie process over a bucket of a store that runs; it answers after about 6 s."""

    name = "nessie"
    stop_s = 10.0

    def __init__(self, home: Path, store: Store, bucket: str) -> None:
        """Describe it; nothing runs yet. The bucket is there."""
        super().__init__(home)
        self._store, self._bucket = store, bucket

    @property
    def url(self) -> str:
        """`uri` for clients of an Iceberg REST catalog."""
        return f"http://{LOOPBACK}:{self.port}/iceberg/"

    @property
    def properties(self) -> dict[str, str]:
        """Iceberg's properties of the catalog and of the store below it."""
        return {"type": "rest", "uri": self.url, **self._store.properties}

    def _launch(self) -> ChildProcess:
        self._port, management = free_ports(2)
        java = find_java_home(_JAVA, need_module=None) / "bin" / "java"
        options = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self._port),
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(management),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": WAREHOUSE,
            f"nessie.catalog.warehouses.{WAREHOUSE}.location": f"{self._bucket}/warehouse",
            f"{_SERVICE}.endpoint": self._store.url,
            f"{_SERVICE}.path-style-access": "true",
            f"{_SERVICE}.region": "eu-west-1",
            f"{_SERVICE}.access-key": "urn:nessie-secret:quarkus:store",
            # Clients have keys of their own: signing by the catalog is for those that have none.
            f"{_SERVICE}.request-signing-enabled": "false",
            "store.name": KEY,
            "store.secret": SECRET,
        }
        (jar,) = fetch_jars("nessie")
        defined = [f"-D{name}={value}" for name, value in options.items()]
        return ChildProcess([str(java), "-Xmx512m", "-XX:+UseSerialGC", *defined, "-jar", str(jar)], self.log)

    def _is_answering(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
