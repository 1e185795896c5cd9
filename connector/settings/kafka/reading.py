"""properties -> ReadingSettings: how tasks read records from Kafka. The names are ours."""

from __future__ import annotations

from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import one_of, whole_number

DEFAULT_MAX_UNPACKED_BYTES = 256 * 1024**2

ReaderKind = Literal["auto", "native", "librdkafka"]

READER = Option(
    name="consumer.reader",
    kind=one_of("auto", "native", "librdkafka"),
    default="auto",
    importance="low",
    doc="What reads records: native (fast), librdkafka (more logins, older brokers), or auto: native where it can.",
)
MAX_UNPACKED_BYTES = Option(
    name="consumer.batch.unpacked.max.bytes",
    kind=whole_number(1, 2**31 - 64),
    default=DEFAULT_MAX_UNPACKED_BYTES,
    importance="low",
    doc="Most bytes that a compressed record batch may unpack to; a larger one is handled as errors.tolerance says.",
)
OPTIONS: tuple[Option[object], ...] = (READER, MAX_UNPACKED_BYTES)


@attrs.frozen
class ReadingSettings:
    """How records are read, and by what: a record batch unpacks to `max_unpacked_bytes` at most."""

    reader: ReaderKind = "auto"
    max_unpacked_bytes: int = DEFAULT_MAX_UNPACKED_BYTES


def build(reader: ConfigReader) -> ReadingSettings:
    """Read the part of reading; faults go to the reader."""
    return ReadingSettings(cast("ReaderKind", reader.get(READER)), reader.get(MAX_UNPACKED_BYTES))
