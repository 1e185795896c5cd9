"""What the producer of events is told, and what its failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from connector.errors import FatalError, RetriableError
from connector.kafka.spark_producer import map_publish_errors, producer_options
from connector.settings.source.settings import load_source

BASE = "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"


def test_the_producer_is_safe_by_default_and_takes_overrides(tmp_path: Path) -> None:
    """Events are sent idempotently to all replicas; security is for all clients; overrides win, but not over that."""
    file = tmp_path / "s.properties"
    file.write_text(
        BASE + "security.protocol=SSL\nproducer.override.linger.ms=5\nproducer.override.enable.idempotence=false\n"
        "producer.override.bootstrap.servers=other:2\n"
    )
    made = producer_options(load_source([file], environ={}).kafka)
    assert (made["acks"], made["enable.idempotence"], made["linger.ms"]) == ("all", "true", "5")
    assert (made["security.protocol"], made["bootstrap.servers"]) == ("SSL", "other:2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\nCaused by: org.apache.kafka.common.errors.TimeoutException: Topic t not present", RetriableError),
        ("x\nCaused by: org.apache.kafka.common.KafkaException: Failed\nCaused by: org.apache.kafka.common.config."
         "ConfigException: No resolvable bootstrap urls given in bootstrap.servers", RetriableError),
        ("x: org.apache.kafka.common.errors.KafkaStorageException: Disk error", RetriableError),
        ("x: org.apache.kafka.common.errors.OutOfOrderSequenceException: out of order", RetriableError),
        ("x: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", FatalError),
        ("x: org.apache.kafka.common.errors.RecordTooLargeException: The message is 9 bytes", FatalError),
        ("x\nCaused by: java.io.FileNotFoundException: a.parquet", PySparkException),
    ],
)  # fmt: skip
def test_a_failed_job_is_the_clusters_fault_or_the_tables(text: str, expected: type[Exception]) -> None:
    """A broker that is away may come back, a refusal will not; what is not Kafka's stays as it is."""
    with pytest.raises(expected) as caught, map_publish_errors("publishing to t"):
        raise PySparkException(text)
    assert type(caught.value) is expected
