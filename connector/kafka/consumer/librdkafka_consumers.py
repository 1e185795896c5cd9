"""A cluster and how it is read -> librdkafka's consumer for it, kept until nobody asks for it. On executors.

It joins no group and stores no offset. Those that were made of certificates which have been replaced since are closed.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import attrs
from confluent_kafka import Consumer, KafkaError

from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import UNUSED_S
from connector.kafka.client_errors import NO_CLIENT, map_kafka_errors
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.kept_client import KeptClient
from connector.kafka.protocol.requests import READ_COMMITTED
from connector.settings.kafka.client_overrides import ISOLATION_LEVELS

_REFUSAL = "SASL authentication error"
_MOST_FETCH_BYTES, _LEAST_WAIT_MS = 1_000_000_000, 50
"""What it takes; and so long brokers wait for records at least, or it would ask at the log's end without a pause."""


@attrs.frozen
class OpenConsumer:
    """A consumer, and what brokers said of its login: no message tells that."""

    consumer: Consumer
    refusals: list[str]

    def close(self) -> None:
        """Disconnect."""
        self.consumer.close()


@attrs.define
class KeptConsumer:
    """A consumer that ranges are read by, how many are now, and when one last was."""

    client: KeptClient[OpenConsumer]
    users: int = 0
    asked_at: float = 0.0


_consumers: dict[tuple[ClusterAddress, FetchSettings], KeptConsumer] = {}
"""The process's consumers; they are used by one thread."""


def consumer_for(address: ClusterAddress, how: FetchSettings) -> KeptConsumer:
    """Return the process's consumer of a cluster; those that nobody used for minutes, as certificates changed, end."""
    now = time.monotonic()
    for key, other in list(_consumers.items()):
        if key != (address, how) and not other.users and now - other.asked_at > UNUSED_S:
            _consumers.pop(key).client.drop()
    if (address, how) not in _consumers:
        client = KeptClient(lambda: dict(address.settings), partial(_open_consumer, how), OpenConsumer.close)
        _consumers[address, how] = KeptConsumer(client)
    found = _consumers[address, how]
    found.asked_at = now
    return found


def forget_consumers() -> None:
    """Close the process's consumers."""
    for key in list(_consumers):
        _consumers.pop(key).client.drop()


def _open_consumer(how: FetchSettings, config: dict[str, Any]) -> OpenConsumer:
    """Make one that joins no group."""
    refusals = list[str]()

    def note(error: KafkaError) -> None:
        # A provider of tokens that is away is told by the same code.
        if error.code() == KafkaError._AUTHENTICATION and _REFUSAL in error.str():  # noqa: SLF001
            refusals.append(error.str())
            del refusals[:-1]

    own = {
        "error_cb": note,
        "check.crcs": True,
        "group.id": "icebridge-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": ISOLATION_LEVELS[how.isolation == READ_COMMITTED],
        "fetch.message.max.bytes": min(max(how.partition_bytes, 1), _MOST_FETCH_BYTES),
        "fetch.wait.max.ms": max(how.max_wait_ms, _LEAST_WAIT_MS),
    }
    with map_kafka_errors(NO_CLIENT):
        return OpenConsumer(Consumer({"client.id": "icebridge", **config, **own}), refusals)
