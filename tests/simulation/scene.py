"""A world and what is acknowledged in it: each commit and each saving of offsets tells what has to be in the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, cycle
from typing import Any

import attrs

from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.state.offsets_table import _decode_commit
from connector.runtime.topic_partitions import TopicPartition
from tests.simulation.broker import Broker, Topic
from tests.simulation.catalog_server import CatalogServer, SnapshotVersion
from tests.simulation.expectations import Expectation, Wrong
from tests.simulation.interruptions import Interruptions
from tests.simulation.process import NAME, CommitOrigin, Process, Surroundings, settings_of
from tests.simulation.search_cluster import CLUSTERS, SearchCluster
from tests.simulation.source import Source, Truth
from tests.simulation.steps import CLUSTER_URL, Story
from tests.simulation.store import STORES

OFFSETS = "_debezium_offset_storage"
_NUMBERS = count()
SHARED = "d.all"
"""The table that takes all topics, in worlds where they share one."""
SPREAD = 100
"""Keys of the topics there are so far apart."""


class Over(BaseException):
    """The sink stopped for a reason that only a person can take away: the story ends well.

    Where it ran within a call of another process, no handler of that one is to see it.
    """


@attrs.define(eq=False, slots=False)
class Scene:
    """Everything that there is in a story; `events` tells what became of each step.

    `tables` has what is expected of each topic's rows, by the name of the table that they would have alone; `latest`
    the greatest number of a commit that was stored, by table; `begun` where the sink began to read, `reached` how far
    the offsets that it stored have ever come.
    """

    story: Story
    folder: str
    events: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        world = self.story.world
        self.calls = Interruptions(act=self._act)
        number = next(_NUMBERS)
        self.server = CatalogServer(world.catalog, landed=self._landed, store=number)
        self.names = [f"db.public.t{number}" for number in range(world.topics)]
        sources = {name: self._make_source(name, world.partitions) for name in self.names}
        self.broker = Broker({name: Topic(source, f"id-{name}") for name, source in sources.items()})
        self.around = Surroundings(number, self.broker, self.server, self.calls)
        STORES[self.around.number] = (self.server, self.calls)
        self.search = SearchCluster()
        CLUSTERS[CLUSTER_URL] = (self.search, self.calls)
        self.settings = settings_of(world.properties, self.folder)
        self.starts = cycle(settings_of(one.properties, self.folder) for one in world.worlds)
        self.processes: dict[int, Process] = {}
        self.reasons: set[str] = set()
        exact, precise = world.proves_ages, world.clock == "postgres"
        alone, keeps = world.partitions == 1 and not self.is_shared, world.keep_deletes and not world.documents
        self.tables = {
            self._table_of(name): Expectation(
                name,
                world.upsert,
                exact,
                precise,
                alone,
                sources[name].base,
                keeps,
                together=world.moves,
                rewrites="copy-on-write" in (world.mode, world.then),
                documents=world.documents,
                metadata=world.metadata,
            )
            for name in self.names
        }
        self.saved: dict[TopicPartition, int] = {}
        self.begun: dict[TopicPartition, int] = {}
        self.reached: dict[TopicPartition, int] = {}
        self.noted: dict[str, StoredCommit] = {}
        self.latest: dict[str, int] = {}
        self.states: dict[int, dict[str, Expectation]] = {}
        self.positions: dict[int, KafkaOffsets | None] = {}
        self.lost: set[str] = set()
        self.put_back: dict[str, int] = {}
        self.readers: dict[str, int] = {}
        self.said: dict[tuple[str, TopicPartition], int] = {}
        self.running: list[Process] = []

    def _make_source(self, name: str, partitions: int) -> Source:
        world, base = self.story.world, SPREAD * self.names.index(name) if self.is_shared else 0
        told = {"leaves_out": world.leaves_out, "tells_keys": world.documents or world.leaves_out}
        told |= {"moves": world.moves, "numbered": world.numbered, "processed": world.dedup == "__ts_ns"}
        return Source(name, partitions, world.clock, **told, base=base)

    @property
    def is_shared(self) -> bool:
        return self.story.world.shared and self.story.world.topics > 1

    def _place(self, label: str) -> str:
        """The table that has the rows of a topic, by the name of the one that they would have alone."""
        return SHARED if self.is_shared else label

    def _owners(self, table: str) -> dict[str, Expectation]:
        """What is expected of a table, for each topic that fills it."""
        return {label: one for label, one in self.tables.items() if self._place(label) == table}

    def _table_of(self, topic: str) -> str:
        return "d." + topic.replace(".", "_")

    def _acknowledged(self, at: TopicPartition) -> int:
        return self.tables[self._table_of(at[0])].ends.get(at, 0)

    def _land(self) -> None:
        """Let late calls land, and take note of the documents that they write."""
        before = {name: dict(index.documents) for name, index in self.search.indexes.items()}
        self.calls.land()
        for expected in self.tables.values():
            if expected.topic in before:
                expected.note_late_rows(before[expected.topic], self.search.indexes[expected.topic].documents)

    def _landed(self, name: str, snapshot: SnapshotVersion, told: Any) -> None:
        reads: Mapping[TopicPartition, Mapping[int, Truth]] = {}
        if isinstance(told, CommitOrigin):
            reads = told.reads
            for other in (*self.processes.values(), *self.running):
                other.has_rival = other.has_rival or other is not told.process
        if name == f"d.{OFFSETS}":
            self._stored(snapshot, reads)
            return
        position = self._position(snapshot)
        owners = self._owners(name)
        for label, expected in owners.items():
            if position is not None:
                self._committed(label, expected, position, reads)
            elif snapshot.summary.get(CREATED_BY) == NAME:
                # Rows of a truncate go, or are marked, in a commit that has no offsets.
                expected.empty(reads)
        if position is not None:
            self.put_back.pop(name, None)
        self.states[snapshot.id] = {label: expected.copy() for label, expected in owners.items()}

    def _committed(
        self,
        name: str,
        expected: Expectation,
        position: KafkaOffsets,
        reads: Mapping[TopicPartition, Mapping[int, Truth]],
    ) -> None:
        if name in self.lost:
            raise Wrong(f"a batch was committed to {name} although its topic, or the table, was made again")
        # What the offsets table has beyond it, of topics without rows in the batch, a commit need not say.
        backwards = [at for at, end in position.offsets.items() if end < self.said.get((name, at), 0)]
        self.said |= {(name, at): end for at, end in position.offsets.items()}
        if backwards and self._place(name) not in self.put_back:
            raise Wrong(f"{name} went back to {position.offsets[backwards[0]]} of {backwards[0]}")
        there = self._there()
        if self._place(name) in self.put_back:
            reads = {at: {**self._below(self.saved.get(at, 0), there[at]), **reads.get(at, {})} for at in there}
        elif name not in self.lost:
            self._refuse_unread(expected, position.offsets, reads, f"the commit to {name}")
        expected.advance(position.offsets, reads, there, f"the commit to {name}")

    def _refuse_unread(
        self,
        expected: Expectation,
        ends: Mapping[TopicPartition, int],
        reads: Mapping[TopicPartition, Mapping[int, Truth]],
        why: str,
    ) -> None:
        """See that no offset moves over what retention took before anybody read it: that is a gap."""
        for at, end in ends.items() if self._table_of(expected.topic) not in self.lost else ():
            topic, read = self.broker.topics[at[0]], reads.get(at, {})
            first = max(expected.ends.get(at, 0), self.begun.get(at, 0))
            gone = range(first, min(end, topic.beginning(at[1]))) if at[0] == expected.topic else range(0)
            unread = [offset for offset in gone if offset not in read and (at[1], offset) not in topic.gone]
            if unread:
                raise Wrong(f"{why}: {at[0]}-{at[1]} stands at {end}, and retention took offset {unread[0]} unread")

    def _refuse_loss(
        self, label: str, ends: Mapping[TopicPartition, int], reads: Mapping[TopicPartition, Mapping[int, Truth]]
    ) -> None:
        """See that no offset moves over rows whose table somebody dropped, or whose topic was made again."""
        if label in self.lost:
            expected = self.tables[label]
            over = {
                at: {offset: truth for offset, truth in reads.get(at, {}).items() if offset < end}
                for at, end in ends.items()
            }
            if expected.brings_rows(over):
                raise Wrong(f"{label}, or its topic, is not what it was, and the stored offsets move over its rows")

    def _below(self, end: int, there: Mapping[int, Truth]) -> dict[int, Truth]:
        """What had no rows for a table that was put back meanwhile, and is acknowledged: nobody reads it again."""
        return {offset: truth for offset, truth in there.items() if offset < end}

    def _stored(self, snapshot: SnapshotVersion, told: Mapping[TopicPartition, Mapping[int, Truth]]) -> None:
        """Offsets were stored: everything before them has to be in its table."""
        for file in snapshot.files if snapshot.summary.get(CREATED_BY) == NAME else ():
            self.saved |= self._read_offsets(file.path)
            self.reached = {at: max(end, self.reached.get(at, 0)) for at, end in self.saved.items()}
            # What a topic has grown by is read from its beginning on.
            first = {at: end if at[1] < self.story.world.partitions else 0 for at, end in self.saved.items()}
            self.begun = {**first, **self.begun}
            self.noted |= self._read_notes(file.path)
            numbers = {name: one.sequence_number for name, one in self.noted.items()}
            self.latest = {name: max(number, self.latest.get(name, 0)) for name, number in numbers.items()}
        if snapshot.summary.get(CREATED_BY) != NAME:
            return
        # What a process that has not looked since says of a table that was put back its next look contradicts.
        there = self._there()
        for label in self.tables:
            place = self._place(label)
            for expected in self._states_that_pass(place, label) if place not in self.put_back else ():
                first = {at: end for at, end in self.saved.items() if at in expected.ends or end}
                if expected is self.tables[label]:
                    self._refuse_unread(expected, first, told, "the offsets table")
                    self._refuse_loss(label, first, told)
                expected.advance(first, told, there, "the offsets table")

    def _states_that_pass(self, place: str, label: str) -> Iterator[Expectation]:
        """What is expected of a table as it is, and of its snapshots that a start would go on from with what is stored.

        What the stored offsets are beyond has no rows there. A start goes on from the sink's newest commit that is
        stored, and from what came after it; of an older one, or one that is not as far, it says that the table was
        rolled back: also where others have gone on since from there.
        """
        table, noted = self.server.tables.get(place), self.noted.get(place)
        waiting = [self.tables[label]]
        for one in table.ancestors() if table is not None else ():
            if label in self.states.get(one.id, {}):
                waiting.append(self.states[one.id][label])
            position = self._position(one)
            if position is None:
                continue
            if noted is not None and (one.number < noted.sequence_number or position.behind(noted.position)):
                return
            yield from waiting
            if noted is None or one.number == noted.sequence_number:
                return
            waiting = []
        yield from waiting

    def _position(self, snapshot: SnapshotVersion) -> KafkaOffsets | None:
        """What a snapshot says of the sink's offsets; None where the sink did not make it."""
        if snapshot.id not in self.positions:
            self.positions[snapshot.id] = KafkaOffsets.from_summary(snapshot.summary, NAME)
        return self.positions[snapshot.id]

    def _read_offsets(self, path: str) -> Mapping[TopicPartition, int]:
        rows = self.server.read(path)
        own = (KafkaOffsets.parse(row["offset_data"]).offsets for row in rows if row["id"] == NAME)
        return next(own, {})

    def _read_notes(self, path: str) -> dict[str, StoredCommit]:
        """The sink's newest commits, by table, as they are stored."""
        prefix = f"{NAME}/"
        rows = [row for row in self.server.read(path) if row["id"].startswith(prefix)]
        return {row["id"].removeprefix(prefix): _decode_commit(row["offset_data"]) for row in rows}

    def _there(self) -> dict[TopicPartition, Mapping[int, Truth]]:
        topics = self.broker.topics
        return {(name, p): topics[name].all_truths(p) for name, p in self.broker.partitions()}
