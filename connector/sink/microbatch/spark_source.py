"""Offsets -> the options of Spark's Kafka source, and its batches -> their end offsets.

Its checkpoint directory is a scratch folder of this process: Spark's offset log in it tells each batch's exact range;
nothing is ever resumed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
import structlog

from connector.runtime.jvm.callback_connections import CallbackConnections
from connector.runtime.topic_partitions import TopicPartition, flatten_by_partition, nest_by_topic
from connector.settings import SinkSettings
from connector.settings.kafka.batching import BatchPace

_JAVA_ONLY_KEYS = ("auto.offset.reset", "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer")


@attrs.define(eq=False)
class BatchFunction:
    """What Java calls for each batch. It lets go of the run at the run's end.

    Py4J keeps it until Java's garbage collector finds that nobody calls it any more, which may be never. With it each
    run of a connector that is restarted would keep its clients, with their threads and connections.
    """

    _bring_in: Callable[[int], None] | None
    _connections: CallbackConnections
    _bound: Mapping[str, Any] = attrs.field(factory=structlog.contextvars.get_contextvars)

    def __call__(self, _: object, number: int) -> None:
        """Bring in a batch of a run that has not ended."""
        self._connections.note_caller()
        if self._bring_in is not None:
            # Java calls in a thread of its own, in which nobody knows whose lines these are.
            with structlog.contextvars.bound_contextvars(**self._bound):
                self._bring_in(number)

    def release(self) -> None:
        """Let go of the run."""
        self._bring_in = None


def source_options(
    settings: SinkSettings, at: Mapping[TopicPartition, int], start: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """Return what Spark's source is told of the cluster: it finds the offsets of the topic-partitions `at`, no more."""
    kafka = settings.kafka
    own = {f"kafka.{key}": value for key, value in kafka.consumer.items() if key not in _JAVA_ONLY_KEYS}
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(at):
        partitions.setdefault(topic, []).append(partition)
    return {
        "kafka.isolation.level": "read_committed",
        **own,
        "kafka.bootstrap.servers": kafka.consumer.get("bootstrap.servers", kafka.bootstrap_servers),
        "failOnDataLoss": "true",
        "assign": orjson.dumps(partitions).decode(),
        "startingOffsets": orjson.dumps(nest_by_topic(start)).decode(),
        "maxOffsetsPerTrigger": str(settings.batch.max_events),
    }


def trigger_options(pace: BatchPace) -> dict[str, str]:
    """Return what Spark's Kafka source is told of when a batch begins."""
    if pace.events is None:
        return {}
    return {"minOffsetsPerTrigger": str(pace.events), "maxTriggerDelay": f"{pace.max_wait_ms}ms"}


def read_end_offsets(scratch: Path, number: int) -> dict[TopicPartition, int]:
    """Read a batch's end offsets from Spark's offset log: a version line, a metadata line, then one line per source."""
    lines = (scratch / "offsets" / str(number)).read_text().splitlines()
    return flatten_by_partition(orjson.loads(lines[2]))
