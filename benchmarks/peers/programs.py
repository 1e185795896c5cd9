"""case -> command line: what has to be there before a peer's clock runs, and the job file that its program reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.contenders import Place, command
from benchmarks.peers.flink_sql import CONFIGURATION, statements
from benchmarks.peers.plan import COMMIT_MS, CORES, HEAP
from benchmarks.plan import Case
from benchmarks.session import CATALOG, catalog_properties
from benchmarks.topics import create, end_offsets
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home
from tests.interop.connect import LOG_CONFIG, link_plugins, worker_properties

JAVA_OPTIONS = (f"-Xmx{HEAP}", "-XX:+UseParallelGC", f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}")
"""Heap and collector of all contenders."""

_EXPORTED = ("java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5")
_OPENED = (
    *(f"java.{name}" for name in ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util")),
    *(f"java.util.concurrent{name}" for name in ("", ".atomic", ".locks")),
    "sun.nio.ch",
)
OPEN_MODULES = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTED),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)
"""What Flink's own scripts open of Java's modules."""


def peer_command(case: Case, place: Place) -> list[str]:
    """The command line of any contender; writes the files that it names."""
    if case.contender == "flink":
        return _program("flink", case, place, flink_job(case, place))
    if case.contender == "connect":
        return _program("connect", case, place, connect_job(case, place))
    return command(case, place)


def _program(name: str, case: Case, place: Place, job: dict[str, Any]) -> list[str]:
    ends = end_offsets(place.bootstrap, case.full_topic)
    job |= {
        "warehouse": str(place.warehouse),
        "table": case.table,
        "events": sum(ends),
        "offsets": {str(number): end for number, end in enumerate(ends)},
    }
    file = place.work / f"{case.name}.json"
    file.write_text(json.dumps(job))
    return [sys.executable, "-m", f"benchmarks.peers.{name}", str(file)]


def _java() -> str:
    return str(find_java_home(need_module=None) / "bin" / "java")


def flink_job(case: Case, place: Place) -> dict[str, Any]:
    """A JVM for Py4J, and the statements."""
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    return {
        "java": _java(),
        "java_options": [*JAVA_OPTIONS, *OPEN_MODULES],
        "py4j": str(py4j),
        "class_path": list(map(str, fetch_jars("flink"))),
        "configuration": CONFIGURATION,
        "statements": list(statements(case, place.bootstrap, catalog_properties(place.warehouse))),
    }


def connect_job(case: Case, place: Place) -> dict[str, Any]:
    """A worker with one connector; its control topic is made."""
    home, url = place.work / case.name, f"http://{LOOPBACK}:{free_ports(1)[0]}"
    link_plugins(home / "plugins", ["iceberg-connect"])
    create(place.bootstrap, control_topic(case))
    catalog = catalog_properties(place.warehouse)
    files = {
        "worker": worker_properties(home, place.bootstrap, url) | {"plugin.discovery": "service_load"},
        "connector": connector_properties(case, catalog),
    }
    paths = [home / f"{name}.properties" for name in files]
    for path, values in zip(paths, files.values(), strict=True):
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    class_path = os.pathsep.join(map(str, fetch_jars("connect")))
    program = ["-cp", class_path, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, paths)]
    return {"command": [_java(), *JAVA_OPTIONS, *program]}


def control_topic(case: Case) -> str:
    """Where the sink's tasks and its coordinator talk."""
    return f"control-{case.name}"


def connector_properties(case: Case, catalog: dict[str, str]) -> dict[str, str]:
    """The sink's configuration: JSON without schema blocks into a table that it creates itself."""
    return {
        "name": case.name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(CORES),
        "topics": case.full_topic,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.tables": case.table,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": control_topic(case),
        "iceberg.control.commit.interval-ms": str(COMMIT_MS),
        "iceberg.catalog": CATALOG,
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
    }
