"""The two tasks of a batch, as Spark runs them on executors.

map:    offset ranges -> records -> decode -> fold -> parcels by bucket (upsert), or rows to the outlet (append)
reduce: parcels of a bucket -> fold -> winners to the outlet, those that may be late aside (`lookups.late_events`)

Memory of a task is bounded: by one fetch, `CHUNK_BYTES` of rows, and one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.unreadable_records import UnreadableBatch
from connector.kafka.dlq.writer import BATCH_STAGE
from connector.runtime.monitoring.metrics import FetchMetrics, TaskMetrics
from connector.runtime.spark.python_workers import forget_archives
from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import NEW_KEY_HEADER, OLD_KEY_HEADER
from connector.sink.convert.outbox import HEADERS as OUTBOX_HEADERS
from connector.sink.convert.outbox import find_aggregate_type
from connector.sink.fold.document_versions import raise_winner_versions
from connector.sink.fold.fold import find_last_deletes, fold, select_rows_to_keep
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.unavailable_values import fill_in_batch, find_needed_rows
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.model import task_output
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, concat_small
from connector.sink.model.destination import TaskWriter, WriterFactory
from connector.sink.model.plan import BatchPlan, DeadLetterRef, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.task_output import Task, TaskOutput

CHUNK_BYTES = 48 * 1024**2
"""Arrow bytes of decoded rows gathered before they are folded, and handed on if still more than half."""

FEW_ROWS, MANY_TABLES = 2_000, 16
"""Below this many rows of a table a map task's fold costs more than it saves, which adds up from some tables on."""


def map_task(plan: BatchPlan, writers: WriterFactory) -> Task:
    """Return the map task: numbers of shares of the batch's offsets -> parcels."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task_output.to_batches(mapped(batches))
        forget_archives()

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[TaskOutput]:
        work, follows = _MapTask(plan, writers), writers.follows_keys
        meter = FetchMeter()
        headers = (OLD_KEY_HEADER if plan.patches or follows else None, NEW_KEY_HEADER if follows else None)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for chunk in plan.feed.chunks(number, meter):
                    if chunk.unreadable is not None:
                        work.reject_batch(chunk, chunk.unreadable)
                        continue
                    run = chunk.with_headers(*headers)
                    outbox = find_aggregate_type(chunk.topic, plan.events.outbox_topics) is not None
                    yield from work.take(run.with_named_headers(OUTBOX_HEADERS) if outbox else run)
        yield from work.finish(meter.metrics)

    return task


def reduce_task(plan: BatchPlan, writers: WriterFactory, *, judged: bool = False) -> Task:
    """Return the reduce task: parcels sorted by (table, bucket) -> what the outlet says; other parcels pass through.

    `judged` tells that the changes are what stands of those that might have been late.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task_output.to_batches(reduced(batches))
        forget_archives()

    def reduced(batches: Iterator[pa.RecordBatch]) -> Iterator[TaskOutput]:
        work = _ReduceTask(plan, writers, judged=judged)
        for batch in batches:
            for kind, table, bucket, payload in task_output.read_rows(batch):
                if kind in (task_output.CHANGES, task_output.KEY_CHANGES):
                    yield from work.take(kind, table, bucket, payload)
                else:
                    yield TaskOutput(kind, payload.to_pybytes(), table, bucket)
        yield from work.finish()

    return task


def _task_label(plan: BatchPlan) -> str:
    context = TaskContext.get()
    return f"{plan.label}-{context.partitionId():05d}" if context else plan.label


def _fold_changes(parts: list[ChangeBatch], table: TablePlan) -> FoldedChanges:
    return fill_in_batch(fold(parts, table.identity), table.layout.keys, by_date=table.history)


def _compact_changes(parts: list[ChangeBatch], table: TablePlan, *, last: bool = False) -> list[ChangeBatch]:
    """Fold; `last` keeps the last row of deleted keys too, which other keys' rows may need."""
    folded = _fold_changes(concat_small(parts), table)
    also = find_last_deletes(parts) if table.tombstones == "delete" else np.zeros(0, np.int64)
    more = table.patches or last
    more_of = np.union1d(also, find_needed_rows(folded, table.layout.keys)) if more else also
    return select_rows_to_keep(folded, table.identity, more_of, numbered=table.numbered)


def _parted(
    folded: FoldedChanges, table: TablePlan, *, judged: bool
) -> tuple[FoldedChanges | None, ChangeBatch | None]:
    """Part what may be late from the rest; of documents that there are their versions tell."""
    aside: ChangeBatch | None = None
    rest: FoldedChanges | None = folded
    if not judged and (table.remembers or not table.numbered):
        rest, aside = split_late_candidates(folded, table.layout.keys)
    return raise_winner_versions(rest, table.layout.keys) if rest is not None and table.numbered else rest, aside


