"""properties -> ErrorSettings: records that cannot be read, and brokers or catalogs that are away.

Names: Kafka Connect's error handling; the limits are ours.
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import RATIO, TOPIC_NAME, one_of, whole_number

TOLERANCE = Option(
    name="errors.tolerance",
    kind=one_of("all", "none"),
    default="all",
    importance="high",
    doc="all: send records that cannot be processed to the dead letter topic and continue; none: stop at the first.",
)
TOPIC = Option(
    name="errors.deadletterqueue.topic.name",
    kind=TOPIC_NAME,
    default=None,
    importance="medium",
    doc="Dead letter topic: original key, value and headers, with the reason in added headers.",
    shown="<name>-dead-letters",
)
REPLICATION_FACTOR = Option(
    name="errors.deadletterqueue.topic.replication.factor",
    kind=whole_number(-1, 32767),
    default=-1,
    importance="low",
    doc="Replication factor for creating the dead letter topic; -1 is the broker's default.",
)
LIMIT_RATIO = Option(
    name="errors.deadletterqueue.limit.ratio",
    kind=RATIO,
    default=0.1,
    importance="medium",
    doc="Stop when more than this fraction of a batch (and more than 100 records) would become dead letters.",
)
LIMIT_TOTAL = Option(
    name="errors.deadletterqueue.limit.total",
    kind=whole_number(0),
    default=10_000,
    importance="medium",
    doc="Stop when one run has written more dead letters than this.",
)
RETRY_TIMEOUT = Option(
    name="errors.retry.timeout",
    kind=whole_number(-1),
    default=120_000,
    importance="medium",
    doc="How long (ms) to retry while a broker or catalog is unavailable before stopping; 0: no retry, -1: forever.",
)
RETRY_DELAY_MAX = Option(
    name="errors.retry.delay.max.ms",
    kind=whole_number(1),
    default=10_000,
    importance="low",
    doc="Maximum delay between two retries (ms).",
)
OPTIONS: tuple[Option[object], ...] = (
    TOLERANCE,
    TOPIC,
    REPLICATION_FACTOR,
    LIMIT_RATIO,
    LIMIT_TOTAL,
    RETRY_TIMEOUT,
    RETRY_DELAY_MAX,
)


@attrs.frozen
class ErrorSettings:
    """What happens to bad records and failed calls; `retry_timeout_ms` of -1 is without end."""

    tolerance: Literal["all", "none"]
    topic: str
    replication_factor: int
    max_ratio: float
    max_total: int
    retry_timeout_ms: int
    retry_delay_max_ms: int


NO_RETRIES = ErrorSettings("all", "", -1, 0.0, 0, 0, 1)
"""For whoever only looks: a call that fails has failed."""


def build(reader: ConfigReader, name: str) -> ErrorSettings:
    """Read the errors' part; faults go to the reader."""
    return ErrorSettings(
        tolerance=cast("Literal['all', 'none']", reader.get(TOLERANCE)),
        topic=reader.get(TOPIC) or f"{name}-dead-letters",
        replication_factor=_read_replication_factor(reader),
        max_ratio=reader.get(LIMIT_RATIO),
        max_total=reader.get(LIMIT_TOTAL),
        retry_timeout_ms=reader.get(RETRY_TIMEOUT),
        retry_delay_max_ms=reader.get(RETRY_DELAY_MAX),
    )


def _read_replication_factor(reader: ConfigReader) -> int:
    factor, entry = reader.get(REPLICATION_FACTOR), reader.entry(REPLICATION_FACTOR)
    if factor == 0 and entry:
        reader.add_fault(entry, "'0' makes no topic", "write -1 for the broker's default or a number from 1")
    return factor
