"""Settings -> which of the two readers a sink's tasks use, and why; whether they read what is not committed (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from connector.kafka.brokers.sasl import knows_login
from connector.kafka.protocol.requests import READ_COMMITTED, READ_UNCOMMITTED
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind

NATIVE: ReaderKind = "native"
LIBRDKAFKA: ReaderKind = "librdkafka"
_ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}


@attrs.frozen
class ReaderChoice:
    """A kind of reader, and why it is that one."""

    kind: ReaderKind
    reason: str


def choose_reader(kafka: KafkaSettings, settings: Mapping[str, str] | None = None) -> ReaderChoice:
    """Return the reader that the option names; for `auto` ours, unless its logins lack the mechanism.

    `settings` are those of the consumer, where they are known: to read them may take stores of certificates.
    """
    if kafka.reading.reader != "auto":
        return ReaderChoice(kafka.reading.reader, "consumer.reader says so")
    settings = kafka.client("consumer") if settings is None else settings
    if not knows_login(settings):
        return ReaderChoice(LIBRDKAFKA, f"the native reader has no logins by {settings.get('sasl.mechanisms', '')}")
    return ReaderChoice(NATIVE, "it can read this cluster")


def choose_isolation(kafka: KafkaSettings) -> int:
    """Return the level at which records are read, the same wherever one is: committed ones unless settings say more."""
    return _ISOLATION_LEVELS[kafka.consumer.get("isolation.level", "read_committed").lower()]


def with_reader(kafka: KafkaSettings, kind: ReaderKind) -> KafkaSettings:
    """Return settings that name a reader."""
    return attrs.evolve(kafka, reading=attrs.evolve(kafka.reading, reader=kind))
