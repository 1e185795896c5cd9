"""A cluster -> what it knows of itself: its id, topics with ids, and offset ranges. On the driver; metadata only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connector.errors import FatalError, RetriableError
from connector.kafka.client_errors import NO_CLIENT, is_unauthorized, map_kafka_errors
from connector.kafka.kept_client import KeptClient
from connector.runtime.deadline import Deadline
from connector.runtime.topic_partitions import TopicPartition as TopicPartitionKey
from connector.settings import KafkaSettings

ADMIN_TIMEOUT_S = 15.0
"""So long an answer is waited for, a login included, unless `default.api.timeout.ms` says otherwise."""

_CONNECTING_MS = 10_000


@attrs.frozen
class TopicInfo:
    """A topic as it is now; `id` changes when a topic is deleted and made again."""

    name: str
    id: str
    partitions: int


@attrs.frozen
class ClusterInfo:
    """A cluster as it describes itself: its id, how many brokers it has, and what this user may do with it.

    `rights` are names of Kafka's operations; none where the cluster does not tell.
    """

    id: str
    brokers: int
    rights: frozenset[str]


def missing_rights(
    rights: Mapping[str, frozenset[str]], needs: Mapping[str, Iterable[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the operations that each topic needs and that are not allowed; one of no known rights has all (pure)."""
    lacking = {}
    for topic, operations in needs.items():
        missing = tuple(one for one in operations if rights.get(topic) and one not in rights[topic])
        if missing:
            lacking[topic] = missing
    return lacking


