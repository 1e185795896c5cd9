"""Indexes of a cluster in memory as a destination of the sink: the product's own, but for what Spark does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, cast

import attrs
import pyarrow as pa

from connector.iceberg.state.offsets_table import OffsetsTable
from connector.settings import SinkSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.destinations.opensearch.committer import OpenSearchCommitter
from connector.sink.destinations.opensearch.deleted_documents import remember_deleted_keys
from connector.sink.destinations.opensearch.destination import OpenSearchDestination
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.destinations.opensearch.lookups.waiting_keys import WaitingKeysLookup, waiting_task
from connector.sink.model.destination import Lookups
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind, TaskOutput
from tests.simulation.lookups import judge_late
from tests.simulation.tables import SimulatedDeletedKeys
from tests.unit.local_job import find_deletes_in_memory, run_task


@attrs.frozen(eq=False)
class SimulatedIndexes(OpenSearchDestination):
    """Indexes of a cluster in memory."""

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        deleted: Any = self.tables.deleted_keys
        late: Any = None if deleted is None else MemoryDeletedLookup(plan, deleted)
        waiting: Any = MemoryWaitingLookup(plan, self.writers(), deleted)
        return Lookups(late, (waiting,))


@attrs.frozen(eq=False)
class MemoryDeletedLookup:
    """As `deleted_document_lookup.DeletedDocumentLookup`, over outputs in a list."""

    plan: BatchPlan
    deleted_keys: SimulatedDeletedKeys

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        return table.index in result.late_ranges

    def run(
        self, outputs: Sequence[TaskOutput], table: TablePlan, result: JobResult, until: ExitStack
    ) -> Iterator[list[TaskOutput]]:
        yield judge_late(outputs, table, self.plan, [], self.deleted_keys.remembered(table.layout.name))
        yield [one for one in outputs if one.kind == OutputKind.KEY_CHANGES]


@attrs.frozen(eq=False)
class MemoryWaitingLookup(WaitingKeysLookup):
    """The same, over outputs in a list."""

    def run(  # type: ignore[override]
        self, outputs: Sequence[TaskOutput], table: TablePlan, result: JobResult, until: ExitStack
    ) -> Iterator[list[TaskOutput]]:
        waiting = [one for one in outputs if one.kind == OutputKind.WAITING_KEYS]
        first = run_task(waiting_task(self.plan, table, self.writers, asks=True), waiting)
        yield first
        if table.index in result.deletes_wanted:
            deleted: Any = self.deleted_keys
            remember_deleted_keys(deleted, result)
            found = find_deletes_in_memory(first, deleted.remembered(table.layout.name), table)
            yield run_task(waiting_task(self.plan, table, self.writers, asks=False), [*waiting, found])


def open_indexes(
    settings: SinkSettings, offsets: OffsetsTable, topics: Collection[str], deleted: SimulatedDeletedKeys | None
) -> SimulatedIndexes:
    """As `destinations.opensearch.destination.open_destination`."""
    stored, search = offsets.tables, cast("OpenSearchSettings", settings.destination)
    stood = {name: noted.position for name, noted in stored.items()}
    indexes = OpenSearchIndexes(settings, search, stood, deleted)
    indexes.check({name: noted.uuid for name, noted in stored.items()})
    indexes.find(topics)
    return SimulatedIndexes(indexes, OpenSearchCommitter(cast("Any", OneTask()), indexes, search))


@attrs.frozen
class OneTask:
    """Spark's session, context, and a frame of numbers: one task in this process."""

    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    defaultParallelism: int = 1  # noqa: N815 - Spark's name

    @property
    def sparkContext(self) -> OneTask:  # noqa: N802 - Spark's name
        return self

    def range(self, *_: int) -> OneTask:
        return self

    def mapInArrow(self, task: Any, _: str) -> OneTask:  # noqa: N802 - Spark's name
        return OneTask(task)

    def collect(self) -> list[Any]:
        assert self.task is not None
        batches = self.task(iter([pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})]))
        return [_Row(value) for batch in batches for value in batch.column(0).to_pylist()]


@attrs.frozen
class _Row:
    deleted: int
