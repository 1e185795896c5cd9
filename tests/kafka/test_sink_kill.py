"""a stream, and SIGKILL again and again -> the same tables: no row lost, none doubled.

The kills are aimed: at start, while files are written, between files and commit, at the commit itself, after it.
`make test` kills once, at the commit; `make test-all` aims once each, `make soak` three times. The seed is printed;
ICEBRIDGE_SEED repeats a run's plan (not its timing).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from connector.settings.kafka.reading import ReaderKind
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.rounds import kills, seeded
from tests.harness.tiers import tiered
from tests.model.events import COLUMNS, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.processes import Sink, Workspace

KILLS = kills(7)
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600 + 60 * KILLS)]

KEYS = 500
KEYED_EVENTS, PLAIN_EVENTS = 800, 200
"""For each kill."""
# What must be seen of a run before it is killed, and how long after that (s, up to).
AIMS: dict[str, tuple[str, float]] = {
    "start": ("", 9.0),
    "files": ("keyed/data/**/*.parquet", 0.2),
    "before the commit": ("keyed/metadata/snap-*.avro", 0.02),
    "at the commit": ("keyed/metadata/*.metadata.json", 0.02),
    "other table": ("log/metadata/*", 0.3),
    "offsets": ("_*/metadata/*", 0.3),
    "after a batch": ("log line", 1.5),
}
SMOKE = ["at the commit"]
OFTEN = [list(AIMS)[i % len(AIMS)] for i in range(KILLS)]
SMALL_BATCHES = {"debezium.sink.batch.max-events": "300", "debezium.sink.batch.interval-ms": "100"}


@frozen
class Stream:
    """A source of both kinds of table: a keyed one, and a key-less one that is only appended to."""

    keyed: Database
    plain: Database
    records: tuple[Record, ...]


def _stream(seed: int, kills: int, name: str) -> Stream:
    """Random transactions of creates, updates, deletes and key changes over 500 keys, with plain events between."""
    rng = random.Random(seed)
    keyed, plain = Database(f"{name}.public.keyed", 3), Database(f"{name}.public.log", 2, keyed=False)
    records: list[Record] = []
    while len(keyed.log) < kills * KEYED_EVENTS:
        done = len(keyed.log), len(plain.log)
        Life(KEYS).live(rng, keyed, rng.randint(1, 4))
        if rng.random() < PLAIN_EVENTS / KEYED_EVENTS:
            plain.transaction(*(("c", row(len(plain.rows) + i, "logged", i)) for i in range(rng.randint(1, 3))))
        records += keyed.log[done[0] :] + plain.log[done[1] :]
    return Stream(keyed, plain, tuple(records))


@contextmanager
def _producing(topics: Topics, records: tuple[Record, ...], rng: random.Random) -> Iterator[None]:
    """Produce steadily, in random portions, about 70 events per second; all the rest at the end."""
    stop = threading.Event()
    left = list(records)

    def produce() -> None:
        while left and not stop.is_set():
            count = rng.randint(1, 70)
            topics.replay(left[:count], create=False)
            del left[:count]
            stop.wait(0.5)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        topics.replay(left, create=False)


NATIVE: ReaderKind = "native"
CASES = [(SMOKE, NATIVE), (OFTEN, NATIVE), (OFTEN, "librdkafka")]


@pytest.mark.parametrize(
    ("aims", "kind"), tiered(CASES, CASES[:1], lambda case: f"{'once' if case[0] is SMOKE else 'often'}-{case[1]}")
)
def test_killed_again_and_again_no_row_is_lost_or_doubled(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, aims: list[str], kind: ReaderKind
) -> None:
    """Killed with SIGKILL at many points of a stream, the sink ends with exactly the source's rows and events."""
    seed, name = seeded(), f"kill{len(aims)}{kind}"
    rng, stream = random.Random(seed), _stream(seed, len(aims), name)
    topics.create({stream.keyed.topic: stream.keyed.partitions, stream.plain.topic: stream.plain.partitions})
    more = {"debezium.sink.iceberg.upsert-keep-deletes": "false", "consumer.reader": kind}
    extra = {"topics.regex": rf"{name}\..*", **more}
    space = make_workspace(name, extra)
    aims = rng.sample(aims, len(aims))
    with _producing(topics, stream.records, rng):
        for aim in aims:
            _live_and_die(space, aim, rng)
    last = space.run({"debezium.sink.batch.max-events": "5000"})
    assert last.code == 0, last.text[-6000:]
    _assert_exact(lake(space), stream)
    if aims is SMOKE:
        return
    # The same topics in batches of another size.
    other = make_workspace(f"{name}_other", {**extra, "debezium.sink.batch.max-events": "3700"})
    assert other.run().code == 0
    _assert_exact(lake(other), stream)


def _live_and_die(space: Workspace, aim: str, rng: random.Random) -> None:
    pattern, delay_s = AIMS[aim]
    seen = _counter(space, pattern)
    sink = space.start(SMALL_BATCHES)
    condition = _condition(sink, pattern, seen)
    assert sink.wait_until(condition, timeout_s=90, step_s=0.003), f"the sink ended by itself:\n{sink.text()[-6000:]}"
    time.sleep(rng.uniform(0, delay_s))
    assert sink.process.poll() is None, f"the sink ended by itself:\n{sink.text()[-6000:]}"
    sys.stdout.write(f"killed ({aim}) after {sink.commits()} batches\n")
    sink.kill()


def _condition(sink: Sink, pattern: str, seen: Callable[[], int]) -> Callable[[], bool]:
    if not pattern:
        return lambda: True
    if pattern == "log line":
        return lambda: sink.commits() > 0
    before = seen()
    return lambda: seen() > before


def _counter(space: Workspace, pattern: str) -> Callable[[], int]:
    """Counts the files of a pattern below the warehouse; tables stand in folders named like them."""
    root: Path = space.warehouse / "default"
    table = {what: f"{space.properties['name']}_public_{what}" for what in ("keyed", "log")}
    head, _, rest = pattern.partition("/")
    return lambda: sum(1 for _ in root.glob(f"{table.get(head, head)}/{rest}"))


def _assert_exact(tables: Lake, stream: Stream) -> None:
    keyed = Counter(map(_plain, tables.many(stream.keyed.topic.replace(".", "_"))))
    assert keyed == Counter(map(_plain, stream.keyed.rows.values()))
    appended = Counter(map(_plain, tables.many(stream.plain.topic.replace(".", "_"))))
    assert appended == Counter(map(_plain, stream.plain.rows.values()))


def _plain(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(found.get(c) for c in COLUMNS)
