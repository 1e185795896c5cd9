"""The cluster's own view: its id, topics with ids, and offset ranges. On the driver; metadata only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connector.errors import FatalError, RetriableError
from connector.settings import KafkaSettings
from connector.settings.kafka import Scope

TIMEOUT_S = 15.0
At = tuple[str, int]


@attrs.frozen
class Topic:
    """A topic as it is now; `id` changes when a topic is deleted and made again."""

    name: str
    id: str
    partitions: int


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Raise ours instead of librdkafka's errors.

    Raises:
        RetriableError: the broker is away or says that a later try may succeed.
        FatalError: everything else (authorisation, unknown names).
    """
    try:
        yield
    except KafkaException as error:
        fault = error.args[0]
        text = f"{doing}: {fault.str() if isinstance(fault, KafkaError) else fault}"
        raise RetriableError(text) if _passing(fault) else FatalError(text) from error


def _passing(fault: object) -> bool:
    passing = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE)  # noqa: SLF001
    return isinstance(fault, KafkaError) and (fault.retriable() or fault.code() in passing)


def configuration(settings: KafkaSettings, scope: Scope) -> dict[str, Any]:
    """Give librdkafka's configuration; its own log stays silent, what matters comes back as an error."""
    return {"log_level": 2, **settings.client(scope)}


class Cluster:
    """One Kafka cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Prepare; nothing is asked yet."""
        self._settings = settings
        self._admin = AdminClient({**configuration(settings, "admin"), "socket.connection.setup.timeout.ms": 10000})

    def id(self) -> str:
        """Give the cluster's id."""
        with mapped(f"asking {self._settings.bootstrap_servers} for the cluster id"):
            return str(self._admin.describe_cluster(request_timeout=TIMEOUT_S).result().cluster_id)

    def names(self) -> set[str]:
        """Give the names of all topics."""
        with mapped(f"listing topics of {self._settings.bootstrap_servers}"):
            return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def selected(self) -> dict[str, Topic]:
        """Give the topics that the settings select and that exist."""
        names = self.names()
        if self._settings.topics_regex is None:
            return self.topics([name for name in self._settings.topics if name in names])
        pattern = re.compile(self._settings.topics_regex)
        return self.topics([name for name in names if pattern.fullmatch(name)])

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Describe topics that exist."""
        if not names:
            return {}
        with mapped("describing topics"):
            futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
            found = [future.result() for future in futures.values()]
        return {t.name: Topic(t.name, str(t.topic_id), len(t.partitions)) for t in sorted(found, key=lambda t: t.name)}

    def ends(self, at: Iterable[At]) -> dict[At, int]:
        """Give the offset after the last record of each topic-partition."""
        return self._offsets(at, OffsetSpec.latest())

    def beginnings(self, at: Iterable[At]) -> dict[At, int]:
        """Give the offset of the oldest record that is still there."""
        return self._offsets(at, OffsetSpec.earliest())

    def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Create a topic unless it is there."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(config))
        try:
            with mapped(f"creating topic {topic}"):
                self._admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result()
        except FatalError as error:
            cause = error.__cause__
            if not (isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                raise

    def _offsets(self, at: Iterable[At], spec: OffsetSpec) -> dict[At, int]:
        wanted = {TopicPartition(topic, partition): spec for topic, partition in at}
        if not wanted:
            return {}
        with mapped("asking for offsets"):
            futures = self._admin.list_offsets(wanted, request_timeout=TIMEOUT_S)
            return {(tp.topic, tp.partition): int(future.result().offset) for tp, future in futures.items()}
