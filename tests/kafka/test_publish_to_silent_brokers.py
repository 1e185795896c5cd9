"""Brokers that say nothing in the midst of many events -> an error to try again, and everything once they answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.errors import RetriableError
from connector.kafka.spark_producer import publish_records
from connector.settings import KafkaSettings
from tests.clients.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(300)]
SMALL = {"buffer.memory": "300000", "max.block.ms": "2000", "linger.ms": "1", "batch.size": "10000"}


def test_a_producer_whose_memory_is_full_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """Records wait for a broker that is silent until there is no room for more, long before they expire."""
    records = spark.range(0, 1000, 1, 1).select(
        F.col("id").cast("string").alias("key"), F.repeat(F.lit("v"), 2000).alias("value"), F.lit("c").alias("op")
    )
    with KafkaBroker(tmp_path / "broker", short_lived=True) as broker:
        broker.create_topic("t", 1)
        kafka = KafkaSettings(broker.bootstrap_servers, (), None, "", "earliest", {}, SMALL, {})
        assert publish_records(records, "t", kafka, "c") == {"c": 1000}
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(RetriableError, match="publishing to t: BufferExhaustedException: Failed to allocate"):
                publish_records(records, "t", kafka, "c")
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert publish_records(records, "t", kafka, "c") == {"c": 1000}
        assert {record.key for record in Topics(broker.bootstrap_servers).read("t")} == {
            str(number).encode() for number in range(1000)
        }
