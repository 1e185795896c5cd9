"""A story -> what happened, with every invariant looked at after each step; the first that does not hold ends it."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any

import attrs
import pyarrow.parquet as pq

from connector.errors import ConnectorError, FatalError, GapError
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME, CREATED_BY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.runtime.topic_partitions import TopicPartition
from tests.simulation.broker import Broker, Topic
from tests.simulation.catalog_server import CatalogServer, Rows, SnapshotVersion
from tests.simulation.expectations import FOREIGN, Expectation, Wrong
from tests.simulation.interruptions import Crash, Interruptions
from tests.simulation.other_writers import change_row
from tests.simulation.process import NAME, TRUNCATE, Process, Surroundings, Told, one_thread, settings_of
from tests.simulation.search_cluster import CLUSTERS, SearchCluster
from tests.simulation.source import KEYS, Source, Truth
from tests.simulation.steps import CLUSTER_URL, Batch, KafkaStep, Kill, SourceStep, Step, Story, TableStep
from tests.simulation.store import STORES

OFFSETS = "_debezium_offset_storage"
_NUMBERS = count()
MAX_FINAL_ROUNDS = 8


class Over(Exception):
    """The sink stopped for a reason that only a person can take away: the story ends well."""


@attrs.define(eq=False, slots=False)
class History:
    """A story that is under way; `events` tells what became of each step."""

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
        self.processes: dict[int, Process] = {}
        self.reasons: set[str] = set()
        exact, precise = world.clock == "postgres" and world.places, world.clock == "postgres"
        self.tables = {
            self._table_of(name): Expectation(name, world.upsert, exact, precise, alone=world.partitions == 1)
            for name in self.names
        }
        self.saved: dict[TopicPartition, int] = {}
        self.states: dict[int, Expectation] = {}
        self.lost: set[str] = set()
        self.put_back: dict[str, int] = {}
        self.running: list[Process] = []

    def _make_source(self, name: str, partitions: int) -> Source:
        return Source(name, partitions, self.story.world.clock, leaves_out=self.story.world.leaves_out)

    def _table_of(self, topic: str) -> str:
        return "d." + topic.replace(".", "_")

    def run(self) -> None:
        """Go through the story, and then through what is left to do until all is in.

        Raises:
            Wrong: an invariant does not hold.
        """
        try:
            with one_thread(lazy=self.story.world.lazy):
                for number, step in enumerate(self.story.steps):
                    self.events.append(f"{number:3d}  {step}")
                    self._act(step)
                    self._check(complete=False)
                self._finish()
        except Over as over:
            self.events.append(f"     ends: {over}")
        finally:
            STORES.pop(self.around.number, None)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _act(self, step: Step) -> None:
        match step:
            case SourceStep():
                self._move_source(step)
            case KafkaStep():
                self._move_kafka(step)
            case TableStep():
                self._move_table(step)
            case Kill():
                self.processes.pop(step.process, None)
            case Batch():
                self._batch(step)

    def _move_source(self, step: SourceStep) -> None:
        rng = Random(step.seed)
        source = self.broker.topics[rng.choice(self.names)].source
        match step.act:
            case "commit":
                source.live(rng, 3)
            case "commits":
                for _ in range(rng.randint(2, 6)):
                    source.live(rng, 4)
            case "restart" if source.log:
                source.again(rng.randrange(len(source.log)))
            case "read":
                for key in rng.sample(range(KEYS), 2):
                    source.rng = rng
                    source.read(key)
            case "truncate" if self.settings.table.truncate:
                source.truncate(rng)
            case "poison":
                source.poison(rng)
            case "grow" if self.story.world.clock == "postgres" and source.partitions < 4 and self._knows(source):
                source.grow(source.partitions + 1)
                self.tables[self._table_of(source.topic)].alone = False
            case "fail over" if source.clock == "mariadb":
                source.rng = rng
                source.fail_over()

    def _survives_compaction(self, source: Source) -> bool:
        """Tell whether tombstones are enough, which is all that compaction leaves of deletes (docs/guarantees.md)."""
        world = self.story.world
        return not world.keep_deletes and not world.documents and source.partitions == world.partitions

    def _knows(self, source: Source) -> bool:
        """Tell whether the sink can notice that a topic grows (docs/guarantees.md)."""
        return bool(self.tables[self._table_of(source.topic)].ends)

    def _move_kafka(self, step: KafkaStep) -> None:
        rng = Random(step.seed)
        name = rng.choice(self.names)
        topic = self.broker.topics[name]
        match step.act:
            case "compact topic" if self._survives_compaction(topic.source):
                topic.compact()
            case "retain":
                partition = rng.randrange(topic.source.partitions)
                gone = topic.beginnings[partition] = rng.randint(topic.beginning(partition), topic.end(partition))
                # What a table has beyond the stored offsets, after a crash, counts as unread: the sink stops.
                if gone > self.saved.get((name, partition), 0):
                    self.reasons.add("retention")
            case "recreate":
                fresh = self._make_source(name, topic.source.partitions)
                self.broker.topics[name] = Topic(fresh, f"{topic.id}-again")
                # A run that crashed before it stored anything of the topic leaves nothing that the new one could lack.
                if any(at[0] == name for at in (*self.saved, *self.tables[self._table_of(name)].ends)):
                    self.lost.add(self._table_of(name))
                    self.reasons.add("recreated")

    def _acknowledged(self, at: TopicPartition) -> int:
        return self.tables[self._table_of(at[0])].ends.get(at, 0)

    def _move_table(self, step: TableStep) -> None:
        rng = Random(step.seed)
        name = rng.choice(sorted(self.tables))
        if step.act == "land late commits":
            self.calls.land()
        elif step.act == "forget deletes":
            # A request that comes after all, as late as that, nothing can tell from a new one.
            if not self.calls.late:
                self.search.forget_deletes()
        elif step.act == "jump of the clock":
            self.server.now_ms += rng.choice([-3_600_000, 3_600_000, 86_400_000])
        elif name in self.server.tables:
            self._move_one_table(step, rng, name)

    def _move_one_table(self, step: TableStep, rng: Random, name: str) -> None:
        match step.act:
            case "rewrite files":
                self.server.compact(name)
            case "append rows":
                self._append(rng, name)
            case "change row":
                self._change_row(rng, name)
            case "expire":
                self._expire(name, rng.choice([1, 1, 3]))
            case "roll back":
                before = self.server.tables[name].newest
                if before is not None and self.server.roll_back(name, rng.randint(1, 2)):
                    self._put_back(name, before.number)

    def _expire(self, name: str, keep: int) -> None:
        """Expire snapshots; but not the only one that knows where a run that crashed stood, nor the last that tells of
        a rollback (docs/guarantees.md).
        """
        left = list(self.server.tables[name].ancestors())[:keep]
        ends = self.tables[name].ends
        known = any(one.summary.get(CONNECTOR_NAME) == NAME for one in left)
        known = known or all(self.saved.get(at, 0) >= end for at, end in ends.items())
        if known and (name not in self.put_back or left[-1].number <= self.put_back[name]):
            self.server.expire(name, keep)

    def _put_back(self, name: str, number: int) -> None:
        """A table is as it was at a snapshot, and had a `number` before; whoever goes on has to read from there."""
        head = self.server.tables[name].head
        assert head is not None
        self.tables[name] = self.states[head].copy()
        self.put_back[name] = number
        self.reasons.add("rolled back")
        for process in self.processes.values():
            if process not in self.running:
                process.reads.clear()

    def _append(self, rng: Random, name: str) -> None:
        """Another writer adds rows of its own keys, or of one that the table does not have."""
        expected = self.tables[name]
        there = {row["id"] for row in self.server.rows(name)}
        key = FOREIGN + rng.randrange(3) if rng.random() < 0.6 else rng.randrange(KEYS)
        if key in there or any(truth.key == key for truth in expected.taken):
            return
        row = {field.name: None for field in self.server.tables[name].schema.fields}
        row |= {"id": key, "n": -key - 1, "name": "foreign"}
        expected.foreign[key] = row
        self.server.append(name, [row])

    def _change_row(self, rng: Random, name: str) -> None:
        """Another writer changes or deletes a row of its own."""
        expected = self.tables[name]
        there = {row["id"]: row for row in self.server.rows(name)}
        key = rng.choice([FOREIGN, FOREIGN + 1, FOREIGN + 2])
        if key not in expected.foreign or key not in there:
            return
        row = {**there[key], "n": -rng.randrange(10_000)} if rng.random() < 0.6 else None
        expected.foreign.pop(key)
        if row is not None:
            expected.foreign[key] = row
        change_row(self.server, name, key, row, rng.choice(["rewrite", "positions"]))  # type: ignore[arg-type]

    # --- the sink ------------------------------------------------------------------------------------------------

    def _batch(self, step: Batch) -> None:
        self.calls.happened = []
        nested = bool(self.running)
        if self.story.world.documents and step.process:
            # Nobody tells one process of another there: no commit has an end to compare.
            return
        if not nested:
            self.calls.begin(dict(step.during))
        process = self.processes.get(step.process)
        if process in self.running:
            return
        try:
            if process is None:
                process = Process(self.around, self.settings, self.story.world.parallelism)
                self.running.append(process)
                process.start()
                self.processes[step.process] = process
            else:
                self.running.append(process)
            process.discover()
            self._check_group()
            self._check_ends(process)
            process.process(self._ends(process, step))
        except Crash:
            self.events.append("     killed")
            self._drop(step.process)
        except ConnectorError as error:
            self._stopped(process, error)
            self._drop(step.process)
        except (Over, Wrong):
            raise
        except Exception as error:
            raise Wrong(f"the sink fell over: {type(error).__name__}: {error}") from error
        finally:
            self.running.remove(process)

    def _drop(self, number: int) -> None:
        self.processes.pop(number, None)

    def _check_ends(self, process: Process) -> None:
        """Spark's source looks whether a topic still goes as far as it was read."""
        for name, partition in process.at:
            topic = self.broker.topics[name]
            if process.at[name, partition] > topic.end(partition):
                raise GapError(f"{name}-{partition} ends before what was read of it")

    def _ends(self, process: Process, step: Batch) -> dict[TopicPartition, int]:
        rng, ends = Random(step.seed), {}
        for at, start in sorted(process.at.items()):
            topic = self.broker.topics[at[0]]
            end = topic.end(at[1])
            ends[at] = max(start, end) if step.whole or end <= start else rng.randint(start, end)
        return ends

    def _stopped(self, process: Process, error: ConnectorError) -> None:
        """Look whether there is a reason for a stop; one that only a person can take away ends the story."""
        self.events.append(f"     stops: {type(error).__name__}: {str(error)[:300]}")
        if not str(error):
            raise Wrong("the sink stops and does not say why")
        if self.reasons & {"rolled back", "recreated", "retention"} and isinstance(error, GapError | FatalError):
            raise Over(str(error)[:160])
        if isinstance(error, GapError) and not self._has_missed(process):
            raise Wrong(f"the sink stops with a gap where there is none: {error}")
        if isinstance(error, FatalError) and not process.has_rival:
            raise Wrong(f"the sink stops for no reason: {error}")

    def _has_missed(self, process: Process) -> bool:
        """Tell whether retention took what a process that another overtook has still to read."""
        topics = self.broker.topics
        return process.has_rival and any(end < topics[name].beginning(p) for (name, p), end in process.at.items())

    # --- invariants ----------------------------------------------------------------------------------------------

    def _landed(self, name: str, snapshot: SnapshotVersion, told: Any) -> None:
        reads: Mapping[TopicPartition, Mapping[int, Truth]] = {}
        if isinstance(told, Told):
            reads = told.reads
            for other in (*self.processes.values(), *self.running):
                other.has_rival = other.has_rival or other is not told.process
        if name == f"d.{OFFSETS}":
            self._stored(snapshot, reads)
            return
        position = KafkaOffsets.from_summary(snapshot.summary, NAME)
        if name not in self.tables:
            return
        expected = self.tables[name]
        if position is not None:
            self._committed(name, expected, position, reads)
        elif snapshot.summary.get(COMMIT_ID, "").startswith(TRUNCATE):
            expected.empty(reads)
        self.states[snapshot.id] = expected.copy()

    def _committed(
        self,
        name: str,
        expected: Expectation,
        position: KafkaOffsets,
        reads: Mapping[TopicPartition, Mapping[int, Truth]],
    ) -> None:
        if name in self.lost:
            raise Wrong(f"a batch was committed to {name} although its topic was made again")
        backwards = [at for at, end in position.offsets.items() if end < expected.ends.get(at, 0)]
        if backwards and name not in self.put_back:
            raise Wrong(f"{name} went back to {position.offsets[backwards[0]]} of {backwards[0]}")
        self.put_back.pop(name, None)
        expected.advance(position.offsets, reads, self._there(), f"the commit to {name}")

    def _stored(self, snapshot: SnapshotVersion, told: Mapping[TopicPartition, Mapping[int, Truth]]) -> None:
        """Offsets were stored: everything before them has to be in its table."""
        for file in snapshot.files if snapshot.summary.get(CREATED_BY) == NAME else ():
            self.saved |= self._read_offsets(file.path)
        if snapshot.summary.get(CREATED_BY) != NAME:
            return
        # What a process that has not looked since says of a table that was put back its next look contradicts.
        for expected in (expected for name, expected in self.tables.items() if name not in self.put_back):
            first = {at: end for at, end in self.saved.items() if at in expected.ends or end}
            expected.advance(first, told, self._there(), "the offsets table")

    def _read_offsets(self, path: str) -> Mapping[TopicPartition, int]:
        rows = pq.read_table(io.BytesIO(self.server.files[path]), use_threads=False).to_pylist()
        own = (KafkaOffsets.parse(row["offset_data"]).offsets for row in rows if row["id"] == NAME)
        return next(own, {})

    def _there(self) -> dict[TopicPartition, dict[int, Truth]]:
        topics = self.broker.topics
        return {(name, p): topics[name].truths(p, 0, 1 << 60) for name, p in self.broker.partitions()}

    def _check(self, *, complete: bool) -> None:
        if self.server.broken:
            raise Wrong(f"a file was deleted that a table needs: {self.server.broken[0]}")
        for name, expected in self.tables.items():
            if name in self.lost:
                continue
            rows = self._documents(expected) if self.story.world.documents else self._rows(name, expected)
            if rows is None:
                continue
            done = complete or self._is_complete(expected)
            try:
                expected.check(rows, complete=done)
            except Wrong as wrong:
                raise Wrong(f"{name}: {wrong}") from None
            self._check_letters(expected)

    def _documents(self, expected: Expectation) -> Rows | None:
        """The documents of an index. What is sent is there before anybody acknowledges it: until then nobody can tell
        what has to be there.
        """
        if not self._is_complete(expected) or expected.topic not in self.search.indexes:
            return None
        return [document for _, document in self.search.indexes[expected.topic].documents.values()]

    def _rows(self, name: str, expected: Expectation) -> Rows | None:
        if name not in self.server.tables:
            if any(truth.row is not None for truth in expected.taken):
                raise Wrong(f"{name} is not there, but its offsets moved")
            return None
        self._check_vectors(name)
        try:
            return self.server.rows(name)
        except KeyError as gone:
            raise Wrong(f"{name} cannot be read: file {gone} is gone") from gone

    def _check_vectors(self, name: str) -> None:
        """Readers go by one vector of a data file (spec, "Deletion Vectors")."""
        newest = self.server.tables[name].newest if name in self.server.tables else None
        vectors = Counter(file.referenced for file in newest.files if file.offset is not None) if newest else Counter()
        if vectors and max(vectors.values()) > 1:
            raise Wrong(f"{name} has two vectors of one data file")

    def _is_complete(self, expected: Expectation) -> bool:
        topic = self.broker.topics[expected.topic]
        return all(expected.ends.get((expected.topic, p), 0) >= topic.end(p) for p in range(topic.source.partitions))

    def _check_letters(self, expected: Expectation) -> None:
        letters = {place for place in self.around.letters if place[0] == expected.topic}
        if missing := expected.poison - letters:
            raise Wrong(f"no dead letter of {min(missing)}, which cannot be read")
        topic = self.broker.topics[expected.topic]
        for name, partition, offset in letters:
            places = topic.places(partition)
            if name not in map(self._topic, self.lost) and topic.source.truth[places[offset]].says != "poison":
                raise Wrong(f"{name}-{partition} offset {offset} is a dead letter, and nothing is wrong with it")

    def _topic(self, table: str) -> str:
        return self.tables[table].topic

    def _check_group(self) -> None:
        if "rolled back" in self.reasons:
            return
        for at, end in self.around.group.items():
            if end > self._acknowledged(at) and self._table_of(at[0]) not in self.lost:
                raise Wrong(f"the consumer group stands at {end} of {at}, and the tables at {self._acknowledged(at)}")

    def _finish(self) -> None:
        """Nothing goes wrong any more: one process brings in all there is."""
        self.events.append("     in the end: nothing goes wrong any more")
        self.calls.land()
        self.processes.clear()
        last = 0 if self.story.world.documents else 9
        for number in range(MAX_FINAL_ROUNDS):
            self._batch(Batch(last, number, whole=True))
            self._check(complete=False)
            process = self.processes.get(last)
            if process is not None and all(map(self._is_complete, self._kept())):
                process.batches.close()
                self._check(complete=True)
                self._check_stored()
                return
        if not self.lost and not self.put_back:
            raise Wrong("the sink does not get to the end of its topics")

    def _kept(self) -> list[Expectation]:
        return [expected for name, expected in self.tables.items() if name not in self.lost]

    def _check_stored(self) -> None:
        ends = {at: self.broker.topics[at[0]].end(at[1]) for at in self.broker.partitions()}
        if {at: self.around.group.get(at, 0) for at in ends} != ends and not self.lost and not self.put_back:
            raise Wrong(f"in the end the consumer group stands at {self.around.group}, and the topics end at {ends}")


__all__ = ["History", "Wrong"]
