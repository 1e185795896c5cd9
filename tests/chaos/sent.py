"""Debezium's topics -> what it sent: each event by its key, position, operation and values, and how often again."""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter
from decimal import Decimal
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


def sent_keys(sent: Counter[Key], table: Table) -> set[Key]:
    """The keys of a table that events are about."""
    return {one[1 : 1 + len(table.keys)] for one in sent if one[0] == table.name}


def repeats(sent: Counter[Key]) -> int:
    """How many events were sent that had been sent before."""
    return sum(sent.values()) - len(sent)


def identify(table: Table, row: dict[str, Any], lsn: object, operation: object) -> Key:
    """What tells an event from all others: a transaction changes a row at one place of the log only once; and a digest
    of what the row is then, as nobody is to read values in a report. Of a delete no more than its key is told.
    """
    values = "" if operation == "d" else repr(table.values_of(row))
    digest = hashlib.blake2s(values.encode(), digest_size=4).hexdigest()
    return (table.name, *table.key_of(row), str(lsn), str(operation), digest)


def read_image(table: Table, image: dict[str, Any]) -> dict[str, Any]:
    """The row that an event tells: decimals are bytes in base64, of two digits behind the point."""
    decimals = {name for name, kind in table.kinds.items() if kind == "decimal" and image.get(name) is not None}
    unscaled = {name: int.from_bytes(base64.b64decode(image[name]), "big", signed=True) for name in decimals}
    return {**image, **{name: Decimal(number).scaleb(-2) for name, number in unscaled.items()}}


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
                row = read_image(table, event["after"] or event["before"])
                sent[identify(table, row, event["source"]["lsn"], event["op"])] += 1
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
