"""The port of the sink's destinations: rows of a batch -> Iceberg tables, indexes of OpenSearch, or others.

A destination is one object per sink, opened by `destinations.registry.open_destination`. The factory of the
sink, the job, the micro-batches, the replay of dead letters and the command line know nothing but what is here:

    tables       which tables there are, what a batch has to know of them, and making them ready for new schemas
    writers      executors: rows of a task -> files, requests, ...
    lookups      after the tasks: what only the table itself can tell of a batch
    committer    what was written becomes visible, with the batch's offsets
    replay       records from the dead letter queue, a few at a time
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import attrs
from pyspark.sql import DataFrame

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import TaskOutput
from connector.sink.model.truncate_scope import TruncateScope

ReplayRows = Sequence[tuple[ChangeBatch, Sequence[str]]]
"""Rows, and the name of the dead letter of each (`DeadLetterRecord.name`)."""


@attrs.frozen
class TableCommit:
    """What became of a batch in one table: its full name, the offsets it has now, and counts for the log.

    `uuid`, `snapshot_id` and `sequence_number` name the commit, where it was one.
    """

    name: str
    position: KafkaOffsets
    counts: Mapping[str, int] = attrs.field(factory=dict)
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int = 0

    @property
    def noted(self) -> StoredCommit:
        """What the offsets table is to say of the table."""
        return StoredCommit(self.position, self.uuid, self.snapshot_id, self.sequence_number)

    def after(self, before: TableCommit | None) -> TableCommit:
        """Add what an earlier try of the same batch did."""
        if before is None:
            return self
        every = {*before.counts, *self.counts}
        return attrs.evolve(
            self, counts={what: before.counts.get(what, 0) + self.counts.get(what, 0) for what in every}
        )


class TaskWriter(Protocol):
    """What one task writes, to any number of tables. Outputs are handed on as they come, descriptions at the end."""

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        """Write every change as a row."""

    def find_key_changes(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, Iterable[TaskOutput]]:
        """Read the other keys that the headers of `run` name; return the part marked with them, and outputs."""

    def upsert(self, table: TablePlan, folded: FoldedChanges, elsewhere: Sequence[bytes]) -> Iterator[TaskOutput]:
        """Write the winners of a bucket; `elsewhere` are the payloads of `KEY_CHANGES` outputs for it."""

    def close(self) -> Iterator[TaskOutput]:
        """Finish, and describe what was written (`driver_output.Written`)."""


class WriterFactory(Protocol):
    """Opens the writers of tasks; pickled to executors beside the plan."""

    @property
    def follows_keys(self) -> bool:
        """Whether records always come with the headers that name the old and new key of a key change."""

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
        """Open the writer of one task; `label` tells it from others."""


class TableLookup(Protocol):
    """A join of a job's outputs with what a table holds, before the commit."""

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether the batch may need it for this table."""

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Return frames of further task outputs, lazily.

        Args:
            outputs: those that the job has for the table so far.
            table: its plan.
            result: what the driver knows of the outputs.
            until: closes what the frames read from once the batch is committed or given up.
        """


@attrs.frozen(eq=False)
class Lookups:
    """The look-ups of one batch: `late_events` before all others, its outputs are changes for the reduce task again.

    A destination needs it whose plans have `dated` or `remembers`. The outputs of `joins` are files and keys.
    """

    late_events: TableLookup | None = None
    joins: Sequence[TableLookup] = ()


class TableRegistry(Protocol):
    """All tables of one sink, by name. `refused`: topics, and named tables, that can have none, and why.

    `drift`: fields in which events and table differ, by table. `schema_changes`: how many tables were "created" and
    "altered".
    """

    refused: dict[str, str]
    refused_tables: dict[str, str]
    drift: dict[str, set[str]]
    schema_changes: Counter[str]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables that are known."""

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the table names of those topics whose table exists."""

    def list_routed(self) -> list[str]:
        """Return the known tables of those that events name themselves."""

    def detect_expired_reads(self, *names: str) -> AbstractContextManager[None]:
        """Raise RetriableError where a read fails because the planned snapshot of a table has expired."""

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        """Return the executors' view of a table for a batch that starts at `start`."""

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        """Create and evolve tables for schemas of events that they were not ready for."""

    def expect_unavailable_values(self, name: str) -> None:
        """Take note that a table's events leave out values that the table may hold."""

    def record_drift(self, name: str, fields: Iterable[str]) -> None:
        """Take note of fields in which events and table differ."""

    def find_other_sources(self, name: str) -> frozenset[str]:
        """Return the names of sources whose rows other connectors brought into a table, as far as it tells."""

    def label(self, name: str) -> str:
        """Return the full name of a table, for people and the offsets table."""


class Committer(Protocol):
    """Makes what a job wrote visible."""

    def discard(self, names: list[str], result: JobResult) -> None:
        """Remove what a job wrote; it will run again."""

    def truncate(self, plan: BatchPlan, names: list[str], scopes: Mapping[int, TruncateScope]) -> None:
        """Take note of truncates, by index of their table, for which the job will run again.

        What a destination shows at once goes now; tables lose it with the batch's commit.
        """

    def commit(
        self, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> dict[str, TableCommit]:
        """Empty the tables that were truncated, and commit what a job wrote with the batch's end offsets.

        Returns what became of each table that changed, by name.
        """

    def close(self) -> None:
        """End the threads of commits: the sink is at its end."""


@attrs.frozen
class ReplayOutcome:
    """The letters that were not simply applied: superseded by newer changes, and refused ones with the reason."""

    overtaken: frozenset[str] = frozenset()
    dead: Mapping[str, str] = attrs.field(factory=dict)


class ReplayTarget(Protocol):
    """Takes repaired dead letters in."""

    def find_replayed(self, name: str) -> set[str]:
        """Return the names of the letters that were applied before, as far as the table tells."""

    def replay(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows, *, execute: bool) -> ReplayOutcome:
        """Write rows into a table of the plan, and make them visible; without `execute` tell what would become of them.

        Raises:
            DataFault: they cannot be, for a reason that is not one letter's.
        """


class Destination(Protocol):
    """Where the rows of one sink go."""

    @property
    def target_kind(self) -> str:
        """What people call one target: "table", "index"."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether commits say themselves which offsets are in them.

        Where none does, a batch's offsets are saved before the next one begins: after a crash at most one batch is sent
        again, from where it began.
        """

    @property
    def tables(self) -> TableRegistry:
        """The targets, by name."""

    @property
    def committer(self) -> Committer:
        """Commits the batches of this sink."""

    def stored_offsets(self) -> Mapping[str, KafkaOffsets]:
        """Return the offsets that the tables themselves had at the start, by full name; none if they keep none."""

    def writers(self) -> WriterFactory:
        """Return what opens the writers of the next job's tasks."""

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        """Return the look-ups of a batch in the tables of its plan; `names` are theirs, by index."""

    def replay_target(self) -> ReplayTarget:
        """Return what takes repaired dead letters in."""

    def find_hold(self) -> str | None:
        """Say why the next batch has to wait, for people; None where it may begin. Asked often: it costs little."""

    def rest(self) -> None:
        """Do what is due by time, batches or none; called some times a second, and returns at once."""

    def finish(self) -> None:
        """Do what is due, and wait for it: a run up to the offsets of its start is over."""

    def clean_up(self) -> None:
        """Remove what is not needed any more, once a batch's offsets are stored.

        Raises:
            ConnectorError: it is tried again after the next batch.
        """
