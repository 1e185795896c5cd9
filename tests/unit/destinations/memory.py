"""A destination in this process's memory: what the port asks of any, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import attrs
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, gather
from connector.sink.model.destination import Lookups, ReplayOutcome, ReplayRows, TableCommit
from connector.sink.model.driver_output import Written
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import TaskOutput
from connector.sink.model.truncate_limit import find_truncate_limit
from connector.sink.model.truncate_scope import TruncateScope


@attrs.frozen
class MemoryWriterFactory:
    """Opens writers whose descriptions are the rows themselves."""

    follows_keys: bool = False

    def open(self, plan: BatchPlan, label: str) -> MemoryWriter:
        """Open nothing: descriptions are made at the end."""
        return MemoryWriter()


class MemoryWriter:
    """The rows of one task: put, or taken out, by key; rows that are appended have none."""

    def __init__(self) -> None:
        self._rows: list[tuple[TablePlan, pa.RecordBatch, str]] = []

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        self._rows.append((table, part.rows, "append"))
        yield from ()

    def find_key_changes(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, Iterable[TaskOutput]]:
        return part, ()

    def upsert(self, table: TablePlan, folded: FoldedChanges, elsewhere: Sequence[bytes]) -> Iterator[TaskOutput]:
        for part in gather(folded.parts, folded.winners):
            for index, gone in enumerate(part.deleted):
                self._rows.append((table, part.rows.slice(index, 1), "delete" if gone else "put"))
        yield from ()

    def close(self) -> Iterator[TaskOutput]:
        for table, rows, what in self._rows:
            keys = list(table.layout.keys)
            yield TaskOutput.of(Written(table.index, (what, keys, rows.to_pylist())))


@attrs.define(eq=False)
class MemoryTables:
    """Tables that are there from the start, one for each topic of that name."""

    plans: dict[str, TablePlan]
    refused: dict[str, str] = attrs.field(factory=dict)
    refused_tables: dict[str, str] = attrs.field(factory=dict)
    drift: dict[str, set[str]] = attrs.field(factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.plans)

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: topic for topic in topics if topic in self.plans}

    def list_routed(self) -> list[str]:
        return []

    def detect_expired_reads(self, *names: str) -> AbstractContextManager[None]:
        return nullcontext()

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        return attrs.evolve(self.plans[name], index=index)

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        raise AssertionError("tables never change")

    def expect_unavailable_values(self, name: str) -> None:
        raise AssertionError("nothing is looked up")

    def record_drift(self, name: str, fields: Iterable[str]) -> None:
        self.drift.setdefault(name, set()).update(fields)

    def find_other_sources(self, name: str) -> frozenset[str]:
        return frozenset()

    def label(self, name: str) -> str:
        return name


@attrs.define(eq=False)
class MemoryDestination:
    """Rows by table and key, once they are committed; it is its own committer and takes dead letters in."""

    tables: MemoryTables
    rows: dict[str, dict[object, dict[str, object]]] = attrs.field(factory=dict)
    target_kind: str = "list"
    keeps_offsets: bool = False

    @property
    def committer(self) -> MemoryDestination:
        return self

    def stored_offsets(self) -> Mapping[str, KafkaOffsets]:
        return {}

    def writers(self) -> MemoryWriterFactory:
        return MemoryWriterFactory()

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        return Lookups()

    def replay_target(self) -> MemoryDestination:
        return self

    def find_hold(self) -> str | None:
        """Hold nothing up."""
        return None

    def rest(self) -> None:
        """Nothing is due by time."""

    def finish(self) -> None:
        """Nothing goes on beside the batches."""

    def clean_up(self) -> None:
        pass

    def discard(self, names: list[str], result: JobResult) -> None:
        pass

    def truncate(self, plan: BatchPlan, names: list[str], scopes: Mapping[int, TruncateScope]) -> None:
        """Wait for the commit, as tables do."""

    def commit(
        self, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> dict[str, TableCommit]:
        for index, files in result.written.items():
            held = self.rows.setdefault(names[index], {})
            for cut, own in plan.tables[index].truncated.emptied:
                until = find_truncate_limit(cut, plan.tables[index], plan)
                for key, row in list(held.items()):
                    older = until is None or int(str(row[until[0]])) <= until[1]
                    if older and all(row[name] == value for name, value in own.values):
                        del held[key]
            for what, keys, rows in files:
                for row in rows:
                    key = len(held) if what == "append" else tuple(row[name] for name in keys)
                    held.pop(key, None)
                    if what != "delete":
                        held[key] = row
        return {names[index]: TableCommit(names[index], position) for index in result.written}

    def close(self) -> None:
        """There are no threads."""

    def find_replayed(self, name: str) -> set[str]:
        return set()

    def replay(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows, *, execute: bool) -> ReplayOutcome:
        return ReplayOutcome()
