"""options -> results: one broker, one run of the whole suite, one report. `make bench` calls this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.options import SCALE, add_case_options
from benchmarks.plan import Sizes
from benchmarks.report import show, write
from benchmarks.run import measure_and_report
from benchmarks.suite import measure_all


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
    measure_and_report(lambda place, say: measure_all(place, sizes, only, say), show, write, out, work, keep=keep)


if __name__ == "__main__":
    main()
