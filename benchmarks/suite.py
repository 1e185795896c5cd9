"""sizes -> results: fill the topics, prefill the big tables, run every case one after the other, check all tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence

import attrs
import pyarrow.parquet as pq

from benchmarks import latency as latency_run
from benchmarks.case_run import Say, measured
from benchmarks.contenders import Place, step
from benchmarks.generate import Events, append_events, final_rows, spread, upsert_events
from benchmarks.latency import Latency
from benchmarks.maintenance.figures import maintenance_verdicts
from benchmarks.maintenance.suite import measure_maintenance
from benchmarks.messages import Message, envelopes, flattened
from benchmarks.plan import (
    APPEND,
    FIRST_EVENTS,
    LATENCY,
    MAINTENANCE_CASE,
    MANY,
    Case,
    Sizes,
    cases,
    chosen,
    matches,
    source_tables,
    topic_events,
    topic_name,
)
from benchmarks.reference import Pair, consumed_of, faults_of, with_check, write_reference
from benchmarks.report import Results
from benchmarks.scale.figures import scale_verdicts
from benchmarks.scale.suite import measure_scale
from benchmarks.session import merge_properties
from benchmarks.source.suite import measure_source
from benchmarks.source.verdicts import source_verdicts
from benchmarks.topics import fill, verify_layout
from benchmarks.verdicts import verdicts
from benchmarks.wire.figures import wire_verdicts
from benchmarks.wire.suite import measure_wire

MERGE_MODES = {"merge-mor": "merge-on-read", "merge-cow": "copy-on-write"}


def measure_all(place: Place, sizes: Sizes, only: Sequence[str], say: Say) -> Results:
    """Everything that is wanted, in order; a case that fails is reported in its run and does not stop the others."""
    started = time.monotonic()
    wanted = chosen(cases(sizes), only)
    streams = fill_topics(place, sizes, {case.topic for case in wanted}, say)
    prefill(place, sizes, wanted, say)
    runs = [measured(case, place, say) for case in wanted]
    pairs = [write_reference(done, streams[done.case.topic], sizes.rows, place.work / "reference") for done in runs]
    latencies = {
        case.name: measured_latency(place, sizes, pairs, say, case)
        for case in (latency_run.CASE, latency_run.CONVERTING)
        if matches(case.name, only)
    }
    if pairs:
        say("checking the tables ...")
        faults = faults_of(pairs, place)
        runs = [with_check(done, faults) for done in runs]
    latency, converting = (
        attrs.evolve(found, fault=faults[case.name]) if (found := latencies.get(case.name)) is not None else None
        for case in (latency_run.CASE, latency_run.CONVERTING)
    )
    source = measure_source(place, sizes.rows, only, say)
    judged = verdicts({done.case.name: done for done in runs}, latency)
    judged += source_verdicts(source) if source else []
    wire = measure_wire(place, sizes.wire, only, say)
    judged += wire_verdicts(wire) if wire else []
    scale = measure_scale(place, sizes.factor, only, say)
    judged += scale_verdicts(scale)
    kept, fault = measure_maintenance(place, sizes, only, say)
    if matches(MAINTENANCE_CASE, only) or converting is not None:
        judged += maintenance_verdicts(kept, *(None if one is None else one.p95_ms for one in (latency, converting)))
    seconds = time.monotonic() - started
    return Results(sizes, tuple(runs), latency, tuple(judged), seconds, source, wire, kept, fault, converting, scale)


def fill_topics(place: Place, sizes: Sizes, wanted: Iterable[str], say: Say) -> dict[str, Events]:
    """Make the events of the wanted topics, produce them, and compare the broker's layout with the reference's."""
    counts, streams = topic_events(sizes), {}
    for table in sorted(wanted):
        if table == APPEND:
            events, shape = append_events(counts[table], table), flattened
        else:
            events, shape = upsert_events(counts[table], sizes.keys, sizes.stride, table), envelopes
        if table == MANY:
            events = spread(events, source_tables(), sizes.stride)
        seconds = produced(place, events, shape)
        say(f"{topic_name(table)}: {len(events):,} events in {seconds:.1f} s")
        streams[table] = events
    return streams


def produced(place: Place, events: Events, shape: Callable[[Events], Iterable[list[Message]]]) -> float:
    """Produce all events to the topic of their table; returns the seconds it took."""
    topic = topic_name(events.table)
    seconds = fill(place.bootstrap, topic, shape(events))
    verify_layout(place.bootstrap, topic, events)
    return seconds


def prefill(place: Place, sizes: Sizes, wanted: Sequence[Case], say: Say) -> None:
    """Create and fill the big tables of the wanted cases in one process."""
    tables = {case.table: table_properties(case) for case in wanted if case.prefilled}
    if not tables:
        return
    job = place.work / "prefill.json"
    job.write_text(json.dumps({"warehouse": str(place.warehouse), "tables": tables, "rows": sizes.rows}))
    started = time.monotonic()
    step("benchmarks.prefill", job, place.work / "prefill.log")
    say(f"{len(tables)} tables of {sizes.rows:,} rows in {time.monotonic() - started:.1f} s")


def measured_latency(place: Place, sizes: Sizes, pairs: list[Pair], say: Say, case: Case) -> Latency | None:
    """A latency run; its table joins the pairs to check. None when it failed: the other figures stand."""
    say(f"{case.name} ...")
    count = FIRST_EVENTS + sizes.latency_rate * sizes.latency_seconds
    events = upsert_events(count, sizes.keys, sizes.stride, LATENCY, seed=7)
    try:
        latency, stamped = latency_run.measure(events, place, sizes, case)
    except (OSError, RuntimeError, ValueError, LookupError) as error:
        say(f"  failed: {type(error).__name__}: {error}")
        return None
    file = place.work / "reference" / f"{case.name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(final_rows(stamped, consumed_of(stamped, None)), file)
    pairs.append({"name": case.name, "tables": case.tables, "reference": str(file)})
    return latency


def table_properties(case: Case) -> dict[str, str]:
    """How a home-made MERGE writes its table; nothing for ours."""
    mode = MERGE_MODES.get(case.contender)
    return merge_properties(mode) if mode else {}
