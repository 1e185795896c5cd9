"""settings -> where the selected topics end now, for a look at a sink: asked beside what takes longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import attrs

from connector.errors import ConnectorError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.listeners import require_listener
from connector.runtime.deadline import Deadline
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings

LIMIT_S = 3.0
"""So long all answers of the brokers together may take: somebody is waiting for them."""


@attrs.frozen
class EndsView:
    """The offset after the last record of each selected topic-partition; none where `unanswered` says why.

    `ids` tell topics from others of their names, as far as the brokers had the time to say.
    """

    ends: Mapping[TopicPartition, int]
    unanswered: str = ""
    ids: Mapping[str, str] = attrs.field(factory=dict)


@contextmanager
def view_ends(settings: SinkSettings) -> Iterator[Future[EndsView]]:
    """Ask for end offsets alone, beside what is done inside."""
    with ThreadPoolExecutor(1, "glance") as beside:
        yield beside.submit(_look, settings, Deadline.after(LIMIT_S))


def _look(settings: SinkSettings, deadline: Deadline) -> EndsView:
    try:
        require_brokers(settings, deadline)
    except ConnectorError as error:
        return EndsView({}, describe(error))
    return read_ends(settings, deadline)


def require_brokers(settings: SinkSettings, deadline: Deadline) -> None:
    """Raise RetriableError where no bootstrap server takes a connection: librdkafka would try until the deadline."""
    require_listener(ClusterAddress.of(settings.kafka.client("admin")), deadline.remaining_s())


def read_ends(settings: SinkSettings, deadline: Deadline) -> EndsView:
    """Return what the brokers say until the deadline: which partitions there are, where they end, the topics' ids."""
    try:
        admin = KafkaAdmin(settings.kafka, deadline=deadline)
        at = sorted(admin.select_partitions())
        if not at:
            return EndsView({}, "none of the selected topics exists yet, so there are no current offsets")
        ends = admin.fetch_end_offsets(at)
    except ConnectorError as error:
        return EndsView({}, describe(error))
    try:
        topics = admin.topics(sorted({topic for topic, _ in at}))
    except ConnectorError:
        return EndsView(ends)
    return EndsView(ends, ids={name: topic.id for name, topic in topics.items()})


def explain_remade(topic: str) -> str:
    """Return the line on a topic whose stored offsets say nothing of it."""
    return f"topic {topic} was deleted and made again since: its stored offsets are of the former one"


def describe(error: ConnectorError) -> str:
    """Return the line that stands in place of what the brokers did not tell."""
    reason = " ".join(str(error).split())
    return f"Kafka gave no answer, so current offsets are unknown: {reason}"
