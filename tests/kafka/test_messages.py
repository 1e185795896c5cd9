"""Single messages while the broker is away: what was not acknowledged is never written later."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from connector.demo.servers.ports import free_ports
from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
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
