"""statements -> table: a Flink cluster of one process that runs them, as a contender.

Run as `python -m benchmarks.peers.flink JOB.json`. Py4J's own program is the main class, so nothing has to be compiled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.peers.commits import CommitWatch


def main(job_file: str) -> None:
    """Run the job's statements to the end of its topic."""
    job = json.loads(Path(job_file).read_text())
    watch = CommitWatch(Path(job["warehouse"]), job["table"])
    with running(job) as gateway:
        watch.start()
        execute(gateway.jvm, job)
        watch.tell(job["events"], job["offsets"])


@contextmanager
def running(job: dict[str, Any]) -> Iterator[JavaGateway]:
    """A JVM with the job's class path; it ends when its input does, here or with this process."""
    port, java = launch_gateway(
        jarpath=job["py4j"],
        classpath=os.pathsep.join(job["class_path"]),
        javaopts=job["java_options"],
        java_path=job["java"],
        die_on_exit=True,
        # Py4J closes what it writes to when the JVM has ended.
        redirect_stdout=os.fdopen(os.dup(sys.stderr.fileno()), "w"),
        redirect_stderr=sys.stderr,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway
    finally:
        gateway.close()
        java.stdin.close()
        java.wait()


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
