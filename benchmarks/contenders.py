"""case -> process -> run: start a contender, follow its log lines and measure it.

Ours is the program as a user runs it (`python -m connector run --once FILE`); the home-made ones are
`benchmarks.homemade`. Both say one JSON line per commit on stderr, and the clock that counts is ours: the wall time
between two such lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import psutil

from benchmarks.measure import TreeSampler, Usage, tree_of
from benchmarks.plan import Case
from benchmarks.session import CATALOG, SPARK, catalog_properties

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 1_800
# Spark rounds each partition's share of a batch down: without these few a last batch of some events would follow.
_SLACK = 16


@attrs.frozen
class Place:
    """Where a benchmark run works."""

    work: Path
    bootstrap: str
    broker_pid: int | None

    @property
    def warehouse(self) -> Path:
        """The warehouse and catalog that all cases share."""
        return self.work / "warehouse"


@attrs.frozen
class Line:
    """One JSON log line and when it came (monotonic seconds)."""

    at_s: float
    fields: dict[str, Any]


@attrs.frozen
class Finished:
    """A process that has ended."""

    started_s: float
    exit_code: int
    lines: tuple[Line, ...]
    usage: Usage
    tail: str


def command(case: Case, place: Place) -> list[str]:
    """The command line of a case; writes the file that it names."""
    if case.contender == "ours":
        return connector_command(write_properties(case, place), once=True)
    file = place.work / f"{case.name}.json"
    job = attrs.asdict(case) | {
        "topic": case.full_topic,
        "table": case.table,
        "batch_events": case.batch_events + _SLACK,
        "bootstrap": place.bootstrap,
        "warehouse": str(place.warehouse),
        "checkpoint": str(place.work / "checkpoints" / case.name),
    }
    file.write_text(json.dumps(job))
    return [sys.executable, "-m", "benchmarks.homemade", str(file)]


def connector_command(properties: Path, once: bool) -> list[str]:
    """`icebridge run` as a module."""
    return [sys.executable, "-m", "connector", "run", *(["--once"] if once else []), str(properties)]


def write_properties(case: Case, place: Place) -> Path:
    """The sink's properties file of a case; hard deletes, as the MERGE beside it has them."""
    options = {
        "name": case.namespace,
        "bootstrap.servers": place.bootstrap,
        "topics": case.full_topic,
        "debezium.sink.type": "iceberg",
        "debezium.sink.iceberg.catalog-name": CATALOG,
        "debezium.sink.iceberg.table-namespace": case.namespace,
        "debezium.sink.iceberg.upsert": str(case.upsert).lower(),
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.batch.max-events": str(case.batch_events + _SLACK),
    }
    if case.routed:
        options |= {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "source.table"}
    options |= case.properties
    options |= {f"debezium.sink.iceberg.{key}": value for key, value in catalog_properties(place.warehouse).items()}
    file = place.work / f"{case.name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in (options | SPARK).items()))
    return file


def run(arguments: list[str], log: Path, broker_pid: int | None) -> Finished:
    """Run a process to its end; its stderr is kept in `log`."""
    started = time.monotonic()
    lines: list[Line] = []
    with started_process(arguments) as process, TreeSampler(process.pid, broker_pid) as sampler:
        watchdog = threading.Timer(LIMIT_S, end_tree, [process.pid])
        watchdog.daemon = True
        watchdog.start()
        text = [remember(raw, lines) for raw in process.stderr or ()]
        code = process.wait()
        watchdog.cancel()
    log.write_text("".join(text))
    return Finished(started, code, tuple(lines), sampler.usage(), "".join(text[-15:]))


def step(module: str, job: Path, log: Path) -> None:
    """Run a module of the benchmark that is not timed. RuntimeError with the end of its log when it fails."""
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", module, str(job)], cwd=ROOT, check=False, stdout=output, stderr=output
        )
    if done.returncode != 0:
        raise RuntimeError(f"{module} ended with exit code {done.returncode}:\n{log.read_text()[-2000:]}")


@contextmanager
def started_process(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process of the repository with its stderr as text; whatever still lives of its tree is ended at exit."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            end_tree(process.pid)
        process.wait()


def end_tree(pid: int) -> None:
    """Kill a process that this program started, and its children."""
    try:
        processes = tree_of(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def remember(raw: str, lines: list[Line]) -> str:
    """Add `raw` to `lines` when it is a JSON object with an event; returns it unchanged."""
    if raw.startswith("{"):
        try:
            fields = json.loads(raw)
        except ValueError:
            return raw
        if "event" in fields:
            lines.append(Line(time.monotonic(), fields))
    return raw
