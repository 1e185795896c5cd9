"""Single messages while the broker is away: what was not acknowledged is never written later."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.settings.source.settings import load_source
from tests.servers import SharedBroker
from tests.topics import Topics

pytestmark = pytest.mark.kafka


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _forwarded(port: int, to: str) -> Iterator[None]:
    """Forward connections of a port: the broker is there from now on."""
    host, number = to.split(":")
    stopping = threading.Event()

    def carry(one: socket.socket) -> None:
        with one, socket.create_connection((host, int(number))) as other:
            while not stopping.is_set():
                for ready in select.select([one, other], [], [], 0.2)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    (other if ready is one else one).sendall(data)

    def accept(server: socket.socket) -> None:
        while not stopping.is_set():
            if select.select([server], [], [], 0.2)[0]:
                threading.Thread(target=carry, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=accept, args=(server,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()


def test_what_timed_out_is_never_written(broker: SharedBroker, topics: Topics, tmp_path: Path) -> None:
    """A message that was not acknowledged in time may be tried again; the old one does not go out behind the caller's
    back, and its end is no error of the next one, whatever topic that goes to."""
    topic, port = f"messages-{uuid4().hex}", _free_port()
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
    with _forwarded(port, broker.bootstrap_servers):
        messages._flush_s = 30.0
        messages.send(topic, [(b"k", b"BEGIN again"), (b"k", b"END")])
        messages.send(topic, [(b"k", None)])
    assert [record.value for record in topics.read(topic)] == [b"BEGIN again", b"END", None]
