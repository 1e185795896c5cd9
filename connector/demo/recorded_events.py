"""Recorded events of a real Debezium -> topics of a broker, partition by partition as they were recorded.

The recordings were made with Debezium's PostgreSQL connector 3.7.0.Final: JSON with schema blocks, three partitions.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connector.errors import FatalError

RECORDINGS = Path(__file__).with_name("recordings")
PARTITIONS = 3


def replay(bootstrap_servers: str, folder: Path = RECORDINGS) -> int:
    """Produce every recording whose topic does not exist yet; give how many records were produced.

    A topic that is there was replayed by an earlier run: then it stays as it is.

    Raises:
        FatalError: the broker did not take a record.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    there = set(admin.list_topics(timeout=15).topics)
    files = [path for path in sorted(folder.glob("*.jsonl")) if path.stem not in there]
    new = [NewTopic(path.stem, num_partitions=PARTITIONS, replication_factor=1) for path in files]
    for future in (admin.create_topics(new) if new else {}).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "log_level": 2})
    count = 0
    for record in (record for path in files for record in _records(path)):
        producer.produce(**record)
        count += 1
    if producer.flush(60):
        raise FatalError("the broker did not take the recorded events within a minute; its log is in the demo's folder")
    return count


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            record = orjson.loads(line)
            yield {
                "topic": record["topic"],
                "partition": record["partition"],
                "key": _bytes(record["key"]),
                "value": _bytes(record["value"]),
                "headers": [(name, _bytes(value)) for name, value in record["headers"] or []],
                "timestamp": record["timestamp"],
            }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
