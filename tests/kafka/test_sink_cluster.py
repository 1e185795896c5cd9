"""Three brokers in trouble under a running sink -> the same tables as without, or a stop that says what was lost."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connector.settings.kafka.reading import ReaderKind
from tests.conftest import OpenLake
from tests.harness.rounds import seeded
from tests.model.events import COLUMNS, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.processes import COMMITTED, Sink, Workspace, workspace
from tests.servers.cluster import Cluster
from tests.servers.cluster_writer import ClusterWriter, write_in_order

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(840)]
BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
KEYS, STEP_S = 300, 0.1
SLOW = 40_000.0
"""Bytes a second that the quota lets through, where about twice as many come."""

THROTTLED_S = 20.0
MORE_PARTITIONS = 5


Start = Callable[[Workspace], Sink]


@pytest.fixture
def start() -> Iterator[Start]:
    """start(space) runs a sink; what is left of it at the end is killed."""
    running: list[Sink] = []

    def run(space: Workspace) -> Sink:
        running.append(space.start())
        return running[-1]

    yield run
    for sink in running:
        sink.kill()


class Load(ClusterWriter):
    """A source that lives and writes without a pause: a keyed table, and one that is only appended to."""

    def __init__(self, cluster: Cluster, prefix: str, seed: int) -> None:
        super().__init__(cluster, linger_ms=5, message_timeout_ms=300_000)
        self.keyed = Database(f"{prefix}.public.keyed", 3)
        self.plain = Database(f"{prefix}.public.log", 2, keyed=False)
        self._rng, self._life = random.Random(seed), Life(KEYS)
        self._lock = threading.Lock()
        self._sent = Counter[str]()

    @property
    def topics(self) -> dict[str, int]:
        """Partitions by topic."""
        return {table.topic: table.partitions for table in (self.keyed, self.plain)}

    def is_read(self, sink: Sink) -> bool:
        """Whether the sink has committed all that was written."""
        last = next((line for line in reversed(sink.lines()) if line.get("event") == COMMITTED), {})
        ends = Counter((record.topic, str(record.partition)) for db in (self.keyed, self.plain) for record in db.log)
        committed = last.get("offsets", {}).items()
        offsets = {(topic, partition): end for topic, parts in committed for partition, end in parts.items()}
        return all(offsets.get(at) == end for at, end in ends.items())

    def grow(self, partitions: int) -> None:
        """Write to more partitions of the keyed topic from now on: keys move."""
        with self._lock:
            self.keyed.grow(partitions)

    def _write(self) -> None:
        while not self._stop.wait(STEP_S):
            self._step()
        self._send_new()

    def _step(self) -> None:
        with self._lock:
            self._life.live(self._rng, self.keyed, self._rng.randint(1, 8))
            at = len(self.plain.rows)
            self.plain.transaction(*(("c", row(at + i, "logged", i)) for i in range(self._rng.randint(1, 3))))
        self._send_new()

    def _send_new(self) -> None:
        for table in (self.keyed, self.plain):
            for record in table.log[self._sent[table.topic] :]:
                self._send((record.topic, record.partition), record.value, record.key)
            self._sent[table.topic] = len(table.log)
        self._producer.poll(0)


def kill_a_leader(cluster: Cluster, load: Load) -> None:
    """SIGKILL to a broker that leads a part of the keyed topic, and back again."""
    leaders = [cluster.leader(load.keyed.topic, partition) for partition in range(3)]
    node = cluster.nodes[next(number for number in leaders if number > 1)]
    node.kill()
    node.start()


def move_leaders(cluster: Cluster, load: Load) -> None:
    """Give the broker that was killed its partitions back."""
    cluster.move_leaders_home(load.topics)


def restart_all(cluster: Cluster, load: Load) -> None:
    """A rolling restart, the controller last, and the leaders moved home."""
    for number in (2, 3, 1):
        cluster.nodes[number].stop()
        cluster.nodes[number].start()
    cluster.move_leaders_home(load.topics)


def add_partitions(cluster: Cluster, load: Load) -> None:
    """The keyed topic grows, and keys move to the new partitions."""
    cluster.add_partitions(load.keyed.topic, MORE_PARTITIONS)
    load.grow(MORE_PARTITIONS)


def throttle(cluster: Cluster, load: Load) -> None:
    """A quota for so long that what comes cannot all be read."""
    cluster.limit_fetches(SLOW)
    time.sleep(THROTTLED_S)
    cluster.limit_fetches(None)


STEPS: list[Callable[[Cluster, Load], None]] = [kill_a_leader, move_leaders, restart_all, add_partitions, throttle]


@pytest.mark.parametrize("kind", BOTH)
def test_whatever_brokers_do_tables_are_those_of_the_source(
    cluster: Cluster, tmp_path: Path, quick: dict[str, str], lake: OpenLake, start: Start, kind: ReaderKind
) -> None:
    """A leader killed, leaders moved, all brokers restarted, a quota, partitions added, under load: all is there."""
    load = Load(cluster, f"cluster{kind}", seeded())
    for topic, partitions in load.topics.items():
        cluster.create(topic, partitions)
    space = make_space(cluster, tmp_path, f"cluster{kind}", quick, kind)
    sink = start(space)
    with load:
        wait_for_batch(sink)
        for step in STEPS:
            step(cluster, load)
            sys.stdout.write(f"{step.__name__} after {sink.commits()} batches\n")
            wait_for_batch(sink)
    assert sink.wait_until(lambda: load.is_read(sink), 240), sink.text()[-6000:]
    ended = sink.terminate()
    assert ended.code == 0, ended.text[-6000:]
    for table in (load.keyed, load.plain):
        assert_same(space, table, lake)


@pytest.mark.parametrize("kind", BOTH)
def test_a_topic_that_is_made_again_stops_the_sink(
    cluster: Cluster, tmp_path: Path, quick: dict[str, str], lake: OpenLake, start: Start, kind: ReaderKind
) -> None:
    """Deleted and made again under a running sink: it stops, also after a restart, and takes nothing of the new one."""
    table = Database(f"again{kind}.public.log", 1, keyed=False)
    table.transaction(*(("c", row(number, "old")) for number in range(20)))
    cluster.create(table.topic, 1)
    write(cluster, table.topic, table.log)
    space = make_space(cluster, tmp_path, f"again{kind}", quick, kind)
    sink = start(space)
    wait_for_batch(sink)
    cluster.delete(table.topic)
    cluster.create(table.topic, 1)
    write(cluster, table.topic, [table.log[0]] * 30)
    for run in (sink.wait(300), space.start({}, "--once").wait(240)):
        assert run.code != 0, run.text[-6000:]
        assert "was deleted" in run.text, run.text[-6000:]
    assert_same(space, table, lake)


@pytest.mark.parametrize("kind", BOTH)
def test_a_log_that_was_cut_while_the_sink_was_down_is_noticed(
    cluster: Cluster, tmp_path: Path, quick: dict[str, str], lake: OpenLake, kind: ReaderKind
) -> None:
    """A replica that was behind leads by an unclean election, and new records fill its log up again: the sink stops."""
    table = Database(f"unclean{kind}.public.log", 1, keyed=False)
    table.transaction(*(("c", row(number, "kept")) for number in range(20)))
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    cluster.create_by_replicas(table.topic, [[2, 3]], config)
    write(cluster, table.topic, table.log[:10])
    cluster.nodes[3].kill()
    write(cluster, table.topic, table.log[10:])  # the other replica never sees these
    space = make_space(cluster, tmp_path, f"unclean{kind}", quick, kind)
    first = space.start({}, "--once").wait(240)
    assert first.code == 0, first.text[-6000:]
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    write(cluster, table.topic, [table.log[0]] * 30)
    cluster.nodes[2].start()
    second = space.start({}, "--once").wait(240)
    assert second.code != 0, second.text[-6000:]
    assert "cut by an unclean leader election" in second.text, second.text[-6000:]
    assert_same(space, table, lake)


def make_space(cluster: Cluster, home: Path, name: str, quick: dict[str, str], kind: ReaderKind) -> Workspace:
    """A sink of the topics of one prefix."""
    extra = {
        "topics.regex": rf"{name}\..*",
        "consumer.reader": kind,
        "errors.retry.timeout": "300000",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.batch.interval-ms": "500",
    }
    return workspace(home, name, cluster.servers, {**quick, **extra})


def wait_for_batch(sink: Sink) -> None:
    """Wait until the sink has committed another batch."""
    before = sink.commits()
    assert sink.wait_until(lambda: sink.commits() > before, 180), f"the sink ended by itself:\n{sink.text()[-6000:]}"


def write(cluster: Cluster, topic: str, records: list[Record]) -> None:
    """Write to partition 0 of a topic, in order."""
    write_in_order(cluster, topic, ((record.value, record.key) for record in records))


def assert_same(space: Workspace, table: Database, lake: OpenLake) -> None:
    """A table holds exactly the source's rows, each once."""
    found = Counter(map(plain_row, lake(space).many(table.topic.replace(".", "_"))))
    assert found == Counter(map(plain_row, table.rows.values())), table.topic


def plain_row(found: dict[str, Any]) -> tuple[Any, ...]:
    """A row's own columns."""
    return tuple(found.get(name) for name in COLUMNS)
