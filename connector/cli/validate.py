"""`icebridge validate --connect`: settings -> lines on what the brokers can do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from connector.kafka.consumer.reader_check import check_reader
from connector.settings import SinkSettings, SourceSettings


def check_connections(settings: SinkSettings | SourceSettings) -> Iterator[str]:
    """Return what a person should know of the brokers that events are read from; nothing for a source.

    Raises:
        RetriableError, FatalError: they are away, refuse us, or cannot be read.
    """
    if isinstance(settings, SourceSettings):
        return
    reader = check_reader(settings.kafka)
    yield from (f"note: {note}" for note in reader.notes)
    yield f"Kafka: {reader.line}"
