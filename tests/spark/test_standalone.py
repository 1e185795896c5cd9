"""A standalone cluster whose workers have Python and none of our packages: archive, secret, spark-submit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.find_spark_home import _find_spark_home

import connector
from connector.runtime.jvm.jars import copy_jars
from connector.runtime.jvm.java import find_java_home
from connector.runtime.spark.environment import settings_for, write_archive
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.waiting import wait_until
from tests.model.events import COLUMNS, Database, row
from tests.runs.processes import COMMITTED, Run, Workspace
from tests.servers.standalone import SECRET, StandaloneCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Master and workers for this file."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings of `icebridge package`, whose archive is there; the workers' Python is the machine's own."""
    target = tmp_path_factory.mktemp("packed") / "icebridge.tar.gz"
    write_archive(target)
    bare = f"/usr/bin/python3.{sys.version_info.minor}"
    if not Path(bare).exists():
        pytest.skip(f"no {bare} without our packages")
    assert subprocess.run([bare, "-c", "import pyarrow"], capture_output=True, check=False).returncode
    return {**settings_for(target), "spark.pyspark.python": bare}


def _filled(topics: Topics, name: str) -> Database:
    database = Database(f"{name}.public.t", 3)
    for key in range(900):
        database.transaction(("c", row(key % 300, f"c{key}", key)) if key < 300 else ("u", row(key % 300, "u", key)))
    database.transaction(*(("d", key) for key in range(0, 300, 7)))
    topics.replay(database.log)
    return database


def _settings(database: Database, cluster: StandaloneCluster, packed: dict[str, str]) -> dict[str, str]:
    return {
        "topics": database.topic,
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "spark.master": cluster.url,
        "spark.authenticate.secret": SECRET,
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        **packed,
    }


def _plain(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(str(found.get(c)) for c in COLUMNS)


def _check(space: Workspace, run: Run, lake: OpenLake, database: Database, name: str) -> None:
    assert run.code == 0, run.text[-6000:]
    rows = Counter(map(_plain, lake(space).many(f"{name}_public_t")))
    wanted = Counter(map(_plain, database.rows.values()))
    assert (rows - wanted, wanted - rows) == (Counter(), Counter())


def test_workers_that_have_only_python(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, cluster: StandaloneCluster, packed: dict[str, str]
) -> None:
    """Executors import everything from the archive, are authenticated by the secret, and the table is the source's."""
    database = _filled(topics, "standalone")
    space = make_workspace("standalone", _settings(database, cluster, packed))
    run = space.start(None, "--once").wait(300)
    _check(space, run, lake, database, "standalone")
    assert not [line for line in run.lines if "do not authenticate" in str(line.get("event"))]
    assert cluster.finished()


def test_a_wrong_secret_is_let_in_nowhere(
    topics: Topics, make_workspace: MakeWorkspace, cluster: StandaloneCluster, packed: dict[str, str]
) -> None:
    """A driver with another secret than the cluster's ends with an error, and reads nothing."""
    database = _filled(topics, "stranger")
    given = {**_settings(database, cluster, packed), "spark.authenticate.secret": "another-secret-1"}
    run = make_workspace("stranger", given).start(None, "--once").wait(300)
    assert run.code != 0
    assert run.batches == []
    assert "another-secret-1" not in run.text


def test_spark_submit_gives_the_session(
    topics: Topics,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    cluster: StandaloneCluster,
    packed: dict[str, str],
    tmp_path: Path,
) -> None:
    """Under spark-submit the JVM that is there is taken, what it was told wins, and jars that it lacks are named."""
    database = _filled(topics, "submitted")
    space = make_workspace(
        "submitted", {"topics": database.topic, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    )
    conf = {key: text for key, text in _settings(database, cluster, packed).items() if key.startswith("spark.")}
    (tmp_path / "submit.properties").write_text("".join(f"{key} {text}\n" for key, text in conf.items()))
    run = _submit(space, tmp_path)
    assert run.code == 1 and "--jars FOLDER/" in run.text, run.text[-3000:]
    copy_jars(["spark"], tmp_path / "jars", lambda _: None)
    jars = ",".join(map(str, sorted((tmp_path / "jars").glob("*.jar"))))
    run = _submit(space, tmp_path, "--jars", jars)
    _check(space, run, lake, database, "submitted")


def test_a_stop_of_spark_submits_jvm_finishes_the_batch(
    topics: Topics, make_workspace: MakeWorkspace, tmp_path: Path
) -> None:
    """SIGTERM to the JVM, a container's first process, is passed on: the run says that it stopped, and ends with 0."""
    database = _filled(topics, "stopped")
    space = make_workspace("stopped", {"topics": database.topic})
    copy_jars(["spark"], tmp_path / "jars", lambda _: None)
    (tmp_path / "submit.properties").write_text("spark.master local[1]\nspark.driver.host 127.0.0.1\n")
    jars = ",".join(map(str, sorted((tmp_path / "jars").glob("*.jar"))))
    line, environ = _submission(space, tmp_path, "--jars", jars)
    log = tmp_path / "log"
    with log.open("w") as output:
        jvm = subprocess.Popen(line, env=environ, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: COMMITTED in log.read_text(), 120)
        jvm.terminate()
        assert jvm.wait(60) == 0, log.read_text()[-3000:]
        assert "stopped as asked" in log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(jvm.pid, signal.SIGKILL)


def _submit(space: Workspace, home: Path, *arguments: str) -> Run:
    """Run `icebridge run --once` by spark-submit, with the settings of submit.properties."""
    line, environ = _submission(space, home, *arguments)
    done = subprocess.run([*line, "--once"], env=environ, capture_output=True, text=True, timeout=300, check=False)
    return Run.of(done.returncode, done.stderr + done.stdout)


def _submission(space: Workspace, home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The words that run `icebridge run` by spark-submit, and their environment."""
    spark = Path(_find_spark_home())
    script = Path(connector.__file__).parent / "__main__.py"
    environ = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "JAVA_HOME": str(find_java_home()),
        "PYTHONPATH": str(script.parent.parent),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # The driver's Python is this one, the executors' that of the settings.
    command = [
        spark / "bin" / "spark-submit",
        "--properties-file",
        home / "submit.properties",
        "--deploy-mode",
        "client",
    ]
    own = ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
    return [*map(str, command), *own, *arguments, str(script), "run", str(space.file({}))], environ
