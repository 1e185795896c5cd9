"""Records as a DataFrame -> a topic, by Spark's Kafka writer: a Java producer in every executor, kept between tasks.

It partitions by the Java murmur2 hash, sends a task's rows in order, and fails the job when a record was not
acknowledged, so that a job that returns has published everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from connector.errors import FatalError, RetriableError
from connector.runtime.spark.value_counts import ValueCounts
from connector.settings import KafkaSettings

PRODUCER_DEFAULTS: Mapping[str, str] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Measured (2 cores, envelopes of about 600 bytes): 67,000 to 112,000 records/s with the client's own defaults,
    # 140,000 to 180,000 with these sizes, 280,000 to 390,000 with lz4 too; zstd is slower, and smaller.
    "batch.size": "262144",
    "linger.ms": "50",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""The settings of the producer unless `producer.override.` says otherwise."""
_FIXED_OPTIONS = frozenset({"acks", "enable.idempotence", "key.serializer", "transactional.id", "value.serializer"})
_IDEMPOTENT = {"max.in.flight.requests.per.connection": (1, 5), "retries": (1, 2**31 - 1)}
"""With other numbers Java's producer refuses to be idempotent."""

_KAFKA_EXCEPTION = re.compile(r"(org\.apache\.kafka\.common\.[\w.]*?\.?(\w+)): ([^\n]*)")
_TRANSIENT_EXCEPTIONS = frozenset(
    {
        "TimeoutException",
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
    configured = {key: text for key, text in settings.producer.items() if key not in _FIXED_OPTIONS}
    for key, (least, most) in _IDEMPOTENT.items():
        if (text := configured.get(key, "")).isdecimal() and not least <= int(text) <= most:
            del configured[key]
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
        _, name, message = causes[-1]
        away = any(name in _TRANSIENT_EXCEPTIONS for _, name, _ in causes) or "bootstrap urls" in message
        raise (RetriableError if away else FatalError)(f"{doing}: {name}: {message}") from error
