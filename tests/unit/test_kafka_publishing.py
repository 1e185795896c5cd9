"""What the producer of events is told, and what its failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from connector.errors import ConfigError, FatalError, RetriableError
from connector.kafka.dlq import producer as letters
from connector.kafka.dlq.producer import DeadLetterMessage, DeadLetterProducer
from connector.kafka.producer import MessageProducer
from connector.kafka.spark_producer import map_publish_errors, producer_options
from connector.runtime.spark.session_conf import session_conf
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


WRONG = {
    "linger.ms": ("soon", "is not a whole number"),
    "max.request.size": ("-1", "is outside 0 to 2147483647"),
    "compression.type": ("best", "is not known; write none or gzip"),
    "partitioner.ignore.keys": ("perhaps", "is not known; write true or false"),
    "security.protocol": ("SASL_SLL", "is not known; write PLAINTEXT"),
}


def test_what_javas_producer_refuses_is_told_at_once(tmp_path: Path) -> None:
    """Every fault with its line, beside those of other options, before anything starts; never a value."""
    file = tmp_path / "s.properties"
    lines = "".join(f"producer.override.{key}={text}\n" for key, (text, _) in WRONG.items())
    file.write_text(f"{BASE}{lines}snapshot.mode=sometimes\n")
    with pytest.raises(ConfigError) as told:
        load_source([file], environ={})
    for key, (_, what) in WRONG.items():
        assert f"producer.override.{key}: {what}" in str(told.value)
    assert "snapshot.mode" in str(told.value)


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ({"delivery.timeout.ms": "30049"}, 30_050),
        ({"delivery.timeout.ms": "1000", "linger.ms": "0", "request.timeout.ms": "1001"}, 1001),
        ({"delivery.timeout.ms": "2147483646", "linger.ms": "9000000000"}, 2**31 - 1),
    ],
)
def test_a_delivery_takes_no_less_than_one_try(tmp_path: Path, given: dict[str, str], least: int) -> None:
    """Java refuses a time for a delivery below that of lingering and one request; at that time it takes it."""
    file = tmp_path / "s.properties"

    def write(**more: str) -> None:
        merged = {**given, **{key.replace("_", "."): text for key, text in more.items()}}
        file.write_text(BASE + "".join(f"producer.override.{key}={text}\n" for key, text in merged.items()))

    write()
    with pytest.raises(ConfigError, match=rf"delivery\.timeout\.ms: is less than .*, which are {least}; write {least}"):
        load_source([file], environ={})
    write(delivery_timeout_ms=str(least))
    assert producer_options(load_source([file], environ={}).kafka)["delivery.timeout.ms"] == str(least)


def test_settings_without_effect_are_noted(tmp_path: Path) -> None:
    """Whoever asks for less than every replica's acknowledgement hears that it is not so; others hear nothing."""
    file = tmp_path / "s.properties"
    file.write_text(f"{BASE}producer.override.acks=1\nproducer.override.retries=0\nproducer.override.linger.ms=1\n")
    (note,) = (one for one in load_source([file], environ={}).notes if "no effect" in one)
    assert note.endswith(": acks, retries")
    file.write_text(f"{BASE}producer.override.acks=ALL\nproducer.override.enable.idempotence=true\n")
    assert not [one for one in load_source([file], environ={}).notes if "no effect" in one]


def test_no_second_copy_of_a_task_publishes(tmp_path: Path) -> None:
    """Speculation is off whatever a cluster's defaults are, and a fault where it is asked for."""
    file = tmp_path / "s.properties"
    for text in ("true", "TRUE"):
        file.write_text(f"{BASE}spark.speculation={text}\n")
        with pytest.raises(ConfigError, match=r"spark\.speculation: lets two copies of a task publish"):
            load_source([file], environ={})
    file.write_text(f"{BASE}spark.speculation=false\n")
    settings = load_source([file], environ={})
    assert settings.spark["spark.speculation"] == "false"
    assert session_conf("a", settings.catalog, {}, [], tmp_path)["spark.speculation"] == "false"


NO_PRODUCER = (
    "x\nCaused by: org.apache.kafka.common.KafkaException: Failed to construct kafka producer\nCaused by: "
    "org.apache.kafka.common.KafkaException: javax.security.auth.login.LoginException: no token"
)
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
        ("x: org.apache.kafka.clients.producer.BufferExhaustedException: Failed to allocate 9 bytes", RetriableError),
        (f"{NO_PRODUCER}\nCaused by: java.net.ConnectException: Connection refused", RetriableError),
        (f"{NO_PRODUCER}\nCaused by: java.io.IOException: The token endpoint response code was 401", FatalError),
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


def test_a_refused_record_says_what_to_do() -> None:
    """A row that is larger than the producer or the topic takes is told with the options that say how large."""
    text = "x\nCaused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 9 bytes"
    told = r"9 bytes; raise producer\.override\.max\.request\.size and the topic's max\."
    with pytest.raises(FatalError, match=told), map_publish_errors("publishing to t"):
        raise PySparkException(text)
