"""A batch -> its records in Kafka: which offsets it spans, and how Spark reads them. On the driver."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.position import TopicPartition, nested
from connector.settings import SinkSettings
from connector.sink.moves import HEADER, OLD_KEY

_JAVA_ONLY = ("auto.offset.reset", "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer")
_EARLIEST = -2
"""Spark's word for the first offset that there is."""


@attrs.frozen
class Batch:
    """What to read: the offsets of each topic-partition from `start` up to, not including, `end`."""

    id: int
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @property
    def events(self) -> int:
        """How many offsets the batch spans; records are at most so many."""
        return sum(end - self.start.get(at, end) for at, end in self.end.items())

    @property
    def topics(self) -> list[str]:
        """Topics that may have records in this batch."""
        return sorted({at[0] for at, end in self.end.items() if end > self.start.get(at, 0)})


def with_old_keys(spark: SparkSession, settings: SinkSettings, batch: Batch) -> DataFrame:
    """Give a batch's records with one more column, named `OLD_KEY`: that header's bytes, null without it.

    Read anew, and not by the stream: headers cost every batch, and few batches need them.
    """
    spanned = {at: end for at, end in batch.end.items() if end > batch.start.get(at, 0)}
    start = {at: batch.start.get(at, _EARLIEST) for at in spanned}
    partitions: dict[str, list[int]] = {}
    for topic, partition in spanned:
        partitions.setdefault(topic, []).append(partition)
    options = {
        **kafka_options(settings),
        "assign": orjson.dumps(partitions).decode(),
        "startingOffsets": orjson.dumps(nested(start)).decode(),
        "endingOffsets": orjson.dumps(nested(spanned)).decode(),
        "includeHeaders": "true",
    }
    records = spark.read.format("kafka").options(**options).load()
    header = F.get(F.filter("headers", lambda header: header["key"] == HEADER), F.lit(0))["value"]
    return records.withColumn(OLD_KEY, header).drop("headers")


def kafka_options(settings: SinkSettings) -> dict[str, str]:
    """Give what Spark's Kafka source is told in every case: where the cluster is, and how to read from it."""
    kafka = settings.kafka
    own = {f"kafka.{key}": value for key, value in kafka.consumer.items() if key not in _JAVA_ONLY}
    return {
        "kafka.isolation.level": "read_committed",
        # Larger polls and fetches: a batch reads much at once, and each poll costs Spark a list.
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": "8388608",
        # A batch that ends at a topic's end waits for fetches sent ahead: about 1 s with Kafka's default of 500 ms.
        "kafka.fetch.max.wait.ms": "20",
        **own,
        "kafka.bootstrap.servers": kafka.consumer.get("bootstrap.servers", kafka.bootstrap_servers),
        "failOnDataLoss": "true",
    }
