"""jars.lock, and a few jars more -> tests/compose's stand-ins for the images of docker/compose.yaml, by buildah.

Where an image registry is reached the real images are taken, and none of this is needed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jgo
from jgo.maven import MavenContext

from connector.demo.servers import opensearch_node
from connector.runtime.jvm.archives import unpack_archive
from connector.runtime.jvm.jars import fetch_jars
from tests.compose.env import read_env

HERE = Path(__file__).parent
TAG = "icebridge-stand-ins"
IMAGES = {
    "kafka": "apache/kafka:{KAFKA_VERSION}",
    "registry": "apicurio/apicurio-registry-mem:{REGISTRY_VERSION}",
    "postgres": "quay.io/debezium/example-postgres:{DEBEZIUM_VERSION}",
    "connect": "quay.io/debezium/connect:{DEBEZIUM_VERSION}",
    "minio": "minio/minio:{MINIO_VERSION}",
    "catalog": "apache/iceberg-rest-fixture:{ICEBERG_REST_VERSION}",
    "opensearch": "opensearchproject/opensearch:{OPENSEARCH_VERSION}",
    "prometheus": "prom/prometheus:{PROMETHEUS_VERSION}",
    "trino": "trinodb/trino:{TRINO_VERSION}",
}
"""Stand-in -> the image's name in compose.yaml."""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PLUGIN = "io.debezium:debezium-connector-postgres:3.7.0.Final"
CATALOG = (
    "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
    "org.apache.iceberg:iceberg-core:1.11.0:tests",
    "org.apache.iceberg:iceberg-aws:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.7",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.7",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.7",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.slf4j:slf4j-simple:2.0.17",
)
"""Iceberg's own REST server is in the test fixtures of its specification."""


def collect_jars(folder: Path, env: Mapping[str, str]) -> None:
    """Put the jars of every stand-in below a folder."""
    for component in ("broker", "connect"):
        _copy(fetch_jars(component), folder / component)
    registry = unpack_archive("registry")
    shutil.copytree(registry, folder / "registry")
    plugin = [artifact.resolve() for artifact in jgo.resolve(PLUGIN) if artifact.packaging == "jar"]
    worker = {path.name for path in (folder / "connect").iterdir()} | {"kafka-clients", "connect-api"}
    own = [
        path for path in plugin if path.name not in worker and not path.name.startswith(("kafka-", "connect-", "slf4j"))
    ]
    _copy(own, folder / "plugins" / "debezium-connector-postgres")
    catalog = {artifact.resolve() for root in CATALOG for artifact in jgo.resolve(root) if artifact.packaging == "jar"}
    _copy(catalog, folder / "catalog")
    _lay_out_opensearch(folder / "search")
    _lay_out_trino(folder / "trino", env["TRINO_VERSION"])


def _lay_out_opensearch(home: Path) -> None:
    node = opensearch_node.OpenSearchNode(home)
    home.mkdir(parents=True)
    others = node._install()
    for link in (home / "modules").rglob("*.jar"):
        target = link.resolve()
        link.unlink()
        shutil.copy(target, link)
    _copy(others, home / "lib")
    shutil.copy(opensearch_node._LOG_CONFIG, home / "log4j2.properties")


def _lay_out_trino(home: Path, version: str) -> None:
    """Take the server and the Iceberg plugin out of Trino's archive, whose files are links to each other."""
    maven = MavenContext()
    archive = maven.project("io.trino", "trino-server").at_version(version).artifact(packaging="tar.gz").resolve()
    client = maven.project("io.trino", "trino-cli").at_version(version).artifact(classifier="executable").resolve()
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["tar", "xzf", str(archive), "-C", scratch], check=True)
        server = Path(scratch) / f"trino-server-{version}"
        shutil.copytree(server / "lib", home / "lib")
        shutil.copytree(server / "plugin" / "iceberg", home / "plugin" / "iceberg")
    shutil.copy(client, home / "trino-cli.jar")


def _copy(files: object, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:  # type: ignore[attr-defined]
        shutil.copy(file, folder)


def build() -> None:
    """Build the stand-ins under the names that compose.yaml has."""
    env = read_env()
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch)
        shutil.copytree(HERE / "bin", context / "bin")
        shutil.copy(HERE / "Dockerfile", context)
        collect_jars(context / "jars", env)
        _bud("--build-arg", f"ICEBRIDGE=icebridge:{env['ICEBRIDGE_VERSION']}", "--tag", TAG, str(context))
        for name, image in IMAGES.items():
            file = context / f"Dockerfile.{name}"
            command = '["minio"]' if name == "minio" else f'["/opt/stand-in/{name}"]'
            file.write_text(f"FROM localhost/{TAG}\nENTRYPOINT {command}\n")
            tag = image.format(**env)
            _bud(
                "--file",
                str(file),
                "--tag",
                tag if tag.startswith("quay.io") else f"docker.io/{tag}",
                str(context / "bin"),
            )


def _bud(*arguments: str) -> None:
    # One file: packages write others beside it.
    volume = ("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro")
    common = ("buildah", "bud", "--format", "docker", "--isolation", "chroot", "--network", "host", *volume)
    subprocess.run([*common, *arguments], check=True)


if __name__ == "__main__":
    build()
