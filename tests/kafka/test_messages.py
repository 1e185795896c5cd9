"""Single messages while the broker is away: what was not acknowledged is never written later."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from connector.demo.servers.ports import free_ports
from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.producer import DeadLetterMessage, DeadLetterProducer
from connector.kafka.dlq.reader import read_dead_letters
from connector.kafka.producer import MessageProducer
from connector.settings import KafkaSettings
from connector.settings.source.settings import load_source
from tests.clients.topics import Topics
from tests.servers.relay import Relay
from tests.servers.shared import SharedBroker

pytestmark = pytest.mark.kafka


def test_what_timed_out_is_never_written(broker: SharedBroker, topics: Topics, tmp_path: Path) -> None:
    """A message that was not acknowledged in time may be tried again; the old one does not go out behind the caller's
    back, and its end is no error of the next one, whatever topic that goes to."""
    topic, port = f"messages-{uuid4().hex}", free_ports(1)[0]
    topics.create({topic: 1})
    file = tmp_path / "s.properties"
    file.write_text(
        f"connector.class=IcebergSource\nbootstrap.servers=127.0.0.1:{port}\ntopic.prefix=p\n"
        "iceberg.catalog.warehouse=/w\n"
    )
    kafka = load_source([file], environ={}).kafka
    near = KafkaAdmin(attrs.evolve(kafka, bootstrap_servers=broker.bootstrap_servers))
    messages = MessageProducer(kafka, near, flush_s=1.0)
    for text in (b"BEGIN", b"heartbeat"):
        with pytest.raises(RetriableError):
            messages.send(topic, [(b"k", text)])
    with Relay(int(broker.bootstrap_servers.rpartition(":")[2]), port=port):
        messages._flush_s = 30.0
        messages.send(topic, [(b"k", b"BEGIN again"), (b"k", b"END")])
        messages.send(topic, [(b"k", None)])
    assert [record.value for record in topics.read(topic)] == [b"BEGIN again", b"END", None]


@pytest.fixture
def narrow(topics: Topics, broker: SharedBroker) -> tuple[str, KafkaSettings]:
    """A topic that takes messages of 60 kB, and batches of them no larger; settings to write to it."""
    topic = f"narrow-{uuid4().hex}"
    kafka = KafkaSettings(broker.bootstrap_servers, (topic,), None, "", "earliest", {}, {}, {})
    KafkaAdmin(kafka).create(topic, 1, 1, {"max.message.bytes": "60000"})
    return topic, kafka


SOME = [(b"k%d" % number, b"v" * 20_000) for number in range(8)]


def test_letters_that_are_too_large_together_keep_their_values(
    topics: Topics, narrow: tuple[str, KafkaSettings]
) -> None:
    """A broker refuses a batch of messages as a whole, which librdkafka does not cut as Java does: only what is too
    large by itself goes without its value."""
    topic, kafka = narrow
    producer = DeadLetterProducer(topic, kafka)
    letters = [*SOME, (b"huge", b"v" * 90_000)]
    for key, value in letters:
        producer.produce(DeadLetterMessage(key, key, value, ()))
    producer.flush()
    read = {record.key: record.value for record in topics.read(topic)}
    assert read == {**dict(SOME), b"huge": None}
    assert producer.acknowledged == {key for key, _ in letters}


LARGE = b"x" * 70_000
REASONS = (("__connect.errors.topic", b"t"), ("__connect.errors.partition", b"0"), ("__connect.errors.offset", b"7"))


@pytest.mark.parametrize(
    ("key", "value", "headers", "left_out"),
    [
        (b"k", b"v", (("h", LARGE),), ["value", "headers"]),
        (b"k", None, (("h", LARGE), ("i", None)), ["headers"]),
        (b"k", LARGE, (("h", LARGE),), ["value", "headers"]),
        (LARGE, b"v", (("h", b"1"),), ["value", "headers", "key"]),
        (b"k", LARGE, (("h", b"1"),), ["value"]),
    ],
)
@pytest.mark.parametrize("limit", ["the topic's", "the producer's"])
def test_a_letter_of_a_huge_record_is_written_as_far_as_the_topic_takes_it(
    topics: Topics,
    narrow: tuple[str, KafkaSettings],
    key: bytes,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    left_out: list[str],
    limit: str,
) -> None:
    """Value, headers and key are left out, in this order, until it fits; where the record is, is always told."""
    topic, kafka = narrow
    if limit == "the producer's":
        kafka = attrs.evolve(kafka, producer={"max.request.size": "60000"})
    producer = DeadLetterProducer(topic, kafka)
    reasons = (*REASONS, ("__connect.errors.exception.message", b"it is huge"))
    producer.produce(DeadLetterMessage("huge", key, value, headers, reasons))
    producer.produce(DeadLetterMessage("small", b"s", b"s", (("h", b"1"),), REASONS[:2]))
    producer.flush()
    assert producer.acknowledged == {"huge", "small"}
    (letter,) = (one for one in topics.read(topic) if one.key != b"s")
    told = dict(letter.headers)
    assert [name for name in ("value", "headers", "key") if f"__connect.errors.{name}.omitted" in told] == left_out
    assert told.items() >= dict(reasons).items()
    assert letter.value is None
    assert letter.key == (None if "key" in left_out else key)
    assert ("h" in told) == ("headers" not in left_out)
    (read,) = (one for one in read_dead_letters(KafkaAdmin(kafka), kafka, topic, "c") if one.reason == "it is huge")
    assert (read.offset, read.omitted, read.shortened) == (7, "value" in left_out, "headers" in left_out)


def test_a_reason_that_is_too_long_is_cut(topics: Topics, narrow: tuple[str, KafkaSettings]) -> None:
    """It may have a text of the record in it; where the topic takes no letter at all, the error says what to do."""
    topic, kafka = narrow
    producer = DeadLetterProducer(topic, kafka)
    producer.produce(
        DeadLetterMessage("long", b"k", b"v", (), (*REASONS, ("__connect.errors.exception.message", LARGE)))
    )
    producer.flush()
    (letter,) = topics.read(topic)
    assert dict(letter.headers)["__connect.errors.exception.message"] == LARGE[:1000]
    KafkaAdmin(kafka).create(f"{topic}-none", 1, 1, {"max.message.bytes": "100"})
    none = DeadLetterProducer(f"{topic}-none", kafka)
    none.produce(DeadLetterMessage("long", b"k", b"v", (), REASONS))
    with pytest.raises(FatalError, match=r"max\.message\.bytes"):
        none.flush()


def test_messages_that_are_too_large_together_are_written(topics: Topics, narrow: tuple[str, KafkaSettings]) -> None:
    """Each by itself fits, in the order in which they were sent."""
    topic, kafka = narrow
    MessageProducer(kafka, KafkaAdmin(kafka)).send(topic, SOME)
    assert [(record.key, record.value) for record in topics.read(topic)] == SOME
