"""catalog and process -> samples: what a table has become, how old what is visible was, what the process holds."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.endurance.load import SteadyLoad
from benchmarks.endurance.samples import Sample
from benchmarks.measure import kind_of, tree_cpu_seconds, tree_of
from benchmarks.metadata import MetadataWatch, local_path
from benchmarks.tables import open_table
from connector.iceberg.commit.commit_summary import OFFSETS

_POLL_S = 0.1
_METRICS = ("icebridge_commit_seconds_total", "icebridge_commits_total")


class TableWatch(MetadataWatch):
    """Notes how old each event was when the catalog first pointed to a snapshot with it (seconds)."""

    def __init__(self, warehouse: Path, table: str, load: SteadyLoad) -> None:
        """Describe what to watch; nothing runs yet."""
        super().__init__(warehouse, table, _POLL_S)
        self._load, self._lock = load, threading.Lock()
        self._delays: list[float] = []
        self._seen: set[int] = set()
        self._visible = [0] * len(load.produced)
        self.metadata: Mapping[str, Any] = {}
        self.metadata_bytes = 0

    @property
    def visible(self) -> int:
        """Events in the table so far."""
        return sum(self._visible)

    def note(self, metadata: bytes, at_s: float) -> None:
        """Keep the metadata, and the delays of what it made visible."""
        self.metadata, self.metadata_bytes = json.loads(metadata), len(metadata)
        for snapshot in self.metadata.get("snapshots", []):
            committed = snapshot["summary"].get(OFFSETS)
            if committed is None or snapshot["snapshot-id"] in self._seen:
                continue
            self._seen.add(snapshot["snapshot-id"])
            (offsets,) = json.loads(committed).values()
            with self._lock:
                for partition, offset in offsets.items():
                    self._show(int(partition), offset, at_s)

    def take_delays(self) -> list[float]:
        """The delays of all events that became visible since the last call."""
        with self._lock:
            delays, self._delays = self._delays, []
        return delays

    def _show(self, partition: int, offset: int, at_s: float) -> None:
        before = self._visible[partition]
        self._delays += [at_s - produced_s for produced_s in self._load.produced[partition][before:offset]]
        self._visible[partition] = max(before, offset)


class Sampler:
    """Takes samples of one sink."""

    def __init__(self, warehouse: Path, table: str, watch: TableWatch, pid: int, port: int) -> None:
        """Begin; `port` serves the sink's metrics."""
        self._warehouse, self._table, self._watch = warehouse, table, watch
        self._process, self._port = psutil.Process(pid), port
        self._begun_s = self._last_s = time.monotonic()
        self._cpu_s = tree_cpu_seconds(pid)
        self._commits = self._commit_s = 0.0

    def take(self) -> Sample:
        """Look at everything once."""
        now_s, cpu_s = time.monotonic(), tree_cpu_seconds(self._process.pid)
        commit_s, commits = read_metrics(self._port)
        delays = self._watch.take_delays() or [float("nan")]
        p50, p95 = np.percentile(delays, [50, 95]).tolist()
        totals, folder = self._summary(), local_path(str(self._watch.metadata["location"]))
        fresh = commits - self._commits
        sample = Sample(
            at_s=round(now_s - self._begun_s, 1),
            snapshots=len(self._watch.metadata["snapshots"]),
            metadata_bytes=self._watch.metadata_bytes,
            metadata_files=sum(1 for _ in (folder / "metadata").iterdir()),
            data_files=int(totals.get("total-data-files", 0)),
            delete_files=int(totals.get("total-delete-files", 0)),
            equality_deletes=int(totals.get("total-equality-deletes", 0)),
            position_deletes=int(totals.get("total-position-deletes", 0)),
            live_bytes=int(totals.get("total-files-size", 0)),
            stored_bytes=sum(_size_bytes(file) for file in folder.rglob("*")),
            planning_s=self._plan(),
            commits=int(fresh),
            commit_s=(commit_s - self._commit_s) / fresh if fresh else 0.0,
            fresh_p50_s=p50,
            fresh_p95_s=p95,
            cpu_share=(cpu_s - self._cpu_s) / (now_s - self._last_s),
            **self._held(),
        )
        self._last_s, self._cpu_s, self._commits, self._commit_s = now_s, cpu_s, commits, commit_s
        return sample

    def _summary(self) -> Mapping[str, str]:
        metadata = self._watch.metadata
        current = metadata["current-snapshot-id"]
        return next(one["summary"] for one in metadata["snapshots"] if one["snapshot-id"] == current)

    def _plan(self) -> float:
        """CPU seconds to load the table and to list its live files, by a reader that knows neither it nor us."""
        begun_s = time.thread_time()
        table = open_table(self._warehouse, self._table)
        snapshot = table.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        return time.thread_time() - begun_s

    def _held(self) -> dict[str, int]:
        held = {"jvm_bytes": 0, "python_bytes": 0, "handles": 0, "threads": 0}
        for process in tree_of(self._process):
            try:
                kind = "jvm_bytes" if kind_of(process.name()) == "jvm" else "python_bytes"
                held[kind] += process.memory_info().rss
                held["handles"] += process.num_fds()
                held["threads"] += process.num_threads()
            except psutil.Error:
                continue
        return held


def read_metrics(port: int) -> Sequence[float]:
    """Seconds of commits, and commits, so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return [sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{")) for name in _METRICS]


def measure_leftovers(warehouse: Path, table: str) -> tuple[int, int]:
    """How many files of a table's folder no snapshot and no metadata has, and their bytes; nobody may write to it.

    Cost: every manifest of every snapshot is read once.
    """
    opened = open_table(warehouse, table)
    known = {opened.metadata_location, *(entry.metadata_file for entry in opened.metadata.metadata_log)}
    manifests = {one.manifest_path: one for each in opened.metadata.snapshots for one in each.manifests(opened.io)}
    known |= {each.manifest_list for each in opened.metadata.snapshots} | manifests.keys()
    for manifest in manifests.values():
        known |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(opened.io, discard_deleted=False)}
    paths = {local_path(location) for location in known}
    left = [file for file in local_path(opened.location()).rglob("*") if file.is_file() and file not in paths]
    return len(left), sum(map(_size_bytes, left))


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # deleted meanwhile
        return 0