class KafkaAdmin:
    """One Kafka cluster."""

    def __init__(
        self, settings: KafkaSettings, timeout_s: float | None = None, deadline: Deadline | None = None
    ) -> None:
        """Prepare; nothing is asked yet.

        An answer is waited for `timeout_s`, by default as the settings say, and not beyond the deadline of all answers:
        what is asked after it raises RetriableError.
        """
        self._settings, self._deadline = settings, deadline
        self._timeout_s = _choose_timeout_s(settings) if timeout_s is None else timeout_s
        self._client = KeptClient(lambda: settings.client("admin"), _open_admin, lambda _: None)
        self._client.get()

    def id(self) -> str:
        """Return the cluster's id."""
        with self._asking(f"asking {self._settings.bootstrap_servers} for the cluster id") as admin:
            return str(admin.describe_cluster(request_timeout=self._wait_s()).result().cluster_id)

    def describe(self) -> ClusterInfo:
        """Return what the cluster tells of itself and of this user's rights."""
        with self._asking(f"asking {self._settings.bootstrap_servers} for the cluster") as admin:
            answer = admin.describe_cluster(include_authorized_operations=True, request_timeout=self._wait_s())
            found = answer.result()
        return ClusterInfo(str(found.cluster_id), len(found.nodes), _operations(found.authorized_operations))

    def topic_rights(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """Return what this user may do with topics; those that do not exist are left out.

        Raises:
            RetriableError: the cluster is away.
            FatalError: this user may not see one.
        """
        with self._asking("asking for rights on topics") as admin:
            futures = admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=self._wait_s()
            )
            found = [one for name, future in futures.items() if (one := _described_topic(name, future)) is not None]
        return {topic.name: _operations(topic.authorized_operations) for topic in found}

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._partitions())

    def select_topics(self) -> dict[str, TopicInfo]:
        """Return the topics that the settings select and that exist.

        Raises:
            RetriableError: the cluster is away.
            FatalError: this user may not see one that is listed by its name: a list of all topics leaves it out.
        """
        there = self.names()
        transactions = self._settings.transactions.topic
        listed = {*self._settings.topics, *([transactions] if transactions else ())}
        return self.topics([*filter(self._settings.takes, there), *sorted(listed - there)])

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Describe topics; those that do not exist are left out."""
        if not names:
            return {}
        with self._asking("describing topics") as admin:
            futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=self._wait_s())
            found = [one for name, future in futures.items() if (one := _described_topic(name, future)) is not None]
        return {
            t.name: TopicInfo(t.name, str(t.topic_id), len(t.partitions)) for t in sorted(found, key=lambda t: t.name)
        }

    def select_partitions(self) -> set[TopicPartitionKey]:
        """Return the topic-partitions of the topics that the settings select and that exist."""
        return {
            (topic, partition)
            for topic, count in self._partitions().items()
            if self._settings.takes(topic)
            for partition in range(count)
        }

    def fetch_end_offsets(self, at: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Return up to where each topic-partition can be read: with read_committed, in front of an open transaction."""
        level = self._settings.consumer.get("isolation.level", "read_committed").upper()
        return self._offsets(at, OffsetSpec.latest(), IsolationLevel[level])

    def fetch_log_ends(self, at: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Return the offset after the last record of each topic-partition, whether it is committed or not."""
        return self._offsets(at, OffsetSpec.latest())

    def fetch_beginning_offsets(self, at: Iterable[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Return the offset of the oldest record that is still there."""
        return self._offsets(at, OffsetSpec.earliest())

    def fetch_offsets_from_time(self, at: Iterable[TopicPartitionKey], ts_ms: int) -> dict[TopicPartitionKey, int]:
        """Return the first offset of each topic-partition whose record has this time or a later one; none without one.

        The time is the record's: of its producer, or of the broker (`message.timestamp.type`).
        """
        found = self._list_offsets(at, OffsetSpec.for_timestamp(ts_ms), IsolationLevel.READ_UNCOMMITTED)
        return {place: offset for place, offset in found.items() if offset >= 0}

    def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Create a topic unless it is there.

        Raises:
            RetriableError: the cluster is away.
            FatalError: it refuses.
        """
        # Looked for first: who may not create topics is refused, whether there is one or not.
        if self._sees(topic):
            return
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(config))
        try:
            with self._asking(f"creating topic {topic}") as admin:
                admin.create_topics([new], request_timeout=self._wait_s())[topic].result()
        except FatalError as error:
            cause = error.__cause__
            fault = cause.args[0] if isinstance(cause, KafkaException) else None
            if is_unauthorized(fault):
                raise FatalError(
                    f"topic {topic} is not there, or may not be seen, and this user may not create it; allow CREATE on "
                    "it, or make it beforehand and allow WRITE"
                ) from error
            if not isinstance(fault, KafkaError) or fault.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _sees(self, topic: str) -> bool:
        """Return whether a topic is there; one that this user may not see may be."""
        try:
            return bool(self.topics([topic]))
        except FatalError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and is_unauthorized(cause.args[0]):
                return False
            raise

    def _partitions(self) -> dict[str, int]:
        """Return how many partitions each topic has."""
        with self._asking(f"listing topics of {self._settings.bootstrap_servers}") as admin:
            listed = admin.list_topics(timeout=self._wait_s()).topics
            return {name: len(topic.partitions) for name, topic in listed.items()}

    def _wait_s(self) -> float:
        """Return how long the next answer is waited for."""
        if self._deadline is None:
            return self._timeout_s
        remaining_s = self._deadline.remaining_s()
        if remaining_s == 0:
            raise RetriableError(
                f"{self._settings.bootstrap_servers} did not answer within {self._deadline.limit_s:g} s"
            )
        return min(self._timeout_s, remaining_s)

    @contextmanager
    def _asking(self, what: str) -> Iterator[AdminClient]:
        """Give the client of now, and raise ours instead of its errors.

        What is not answered may be a login that the brokers do not take any more, of which librdkafka says nothing.
        """
        with map_kafka_errors(what):
            try:
                yield self._client.get()
            except KafkaException as error:
                if not isinstance(error.args[0], KafkaError) or error.args[0].code() < 0:
                    self._client.renew_login()
                raise

    def _list_offsets(
        self, at: Iterable[TopicPartitionKey], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartitionKey, int]:
        wanted = {TopicPartition(topic, partition): spec for topic, partition in at}
        if not wanted:
            return {}
        with self._asking("asking for offsets") as admin:
            try:
                futures = admin.list_offsets(wanted, isolation_level=level, request_timeout=self._wait_s())
                return {(tp.topic, tp.partition): int(future.result().offset) for tp, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() > 0:
                    # librdkafka asks by the leader epochs that it learnt first: once they moved it is refused for good.
                    self._client.drop()
                raise

    def _offsets(
        self,
        at: Iterable[TopicPartitionKey],
        spec: OffsetSpec,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartitionKey, int]:
        found = self._list_offsets(at, spec, level)
        unknown = sorted(at for at, offset in found.items() if offset < 0)
        if unknown:
            # librdkafka says so, and no error, of a topic-partition that has no leader now.
            names = ", ".join(f"{topic}-{partition}" for topic, partition in unknown)
            raise RetriableError(f"asking for offsets: no broker leads {names} now")
        return found


def _open_admin(config: dict[str, Any]) -> AdminClient:
    with map_kafka_errors(NO_CLIENT):
        return AdminClient({"socket.connection.setup.timeout.ms": _CONNECTING_MS, **config})


def _choose_timeout_s(settings: KafkaSettings) -> float:
    text = settings.admin.get("default.api.timeout.ms")
    return ADMIN_TIMEOUT_S if text is None else max(int(text), 1) / 1000


def _operations(found: Any) -> frozenset[str]:
    return frozenset(operation.name for operation in found or ())


def _described_topic(name: str, future: Any) -> Any:
    """Return what a topic is described as, None when there is none; FatalError where this user may not see it."""
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        if is_unauthorized(error.args[0]):
            raise FatalError(
                f"topic {name}: this user may not see whether it is there; give it DESCRIBE on the topic, and READ or "
                "WRITE (docs/security.md)"
            ) from error
        raise
