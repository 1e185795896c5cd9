"""Debezium's topics -> what it sent: each event by its key, position and operation, and how many it sent again."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.tables import TABLES, Key, Table
from tests.chaos.worker import topic
from tests.chaos.world import PARTITIONS

_POLL_S, _PATIENCE = 10.0, 6


def read_sent(bootstrap_servers: str) -> Counter[Key]:
    """All events of all tables; tombstones are none."""
    client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "sent", "enable.auto.commit": False})
    sent: Counter[Key] = Counter()
    try:
        for table in TABLES:
            for number in range(PARTITIONS):
                _read(client, table, number, sent)
    finally:
        client.close()
    return sent


def repeats(sent: Counter[Key]) -> int:
    """How many events were sent that had been sent before."""
    return sum(sent.values()) - len(sent)


def identify(table: Table, row: dict[str, Any], lsn: object, operation: object) -> Key:
    """What tells an event from all others: a transaction changes a row at one place of the log only once."""
    return (table.name, *table.key_of(row), str(lsn), str(operation))


def _read(client: Consumer, table: Table, number: int, sent: Counter[Key]) -> None:
    name = topic(table.name)
    end = _find_end(client, TopicPartition(name, number))
    client.assign([TopicPartition(name, number, 0)])
    at, idle = 0, 0
    while at < end and idle < _PATIENCE:
        messages = client.consume(1000, timeout=_POLL_S)
        idle = 0 if messages else idle + 1
        for message in messages:
            if message.error() is not None:
                continue
            at = message.offset() + 1
            if message.value() is not None:
                event = orjson.loads(message.value())["payload"]
                sent[identify(table, event["after"] or event["before"], event["source"]["lsn"], event["op"])] += 1
    if at < end:
        raise TimeoutError(f"{name}-{number} could be read to {at} of {end} only")


def _find_end(client: Consumer, place: TopicPartition) -> int:
    """Where a partition ends; one that changes its leader is asked again."""
    for left in reversed(range(_PATIENCE)):
        try:
            return int(client.get_watermark_offsets(place, timeout=_POLL_S)[1])
        except KafkaException as error:
            if not left:
                raise TimeoutError(f"nobody tells where {place.topic}-{place.partition} ends: {error}") from error
            time.sleep(1.0)
    raise AssertionError("unreachable")
