"""The stored offsets of a sink -> other ones, shown or stored (`icebridge offsets reset`)."""

from __future__ import annotations

import click
from rich.table import Table as Grid

from connector.cli.console import open_console
from connector.cli.offsets.sink_positions import format_offset
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import KafkaAdmin
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_driver
from connector.runtime.stop_signals import finish_first
from connector.settings import SinkSettings
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.offset_reset import ResetTarget, find_new_offsets, merge_offsets, open_state, replace_offsets
from connector.sink.takeover.pending_commits import check_pending_commits


def reset(settings: SinkSettings, *, to: ResetTarget, topics: tuple[str, ...], execute: bool) -> None:
    """Reset the stored offsets of topics, in the offsets table and in every table.

    `to` earliest or latest is the oldest or next record; group is where the consumer group stands (another connector's
    of the same group, say), the oldest record where it never was; refused while Iceberg Kafka Connect has written rows
    that it has not committed. tables is where the table that is furthest behind
    stands by its own snapshots, from the start where it has none: a table that was rolled back, or dropped and made
    again, gets what it lost, and the others leave out what they have. stored changes no offset, and takes the tables
    as they are. All but tables forget how far sources had come: what comes next is taken as it comes.

    Tables keep their rows: reading from the oldest record again upserts the same rows, and appends them twice where the
    table is appended to. Without `execute` only what would be done is printed.
    """
    cluster_state = call_with_retries(lambda: inspect_cluster(KafkaAdmin(settings.kafka)), settings.errors)
    with open_driver(settings) as driver:
        if to == "group":
            for note in check_pending_commits(settings, Catalog(driver, settings.catalog, settings.errors)):
                click.echo(f"note: {note}", err=True)
        offsets, targets = open_state(driver, settings)
        before = offsets.position or KafkaOffsets()
        fresh = find_new_offsets(settings, offsets, cluster_state, to, targets)
        wanted = merge_offsets(before, cluster_state, fresh, topics, moves=to not in ("stored", "tables"))
        _print_reset(before, wanted, execute=execute)
        if execute:
            moved, kept = () if to == "stored" else fresh.keys(), to == "tables"
            with finish_first():
                replace_offsets(
                    settings, offsets, targets, cluster_state, wanted, moved=moved, topics=topics, keeps_tables=kept
                )


def _print_reset(before: KafkaOffsets, wanted: KafkaOffsets, *, execute: bool) -> None:
    grid = Grid("topic-partition", "stored", "new", title="offsets to set" if execute else "offsets that would be set")
    for at, offset in sorted(wanted.offsets.items()):
        if before.offsets.get(at) != offset:
            grid.add_row(f"{at[0]}-{at[1]}", format_offset(before.offsets.get(at)), str(offset))
    open_console().print(grid)
    if not execute:
        click.echo("nothing was changed; use --execute to set them")
