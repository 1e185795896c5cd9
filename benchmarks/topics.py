"""messages -> topic: create a topic and fill it as a Debezium connector would (Kafka's murmur2 partitioner)."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.generate import Events
from benchmarks.messages import Message, keys_of
from benchmarks.partition import partitions_of

PARTITIONS, MESSAGE_BYTES = 4, 4_000_000
_IN_FLIGHT = 300_000


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Create `topic`, for messages of a few megabytes at most, and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    sizes = {"max.message.bytes": str(MESSAGE_BYTES)}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=sizes)]).values():
        future.result(30)


def producer(bootstrap: str, linger_ms: int = 50) -> Producer:
    """A producer that puts a key where the Java client would put it."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "log_level": 3,
            "linger.ms": linger_ms,
            "batch.size": 1_000_000,
            "message.max.bytes": MESSAGE_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )


def fill(bootstrap: str, topic: str, chunks: Iterable[list[Message]], partitions: int = PARTITIONS) -> float:
    """Create `topic`, produce every message in order; returns the seconds it took."""
    started = time.monotonic()
    create(bootstrap, topic, partitions)
    client = producer(bootstrap)
    for chunk in chunks:
        while len(client) > _IN_FLIGHT:
            client.poll(0.05)
        send(client, topic, chunk)
    client.flush()
    return time.monotonic() - started


def send(client: Producer, topic: str, chunk: list[Message]) -> None:
    """Hand one list of messages to the producer."""
    for key, value in chunk:
        client.produce(topic, value, key)
    client.poll(0)


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """The end offset of each partition."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmarks"})
    try:
        marks = [client.get_watermark_offsets(TopicPartition(topic, number), 30) for number in range(PARTITIONS)]
    finally:
        client.close()
    return [mark[1] for mark in marks if mark is not None]


def verify_layout(bootstrap: str, topic: str, events: Events) -> None:
    """Raise RuntimeError unless the broker's partitions are as long as the reference takes them to be."""
    expected = np.bincount(partitions_of(keys_of(events.ids), PARTITIONS), minlength=PARTITIONS).tolist()
    ends = end_offsets(bootstrap, topic)
    if ends != expected:
        raise RuntimeError(f"topic {topic}: end offsets {ends}, the reference expects {expected}")
