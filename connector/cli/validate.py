"""`icebridge validate --connect`: settings -> lines on what the brokers can do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from connector.kafka.brokers.check import check_brokers
from connector.settings import SinkSettings, SourceSettings


def check_connections(settings: SinkSettings | SourceSettings) -> Iterator[str]:
    """Return what a person should know of the brokers that events are read from; nothing for a source.

    Raises:
        RetriableError, FatalError: they are away, refuse us, or cannot be read.
    """
    if isinstance(settings, SourceSettings):
        return
    report = check_brokers(settings.kafka.client("consumer"))
    yield from (f"note: {note}" for note in report.notes)
    yield f"Kafka: {report.summary}"
