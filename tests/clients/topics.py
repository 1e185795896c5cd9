"""records -> topics and back: the tests' own Kafka client, exact partitions, null values and headers included."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from attrs import frozen
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.model.recordings import Record, partitions

TIMEOUT_S = 60.0
LARGEST = 64_000_000
NO_LEADER = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


@frozen
class Topics:
    """A broker as the tests use it."""

    bootstrap_servers: str

    def create(self, counts: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create topics, name -> number of partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        new = [
            NewTopic(name, num_partitions=n, replication_factor=1, config=dict(config or {}))
            for name, n in counts.items()
        ]
        for future in admin.create_topics(new, request_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)

    def replay(self, records: Iterable[Record], *, create: bool = True) -> None:
        """Write records to the partition they name, in the order given; topics that are missing are created."""
        records = tuple(records)
        if create:
            by_topic = {r.topic: 0 for r in records}
            self.create({t: partitions(r for r in records if r.topic == t) for t in by_topic})
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "acks": "all", "message.max.bytes": LARGEST}
        )
        for record in records:
            _produce(producer, record)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError(f"records still unsent after {TIMEOUT_S} s")

    def read(self, topic: str) -> list[Record]:
        """All records of a topic; none when there is no such topic."""
        servers = self.bootstrap_servers
        client = Consumer({"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False})
        known = client.list_topics(timeout=TIMEOUT_S).topics
        if topic not in known:
            client.close()
            return []
        records = [r for p in known[topic].partitions for r in _drain(client, topic, p)]
        client.close()
        return records


def _produce(producer: Producer, record: Record) -> None:
    while True:
        try:
            producer.produce(
                record.topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
            )
            producer.poll(0)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _drain(client: Consumer, topic: str, partition: int) -> list[Record]:
    first, end = _find_bounds(client, TopicPartition(topic, partition))
    client.assign([TopicPartition(topic, partition, first)])
    records: list[Record] = []
    while len(records) < end - first:
        message = client.poll(TIMEOUT_S)
        if message is None:
            raise TimeoutError(f"{topic}-{partition} gave {len(records)} of {end - first} records")
        records.append(_record(message))
    return records


def _find_bounds(client: Consumer, at: TopicPartition) -> tuple[int, int]:
    """Return the first offset and the end; a topic-partition that is being made has no leader for a moment."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return client.get_watermark_offsets(at, timeout=TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER or time.monotonic() > until:
                raise
            time.sleep(0.1)


def _record(message: Message) -> Record:
    error: KafkaError | None = message.error()
    if error is not None:
        raise KafkaException(error)
    headers: tuple[tuple[str, bytes | None], ...] = tuple(message.headers() or ())
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=headers,
        timestamp_ms=message.timestamp()[1],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
