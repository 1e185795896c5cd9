"""options -> a sink under load for as long as told: samples, a picture, and what has grown. `make endurance`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import Place, connector_command, started_process, write_properties
from benchmarks.endurance.load import Pace, SteadyLoad
from benchmarks.endurance.picture import draw
from benchmarks.endurance.samples import Sample, Verdict, judge
from benchmarks.endurance.watch import Sampler, TableWatch, measure_leftovers
from benchmarks.latency import drain, stop
from benchmarks.options import OUT
from benchmarks.plan import Case
from benchmarks.session import open_session, qualified
from benchmarks.topics import create
from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.ports import free_ports
from tests.harness.waiting import wait_until

_FIRST_LIMIT_S, _CATCH_UP_S, _STEP_S = 240.0, 600.0, 0.2


@click.command(context_settings={"show_default": True})
@click.option("--minutes", default=60.0, help="For how long events are produced.")
@click.option("--rate", default=1_000, help="Events a second.")
@click.option("--burst", default=1.0, help="Times as many in the first ten seconds of every five minutes.")
@click.option("--keys", default=100_000, help="Distinct keys.")
@click.option("--every", default=15.0, help="Seconds between two samples.")
@click.option("--property", "properties", multiple=True, help="A property of the sink, KEY=VALUE; may be repeated.")
@OUT
def main(
    minutes: float, rate: int, burst: float, keys: int, every: float, properties: Sequence[str], out: Path
) -> None:
    """Run a sink under a steady load; exit code 1 when its table is wrong, or something has grown."""
    console, folder = Console(), Path(tempfile.mkdtemp(prefix="icebridge-endurance-")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    case = Case("endurance", "ours", "endurance", 1_000_000, properties=_read_properties(properties))
    (folder / "warehouse").mkdir()
    try:
        with KafkaBroker(folder / "broker") as broker:
            place = Place(folder, broker.bootstrap_servers, broker.pid)
            load = SteadyLoad(place.bootstrap, case.full_topic, Pace(rate, burst), keys)
            file = out / "endurance.jsonl"
            samples = _sample(case, place, load, minutes * 60, every, _say_to(console, file))
        fault = find_fault(place.warehouse, case.table, load)
        left, left_bytes = measure_leftovers(place.warehouse, case.table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    draw(samples, out / "endurance.png")
    verdicts = judge(samples)
    console.print(_table_of(verdicts), f"{load.sent:,} events; the table is {fault or 'right'}")
    console.print(f"{left} files with {left_bytes / 1e6:.1f} MB in its folder are of no snapshot")
    sys.exit(1 if fault or not all(one.is_flat for one in verdicts) else 0)


def _read_properties(given: Sequence[str]) -> Mapping[str, str]:
    """What a user who configures nothing has, and what is told here."""
    nothing = {"debezium.sink.iceberg.upsert-keep-deletes": "true", "debezium.sink.batch.max-events": "1000000"}
    return {**nothing, **dict(one.split("=", 1) for one in given)}


def _say_to(console: Console, file: Path) -> Callable[[Sample], None]:
    file.unlink(missing_ok=True)

    def say(sample: Sample) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(attrs.asdict(sample)) + "\n")
        console.print(
            f"{sample.at_s:7.0f} s: {sample.snapshots} snapshots, {sample.metadata_bytes / 1000:,.0f} kB of metadata, "
            f"{sample.data_files} data files, {sample.delete_files} delete files, commit {sample.commit_s:.2f} s, "
            f"visible after {sample.fresh_p50_s:.1f} / {sample.fresh_p95_s:.1f} s, CPU {sample.cpu_share:.2f}",
            highlight=False,
        )

    return say


def _sample(
    case: Case, place: Place, load: SteadyLoad, seconds: float, every_s: float, say: Callable[[Sample], None]
) -> list[Sample]:
    """Run the sink and the load, and look at both; the sink is stopped when everything is visible."""
    create(place.bootstrap, case.full_topic)
    (port,) = free_ports(1)
    case = attrs.evolve(case, properties={**case.properties, "quarkus.http.port": str(port)})
    watch, samples = TableWatch(place.warehouse, case.table, load), list[Sample]()
    with started_process(connector_command(write_properties(case, place), once=False)) as process:
        drain(process, place.work / "endurance.log")
        load.start()
        watch.start()
        try:
            wait_until(lambda: watch.visible > 0, _FIRST_LIMIT_S, "no commit", step_s=_STEP_S)
            sampler, begun = Sampler(place.warehouse, case.table, watch, process.pid, port), time.monotonic()
            while time.monotonic() < begun + seconds:
                time.sleep(every_s)
                samples.append(sampler.take())
                say(samples[-1])
            load.finish()
            otherwise = f"{load.sent} events were not all visible"
            wait_until(lambda: watch.visible == load.sent, _CATCH_UP_S, otherwise, step_s=_STEP_S)
            stop(process)
        finally:
            watch.finish()
    return samples


def find_fault(warehouse: Path, table: str, load: SteadyLoad) -> str | None:
    """Say what the table has of other rows than the events leave; None where it is right."""
    spark = open_session("endurance-check", warehouse)
    try:
        rows = spark.table(qualified(table)).select("id", "updated_at", "__deleted").toArrow()
    finally:
        spark.stop()
    live = np.asarray(rows["__deleted"].to_pylist()) != "true"
    ids, stamps = rows["id"].to_numpy(), rows["updated_at"].to_numpy(zero_copy_only=False)
    if len(np.unique(ids)) != len(ids):
        return f"wrong: {len(ids) - len(np.unique(ids))} keys have more than one row"
    if set(ids.tolist()) != set(np.flatnonzero(load.stamps).tolist()):
        return "wrong: it has other keys than the topic"
    wrong = (live != load.alive[ids]) | (live & (stamps != load.stamps[ids]))
    return f"wrong: {int(wrong.sum())} rows are not those of their keys' last events" if wrong.any() else None


def _table_of(verdicts: Sequence[Verdict]) -> Table:
    table = Table("", "second quarter", "last quarter", "")
    for one in verdicts:
        table.add_row(one.measure.title, f"{one.early:,.2f}", f"{one.late:,.2f}", "flat" if one.is_flat else "GROWS")
    return table


if __name__ == "__main__":
    main()
