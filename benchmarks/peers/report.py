"""summaries -> terminal, peers.json, peers.png: what `make bench-peers` leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from benchmarks.chart import Bars, draw_rows
from benchmarks.figures import Run
from benchmarks.peers.figures import Summary
from benchmarks.plan import Sizes
from benchmarks.printing import format_figure, show_fault, show_verdicts, table_of_figures
from benchmarks.report import jar_versions, machine, versions
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
        return any(summary.faults for summary in self.summaries)

    def as_json(self) -> dict[str, Any]:
        """The content of peers.json."""
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "machine": machine() | {"load_before_and_after": self.load},
            "versions": versions() | jar_versions(*_PEER_JARS),
            "sizes": {name: getattr(self.sizes, name) for name in ("append", "upsert", "keys")},
            "summaries": {summary.name: summary.as_json() for summary in self.summaries},
            "runs": {run.case.name: run.as_json() for run in self.runs},
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
        }


def show(results: PeerResults, console: Console) -> None:
    """Print a line per contender and one per verdict."""
    table = table_of_figures("icebridge and its peers (medians; warm: after the first commit)", _COLUMNS)
    for summary in results.summaries:
        table.add_row(*row_of(summary))
    console.print(table)
    for summary in results.summaries:
        for fault in summary.faults:
            show_fault(f"{summary.name}: {fault[-_FAULT_CHARS:]}", console)
    show_verdicts(results.verdicts, console)


def row_of(summary: Summary) -> list[str]:
    """One line of the table."""
    return [
        summary.name,
        str(summary.rounds),
        f"{summary.events:,}",
        format_figure(summary.wall_s, 1),
        format_figure(summary.cpu_s, 1),
        format_figure(summary.first_commit_s, 1),
        format_figure(summary.warm_events_per_s, 0),
        format_figure(summary.warm_cpu_s_per_million, 2),
        format_figure(summary.warm_broker_s_per_million, 2),
        format_figure(summary.memory_bytes / MB, 0),
        format_figure(summary.data_files, 0),
        format_figure(summary.delete_files, 0),
        f"{len(summary.faults)} WRONG" if summary.faults else "right",
    ]


def bars_of(summaries: Sequence[Summary]) -> list[Bars]:
    """Two rows of charts: the whole process, and what is left of it after the first commit."""
    shown = [one for one in summaries if one.events and not one.faults]
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
