"""Reduce task: changes of a bucket -> fold -> winners to the writers; those that may be late go aside.

Its memory is bounded by one bucket. Spark runs it on executors, `local_job` anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch
from connector.runtime.spark.python_workers import forget_archives, keep_memory
from connector.sink.fold.document_versions import raise_winner_versions
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.job.compaction import fold_changes, task_label
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, concat_small
from connector.sink.model.destination import TaskWriter, WriterFactory
from connector.sink.model.driver_output import LateCandidatesFound
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput


def reduce_task(
    plan: BatchPlan, writers: WriterFactory, *, judged: bool = False
) -> Callable[[Iterable[TaskOutput]], Iterator[TaskOutput]]:
    """Return the reduce task: outputs, those of a bucket in a row -> what the writers tell; others pass through.

    `judged` tells that the changes are what stands of those that might have been late.
    """

    def task(outputs: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
        keep_memory()
        work = ReduceTask(plan, writers, judged=judged)
        for output in outputs:
            if output.kind in (OutputKind.CHANGES, OutputKind.KEY_CHANGES):
                yield from work.take(output)
            else:
                yield output
        yield from work.finish()
        forget_archives()

    return task


def _set_late_aside(
    folded: FoldedChanges, table: TablePlan, *, judged: bool
) -> tuple[FoldedChanges | None, ChangeBatch | None]:
    """Part what may be late from the rest; of documents that there are their versions tell."""
    aside: ChangeBatch | None = None
    rest: FoldedChanges | None = folded
    if not judged and (table.remembers or not table.numbered):
        has_rows = not table.numbered and not table.history
        rest, aside = split_late_candidates(folded, table.layout.keys, has_rows=has_rows)
    return raise_winner_versions(rest, table.layout.keys) if rest is not None and table.numbered else rest, aside


class ReduceTask:
    """The state of one reduce task: the parts of the current bucket, and what is being written."""

    def __init__(self, plan: BatchPlan, writers: WriterFactory, *, judged: bool) -> None:
        self._plan, self._factory, self._is_judged = plan, writers, judged
        self._bucket: tuple[int, int] | None = None
        self._parts: list[ChangeBatch] = []
        self._elsewhere: list[bytes] = []
        self._writers: TaskWriter | None = None

    def take(self, output: TaskOutput) -> Iterator[TaskOutput]:
        """Gather the parts of one bucket, and other keys of theirs; write the one before when the next begins."""
        if self._bucket != (output.table, output.bucket):
            yield from self._write()
            self._bucket = (output.table, output.bucket)
        if output.kind == OutputKind.KEY_CHANGES:
            self._elsewhere.append(output.payload)
            return
        self._parts.append(unpack(output.payload, self._plan.tables[output.table].layout.rows))

    def finish(self) -> Iterator[TaskOutput]:
        """Write the last bucket, and hand on what there is to say of all."""
        yield from self._write()
        if self._writers is not None:
            yield from self._writers.close()

    def _write(self) -> Iterator[TaskOutput]:
        parts, elsewhere = self._parts, self._elsewhere
        self._parts, self._elsewhere = [], []
        if self._bucket is None or not parts:
            return
        # As they came from Kafka: so a fold costs least, and files do not depend on which task was faster.
        parts.sort(key=lambda part: (part.order.partition[:1].tolist(), part.order.offset[:1].tolist()))
        table, bucket, parts = self._plan.tables[self._bucket[0]], self._bucket[1], concat_small(parts)
        folded, aside = _set_late_aside(fold_changes(parts, table), table, judged=self._is_judged)
        if aside is not None:
            yield from (TaskOutput(OutputKind.KEY_CHANGES, payload, table.index, bucket) for payload in elsewhere)
            yield TaskOutput(OutputKind.LATE_CANDIDATES, pack(aside), table.index, bucket)
            candidates = aside.take(np.flatnonzero(aside.candidate))
            ranges = KeyRanges.of(read_batch(candidates.rows, table.layout.keys))
            yield TaskOutput.of(LateCandidatesFound(table.index, ranges))
        if folded is None:
            return
        if self._writers is None:
            self._writers = self._factory.open(self._plan, task_label(self._plan))
        yield from self._writers.upsert(table, folded, elsewhere)
