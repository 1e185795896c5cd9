"""A story -> what happened, with every invariant looked at after each step; the first that does not hold ends it."""

from __future__ import annotations

from random import Random

from connector.errors import ConnectorError, FatalError, GapError
from connector.runtime.topic_partitions import TopicPartition
from tests.simulation.broker import Topic
from tests.simulation.checks import Checks
from tests.simulation.expectations import Wrong
from tests.simulation.interruptions import Crash
from tests.simulation.known_results import known_results
from tests.simulation.others import Others
from tests.simulation.process import Process, one_thread
from tests.simulation.scene import Over
from tests.simulation.source import KEYS, Source
from tests.simulation.steps import Batch, KafkaStep, Kill, Maintain, SourceAct, SourceStep, Step, TableStep
from tests.simulation.store import STORES

MAX_FINAL_ROUNDS = 8
_GAPS = frozenset({"rolled back", "recreated", "retention", "dropped"})
"""What takes away records, or rows, that only a person can bring back: the sink stops with a gap."""
_TOLD = {"rolled back": "rolled", "dropped": "dropped"}
"""What may also stop a batch that is under way, and the word by which it says so."""


class History(Others, Checks):
    """A story that is under way."""

    def run(self) -> None:
        """Go through the story, and then through what is left to do until all is in.

        Raises:
            Wrong: an invariant does not hold.
        """
        try:
            with one_thread(lazy=self.story.world.lazy), known_results():
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
            case Maintain():
                self._maintain(step)

    def _move_source(self, step: SourceStep) -> None:
        rng = Random(step.seed)
        source = self.broker.topics[rng.choice(self.names)].source
        if step.act == "truncate" and not self.settings.table.truncate:
            return
        if step.act == "grow":
            if self.story.world.clock != "postgres" or source.partitions >= 4 or not self._knows(source):
                return
            self.tables[self._table_of(source.topic)].alone = False
            self.tables[self._table_of(source.topic)].together = False
        source.once((step.act, step.seed, len(self.names)), lambda: _move(source, step.act, rng))

    def _survives_compaction(self, source: Source) -> bool:
        """Tell whether tombstones are enough, which is all that compaction leaves of deletes, and each change tells its
        row whole, which is all that it leaves of a row (docs/guarantees.md).
        """
        world = self.story.world
        whole = not world.keep_deletes and not world.leaves_out
        return whole and not world.documents and source.partitions == world.partitions

    def _orders_no_tombstones(self, source: Source) -> bool:
        """Tell whether a tombstone alone may be about what came from another partition (docs/guarantees.md): by a key
        that moved when the topic grew, or a document that moved to another key.
        """
        world = self.story.world
        return source.partitions > world.partitions or (world.documents and source.partitions > 1)

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
                self.tables[self._table_of(name)].partial = True
                gone = rng.randint(topic.beginning(partition), topic.end(partition))
                if self._orders_no_tombstones(topic.source) and topic.begins_bare(partition, gone):
                    gone += 1
                topic.beginnings[partition] = gone
                # What a table has beyond the stored offsets, after a crash, counts as unread: the sink stops.
                if gone > self.saved.get((name, partition), 0):
                    self.reasons.add("retention")
            case "reset offsets":
                # By `kafka-consumer-groups`: a sink goes on from where its tables are.
                self.around.group = {at: rng.randint(0, end) for at, end in self.around.group.items()}
            case "recreate" if not self.is_shared:
                fresh = self._make_source(name, topic.source.partitions)
                self.broker.topics[name] = Topic(fresh, f"{topic.id}-again")
                # A run that crashed before it stored anything of the topic leaves nothing that the new one could lack.
                if any(at[0] == name for at in (*self.saved, *self.tables[self._table_of(name)].ends)):
                    self.lost.add(self._table_of(name))
                    self.reasons.add("recreated")

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
                process = Process(self.around, next(self.starts), self.story.world.parallelism)
                self.running.append(process)
                process.start()
                self.processes[step.process] = process
            else:
                self.running.append(process)
            process.discover()
            self._check_group()
            self._check_ends(process)
            process.process(self._ends(process, step))
            self._check_settled(process)
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

    def _check_settled(self, process: Process) -> None:
        """A batch goes through only where the offsets of that before it are stored: else the sink says why not."""
        missed = [at for at, end in process.through.items() if self.reached.get(at, 0) < end]
        process.through = dict(process.at)
        if missed and not self.lost:
            raise Wrong(f"the sink goes on, and its last offsets of {missed[0]} are not stored")

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
        if self.story.world.moves:
            return self._whole_transactions(process, step, rng)
        for at, start in sorted(process.at.items()):
            topic = self.broker.topics[at[0]]
            end = topic.end(at[1])
            ends[at] = max(start, end) if step.whole or end <= start else step.cut(rng.randint(start, end), end)
        return ends

    def _whole_transactions(self, process: Process, step: Batch, rng: Random) -> dict[TopicPartition, int]:
        """Have a batch end where transactions do, in all partitions of a topic (`transaction.topic`)."""
        ends: dict[TopicPartition, int] = {}
        for name in self.names:
            starts = {partition: start for (topic, partition), start in process.at.items() if topic == name}
            known = self.broker.topics[name].ends_of_transactions()
            later = [one for one in known if all(one[partition] >= start for partition, start in starts.items())]
            found = (later[-1] if step.whole else rng.choice(later)) if later else starts
            ends |= {(name, partition): found[partition] for partition in starts}
        return ends

    def _stopped(self, process: Process, error: ConnectorError) -> None:
        """Look whether there is a reason for a stop; one that only a person can take away ends the story."""
        self.events.append(f"     stops: {type(error).__name__}: {str(error)[:300]}")
        if not str(error):
            raise Wrong("the sink stops and does not say why")
        if self.reasons & _GAPS and isinstance(error, GapError):
            raise Over(str(error)[:160])
        if any(reason in self.reasons and word in str(error) for reason, word in _TOLD.items()):
            raise Over(str(error)[:160])
        if isinstance(error, GapError) and not self._has_missed(process):
            raise Wrong(f"the sink stops with a gap where there is none: {error}")
        if isinstance(error, FatalError) and not (process.has_rival and _tells_of_rival(error)):
            raise Wrong(f"the sink stops for no reason: {error}")

    def _has_missed(self, process: Process) -> bool:
        """Tell whether retention took what a process that another overtook has still to read."""
        topics = self.broker.topics
        return process.has_rival and any(end < topics[name].beginning(p) for (name, p), end in process.at.items())

    def _finish(self) -> None:
        """Nothing goes wrong any more: one process brings in all there is."""
        self.events.append("     in the end: nothing goes wrong any more")
        self._land()
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
                self._check_told()
                self._maintain_all()
                return
        if not self.put_back or any(map(self._lacks_rows, self._kept())):
            raise Wrong("the sink does not get to the end of its topics")

    def _maintain_all(self) -> None:
        """Where there was maintenance, all of it is done once more, and changes nothing."""
        if any(isinstance(step, Maintain) for step in self.story.steps):
            self._maintain(Maintain(("convert", "rewrite", "expire"), 0), calm=True)
            self._check(complete=True)


def _tells_of_rival(error: FatalError) -> bool:
    """Tell whether a stop says that another process has the sink's name."""
    return any(text in str(error) for text in ("another sink with the same name", "another sink named"))


def _move(source: Source, act: SourceAct, rng: Random) -> None:
    """What a source does, which follows from its past and the numbers."""
    source.rng = rng
    match act:
        case "commit":
            source.live(rng, 3)
        case "commits":
            for _ in range(rng.randint(2, 6)):
                source.live(rng, 4)
        case "restart" if source.log:
            source.again(rng.randrange(len(source.log)))
        case "read":
            for key in rng.sample(range(KEYS), 2):
                source.read(key + source.base)
        case "truncate":
            source.truncate(rng)
        case "poison":
            source.poison(rng)
        case "grow":
            source.grow(source.partitions + 1)
        case "delete" if source.rows:
            source.transaction(("d", rng.choice(sorted(source.rows)) - source.base))
        case "fail over" if source.clock == "mariadb":
            source.fail_over()


__all__ = ["History", "Over", "Wrong"]
