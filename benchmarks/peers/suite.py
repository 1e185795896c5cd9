"""sizes -> results: fill both topics, run every contender in turns, check every table."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import attrs

from benchmarks.case_run import Say, measured
from benchmarks.contenders import Place
from benchmarks.generate import Events, append_events, upsert_events
from benchmarks.messages import flattened, full_envelopes
from benchmarks.peers.figures import summaries_of
from benchmarks.peers.plan import peer_cases, turns
from benchmarks.peers.programs import peer_command
from benchmarks.peers.report import PeerResults
from benchmarks.peers.verdicts import peer_verdicts
from benchmarks.plan import APPEND, UPSERT, Sizes
from benchmarks.reference import faults_of, with_check, write_reference
from benchmarks.suite import produced


def measure_peers(place: Place, sizes: Sizes, rounds: int, only: Sequence[str], say: Say) -> PeerResults:
    """Everything that is wanted; a contender that fails is reported and does not stop the others."""
    started, load = time.monotonic(), os.getloadavg()[0]
    wanted = turns(peer_cases(sizes), rounds, only)
    streams = fill_both(place, sizes, {case.topic for case in wanted}, say)
    runs = [measured(case, place, say, peer_command) for case in wanted]
    say("checking the tables ...")
    pairs = [write_reference(done, streams[done.case.topic], sizes.rows, place.work / "reference") for done in runs]
    faults = faults_of(pairs, place)
    runs = [with_check(done, faults) for done in runs]
    runs = [attrs.evolve(done, fault=done.fault or unread(done.events, len(streams[done.case.topic]))) for done in runs]
    summaries = summaries_of(runs)
    seconds = time.monotonic() - started
    return PeerResults(
        sizes, tuple(runs), tuple(summaries), tuple(peer_verdicts(summaries)), seconds, (load, os.getloadavg()[0])
    )


def fill_both(place: Place, sizes: Sizes, wanted: set[str], say: Say) -> dict[str, Events]:
    """The wanted topics. The upserts' table has replica identity FULL, for Flink refuses updates without `before`."""
    streams = {}
    if APPEND in wanted:
        streams[APPEND] = append_events(sizes.append, APPEND)
        say(f"{APPEND}: {produced(place, streams[APPEND], flattened):.1f} s")
    if UPSERT in wanted:
        streams[UPSERT] = upsert_events(sizes.upsert, sizes.keys, sizes.stride, UPSERT)
        say(f"{UPSERT}: {produced(place, streams[UPSERT], full_envelopes):.1f} s")
    return streams


def unread(events: int, produced_events: int) -> str | None:
    """A contender stops at the topic's end and not before."""
    return None if events == produced_events else f"{events} of {produced_events} events were committed"
