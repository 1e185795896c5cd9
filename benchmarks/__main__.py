"""options -> results: one broker, one run of the whole suite, one report. `make bench` calls this."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.options import SCALE, add_case_options
from benchmarks.plan import Sizes
from benchmarks.report import show, write
from benchmarks.suite import measure_all
from benchmarks.workplace import open_console, workplace


@click.command(context_settings={"show_default": True})
@click.option("--events-append", default=2_000_000, help="Events of the append topic.")
@click.option("--events-upsert", default=1_000_000, help="Events of the upsert topic; the large one has twice as many.")
@click.option("--keys", default=200_000, help="Distinct keys of the upsert topics.")
@click.option("--rows", default=5_000_000, help="Rows of the big table.")
@click.option("--changes", default=10_000, help="Upserts of each of 50 batches to the table that is maintained.")
@SCALE
@add_case_options
def main(
    events_append: int,
    events_upsert: int,
    keys: int,
    rows: int,
    changes: int,
    scale: float,
    only: Sequence[str],
    out: Path,
    work: Path | None,
    keep: bool,
) -> None:
    """Measure this sink beside two home-made ones on the same topics; exit code 1 when a case failed or is wrong."""
    sizes = Sizes(events_append, events_upsert, keys, rows, changes=changes)
    if scale != 1:
        sizes = sizes.scaled(scale)
    console = open_console()
    with workplace(work, keep, console) as place:
        results = measure_all(place, sizes, only, lambda text: console.print(text, markup=False, highlight=False))
        show(results, console)
        console.print(*write(results, out))
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
