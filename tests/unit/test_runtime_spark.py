"""The settings of a session, as values."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import field, frozen

from connector.runtime.jvm.gateway import jvm_environment
from connector.runtime.spark import job_pools
from connector.runtime.spark.driver_jvm import add_defaults, find_other_options
from connector.runtime.spark.job_pools import MAINTENANCE, POOLS
from connector.runtime.spark.packages import packages_zip
from connector.runtime.spark.process_environment import settle_environment
from connector.runtime.spark.session_conf import (
    EXTENSIONS,
    SPARK_CATALOG,
    catalog_conf,
    is_local,
    java_options,
    session_conf,
)


@frozen
class Lake:
    """A catalog as settings give it."""

    name: str = "lake"
    properties: Mapping[str, str] = field(factory=lambda: {"type": "rest", "uri": "u", "fs.s3a.endpoint": "e"})


def _conf(root: str = "/src", **spark: str) -> dict[str, str]:
    given = {key.replace("_", "."): value for key, value in spark.items()}
    return session_conf("app", Lake(), given, [Path("/m/a.jar"), Path("/m/b.jar")], Path(root))


def test_catalog_properties_pass_through() -> None:
    """Catalog properties are handed on as they are, Hadoop's a second time behind `hadoop.`."""
    assert catalog_conf(Lake()) == {
        "spark.sql.catalog.lake": SPARK_CATALOG,
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": "u",
        "spark.sql.catalog.lake.fs.s3a.endpoint": "e",
        "spark.sql.catalog.lake.hadoop.fs.s3a.endpoint": "e",
    }


def test_users_keys_win() -> None:
    """Any key of ours yields to the user's."""
    conf = _conf(spark_driver_memory="5g", spark_ui_enabled="true", spark_sql_catalog_lake_uri="other")
    assert conf["spark.driver.memory"] == "5g"
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.catalog.lake.uri"] == "other"
    assert _conf()["spark.driver.memory"] == "2g"


def test_jobs_have_pools() -> None:
    """Batches and maintenance share cores by a file of ours, which a user may replace."""
    conf = _conf()
    pools = ElementTree.fromstring(Path(conf["spark.scheduler.allocation.file"].removeprefix("file://")).read_text())
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert {pool.attrib["name"] for pool in pools} == {"default", MAINTENANCE}
    for pool in pools:  # Spark warns at each start of what a pool does not say
        assert {element.tag for element in pool} == {"schedulingMode", "weight", "minShare"}
    assert _conf(spark_scheduler_mode="FIFO")["spark.scheduler.mode"] == "FIFO"


def test_lists_are_joined() -> None:
    """The user's jars and extensions are added to ours, none twice."""
    conf = _conf(spark_jars="/u/c.jar,/m/a.jar", spark_sql_extensions="x.Y")
    assert conf["spark.jars"] == "/m/a.jar,/m/b.jar,/u/c.jar"
    assert conf["spark.sql.extensions"] == f"{EXTENSIONS},x.Y"


@pytest.mark.parametrize(
    ("given", "absent", "present"),
    [
        ("", (), ("-XX:+UseParallelGC", "-Xss4m")),
        ("-XX:+UseG1GC", ("-XX:+UseParallelGC",), ("-XX:+UseG1GC", "-Xss4m")),
        ("-Xss8m -Da=b", ("-Xss4m",), ("-Xss8m", "-Da=b", "-XX:+UseParallelGC")),
        ("-XX:+UseStringDeduplication", (), ("-XX:+UseParallelGC", "-XX:+UseStringDeduplication")),
    ],
)
def test_one_collector_and_one_stack_size(given: str, absent: tuple[str, ...], present: tuple[str, ...]) -> None:
    """A collector or stack size of the user's takes the place of ours; other options stand beside them."""
    words = java_options(given).split()
    assert not set(absent) & set(words)
    assert set(present) <= set(words)


def test_log_configuration_of_the_user_wins() -> None:
    """A log configuration on the user's command line is the only one."""
    assert java_options("-Dlog4j2.configurationFile=mine").count("configurationFile") == 1
    assert java_options("").count("log4j2-spark.properties") == 1


def test_local_is_one_process() -> None:
    """`local[...]` shares the process; `local-cluster[...]` and standalone do not."""
    assert is_local("local") and is_local("local[*]") and is_local("local[2, 3]")
    assert not is_local("local-cluster[2,1,1024]") and not is_local("spark://h:7077") and not is_local("yarn")


def test_workers_find_a_checkout() -> None:
    """Local workers get the checkout's folder on their path; an installed package needs nothing; clusters get a zip."""
    assert _conf()["spark.executorEnv.PYTHONPATH"].split(":")[0] == "/src"
    assert "spark.executorEnv.PYTHONPATH" not in _conf("/v/lib/python3.11/site-packages")
    assert "spark.executorEnv.PYTHONPATH" not in _conf(spark_master="local-cluster[2,1,1024]")


def test_zip_holds_both_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zip for executors holds both packages' code and data, nothing compiled, and keeps its name."""
    monkeypatch.setenv("ICEBRIDGE_CACHE", str(tmp_path))
    archive = packages_zip()
    names = zipfile.ZipFile(archive).namelist()
    assert {"connector/__init__.py", "serde/__init__.py", "connector/runtime/jvm/jars.lock"} <= set(names)
    assert not [name for name in names if name.endswith(".pyc")]
    assert archive.parent == tmp_path / "packages"


def test_pools_say_all_that_spark_asks_for() -> None:
    """Each pool has the three settings: Spark warns at every start of one that it has to guess."""
    file = POOLS["spark.scheduler.allocation.file"].removeprefix("file://")
    pools = ElementTree.parse(file).getroot().findall("pool")
    assert pools and all(
        {setting.tag for setting in pool} == {"schedulingMode", "minShare", "weight"} for pool in pools
    )


