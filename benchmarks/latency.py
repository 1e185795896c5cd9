"""clock -> topic -> snapshot -> clock: produced to visible in Iceberg at a steady rate, and start to first commit.

Every event carries the time at which it was handed to the producer (`updated_at`). An event is visible when the
catalog points to metadata with its snapshot, seen by asking the catalog 20 times a second. Which event is in which
snapshot is read from the data files that each snapshot added, so nothing that the sink says about itself is needed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation

from benchmarks.contenders import Place, connector_command, end_tree, started_process, write_properties
from benchmarks.generate import Events
from benchmarks.measure import Memory, TreeSampler
from benchmarks.messages import envelopes
from benchmarks.metadata import MetadataWatch, local_path
from benchmarks.plan import CONVERTED, FIRST_EVENTS, LATENCY, PROMPT, Case, Sizes
from benchmarks.tables import open_table
from benchmarks.topics import create, producer, send
from tests.harness.waiting import wait_until

CASE = Case("latency-ours", "ours", LATENCY, 1_000_000, properties=PROMPT)
CONVERTING = Case("latency-converting-ours", "ours", f"{LATENCY}_converted", 1_000_000, properties=PROMPT | CONVERTED)
_TICK_S, _POLL_S, _QUIET_S, _FIRST_LIMIT_S, _STOP_LIMIT_S = 0.05, 0.05, 6.0, 120.0, 60.0


@attrs.frozen
class Latency:
    """Produced to visible in milliseconds over `rows` rows, and the seconds from process start to first commit."""

    rows: int
    commits: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    produced_per_s: float
    cpu_s_per_s: float
    start_to_first_commit_s: float
    memory: Memory
    fault: str | None = None


class CatalogWatch(MetadataWatch):
    """Notes when each snapshot of a table is first seen in the catalog (epoch seconds by snapshot id)."""

    def __init__(self, warehouse: Path, table: str) -> None:
        """Describe what to watch; nothing runs yet."""
        super().__init__(warehouse, table, _POLL_S)
        self.seen: dict[int, float] = {}

    def note(self, metadata: bytes, at_s: float) -> None:
        """Keep when each snapshot came."""
        for snapshot in json.loads(metadata).get("snapshots", []):
            self.seen.setdefault(int(snapshot["snapshot-id"]), at_s)

    def wait_for_first(self, limit_s: float) -> float:
        """The time of the first snapshot; TimeoutError when there is none in time."""
        wait_until(lambda: bool(self.seen), limit_s, "no commit", step_s=_POLL_S)
        return min(self.seen.values())

    def wait_until_quiet(self) -> None:
        """Return when nothing was committed for a few seconds."""
        count, since = len(self.seen), time.monotonic()
        while time.monotonic() - since < _QUIET_S:
            time.sleep(_POLL_S)
            if len(self.seen) != count:
                count, since = len(self.seen), time.monotonic()


def measure(events: Events, place: Place, sizes: Sizes, case: Case = CASE) -> tuple[Latency, Events]:
    """Run the sink; returns the figures and the events as they were produced."""
    topic = case.full_topic
    create(place.bootstrap, topic)
    client = producer(place.bootstrap, linger_ms=5)
    first = events.part(0, FIRST_EVENTS).stamped(np.zeros(FIRST_EVENTS, np.int64))
    for chunk in envelopes(first):
        send(client, topic, chunk)
    client.flush()
    watch = CatalogWatch(place.warehouse, case.table)
    watch.start()
    command = connector_command(write_properties(case, place), once=False)
    try:
        with started_process(command) as process, TreeSampler(process.pid, place.broker_pid) as sampler:
            started = time.time()
            drain(process, place.work / f"{case.name}.log")
            first_s = watch.wait_for_first(_FIRST_LIMIT_S) - started
            watch.wait_until_quiet()
            begun, start_s = time.monotonic(), time.time()
            stamps = produce_steadily(client, topic, events, sizes.latency_rate)
            ended = time.monotonic()
            watch.wait_until_quiet()
            stop(process)
    finally:
        watch.finish()
    usage = sampler.usage()
    delays = delays_ms(place.warehouse, case.table, watch.seen, int(start_s * 1000))
    p50, p95, p99, greatest = percentiles(delays)
    figures = Latency(
        rows=len(delays),
        commits=sum(seen > start_s for seen in watch.seen.values()),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=greatest,
        produced_per_s=len(stamps) / (ended - begun),
        cpu_s_per_s=usage.cpu_between(begun, ended)["tree"] / (ended - begun),
        start_to_first_commit_s=first_s,
        memory=usage.memory,
    )
    return figures, events.stamped(np.concatenate([np.zeros(FIRST_EVENTS, np.int64), stamps]))


def produce_steadily(client: Any, topic: str, events: Events, rate_per_s: int) -> NDArray[np.int64]:
    """Produce the events after the first ones, so many a second; returns the time of each (epoch milliseconds)."""
    per_tick = max(1, round(rate_per_s * _TICK_S))
    stamps = []
    begun = time.monotonic()
    for tick, start in enumerate(range(FIRST_EVENTS, len(events), per_tick)):
        time.sleep(max(0.0, begun + tick * _TICK_S - time.monotonic()))
        part = events.part(start, per_tick)
        stamp = np.full(len(part), int(time.time() * 1000), np.int64)
        for chunk in envelopes(part.stamped(stamp)):
            send(client, topic, chunk)
        stamps.append(stamp)
    client.flush()
    return np.concatenate(stamps)


def delays_ms(warehouse: Path, name: str, seen: dict[int, float], since_ms: int) -> NDArray[np.int64]:
    """Visible minus produced of each row that a snapshot added and that was produced at or after `since_ms`.

    Snapshots that write rows anew, which were visible before, do not count.
    """
    table = open_table(warehouse, name)
    delays = [np.empty(0, np.int64)]
    for snapshot in table.metadata.snapshots:
        if snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE:
            continue
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.data_file.content == DataFileContent.DATA and entry.snapshot_id == snapshot.snapshot_id:
                    produced = produced_ms(entry.data_file.file_path)
                    visible = int(seen[snapshot.snapshot_id] * 1000)
                    delays.append(visible - produced[produced >= since_ms])
    return np.concatenate(delays)


def produced_ms(path: str) -> NDArray[np.int64]:
    """The `updated_at` values of a data file."""
    column = pq.read_table(local_path(path), columns=["updated_at"])["updated_at"]
    values: NDArray[np.int64] = column.to_numpy()
    return values


def percentiles(delays: NDArray[np.int64]) -> list[float]:
    """p50, p95, p99 and the greatest, in milliseconds. ValueError when nothing became visible."""
    if not len(delays):
        raise ValueError("no row of the steady stream became visible")
    values: list[float] = np.percentile(delays, [50, 95, 99, 100]).tolist()
    return values


def drain(process: subprocess.Popen[str], log: Path) -> None:
    """Copy the process's stderr to a file in a thread, so that it never waits for a reader."""

    def copy() -> None:
        with log.open("w") as file:
            deque((file.write(line) for line in process.stderr or ()), maxlen=0)

    threading.Thread(target=copy, name="latency-log", daemon=True).start()


def stop(process: subprocess.Popen[str]) -> None:
    """Ask the sink to finish its batch and leave, as a service manager does; kill it when it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        end_tree(process.pid)
