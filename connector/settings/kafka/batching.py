"""properties -> BatchSettings: how often and how much is committed.

Names: Debezium Server's `debezium.sink.batch.*`; `interval-ms`, `max-events` and `max-bytes` are ours.
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import InvalidValue, ValueType, whole_number

Strategy = Literal["NoBatchSizeWait", "MaxBatchSizeWait"]

PATIENT_MS = 10_000
"""From such an interval on a batch does not wait for it while max-events are there."""

LOOK_MS = 1_000


def _parse_strategy(text: str) -> str:
    # Debezium Server takes a class of its own too, which nothing here can load.
    known = ("NoBatchSizeWait", "MaxBatchSizeWait")
    if text.rpartition(".")[2] not in known:
        raise InvalidValue("{} is not a wait strategy", f"write {' or '.join(known)}")
    return text.rpartition(".")[2]


INTERVAL = Option(
    name="debezium.sink.batch.interval-ms",
    kind=whole_number(0, 2**31 - 1),
    default=1000,
    importance="high",
    doc="Milliseconds from the start of one batch to the next; each batch with events makes one commit per table.",
)
MAX_EVENTS = Option(
    name="debezium.sink.batch.max-events",
    kind=whole_number(1),
    default=1_000_000,
    importance="medium",
    doc="Maximum number of events per batch.",
)
MAX_BYTES = Option(
    name="debezium.sink.batch.max-bytes",
    kind=whole_number(1),
    default=1024**3,
    importance="low",
    doc="Approximate maximum bytes of keys and values per batch, estimated from a sample of events.",
)
WAIT = Option(
    name="debezium.sink.batch.batch-size-wait",
    kind=ValueType("string", _parse_strategy),
    default="NoBatchSizeWait",
    importance="medium",
    doc="Start a batch every interval-ms (NoBatchSizeWait) or once max.batch.size events wait (MaxBatchSizeWait).",
)
MAX_BATCH_SIZE = Option(
    name="debezium.source.max.batch.size",
    kind=whole_number(1),
    default=2048,
    importance="low",
    doc="Number of pending events that MaxBatchSizeWait waits for; a batch may have more, up to max-events.",
)
MAX_WAIT = Option(
    name="debezium.sink.batch.batch-size-wait.max-wait-ms",
    kind=whole_number(1),
    default=300_000,
    importance="low",
    doc="Maximum wait of MaxBatchSizeWait (ms).",
)
WAIT_INTERVAL = Option(
    name="debezium.sink.batch.batch-size-wait.wait-interval-ms",
    kind=whole_number(1),
    default=10_000,
    importance="low",
    doc="How often MaxBatchSizeWait checks for pending events (ms).",
)
OPTIONS: tuple[Option[object], ...] = (INTERVAL, MAX_EVENTS, MAX_BYTES, WAIT, MAX_BATCH_SIZE, MAX_WAIT, WAIT_INTERVAL)


@attrs.frozen
class BatchPace:
    """When the next batch begins: looked at every `look_ms`; once `events` wait, or `max_wait_ms` after the last one.

    `events` None: at every look.
    """

    look_ms: int
    events: int | None = None
    max_wait_ms: int | None = None


@attrs.frozen
class BatchSettings:
    """When batches start, how large they get, and the wait strategy."""

    interval_ms: int
    max_events: int
    wait: Strategy
    max_wait_ms: int
    wait_interval_ms: int
    max_batch_size: int = 2048
    max_bytes: int = 1024**3

    @property
    def pace(self) -> BatchPace:
        """The strategy as a rule: Debezium Server's `MaxBatchSizeWait`, or the commit interval.

        A long interval does not hold a backlog up: with max-events waiting a batch begins at once.
        """
        if self.wait == "MaxBatchSizeWait":
            return BatchPace(self.wait_interval_ms, min(self.max_batch_size, self.max_events), self.max_wait_ms)
        if self.interval_ms >= PATIENT_MS:
            return BatchPace(LOOK_MS, self.max_events, self.interval_ms)
        return BatchPace(self.interval_ms)


def build(reader: ConfigReader) -> BatchSettings:
    """Read the batches' part; faults and notes go to the reader."""
    settings = BatchSettings(
        interval_ms=reader.get(INTERVAL),
        max_events=reader.get(MAX_EVENTS),
        wait=cast("Strategy", reader.get(WAIT)),
        max_wait_ms=reader.get(MAX_WAIT),
        wait_interval_ms=reader.get(WAIT_INTERVAL),
        max_batch_size=reader.get(MAX_BATCH_SIZE),
        max_bytes=reader.get(MAX_BYTES),
    )
    entry = reader.entry(WAIT_INTERVAL) or reader.entry(MAX_WAIT)
    if settings.wait_interval_ms >= settings.max_wait_ms and entry:
        what = f"{WAIT_INTERVAL.name} is not below {MAX_WAIT.name}"
        reader.add_fault(entry, what, "set an interval that is shorter than the longest wait")
    return settings
