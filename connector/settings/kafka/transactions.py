"""properties -> whether commits hold whole transactions of the source (`microbatch.transactions`)."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TOPIC_NAME, whole_number

TOPIC = Option(
    name="transaction.topic",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Debezium's transaction topic (provide.transaction.metadata). If set, commits hold whole transactions only.",
)
WAIT = Option(
    name="transaction.wait.ms",
    kind=whole_number(0),
    default=60_000,
    importance="low",
    doc="How long to wait (ms) for the rest of a transaction before committing it incomplete.",
)
OPTIONS: tuple[Option[object], ...] = (TOPIC, WAIT)


@attrs.frozen
class TransactionSettings:
    """The transaction topic, None where commits may hold any part of a transaction."""

    topic: str | None = None
    wait_ms: int = WAIT.default


def build(reader: ConfigReader) -> TransactionSettings:
    """Read the options."""
    return TransactionSettings(reader.get(TOPIC), reader.get(WAIT))
