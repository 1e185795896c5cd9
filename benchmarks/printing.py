"""figures and verdicts -> the tables and lines that a benchmark prints."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from benchmarks.verdicts import Verdict


def table_of_figures(title: str, columns: Iterable[str]) -> Table:
    """Open a table whose first column names a case, and whose others are figures."""
    table = Table(*columns, title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def format_figure(value: float | None, digits: int = 2) -> str:
    """Return a figure with its thousands apart, `-` for none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def show_fault(fault: str, console: Console) -> None:
    """Print what is wrong with a case."""
    console.print(fault, style="red", markup=False, highlight=False)


def show_verdicts(verdicts: Iterable[Verdict], console: Console) -> None:
    """Print a line per verdict, coloured by whether it was reached."""
    for verdict in verdicts:
        style = {None: "yellow", True: "green", False: "bold red"}[verdict.reached]
        console.print(verdict_line(verdict), style=style, markup=False, highlight=False)


def verdict_line(verdict: Verdict) -> str:
    """`reached  name: found unit (at least limit unit; ratio to the limit)`."""
    word = {None: "not measured", True: "reached", False: "MISSED"}[verdict.reached]
    if verdict.found is None:
        return f"{word:13}{verdict.name} ({verdict.side} {verdict.limit:,g} {verdict.unit})".rstrip()
    ratio = f"; {verdict.ratio:.2f} of the target" if verdict.ratio is not None else ""
    return f"{word:13}{verdict.name}: {verdict.found:,.2f} {verdict.unit} ({verdict.side} {verdict.limit:,g}{ratio})"
