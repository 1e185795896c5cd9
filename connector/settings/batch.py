"""properties -> BatchSettings: how often and how much is committed.

Names: Debezium Server's `debezium.sink.batch.*`; `interval-ms` and `max-events` are ours.
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from connector.settings.kinds import one_of, whole_number
from connector.settings.option import Option
from connector.settings.reading import Reading

INTERVAL = Option(
    name="debezium.sink.batch.interval-ms",
    kind=whole_number(0, 2**31 - 1),
    default=1000,
    importance="high",
    doc="Milliseconds from the start of one batch to the next; every batch with events is one commit per table.",
)
MAX_EVENTS = Option(
    name="debezium.sink.batch.max-events",
    kind=whole_number(1),
    default=1_000_000,
    importance="medium",
    doc="Most events of one batch.",
)
WAIT = Option(
    name="debezium.sink.batch.batch-size-wait",
    kind=one_of("NoBatchSizeWait", "MaxBatchSizeWait"),
    default="NoBatchSizeWait",
    importance="low",
    doc="Debezium Server's wait strategy; MaxBatchSizeWait comes later, until then batches follow interval-ms.",
)
MAX_WAIT = Option(
    name="debezium.sink.batch.batch-size-wait.max-wait-ms",
    kind=whole_number(1),
    default=300_000,
    importance="low",
    doc="Longest wait of MaxBatchSizeWait, in milliseconds.",
)
WAIT_INTERVAL = Option(
    name="debezium.sink.batch.batch-size-wait.wait-interval-ms",
    kind=whole_number(1),
    default=10_000,
    importance="low",
    doc="How often MaxBatchSizeWait looks, in milliseconds.",
)
OPTIONS: tuple[Option[object], ...] = (INTERVAL, MAX_EVENTS, WAIT, MAX_WAIT, WAIT_INTERVAL)


@attrs.frozen
class BatchSettings:
    """When batches start, how large they get, and the wait strategy (declared, not followed yet)."""

    interval_ms: int
    max_events: int
    wait: Literal["NoBatchSizeWait", "MaxBatchSizeWait"]
    max_wait_ms: int
    wait_interval_ms: int


def build(reading: Reading) -> BatchSettings:
    """Read the batches' part; faults and notes go to the reading."""
    settings = BatchSettings(
        interval_ms=reading.get(INTERVAL),
        max_events=reading.get(MAX_EVENTS),
        wait=cast("Literal['NoBatchSizeWait', 'MaxBatchSizeWait']", reading.get(WAIT)),
        max_wait_ms=reading.get(MAX_WAIT),
        wait_interval_ms=reading.get(WAIT_INTERVAL),
    )
    entry = reading.entry(WAIT_INTERVAL) or reading.entry(MAX_WAIT)
    if settings.wait_interval_ms >= settings.max_wait_ms and entry:
        what = f"{WAIT_INTERVAL.name} is not below {MAX_WAIT.name}"
        reading.refuse(entry, what, "look more often than the longest wait")
    if settings.wait == "MaxBatchSizeWait":
        reading.notes.append(f"{WAIT.name}=MaxBatchSizeWait comes later; until then batches follow {INTERVAL.name}")
    return settings
