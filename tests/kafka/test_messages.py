"""Single messages while the broker is away: what was not acknowledged is never written later."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from connector.demo.servers.ports import free_ports
from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.producer import DeadLetterMessage, DeadLetterProducer
from connector.kafka.producer import MessageProducer
from connector.settings import KafkaSettings
from connector.settings.source.settings import load_source
from tests.relay import Relay
from tests.servers import SharedBroker
from tests.topics import Topics

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


def test_messages_that_are_too_large_together_are_written(topics: Topics, narrow: tuple[str, KafkaSettings]) -> None:
    """Each by itself fits, in the order in which they were sent."""
    topic, kafka = narrow
    MessageProducer(kafka, KafkaAdmin(kafka)).send(topic, SOME)
    assert [(record.key, record.value) for record in topics.read(topic)] == SOME
