"""Three brokers that are killed, restarted and elected while both readers read: nothing is skipped or comes twice."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from connector.errors import GapError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.readers import with_reader
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind
from tests.servers.cluster import Cluster
from tests.servers.cluster_writer import ClusterWriter, write_in_order

pytestmark = [pytest.mark.kafka, pytest.mark.thorough, pytest.mark.timeout(600)]
BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
At = tuple[str, int]


class Writer(ClusterWriter):
    """Writes numbers to the partitions in turn."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(cluster)
        self.partitions, self._topic = partitions, topic
        self.written: list[int] = []

    def _write(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            self._send((self._topic, number % self.partitions), b"%d" % number)
            self.written.append(number)
            self._producer.poll(0.001)


class Reader:
    """Reads a topic batch by batch, as a sink does: from where the last one ended to what is there now."""

    def __init__(self, cluster: Cluster, topic: str, kind: ReaderKind) -> None:
        self.kafka = with_reader(KafkaSettings(cluster.servers, (topic,), None, "g", "earliest", {}, {}, {}), kind)
        self._admin, self._topic = KafkaAdmin(self.kafka), topic
        self.position: dict[At, int] = {}
        self.epochs: dict[At, int] = {}
        self.read: list[int] = []

    def catch_up(self) -> None:
        """Read what is there, through whatever happens to brokers."""
        deadline = time.monotonic() + 120
        while True:
            try:
                ends = self._admin.fetch_end_offsets(sorted(self._admin.select_partitions()))
                self._batch(ends)
                return
            except RetriableError:
                if time.monotonic() > deadline:
                    raise

    def _batch(self, ends: dict[At, int]) -> None:
        meter = FetchMeter()
        start = {at: self.position.get(at, 0) for at in ends}
        dealt = assign_ranges(self.kafka, start, ends, 1, epochs=self.epochs)
        found = [
            int(value)
            for task in range(len(dealt.shares))
            for chunk in dealt.chunks(task, meter)
            for value in chunk.check_readable().value.to_pylist()
        ]
        self.read += found
        self.position |= ends
        known = {at: epoch for at, epoch in self.epochs.items() if start[at] == ends[at]}
        self.epochs = known | {at: epoch for at, (last, epoch) in meter.epochs.items() if last == ends[at] - 1}


def disturb(cluster: Cluster, topic: str, step: str) -> None:
    """Do something to the cluster, and wait until it is whole again."""
    if step == "leader killed":
        # The controller stays: a cluster of one controller does nothing without it.
        node = cluster.nodes[next((n for n in (cluster.leader(topic, p) for p in range(3)) if n > 1), 2)]
        node.kill()
        node.start()
    elif step == "rolling restart":
        for number in (2, 3):
            cluster.nodes[number].stop()
            cluster.nodes[number].start()
    elif step == "partition added":
        cluster.add_partitions(topic, 4)


@pytest.mark.parametrize("kind", BOTH)
def test_every_record_comes_once_whatever_brokers_do(cluster: Cluster, kind: ReaderKind) -> None:
    """A leader killed, brokers restarted one by one, a partition added, under writing: each number is read once."""
    topic = f"cluster-{kind}"
    cluster.create(topic, 3)
    reader = Reader(cluster, topic, kind)
    with Writer(cluster, topic, 3) as writer:
        for step in ("leader killed", "rolling restart", "partition added"):
            disturbing = threading.Thread(target=disturb, args=(cluster, topic, step))
            disturbing.start()
            while disturbing.is_alive():
                reader.catch_up()
            disturbing.join()
            if step == "partition added":
                writer.partitions = 4
        reader.catch_up()
    reader.catch_up()
    assert sorted(reader.read) == writer.written
    assert len(reader.position) == 4


@pytest.mark.parametrize("kind", BOTH)
def test_a_log_that_an_unclean_election_cut_is_noticed(cluster: Cluster, kind: ReaderKind) -> None:
    """A replica that was behind leads: what was read is gone, and what came in its place is no continuation."""
    topic = f"unclean-{kind}"
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    cluster.create_by_replicas(topic, [[2, 3]], config)
    write(cluster, topic, range(10))
    reader = Reader(cluster, topic, kind)
    cluster.nodes[3].kill()
    write(cluster, topic, range(10, 20))  # the other replica never sees these
    reader.catch_up()
    assert reader.read == list(range(20))
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    write(cluster, topic, range(100, 130))
    try:
        with pytest.raises(GapError, match=r"cut by an unclean leader election|gone from Kafka"):
            reader.catch_up()
    finally:
        cluster.nodes[2].start()
    assert reader.read == list(range(20))


@pytest.mark.parametrize("kind", BOTH)
def test_a_topic_made_again_is_no_continuation(cluster: Cluster, kind: ReaderKind) -> None:
    """Offsets of a topic that was deleted are not those of its successor, whose log ends in front of them."""
    topic = f"again-{kind}"
    cluster.create(topic, 1)
    write(cluster, topic, range(20))
    reader = Reader(cluster, topic, kind)
    reader.catch_up()
    cluster.delete(topic)
    cluster.create(topic, 1)
    write(cluster, topic, range(5))
    at = (topic, 0)
    with pytest.raises((GapError, RetriableError)):
        reader._batch({at: reader.position[at] + 3})
    assert reader.read == list(range(20))


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    """Write numbers to partition 0 of a topic, in order."""
    write_in_order(cluster, topic, ((b"%d" % number, None) for number in numbers))
