"""what to measure -> results, printed and written, at a place of its own: one run of a benchmark, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console

from benchmarks.contenders import Place
from benchmarks.workplace import open_console, workplace


class Outcome(Protocol):
    """What was measured."""

    @property
    def failed(self) -> bool:
        """Whether a case failed or left a wrong table."""


Results = TypeVar("Results", bound=Outcome)
Say = Callable[[str], None]


def measure_and_report(
    measure: Callable[[Place, Say], Results],
    show: Callable[[Results, Console], None],
    write: Callable[[Results, Path], tuple[Path, Path]],
    out: Path,
    work: Path | None,
    *,
    keep: bool,
) -> None:
    """Measure, print the results and write them to `out`; exit code 1 when a case failed or is wrong."""
    console = open_console()
    with workplace(work, keep, console) as place:
        results = measure(place, lambda text: console.print(text, markup=False, highlight=False))
        show(results, console)
        console.print(*write(results, out))
    sys.exit(1 if results.failed else 0)
