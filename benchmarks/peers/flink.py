"""statements -> table: a Flink cluster of one process that runs them, as a contender.

Run as `python -m benchmarks.peers.flink JOB.json`. Py4J's own program is the main class, so nothing has to be compiled.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.peers.commits import CommitWatch


def main(job_file: str) -> None:
    """Run the job's statements to the end of its topic."""
    job = json.loads(Path(job_file).read_text())
    gateway = start(job)
    watch = CommitWatch(Path(job["warehouse"]), job["table"])
    watch.start()
    try:
        execute(gateway.jvm, job)
        watch.tell(job["events"], job["offsets"])
    finally:
        gateway.shutdown()


def start(job: dict[str, Any]) -> JavaGateway:
    """A JVM with the job's class path, which ends with this process."""
    port = launch_gateway(
        jarpath=job["py4j"],
        classpath=os.pathsep.join(job["class_path"]),
        javaopts=job["java_options"],
        java_path=job["java"],
        die_on_exit=True,
        redirect_stdout=sys.stderr,
        redirect_stderr=sys.stderr,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port))


def execute(jvm: Any, job: dict[str, Any]) -> None:
    """Run the statements one after the other, and wait for each."""
    configuration = jvm.org.apache.flink.configuration.Configuration()
    for key, value in job["configuration"].items():
        configuration.setString(key, value)
    api = jvm.org.apache.flink.table.api
    settings = api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build()
    tables = api.TableEnvironment.create(settings)
    for statement in job["statements"]:
        getattr(tables.executeSql(statement), "await")()


if __name__ == "__main__":
    main(sys.argv[1])
