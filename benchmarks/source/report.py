"""figures of the producer -> terminal."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.printing import show_fault, table_of_figures
from benchmarks.source.figures import Idle, Publishing, Source, Timing
from benchmarks.verdicts import MB

_COLUMNS = ("case", "changes", "ours s", "ours CPU s", "view s", "view CPU s", "view / ours", "changes are")


def show_source(source: Source, console: Console) -> None:
    """Print the table of changes, and a line each for publishing, idle polls and memory."""
    if source.changes:
        console.print(changes_table(source))
        console.print(
            f"peak of the process with both contenders: JVM {source.jvm_bytes / MB:,.0f} MB, "
            f"Python worker {source.worker_bytes / MB:,.0f} MB",
            highlight=False,
        )
    for case in source.changes:
        if case.fault:
            show_fault(f"{case.name}: {case.fault}", console)
    if source.publishing:
        console.print(publishing_line(source.publishing), highlight=False, markup=False)
    if source.idle:
        console.print(idle_line(source.idle), highlight=False)
    for fault in source.faults:
        show_fault(fault, console)


def changes_table(source: Source) -> Table:
    """One line per case; an update counts as two changes, as in Spark's view."""
    table = table_of_figures("changes of one snapshot (medians of warm rounds)", _COLUMNS)
    for case in source.changes:
        ratio = f"{case.view.wall_s / case.ours.wall_s:.2f}" if case.view and case.ours else "-"
        times = [*_times(case.ours), *_times(case.view)]
        table.add_row(case.name, f"{case.changes:,}", *times, ratio, "WRONG" if case.fault else "right")
    return table


def publishing_line(read: Publishing) -> str:
    """The initial read in one line."""
    if read.envelopes_per_s is None or read.cpu_s_per_million is None:
        return f"initial read: {read.rows:,} envelopes in {read.parts} parts; {read.fault or 'nothing warm'}"
    return (
        f"initial read: {read.envelopes_per_s:,.0f} envelopes/s, {read.cpu_s_per_million:.1f} CPU s per million "
        f"(broker {read.broker_cpu_s / read.warm_envelopes * 1e6:.1f}) over {read.warm_envelopes:,} of "
        f"{read.rows:,} in {read.parts} parts; start to first part {read.start_to_first_part_s:.1f} s; "
        f"JVM {read.jvm_bytes / MB:,.0f} MB, Python worker {read.worker_bytes / MB:,.0f} MB; "
        f"the topic is {read.fault or 'right'}"
    )


def idle_line(idle: Idle) -> str:
    """Idle polls in one line."""
    jdbc, rest = (f"{median(times):.1f} (max {max(times):.1f}) ms" for times in (idle.jdbc_ms, idle.rest_ms))
    return (
        f"idle poll with {idle.snapshots:,} snapshots: {jdbc} over JDBC, {rest} over REST, "
        f"{idle.requests:g} catalog requests each"
    )


def _times(timing: Timing | None) -> list[str]:
    return [f"{timing.wall_s:.2f}", f"{timing.median_cpu_s:.1f}"] if timing else ["-", "-"]
