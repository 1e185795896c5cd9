"""The embedded broker through stop, start and crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from connector.demo.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.thorough]
TOPIC = "shop.public.orders"


def _cluster_id(broker: KafkaBroker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return str(admin.list_topics(timeout=10).cluster_id)


def _produce(broker: KafkaBroker, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    errors: list[object] = []
    for value in values:
        producer.produce(TOPIC, value=value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None] * len(values)


def _values(broker: KafkaBroker, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def test_data_and_identity_survive_stop_and_crash(tmp_path: Path) -> None:
    """After a clean stop and after SIGKILL the broker has the same cluster id, address and records."""
    broker = KafkaBroker(tmp_path / "broker")
    with broker:
        identity, address = _cluster_id(broker), broker.bootstrap_servers
        broker.create_topic(TOPIC, partitions=1, max_message_bytes="2000000")
        _produce(broker, [b"1", b"2"])
        broker.stop()
        assert broker.pid is None
        broker.start()
        assert (_cluster_id(broker), broker.bootstrap_servers) == (identity, address)
        _produce(broker, [b"3"])
        broker.kill()
        broker.start()
        assert (_cluster_id(broker), broker.bootstrap_servers) == (identity, address)
        assert _values(broker, 3) == [b"1", b"2", b"3"]


def test_moves_to_other_ports_when_its_own_are_taken(tmp_path: Path) -> None:
    """A second home on the first one's old port starts; the first then comes back elsewhere with its cluster id."""
    first = KafkaBroker(tmp_path / "first").start()
    identity, port = _cluster_id(first), int(first.bootstrap_servers.rpartition(":")[2])
    first.stop()
    with KafkaBroker(tmp_path / "second", port=port) as second, first:
        assert second.bootstrap_servers.endswith(f":{port}")
        assert first.bootstrap_servers != second.bootstrap_servers
        assert _cluster_id(first) == identity != _cluster_id(second)


def test_no_broker_is_left_behind(tmp_path: Path) -> None:
    """A Python process killed by SIGKILL takes its broker with it: the home can be used again at once."""
    code = (
        "import sys, time, pathlib; from connector.demo.servers.kafka_broker import KafkaBroker\n"
        "b = KafkaBroker(pathlib.Path(sys.argv[1])).start(); print(b.pid, flush=True); time.sleep(600)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, str(tmp_path / "broker")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as parent:
        assert parent.stdout is not None
        left = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    with KafkaBroker(tmp_path / "broker") as broker:
        assert broker.pid != left
        assert not Path(f"/proc/{left}/cmdline").exists() or b"kafka" not in Path(f"/proc/{left}/cmdline").read_bytes()
