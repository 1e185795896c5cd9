"""Tables that change, and SIGKILL of the source that indexes them and of the node -> each index is its table.

Every start costs a JVM: `make test-all` kills both a few times, `make soak` more often. The seed is printed;
ICEBRIDGE_SEED repeats a run's plan (not its timing).
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Self

import pytest
from attrs import define, field
from pyspark.sql import SparkSession

from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.settings.source.settings import load_source
from connector.source.factory import build_source
from tests.clients.search import Search
from tests.harness.rounds import kills, seeded
from tests.histories.source_tables import Kind, Subject, use_catalog
from tests.histories.stories import FLAT, NESTED, Crowded
from tests.runs.direct import Direct, index_of
from tests.runs.processes import Line, Sink

KILLS = kills(4)
pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600 + 60 * KILLS)]

KINDS = {
    Kind(2, "copy-on-write", partitioned=True, identifiers=True, nested=True): NESTED,
    Kind(3, "merge-on-read", partitioned=False, identifiers=True): FLAT,
}
SLOW = {
    # Small requests, one after the other: sending the documents of a step takes a second or two.
    "batch.size": "2",
    "max.in.flight.requests": "1",
}
PROPERTIES = {
    "max.batch.size": "500",
    # What the node missed comes soon after its return.
    "max.retries": "3",
    "errors.retry.delay.max.ms": "500",
    # Tells which snapshot's documents have arrived.
    "iceberg.metadata.fields": "iceberg_snapshot_id",
    "poll.interval.ms": "100",
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
Counts = Counter[int]
"""Documents by the snapshot that they are of."""


@define
class Struck:
    """The tables, the node, and the source's processes; `hits` tells who was killed in the middle of a step."""

    direct: Direct
    node: OpenSearchNode | None
    stories: list[Crowded]
    rng: random.Random
    spark: dict[str, str]
    """Settings of each process's Spark."""
    starts: list[Sink] = field(factory=list)
    hits: list[str] = field(factory=list)
    _left: Counts = field(factory=Counter)

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process behind, whatever happened."""
        for sink in self.starts:
            if sink.process.poll() is None:
                sink.kill()

    def start(self) -> Sink:
        """Start a process that follows all tables."""
        self.starts.append(Sink(self._file({**self.spark, **SLOW}), ()))
        return self.starts[-1]

    def finish(self) -> None:
        """Take in all that is left, in this process."""
        build_source(self.direct.spark, load_source([self._file({})], environ={})).run(once=True)

    def _file(self, extra: dict[str, str]) -> Path:
        tables = [story.subject.short for story in self.stories]
        return self.direct.file("direct-killed", tables, {**PROPERTIES, **extra})

    def live(self, most: int) -> None:
        """Let each table change, `most` times at most."""
        for story in self.stories:
            for _ in range(self.rng.randint(1, most)):
                story.step()

    def wait_for_read(self) -> None:
        """Wait until every table was read in full."""
        self.starts[-1].wait_until(lambda: self._read() == len(self.stories), 240)

    def wait_for_steps(self, count: int) -> None:
        """Wait until so many steps more are settled, where there are that many; else every kill hits the same one."""
        done = len(self._lines("documents settled"))
        with suppress(TimeoutError):
            self.starts[-1].wait_until(lambda: len(self._lines("documents settled")) >= done + count, 5)

    def wait_for_work(self) -> None:
        """Wait until the process of now sends documents of a step; tables that are done with change once more."""
        for _ in range(20):
            with suppress(TimeoutError):
                if self.starts[-1].wait_until(self._works, 4, 0.05):
                    return
            self._assert_alive()
            self.live(1)
        raise AssertionError(f"no step was seen at work:\n{self.starts[-1].text()[-6000:]}")

    def strike(self, what: str, kill: Callable[[], object]) -> None:
        """Kill, and note whether a step had documents in its index then, and was not settled."""
        self._assert_alive()
        there = self._there()
        kill()
        # What is settled is counted when nothing can be settled any more.
        begun = there - self._settled()
        hit = {snapshot_id: count for snapshot_id, count in begun.items() if count != self._left[snapshot_id]}
        self._left = begun
        sys.stdout.write(f"{what} killed, documents of unfinished steps: {hit}\n")
        if hit:
            self.hits.append(what)

    @property
    def _indexes(self) -> str:
        """Of these tables alone: other tests may use the node too."""
        return ",".join(index_of(story.subject.short) for story in self.stories)

    def _assert_alive(self) -> None:
        """A node that was killed must not have ended the source."""
        sink = self.starts[-1]
        assert sink.process.poll() is None, f"the source ended by itself:\n{sink.text()[-6000:]}"

    def _works(self) -> bool:
        before = self._written()
        time.sleep(0.05)
        if self._written() <= before:
            return False
        begun = self._there() - self._settled()
        return any(count != self._left[snapshot_id] for snapshot_id, count in begun.items())

    def _lines(self, event: str) -> list[Line]:
        return [line for sink in self.starts for line in sink.lines() if line.get("event") == event]

    def _read(self) -> int:
        return len({line["table"] for line in self._lines("part read") if line["part"] == line["parts"]})

    def _settled(self) -> Counts:
        """What the processes have said to be settled; less may be there, where a later snapshot changed it."""
        settled: Counts = Counter()
        for line in self._lines("documents settled"):
            settled[line["snapshot_id"]] += line["indexed"]
        return settled

    def _there(self) -> Counts:
        """What the indexes hold."""
        self.direct.search.ask("POST", f"{self._indexes}/_refresh?ignore_unavailable=true")
        body = {"size": 0, "aggs": {"of": {"terms": {"field": "iceberg_snapshot_id", "size": 10_000}}}}
        answer = self.direct.search.ask("POST", f"{self._indexes}/_search?ignore_unavailable=true", body)
        buckets = answer.get("aggregations", {}).get("of", {}).get("buckets", [])
        return Counter({bucket["key"]: bucket["doc_count"] for bucket in buckets})

    def _written(self) -> int:
        """How many documents the node has taken since its start, repeated ones too."""
        stats = self.direct.search.ask("GET", f"{self._indexes}/_stats/indexing?ignore_unavailable=true")
        return int(stats.get("_all", {}).get("total", {}).get("indexing", {}).get("index_total", 0))


@pytest.mark.parametrize("count", [1, KILLS])
def test_killed_again_and_again_each_index_is_its_table(
    spark: SparkSession, search: Search, quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory, count: int
) -> None:
    """Node and source killed in turn at random moments of random histories, each index ends equal to its table."""
    rng = random.Random(seeded())
    name = f"direct_killed{count}"
    home = tmp_path_factory.mktemp(name)
    use_catalog(spark, home, name)
    # One kill is the source's.
    struck_ones = {"source"} if count == 1 else {"node", "source"}
    with OpenSearchNode(tmp_path_factory.mktemp(f"{name}-node")) if count > 1 else nullcontext(search) as node:
        direct = Direct(spark, home, Search(node.url), name)
        stories = [_story(spark, kind, rng, name) for kind in list(KINDS)[-count:]]
        struck = Struck(direct, node if isinstance(node, OpenSearchNode) else None, stories, rng, quick)
        with struck:
            # More often where no kill fell into the middle of a step: such a run would prove nothing.
            for number in range(count // 2 + 5):
                if number < count / 2 or set(struck.hits) != struck_ones:
                    _round(struck, number)
        struck.finish()
        for story in struck.stories:
            told = [statement[:80] for statement in story.told]
            assert direct.differences(story.subject) == [], f"{story.subject.kind}: {told}"
    assert set(struck.hits) == struck_ones, "no kill fell into the middle of a step"


def _story(spark: SparkSession, kind: Kind, rng: random.Random, catalog: str) -> Crowded:
    story = Crowded(Subject(spark, kind, KINDS[kind], catalog=catalog), rng.randrange(2**32))
    story.settle = lambda: None
    story.begin()
    return story


def _round(struck: Struck, number: int) -> None:
    """Start the source, kill the node in its work, where that is the test's own, then the source: in the full read
    first, in changes from then on."""
    sink = struck.start()
    struck.live(1)
    if number:
        struck.wait_for_read()
    if struck.node is not None:
        _moment(struck)
        struck.strike("node", struck.node.kill)
        struck.live(1)
        struck.node.start()
    _moment(struck)
    struck.strike("source", sink.kill)


def _moment(struck: Struck) -> None:
    """Let some steps go by, then kill while documents are sent or soon after; now and then, whatever happens."""
    if struck.rng.random() < 0.1:
        time.sleep(struck.rng.uniform(0, 8))
    else:
        struck.wait_for_steps(struck.rng.choice([0, 1, 2, 4]))
        struck.wait_for_work()
        time.sleep(struck.rng.choice([0.0, struck.rng.uniform(0, 0.5)]))
