"""What every listener of a sink or a source has to do, and what the log says of their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
from structlog.testing import capture_logs

from connector.runtime.monitoring.listeners import BatchReport, SinkListener, SourceListener, StepReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.monitoring.sink_progress import SinkStatusLine
from connector.runtime.monitoring.source_progress import SourceStatusLine

METRICS = TaskMetrics(
    events=9, dead=1, tombstones=2, ignored=3, nulled=4, drift=frozenset({(0, "x")}), rows=Counter({0: 5}), late=6
)
TABLES = {"a.b": {"appended": 3, "deleted": 0}, "a.c": {"appended": 2}}
EMPTY = BatchReport(0, 0.0, {})
FULL = BatchReport(7, 0.5, {("t", 1): 5, ("t", 0): 4}, "tx", METRICS, TABLES, dead_letters=2, drift={"a.b": 1})
BATCHES = [EMPTY, FULL, BatchReport(8, 0.1, {("t", 0): 9}, metrics=TaskMetrics(events=1))]
STEPS = [
    StepReport("a.b", "snapshot skipped", 1, 0.0),
    StepReport("a.b", "part read", 2, 0.25, "append", 1, 3),
    StepReport("a.c", "snapshot published", -(2**63), 1e6, "overwrite"),
]


class _Sink(SinkListener, AbstractContextManager[Any], Protocol):
    """A listener that shows something while it is entered."""


class _Source(SourceListener, AbstractContextManager[Any], Protocol):
    """The same, of a source."""


SINK: list[Callable[[], _Sink]] = [lambda: SinkStatusLine(terminal=False), lambda: SinkStatusLine(terminal=True)]
SOURCE: list[Callable[[], _Source]] = [
    lambda: SourceStatusLine(terminal=False),
    lambda: SourceStatusLine(terminal=True),
]


@pytest.mark.parametrize("make", SINK)
def test_every_listener_of_a_sink_takes_any_report(make: Callable[[], _Sink]) -> None:
    """Reports come in any order and again, before, while and after it is entered; each leaves it ready for the next."""
    listener = make()
    listener.on_batch(EMPTY)
    with listener:
        for report in (*BATCHES, *reversed(BATCHES)):
            listener.on_batch(report)
    listener.on_batch(FULL)


@pytest.mark.parametrize("make", SOURCE)
def test_every_listener_of_a_source_takes_any_report(make: Callable[[], _Source]) -> None:
    """The same of steps."""
    listener = make()
    listener.on_step(STEPS[0])
    with listener:
        for report in (*STEPS, *reversed(STEPS)):
            listener.on_step(report)
    listener.on_step(STEPS[1])


def test_batches_in_the_log() -> None:
    """Fields that people search for: those that are rare are there only when there is something to say."""
    with capture_logs() as lines:
        progress = SinkStatusLine(terminal=False)
        for report in (FULL, EMPTY):
            progress.on_batch(report)
    assert progress.events == 9
    common = {"event": "batch committed", "log_level": "info"}
    assert lines == [
        {
            **common,
            "batch": 7,
            "events": 9,
            "seconds": 0.5,
            "events_per_second": 18,
            "dead_letters": 2,
            "tables": 2,
            "appended": 5,
            "deleted": 0,
            "tombstones": 2,
            "ignored": 3,
            "nulled": 4,
            "late": 6,
            "iceberg_schema_drift_count": {"a.b": 1},
            "offsets": {"t": {"0": 4, "1": 5}},
        },
        {
            **common,
            **dict.fromkeys(("batch", "events", "seconds", "events_per_second"), 0),
            **dict.fromkeys(("dead_letters", "tables", "tombstones", "ignored"), 0),
            "offsets": {},
        },
    ]


def test_steps_in_the_log() -> None:
    """An operation and parts are named where there are any."""
    with capture_logs() as lines:
        progress = SourceStatusLine(terminal=False)
        for report in STEPS[:2]:
            progress.on_step(report)
    assert progress.steps == 2
    assert lines == [
        {"event": "snapshot skipped", "log_level": "info", "table": "a.b", "snapshot_id": 1, "seconds": 0.0},
        {
            "event": "part read",
            "log_level": "info",
            "table": "a.b",
            "snapshot_id": 2,
            "seconds": 0.25,
            "operation": "append",
            "part": 1,
            "parts": 3,
        },
    ]


def test_metrics_add_up() -> None:
    """Counts are summed, and what is named is named once."""
    more = TaskMetrics(events=1, late=1, drift=frozenset({(0, "x"), (1, "y")}), rows=Counter({0: 1, 2: 2}))
    both = METRICS + more
    assert (both.events, both.late, both.dead) == (10, 7, 1)
    assert (both.drift, both.rows) == (frozenset({(0, "x"), (1, "y")}), Counter({0: 6, 2: 2}))
    assert METRICS + TaskMetrics() == METRICS
