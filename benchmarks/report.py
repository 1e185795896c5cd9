"""figures -> terminal, results.json, chart: what `make bench` leaves behind."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import psutil
from rich.console import Console

from benchmarks.chart import draw
from benchmarks.figures import Run
from benchmarks.latency import Latency
from benchmarks.maintenance.figures import Maintenance, maintenance_line
from benchmarks.plan import Sizes
from benchmarks.printing import format_figure, show_fault, show_verdicts, table_of_figures
from benchmarks.scale.figures import Pair
from benchmarks.source.figures import Source
from benchmarks.source.report import show_source
from benchmarks.verdicts import MB, Verdict
from benchmarks.wire.figures import Wire, wire_lines
from connector.runtime.jvm.java import find_java_home
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile

_COLUMNS = (
    "case", "events", "first batch s", "warm batch s", "events/s", "CPU s/M", "broker s/M", "JVM MB", "worker MB",
    "data files", "delete files", "table",
)  # fmt: skip
_FAULT_CHARS = 500
_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "pyiceberg", "confluent-kafka")


@attrs.frozen
class Results:
    """Everything that one `make bench` found."""

    sizes: Sizes
    runs: tuple[Run, ...]
    latency: Latency | None
    verdicts: tuple[Verdict, ...]
    seconds: float
    source: Source | None = None
    wire: Wire | None = None
    maintenance: Maintenance | None = None
    maintenance_fault: str = ""
    converting: Latency | None = None
    scale: tuple[Pair, ...] = ()

    @property
    def all_runs(self) -> tuple[Run, ...]:
        """Those of the pairs that grow, too."""
        return (*self.runs, *(run for pair in self.scale for run in (pair.small, pair.large)))

    @property
    def failed(self) -> bool:
        """Whether a case failed or left a wrong table."""
        latencies = [found for found in (self.latency, self.converting) if found is not None]
        sink = any(run.fault for run in self.all_runs) or any(found.fault for found in latencies)
        return (
            sink
            or bool(self.maintenance_fault)
            or bool(self.source and self.source.failed)
            or bool(self.wire and self.wire.faults)
        )

    def as_json(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "machine": machine(),
            "versions": versions(),
            "sizes": attrs.asdict(self.sizes),
            "runs": {run.case.name: run.as_json() for run in self.runs},
            "latency": attrs.asdict(self.latency) if self.latency else None,
            "source": self.source.as_json() if self.source else None,
            "maintenance": attrs.asdict(self.maintenance) if self.maintenance else None,
            "converting": attrs.asdict(self.converting) if self.converting else None,
            "wire": attrs.asdict(self.wire) if self.wire else None,
            "scale": {pair.growth.name: pair.as_json() for pair in self.scale},
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
        }


def show(results: Results, console: Console) -> None:
    """Print the table of runs, the latency and a line per verdict."""
    table = table_of_figures("icebridge benchmark (warm figures: after the first batch)", _COLUMNS)
    for run in results.all_runs:
        table.add_row(*row_of(run))
    if results.all_runs:
        console.print(table)
    for run in results.all_runs:
        if run.fault:
            show_fault(f"{run.case.name}: {run.fault[-_FAULT_CHARS:]}", console)
    _show_latencies(results, console)
    _show_maintenance(results, console)
    if results.source:
        show_source(results.source, console)
    for line in wire_lines(results.wire) if results.wire else []:
        console.print(line, markup=False, highlight=False)
    show_verdicts(results.verdicts, console)


def _show_latencies(results: Results, console: Console) -> None:
    for name, latency in (("latency", results.latency), ("latency, converting", results.converting)):
        if latency and latency.fault:
            show_fault(f"{name}: {latency.fault}", console)
        if latency:
            console.print(f"{name}: {latency_line(latency)}", highlight=False)


def _show_maintenance(results: Results, console: Console) -> None:
    if results.maintenance:
        console.print(maintenance_line(results.maintenance), markup=False, highlight=False)
    if results.maintenance_fault:
        show_fault(results.maintenance_fault, console)


def row_of(run: Run) -> list[str]:
    """One line of the table."""
    warm = run.warm
    first = run.batches[0].seconds if run.batches else None
    right = {None: "not checked", True: "right", False: "WRONG"}[run.correct]
    return [
        run.case.name,
        f"{run.events:,}",
        format_figure(first),
        format_figure(warm.seconds_per_batch if warm else None),
        f"{warm.events_per_s:,.0f}" if warm else "-",
        format_figure(warm.tree_cpu_s / warm.events * 1e6 if warm else None, 1),
        format_figure(warm.broker_cpu_s / warm.events * 1e6 if warm else None, 1),
        f"{run.jvm_bytes / MB:,.0f}",
        f"{run.worker_bytes / MB:,.0f}",
        str(run.files.get("data_files", "-")),
        str(run.files.get("delete_files", "-")),
        right,
    ]


def latency_line(latency: Latency) -> str:
    """The latency run in one line."""
    return (
        f"produced to visible at {latency.produced_per_s:,.0f} events/s: p50 {latency.p50_ms:,.0f} ms, "
        f"p95 {latency.p95_ms:,.0f} ms, p99 {latency.p99_ms:,.0f} ms, max {latency.max_ms:,.0f} ms "
        f"({latency.rows:,} rows, {latency.commits} commits, {latency.cpu_s_per_s:.2f} cores busy); "
        f"start to first commit {latency.start_to_first_commit_s:.1f} s"
    )


def write(results: Results, folder: Path) -> tuple[Path, Path]:
    """Write results.json and benchmark.png to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file, picture = folder / "results.json", folder / "benchmark.png"
    file.write_text(json.dumps(results.as_json(), indent=2) + "\n")
    draw(results.runs, picture, results.source)
    return file, picture


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return {
        "processor": match.group(1) if match else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Python, Java, the packages and the Iceberg and Kafka jars of the lock."""
    java = subprocess.run([find_java_home() / "bin" / "java", "-version"], capture_output=True, text=True, check=False)
    versions_by_name = {"python": platform.python_version(), "java": (java.stderr or java.stdout).partition("\n")[0]}
    versions_by_name |= {name: version(name) for name in _PACKAGES}
    return versions_by_name | jar_versions("iceberg-spark-runtime", "spark-sql-kafka", "kafka_")


def jar_versions(*starts: str) -> dict[str, str]:
    """The jars of the lock whose names start so."""
    locked = parse_lockfile(LOCK_FILE.read_text())
    return {jar.name: jar.version for jars in locked.values() for jar in jars if jar.name.startswith(starts)}
