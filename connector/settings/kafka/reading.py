"""properties -> ReadingSettings: how tasks read records from Kafka. The names are ours."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import whole_number

DEFAULT_MAX_UNPACKED_BYTES = 256 * 1024**2

MAX_UNPACKED_BYTES = Option(
    name="consumer.batch.unpacked.max.bytes",
    kind=whole_number(1, 2**31 - 64),
    default=DEFAULT_MAX_UNPACKED_BYTES,
    importance="low",
    doc="Most bytes that a compressed record batch may unpack to; a larger one is handled as errors.tolerance says.",
)
OPTIONS: tuple[Option[object], ...] = (MAX_UNPACKED_BYTES,)


@attrs.frozen
class ReadingSettings:
    """How records are read: a record batch unpacks to `max_unpacked_bytes` at most."""

    max_unpacked_bytes: int = DEFAULT_MAX_UNPACKED_BYTES


def build(reader: ConfigReader) -> ReadingSettings:
    """Read the part of reading; faults go to the reader."""
    return ReadingSettings(max_unpacked_bytes=reader.get(MAX_UNPACKED_BYTES))
