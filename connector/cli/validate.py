"""`icebridge validate --connect`: settings -> lines on what the brokers can do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from connector.kafka.admin import ADMIN_TIMEOUT_S, KafkaAdmin
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.listeners import require_listener
from connector.kafka.consumer.reader_check import check_reader
from connector.settings import SinkSettings, SourceSettings


def check_connections(settings: SinkSettings | SourceSettings) -> Iterator[str]:
    """Return what a person should know of the brokers that events are read from, or published to.

    Raises:
        RetriableError, FatalError: they are away, refuse us, or cannot be read.
    """
    if isinstance(settings, SourceSettings):
        yield from _check_publishing(settings)
        return
    reader = check_reader(settings.kafka)
    yield from (f"note: {note}" for note in reader.notes)
    yield f"Kafka: {reader.line}"


def _check_publishing(settings: SourceSettings) -> Iterator[str]:
    if not settings.kafka.bootstrap_servers:
        yield "note: no broker is configured: there is none to ask"
        return
    require_listener(ClusterAddress.of(settings.kafka.client("admin")), ADMIN_TIMEOUT_S)
    KafkaAdmin(settings.kafka).names()
    yield "Kafka: the brokers answer, and let this user in"
