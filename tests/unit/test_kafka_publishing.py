"""What the producer of events is told, and what its failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from connector.errors import FatalError, RetriableError
from connector.kafka.dlq import producer as letters
from connector.kafka.dlq.producer import DeadLetterMessage, DeadLetterProducer
from connector.kafka.producer import MessageProducer
from connector.kafka.spark_producer import map_publish_errors, producer_options
from connector.settings import KafkaSettings
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
    "line",
    ["acks=1", "acks=0", "retries=0", "max.in.flight.requests.per.connection=10", "transactional.id=mine"],
)
def test_what_would_make_the_producer_unsafe_has_no_effect(tmp_path: Path, line: str) -> None:
    """Java refuses it beside idempotence, or waits for transactions that nobody begins."""
    file = tmp_path / "s.properties"
    file.write_text(f"{BASE}producer.override.{line}\n")
    made = producer_options(load_source([file], environ={}).kafka)
    assert (made["acks"], made["enable.idempotence"]) == ("all", "true")
    assert line not in {f"{key}={text}" for key, text in made.items()}


FULL = 100_001
"""One message more than librdkafka keeps waiting."""


def test_messages_beyond_a_full_queue_wait_for_room() -> None:
    """A queue that never empties, as its brokers are away, is an error to try again, and no other."""
    kafka = KafkaSettings("127.0.0.1:1", (), None, "", "earliest", {}, {}, {})
    with pytest.raises(RetriableError, match=r"messages? to t"):
        MessageProducer(kafka, None, 0.5).send("t", ((b"k", b"v") for _ in range(FULL)))  # type: ignore[arg-type]


def test_letters_beyond_a_full_queue_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are waited for as long as an acknowledgement is."""
    monkeypatch.setattr(letters, "FLUSH_S", 0.5)
    producer = DeadLetterProducer("t", KafkaSettings("127.0.0.1:1", (), None, "", "earliest", {}, {}, {}))
    with pytest.raises(RetriableError, match="t takes no more messages now"):
        for number in range(FULL):
            producer.produce(DeadLetterMessage(number, b"k", b"v", ()))


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
