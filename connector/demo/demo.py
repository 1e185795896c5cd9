"""Recorded events -> broker -> sink -> tables -> source -> a replica: the demo from top to bottom."""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from connector.demo.opensearch_demo import search_documents
from connector.demo.printing import show_commits, show_rows, show_summary
from connector.demo.recorded_events import replay
from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.source_demo import play_steps
from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.kafka.admin import KafkaAdmin
from connector.runtime.jvm.jars import show_progress
from connector.runtime.monitoring.logs import configure_logging
from connector.runtime.monitoring.sink_progress import SinkStatusLine
from connector.runtime.spark.session import open_session
from connector.settings import SinkSettings, load
from connector.sink.factory import SinkObservers, build_sink
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.microbatch.warmup import WarmUpBeside

HOME = Path("icebridge-demo")
JARS = ("spark", "broker", "search")
"""Components that the demo starts."""
_UNFINISHED = "demo.unfinished"
"""File in the folder of a run that has not come to its end."""
PROPERTIES = """\
# The demo's sink: Debezium envelopes of topics js.* into Iceberg tables, by upsert, deletes kept as marked rows.
name=icebridge-demo
bootstrap.servers={servers}
debezium.source.topic.prefix=js
debezium.sink.type=iceberg
debezium.sink.iceberg.warehouse={warehouse}
debezium.sink.iceberg.table-namespace=demo
"""


def play(home: Path | None, *, fresh: bool) -> None:
    """Run the demo in a folder; a second run finds everything in place, reads on and changes nothing.

    One that was stopped, by a signal or an error, has left some of a step: the next one starts over.
    """
    home = (home or HOME).absolute()
    is_cut = (home / _UNFINISHED).exists()
    if fresh or is_cut:
        _delete_earlier_runs(home)
    home.mkdir(parents=True, exist_ok=True)
    (home / _UNFINISHED).touch()
    console, terminal = Console(), sys.stderr.isatty()
    console.print(f"[bold]icebridge demo[/] in {home}", highlight=False)
    if is_cut:
        console.print("the last run did not come to its end: this one starts over")
    if terminal:
        _prepare_terminal(console)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as beside, KafkaBroker(home / "broker") as broker:
        replayed = beside.submit(replay, broker.bootstrap_servers)
        settings = _settings(home, broker.bootstrap_servers)
        with open_session(settings) as spark:
            count = replayed.result()
            console.print(f"broker on {broker.bootstrap_servers}, {count} recorded Debezium events replayed")
            progress = SinkStatusLine(terminal=terminal)
            names = _fill_tables(spark, settings, progress)
            catalog = Catalog(spark, settings.catalog, settings.errors)
            tables = [table for name in names if (table := catalog.load(name)) is not None]
            for table in tables:
                show_rows(console, spark, table)
            show_commits(console, tables, settings.name)
            play_steps(console, spark, home, broker.bootstrap_servers)
            search_documents(console, spark, home, broker.bootstrap_servers)
    (home / _UNFINISHED).unlink()
    # No rate: so few events tell of the first batch's start, not of the sink.
    took = time.monotonic() - began
    console.print(f"{progress.events} events applied; {took:.0f} s in all, most of them for servers to start")
    if not progress.events:
        console.print("nothing new since the last run: the tables are as they were (--fresh starts over)")
    show_summary(console, home)


def _prepare_terminal(console: Console) -> None:
    """Have no lines of the log between the tables that a person reads here; fetch what is started, and show how far."""
    configure_logging(terminal=True, level="WARNING")
    console.print("[dim]Java and jars are fetched once (some 170 MB); the whole demo takes about two minutes[/]")
    size = show_progress(JARS)
    console.print(f"[dim]{size // 1_000_000} MB of jars are here; a broker and Spark are started[/]")


def _fill_tables(spark: SparkSession, settings: SinkSettings, progress: SinkStatusLine) -> list[str]:
    """Run the sink up to the events that are there; return the names of its tables."""
    cluster_state = inspect_cluster(KafkaAdmin(settings.kafka))
    observers = SinkObservers((progress,), await_warmup=WarmUpBeside(spark, settings, cluster_state).wait)
    with closing(build_sink(spark, settings, observers, cluster_state)) as sink, progress:
        sink.stream.run(once=True)
    return sorted(sink.destination.tables)


def _settings(home: Path, servers: str) -> SinkSettings:
    path = home / "sink.properties"
    path.write_text(PROPERTIES.format(servers=servers, warehouse=home / "warehouse"), encoding="utf-8")
    return load([path])


def _delete_earlier_runs(home: Path) -> None:
    """Delete what earlier runs made, and only that."""
    if home.exists() and not any((home / name).exists() for name in ("sink.properties", _UNFINISHED)):
        raise ConfigError(f"--fresh: {home} is not a folder of the demo; name another with --home")
    for part in ("broker", "warehouse", "search"):
        shutil.rmtree(home / part, ignore_errors=True)
