"""options -> results: one broker, all contenders in turns, one report. `make bench-peers` calls this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.options import SCALE, add_case_options
from benchmarks.peers.plan import APPEND_EVENTS, KEYS, UPSERT_EVENTS, peer_sizes
from benchmarks.peers.report import show, write
from benchmarks.peers.suite import measure_peers
from benchmarks.run import measure_and_report


@click.command(context_settings={"show_default": True})
@click.option("--events-append", default=APPEND_EVENTS, help="Events of the append topic.")
@click.option("--events-upsert", default=UPSERT_EVENTS, help="Events of the upsert topic.")
@click.option("--keys", default=KEYS, help="Distinct keys of the upsert topic.")
@SCALE
@click.option("--rounds", default=3, help="How often each contender runs; the medians count.")
@add_case_options
def main(
    events_append: int,
    events_upsert: int,
    keys: int,
    scale: float,
    rounds: int,
    only: Sequence[str],
    out: Path,
    work: Path | None,
    keep: bool,
) -> None:
    """Measure Flink, Iceberg's Kafka Connect sink, Spark and this sink on the same topics.

    The exit code is 1 when a contender failed or a table is wrong.
    """
    sizes = peer_sizes(events_append, events_upsert, keys).scaled(scale)
    measure_and_report(
        lambda place, say: measure_peers(place, sizes, rounds, only, say), show, write, out, work, keep=keep
    )


if __name__ == "__main__":
    main()