def test_executors_import_the_packages_from_a_zip_beside_them(tmp_path: Path) -> None:
    """Spark puts it on their path by a relative name: a module that asks where it is gets one."""
    shutil.copy(packages_zip(), tmp_path / "packages.zip")
    modules = (
        "connector.sink.job.map_task",
        "connector.sink.job.reduce_task",
        "connector.sink.destinations.iceberg.write.table_writer",
        "connector.sink.destinations.opensearch.write.document_writer",
        "connector.source.changes.rewrites.file_diff",
        "connector.source.changes.snapshot_diff",
        "connector.source.destinations.opensearch",
    )
    found = ", ".join(f"__import__('importlib').import_module('{name}').__file__" for name in modules)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, './packages.zip'); print({found}, sep='\\n')"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("./packages.zip/") for line in done.stdout.split()), done.stdout


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_options_in_the_environment_count(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector or stack size that the environment gives every Java takes the place of ours too."""
    monkeypatch.setenv(name, "-XX:+UseG1GC -Xss8m")
    words = java_options("-Da=b", find_other_options({}, tmp_path)).split()
    assert not {"-XX:+UseParallelGC", "-Xss4m"} & set(words) and "-Da=b" in words


def test_sparks_default_options_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector of Spark's default options, here or in Spark's own file, is the only one."""
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert "-XX:+UseG1GC" in find_other_options({"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}, tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions  -XX:+UseZGC -Dx=y\n")
    conf = session_conf("app", Lake(), {}, [], Path("/src"), find_other_options({}, tmp_path))
    assert "GC" not in conf["spark.driver.extraJavaOptions"]


def test_tasks_on_this_machine_have_this_python() -> None:
    """The Python and the Spark Connect server of another project, left in a profile, do not count on one machine."""
    environ = {"PYSPARK_PYTHON": "/usr/bin/python3", "SPARK_REMOTE": "sc://h", "SPARK_API_MODE": "connect", "A": "b"}
    settle_environment(environ, Path("/java"), "/other/python", runs_here=True)
    assert environ == {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": "/java", "A": "b"}


@pytest.mark.parametrize(
    ("named", "setting", "expected"),
    [("/e/python", "", "/e/python"), ("/e/python", "/s/python", "/s/python"), (None, "", sys.executable)],
)
def test_other_machines_have_their_own_python(named: str | None, setting: str, expected: str) -> None:
    """On a cluster the setting says which Python does the tasks, then the environment, else this one's path."""
    environ = {} if named is None else {"PYSPARK_PYTHON": named}
    settle_environment(environ, Path("/java"), setting, runs_here=False)
    assert environ["PYSPARK_PYTHON"] == expected


def test_a_driver_on_the_loopback_address_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not ask for the machine's own name, which no server may know, unless others are to find the driver."""
    for name in ("SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    local, cluster = _conf(), _conf(spark_master="spark://h:7077")
    assert jvm_environment(local, tmp_path, ())["SPARK_LOCAL_HOSTNAME"] == "127.0.0.1"
    assert "SPARK_LOCAL_HOSTNAME" not in jvm_environment(cluster, tmp_path, ())
    assert "SPARK_LOCAL_HOSTNAME" not in jvm_environment(_conf(spark_driver_host="me"), tmp_path, ())
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "mine")
    assert jvm_environment(local, tmp_path, ())["SPARK_LOCAL_HOSTNAME"] == "mine"


def test_what_sparks_own_file_says_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars, extensions and options of the JVM in `spark-defaults.conf` stay beside ours; the user's own win."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    said = "spark.jars /d.jar\nspark.sql.extensions d.E\nspark.driver.extraJavaOptions -Dd=e\nspark.driver.memory 9g\n"
    (tmp_path / "spark-defaults.conf").write_text(said)
    conf = session_conf("app", Lake(), add_defaults({}, tmp_path), [Path("/m/a.jar")], Path("/src"))
    assert conf["spark.jars"] == "/m/a.jar,/d.jar"
    assert conf["spark.sql.extensions"] == f"{EXTENSIONS},d.E"
    assert "-Dd=e" in conf["spark.driver.extraJavaOptions"].split()
    assert add_defaults({"spark.jars": "/u.jar"}, tmp_path)["spark.jars"] == "/u.jar"
    assert conf["spark.driver.memory"] == "2g"


def test_folders_with_spaces_and_umlauts_are_found(tmp_path: Path) -> None:
    """Where our packages are in a folder such as `/home/Jörg/my lake`, Spark is told its name, and finds the pools."""
    folder = tmp_path / "Jörg" / "my 100% lake"
    folder.mkdir(parents=True)
    copy = shutil.copy(job_pools.__file__, folder)
    spec = spec_from_file_location("pools_elsewhere", copy)
    assert spec is not None and spec.loader is not None
    elsewhere = module_from_spec(spec)
    spec.loader.exec_module(elsewhere)
    assert elsewhere.POOLS["spark.scheduler.allocation.file"] == f"file://{folder}/job-pools.xml"


@pytest.mark.parametrize(
    ("given", "expected"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("tr_TR.UTF-8", "tr_TR.UTF-8")]
)
def test_java_takes_names_of_files_as_python_does(
    given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a locale without letters beyond ASCII, in which Python has them all the same, Java has them too."""
    monkeypatch.setenv("LC_ALL", given)
    assert jvm_environment({}, tmp_path, ())["LC_ALL"] == expected
    monkeypatch.delenv("LC_ALL")
    assert "LC_ALL" not in jvm_environment({}, tmp_path, ())
