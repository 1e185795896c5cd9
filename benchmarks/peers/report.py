"""summaries -> terminal, peers.json, peers.png: what `make bench-peers` leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from benchmarks.chart import Bars, draw_rows
from benchmarks.figures import Run
from benchmarks.peers.figures import Summary
from benchmarks.plan import Sizes
from benchmarks.report import jar_versions, machine, verdict_line, versions
from benchmarks.verdicts import MB, Verdict

_COLUMNS = (
    "case", "rounds", "events", "wall s", "CPU s", "first commit s", "warm events/s", "warm CPU s/M", "broker s/M",
    "memory MB", "data files", "delete files", "tables",
)  # fmt: skip
_PEER_JARS = ("flink-clients", "flink-sql-connector-kafka", "iceberg-flink", "iceberg-kafka-connect", "connect-runtime")
_FAULT_CHARS = 1_500


@attrs.frozen
class PeerResults:
    """Everything that one `make bench-peers` found; `load` is what the machine did besides, before and after."""

    sizes: Sizes
    runs: tuple[Run, ...]
    summaries: tuple[Summary, ...]
    verdicts: tuple[Verdict, ...]
    seconds: float
    load: tuple[float, float]

    @property
    def failed(self) -> bool:
        """Whether a run failed or left a wrong table."""
        return any(found.faults for found in self.summaries)

    def as_json(self) -> dict[str, Any]:
        """The content of peers.json."""
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "machine": machine() | {"load_before_and_after": self.load},
            "versions": versions() | jar_versions(*_PEER_JARS),
            "sizes": {name: getattr(self.sizes, name) for name in ("append", "upsert", "keys")},
            "summaries": {found.name: found.as_json() for found in self.summaries},
            "runs": {run.case.name: run.as_json() for run in self.runs},
            "verdicts": [
                attrs.asdict(verdict) | {"reached": verdict.reached, "ratio": verdict.ratio}
                for verdict in self.verdicts
            ],
        }


def show(results: PeerResults, console: Console) -> None:
    """Print a line per contender and one per verdict."""
    table = Table(*_COLUMNS, title="icebridge and its peers (medians; warm: after the first commit)")
    for column in table.columns[1:]:
        column.justify = "right"
    for found in results.summaries:
        table.add_row(*row_of(found))
    console.print(table)
    for found in results.summaries:
        for fault in found.faults:
            console.print(f"{found.name}: {fault[-_FAULT_CHARS:]}", style="red", markup=False, highlight=False)
    for verdict in results.verdicts:
        console.print(verdict_line(verdict), markup=False, highlight=False)


def row_of(found: Summary) -> list[str]:
    """One line of the table."""
    return [
        found.name,
        str(found.rounds),
        f"{found.events:,}",
        _figure(found.wall_s, 1),
        _figure(found.cpu_s, 1),
        _figure(found.first_commit_s, 1),
        _figure(found.warm_events_per_s),
        _figure(found.warm_cpu_s_per_million, 2),
        _figure(found.warm_broker_s_per_million, 2),
        _figure(found.memory_bytes / MB),
        _figure(found.data_files),
        _figure(found.delete_files),
        f"{len(found.faults)} WRONG" if found.faults else "right",
    ]


def bars_of(summaries: Sequence[Summary]) -> list[Bars]:
    """Two rows of charts: the whole process, and what is left of it after the first commit."""
    shown = [found for found in summaries if found.events and not found.faults]
    whole = tuple((one.name, one.contender, one.events_per_s, one.cpu_s_per_million) for one in shown)
    warm = tuple(
        (one.name, one.contender, one.warm_events_per_s, one.warm_cpu_s_per_million)
        for one in shown
        if one.warm_events_per_s is not None and one.warm_cpu_s_per_million is not None
    )
    shapes = ("{:,.0f}", "{:,.1f}")
    return [
        Bars(("events per second, whole process", "CPU seconds per million events, whole process"), shapes, whole),
        Bars(("events per second after the first commit", "CPU seconds per million events then"), shapes, warm),
    ]


def write(results: PeerResults, folder: Path) -> tuple[Path, Path]:
    """Write peers.json and peers.png to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file, picture = folder / "peers.json", folder / "peers.png"
    file.write_text(json.dumps(results.as_json(), indent=2) + "\n")
    draw_rows(bars_of(results.summaries), picture)
    return file, picture


def _figure(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
