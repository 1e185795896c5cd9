"""Offsets -> how many bytes their records take, by a look at a few: a fetch of one record batch each. On the driver.

Kafka tells offsets, not bytes, before records are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient, broker_client_for
from connector.kafka.consumer.readers import NATIVE, choose_reader
from connector.kafka.consumer.records.record_batches import decompress, parse_batches
from connector.kafka.consumer.records.unreadable_records import UnreadableRecords
from connector.kafka.protocol.error_codes import name_error
from connector.kafka.protocol.fetch import FetchRequest
from connector.kafka.protocol.requests import READ_UNCOMMITTED
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings

_MAX_ATTEMPTS = 2
"""A connection that nobody used for long is closed by the broker, which shows at its next use."""


class RecordSizeSampler:
    """Looks at records of one cluster."""

    def __init__(self, kafka: KafkaSettings) -> None:
        """Prepare; nothing is opened yet."""
        self._kafka = kafka
        self._can_look = choose_reader(kafka).kind == NATIVE

    def at(self, places: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, list[float]]:
        """Return the bytes per offset at each of these, unpacked; topic-partitions that gave none are left out.

        None gives any where records are read by librdkafka: it does not show batches.
        """
        found: dict[TopicPartition, list[float]] = {}
        address = ClusterAddress.of(self._kafka.client("consumer"))
        for at, offsets in places.items() if self._can_look else ():
            try:
                found[at] = [self._at(address, at, offset) for offset in offsets]
            except (OSError, RetriableError, FatalError, UnreadableRecords):
                continue  # whoever reads the records will tell, and with patience
        return found

    def _at(self, address: ClusterAddress, at: TopicPartition, offset: int) -> float:
        clients = broker_client_for(address)
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                return _sample_batch(clients, at, offset)
            except (OSError, RetriableError):
                clients.forget(at)
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")


def _sample_batch(clients: BrokerClient, at: TopicPartition, offset: int) -> float:
    """Fetch the batch that holds an offset, or the next one where compaction took it; 0 where there is none."""
    host = clients.leader(at).host
    try:
        answer = clients.connection(host).ask(FetchRequest(at, offset, READ_UNCOMMITTED, max_wait_ms=0))
    except OSError:
        clients.drop(host)
        raise
    found = answer.partition
    if answer.error or found is None or found.error:
        reason = name_error(answer.error or (found.error if found else 0))
        raise RetriableError(f"{at[0]}-{at[1]} gives no records at offset {offset}: {reason}")
    data = found.data
    first = next(iter(parse_batches(data, most=1)), None)
    if first is None:
        return 0.0
    return len(decompress(first, data)) / (first.last - min(first.base, offset) + 1)
