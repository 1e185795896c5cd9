"""Records as a DataFrame -> a topic, by Spark's Kafka writer: a Java producer in every executor, kept between tasks.

It partitions by the Java murmur2 hash, sends a task's rows in order, and fails the job when a record was not
acknowledged, so that a job that returns has published everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from connector.errors import FatalError, RetriableError
from connector.kafka.protocol.error_codes import LOGIN_REMEDY
from connector.runtime.spark.value_counts import ValueCounts
from connector.settings import KafkaSettings
from connector.settings.kafka.java_producer import PRODUCER_DEFAULTS, drop_unused

_KAFKA_EXCEPTION = re.compile(r"\borg\.apache\.kafka\.(?:clients|common)\.(?:\w+\.)*(\w+): ([^\n]*)")
_AWAY = re.compile(r"java\.net\.(?:Connect|NoRouteToHost|Socket|SocketTimeout|UnknownHost)Exception")
"""Why a producer could not log in, where that is not a refusal: nobody answers who gives tokens."""

_TRANSIENT_EXCEPTIONS = frozenset(
    {
        "TimeoutException",
        "BufferExhaustedException",  # records wait for brokers, and there is no room for more
        "NetworkException",
        "DisconnectException",
        "NotEnoughReplicasException",
        "NotEnoughReplicasAfterAppendException",
        "NotLeaderOrFollowerException",
        "LeaderNotAvailableException",
        "UnknownTopicOrPartitionException",
        "CoordinatorNotAvailableException",
        "CoordinatorLoadInProgressException",
        "NotCoordinatorException",
        "KafkaStorageException",
        "FencedLeaderEpochException",
        "UnknownLeaderEpochException",
        "ThrottlingQuotaExceededException",
        # What brokers forgot of a producer's numbers: it begins anew by itself.
        "OutOfOrderSequenceException",
        "UnknownProducerIdException",
        "InvalidProducerEpochException",
    }
)


_REMEDIES = {
    "RecordTooLargeException": "raise producer.override.max.request.size and the topic's max.message.bytes, or leave "
    "large columns out (column.exclude.list)",
    "TopicAuthorizationException": "give this user WRITE and DESCRIBE on the topic",
    "ClusterAuthorizationException": "give this user IDEMPOTENT_WRITE on the cluster",
    "SaslAuthenticationException": LOGIN_REMEDY,
}

_NEWER_WRITER = "spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text"
"""Without Kafka among them its writer is a part of the query, which Spark then tells counts of."""


def publish_records(
    records: DataFrame, topic: str, settings: KafkaSettings, operations: Sequence[str]
) -> dict[str, int]:
    """Publish records (`key`, `value`, and `headers` if any) and wait until the cluster has acknowledged every one.

    Rows of one task leave in their order. Memory: the producer's `buffer.memory` per executor, whatever the size.

    Args:
        records: the records, and what they are counted by (`op`), which is not published.
        topic: where to.
        settings: of the cluster.
        operations: the values of `op` that are counted.

    Returns:
        How many records there are of each operation, those of none left out.

    Raises:
        RetriableError: the cluster is away; some records may be there already.
        FatalError: the cluster refused a record.
        PySparkException, Py4JJavaError: the rows could not be computed.
    """
    records.sparkSession.conf.set(*_NEWER_WRITER)
    counts = ValueCounts(operations)
    writer = counts.observe(records, "op").write.format("kafka").mode("append").option("topic", topic)
    for key, value in producer_options(settings).items():
        writer = writer.option(f"kafka.{key}", value)
    with map_publish_errors(f"publishing to {topic}"):
        writer.save()
    return counts.read()


def producer_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the Java producer's settings."""
    configured = drop_unused(settings.producer)
    servers = configured.pop("bootstrap.servers", settings.bootstrap_servers)
    return {**PRODUCER_DEFAULTS, **configured, "bootstrap.servers": servers}


@contextmanager
def map_publish_errors(doing: str) -> Iterator[None]:
    """Raise ours where a job failed because of Kafka; what else went wrong is whose rows these are to say.

    Raises:
        RetriableError: a broker is away.
        FatalError: any other refusal.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        causes = _KAFKA_EXCEPTION.findall(str(error))
        if not causes:
            raise
        name, message = causes[-1]
        away = any(name in _TRANSIENT_EXCEPTIONS for name, _ in causes) or "bootstrap urls" in message
        away = away or (name == "KafkaException" and _AWAY.search(str(error)) is not None)
        remedy = "" if away else next((f"; {_REMEDIES[name]}" for name, _ in causes if name in _REMEDIES), "")
        raise (RetriableError if away else FatalError)(f"{doing}: {name}: {message}{remedy}") from error