class _MapTask:
    """The state of one map task."""

    def __init__(self, plan: BatchPlan, writers: WriterFactory) -> None:
        self._plan, self._factory = plan, writers
        self._parts: dict[int, list[ChangeBatch]] = {}
        self._waiting_bytes = 0
        self._writers: TaskWriter | None = None
        self._metrics = TaskMetrics()
        self._letters: list[DeadLetterRef] = []
        self._seen: tuple[SourceProgress, ...] = ()
        self._blocked = False
        self._moving: set[int] = set()

    def take(self, run: ConsumerRecords) -> Iterator[TaskOutput]:
        """Decode a run; once a need is known the job will run again, and only further needs are looked for."""
        outcome = decode(run, self._plan)
        self._metrics += outcome.metrics
        for fault in outcome.faults[: self._plan.max_letters + 1 - len(self._letters)]:
            offset = int(run.offset[fault.row])
            self._letters.append(DeadLetterRef(run.topic, run.partition, offset, fault.stage, fault.reason))
        for index in sorted({each.table for each in outcome.truncates if each.table >= 0}):
            yield TaskOutput.of(
                task_output.TRUNCATES, tuple(each for each in outcome.truncates if each.table == index), index
            )
        for need in outcome.needs:
            self._blocked = True
            yield TaskOutput.of(task_output.SCHEMA_CHANGE, need)
        if not self._blocked:
            self._seen = merge_progress((*self._seen, *outcome.seen))
            for index, part in zip(outcome.tables, outcome.parts, strict=True):
                yield from self._changes(self._plan.tables[index], part, run)
            if self._waiting_bytes > CHUNK_BYTES:
                yield from self._spill()

    def reject_batch(self, run: ConsumerRecords, batch: UnreadableBatch) -> None:
        """Keep a dead letter of a record batch that cannot be read; it counts as one record."""
        self._metrics += TaskMetrics(events=1, dead=1)
        if len(self._letters) <= self._plan.max_letters:
            reason = f"the record batch of offsets {batch.first} to {batch.last} cannot be read: {batch.reason}"
            self._letters.append(DeadLetterRef(run.topic, run.partition, batch.first, BATCH_STAGE, reason))

    def finish(self, fetch: FetchMetrics | None = None) -> Iterator[TaskOutput]:
        """Hand on what is left, and the counts, with what reading took."""
        if fetch is not None:
            self._metrics += TaskMetrics(fetch=fetch)
        if not self._blocked:
            many = len(self._parts) >= MANY_TABLES
            for index, parts in list(self._parts.items()):
                # Few rows are folded once, where those of all tasks meet.
                few = many and sum(map(len, parts)) < FEW_ROWS
                yield from self._emit(self._plan.tables[index], as_is=few)
        if self._writers is not None:
            yield from self._writers.close()
        yield TaskOutput.of(task_output.METRICS, self._metrics)
        if self._seen:
            yield TaskOutput.of(task_output.PROGRESS, self._seen)
        if self._letters:
            yield TaskOutput.of(task_output.DEAD_LETTERS, self._letters)

    def _changes(self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords) -> Iterator[TaskOutput]:
        if self._writers is None:
            self._writers = self._factory.open(self._plan, _task_label(self._plan))
        if table.mode == "append":
            yield from self._writers.append(table, part)
            return
        part, told = self._writers.find_key_changes(table, part, run)
        for parcel in told:
            self._moving.add(table.index)
            yield parcel
        self._parts.setdefault(table.index, []).append(part)
        self._waiting_bytes += part.size_bytes

    def _spill(self) -> Iterator[TaskOutput]:
        """Fold all that waits, and hand it on where that leaves too much."""
        for index, parts in self._parts.items():
            parts[:] = _compact_changes(parts, self._plan.tables[index], last=index in self._moving)
        self._waiting_bytes = sum(part.size_bytes for parts in self._parts.values() for part in parts)
        if self._waiting_bytes > CHUNK_BYTES // 2:
            for index in list(self._parts):
                yield from self._emit(self._plan.tables[index], as_is=True)
            self._waiting_bytes = 0

    def _emit(self, table: TablePlan, *, as_is: bool = False) -> Iterator[TaskOutput]:
        parts = self._parts.pop(table.index)
        keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
        for part in concat_small(parts) if as_is else _compact_changes(parts, table, last=table.index in self._moving):
            for bucket, piece in split_by_bucket(part, keys, table.buckets):
                yield TaskOutput(task_output.CHANGES, pack(piece), table.index, bucket)


class _ReduceTask:
    """The state of one reduce task: the parts of the bucket at hand, and what is being written."""

    def __init__(self, plan: BatchPlan, writers: WriterFactory, *, judged: bool) -> None:
        self._plan, self._factory, self._is_judged = plan, writers, judged
        self._at: tuple[int, int] | None = None
        self._parts: list[ChangeBatch] = []
        self._elsewhere: list[bytes] = []
        self._writers: TaskWriter | None = None

    def take(self, kind: str, table: int, bucket: int, payload: pa.Buffer) -> Iterator[TaskOutput]:
        """Gather the parts of one bucket, and other keys of theirs; write the one before when the next begins."""
        if self._at != (table, bucket):
            yield from self._write()
            self._at = (table, bucket)
        if kind == task_output.KEY_CHANGES:
            self._elsewhere.append(payload.to_pybytes())
            return
        self._parts.append(unpack(payload, self._plan.tables[table].layout.rows))

    def finish(self) -> Iterator[TaskOutput]:
        """Write the last bucket, and hand on what there is to say of all."""
        yield from self._write()
        if self._writers is not None:
            yield from self._writers.close()

    def _write(self) -> Iterator[TaskOutput]:
        parts, elsewhere = self._parts, self._elsewhere
        self._parts, self._elsewhere = [], []
        if self._at is None or not parts:
            return
        table, bucket, parts = self._plan.tables[self._at[0]], self._at[1], concat_small(parts)
        folded, aside = _parted(_fold_changes(parts, table), table, judged=self._is_judged)
        if aside is not None:
            yield from (TaskOutput(task_output.KEY_CHANGES, payload, table.index, bucket) for payload in elsewhere)
            yield TaskOutput(task_output.LATE_CANDIDATES, pack(aside), table.index, bucket)
            suspects = aside.take(np.flatnonzero(aside.suspect))
            yield TaskOutput.of(
                task_output.LATE_RANGES, KeyRanges.of(read_batch(suspects.rows, table.layout.keys)), table.index
            )
        if folded is None:
            return
        if self._writers is None:
            self._writers = self._factory.open(self._plan, _task_label(self._plan))
        yield from self._writers.upsert(table, folded, elsewhere)
