"""Map task: offset ranges -> records -> decode -> fold -> changes by bucket (upsert), or rows to the writers (append).

Its memory is bounded, by one fetch and `CHUNK_BYTES` of rows. Spark runs it on executors, `local_job` anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch
from connector.kafka.dlq.rejected_records import BATCH_STAGE
from connector.runtime.monitoring.metrics import FetchMetrics, TaskMetrics
from connector.runtime.spark.python_workers import forget_archives, keep_memory
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode_runs
from connector.sink.convert.header_ids import read_wanted_headers
from connector.sink.convert.joint_runs import gather_small
from connector.sink.convert.left_keys import follow_left_keys
from connector.sink.fold.watermarks import SeenProgress, add_progress
from connector.sink.job.compaction import choose_changes, compact_changes, task_label
from connector.sink.job.shuffle import pack, slice_part, split_by_bucket
from connector.sink.model.change_rows import ChangeBatch, concat_small
from connector.sink.model.destination import TaskWriter, WriterFactory
from connector.sink.model.driver_output import (
    DeadLettersFound,
    ProgressMade,
    RecordsCounted,
    SchemaChangeNeeded,
    TruncatesSeen,
)
from connector.sink.model.plan import BatchPlan, DeadLetterRef, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.arrays import Ints
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER

CHUNK_BYTES = 48 * 1024**2
"""Arrow bytes of decoded rows gathered before they are folded, and handed on if still more than half."""

FEW_ROWS, MANY_TABLES = 2_000, 16
"""Below this many rows of a table a map task's fold costs more than it saves, which adds up from some tables on."""


def map_task(plan: BatchPlan, writers: WriterFactory) -> Callable[[Iterable[int]], Iterator[TaskOutput]]:
    """Return the map task: numbers of shares of the batch's offsets -> outputs."""

    def task(shares: Iterable[int]) -> Iterator[TaskOutput]:
        keep_memory()
        work, follows = MapTask(plan, writers), writers.follows_keys
        meter = FetchMeter()
        headers = (OLD_KEY_HEADER if plan.patches or follows else None, NEW_KEY_HEADER if follows else None)
        for number in shares:
            chunks = work.fetch(plan.assignment.chunks(number, meter))
            for runs in gather_small(_with_headers(chunk, headers, plan) for chunk in chunks):
                yield from work.take(runs)
        yield from work.finish(meter.metrics)
        forget_archives()

    return task


def _with_headers(chunk: ConsumerRecords, keys: tuple[str | None, str | None], plan: BatchPlan) -> ConsumerRecords:
    """Read the headers that changes of key have, and those that decoding needs."""
    if chunk.unreadable is not None:
        return chunk
    return read_wanted_headers(chunk.with_headers(*keys), plan.events)


class MapTask:
    """The state of one map task."""

    def __init__(self, plan: BatchPlan, writers: WriterFactory) -> None:
        self._plan, self._factory = plan, writers
        self._parts: dict[int, list[ChangeBatch]] = {}
        self._waiting_bytes = 0
        self._writers: TaskWriter | None = None
        self._metrics: list[TaskMetrics] = []
        self._letters: list[DeadLetterRef] = []
        self._progress: SeenProgress = {}
        self._blocked = False
        self._moving: set[int] = set()
        self._changed: set[int] = set()

    def fetch(self, chunks: Iterator[ConsumerRecords]) -> Iterator[ConsumerRecords]:
        """Hand on what is fetched, and note how long that takes."""
        while True:
            began = time.perf_counter()
            chunk = next(chunks, None)
            self._metrics.append(TaskMetrics(fetch_seconds=time.perf_counter() - began))
            if chunk is None:
                return
            yield chunk

    def take(self, runs: Sequence[ConsumerRecords]) -> Iterator[TaskOutput]:
        """Decode runs; a record batch that cannot be read comes alone in place of them."""
        if (batch := runs[0].unreadable) is not None:
            self.reject_batch(runs[0], batch)
            return
        began = time.perf_counter()
        outcomes = decode_runs(runs, self._plan)
        self._metrics.append(TaskMetrics(decode_seconds=time.perf_counter() - began))
        for run, outcome in zip(runs, outcomes, strict=True):
            yield from self._take_decoded(run, outcome)

    def _take_decoded(self, run: ConsumerRecords, outcome: DecodedRecords) -> Iterator[TaskOutput]:
        """Take rows; once a need is known the job will run again, and only further needs are looked for."""
        self._metrics.append(outcome.metrics)
        for fault in outcome.faults[: self._plan.max_letters + 1 - len(self._letters)]:
            offset = int(run.offset[fault.row])
            self._letters.append(DeadLetterRef(run.topic, run.partition, offset, fault.stage, fault.reason))
        for index in sorted({each.table for each in outcome.truncates if each.table >= 0}):
            yield TaskOutput.of(TruncatesSeen(index, tuple(x for x in outcome.truncates if x.table == index)))
        for need in outcome.needs:
            self._blocked = True
            yield TaskOutput.of(SchemaChangeNeeded(need))
        if not self._blocked:
            add_progress(self._progress, outcome.progress)
            tables = [self._plan.tables[index] for index in outcome.tables]
            parts, left = follow_left_keys(outcome.parts, tables)
            for table, before in left:
                yield self._tell_old_keys(before, table)
            for table, part in zip(tables, parts, strict=True):
                yield from self._changes(table, part, run)
            if self._waiting_bytes > CHUNK_BYTES:
                yield from self._spill()

    def reject_batch(self, run: ConsumerRecords, batch: UnreadableBatch) -> None:
        """Keep a dead letter of a record batch that cannot be read; it counts as one record."""
        self._metrics.append(TaskMetrics(events=1, dead=1))
        if len(self._letters) <= self._plan.max_letters:
            reason = f"the record batch of offsets {batch.first} to {batch.last} cannot be read: {batch.reason}"
            self._letters.append(DeadLetterRef(run.topic, run.partition, batch.first, BATCH_STAGE, reason))

    def finish(self, fetch: FetchMetrics | None = None) -> Iterator[TaskOutput]:
        """Hand on what is left, and the counts, with what reading took."""
        if fetch is not None:
            self._metrics.append(TaskMetrics(fetch=fetch))
        if not self._blocked:
            many = len(self._parts) >= MANY_TABLES
            for index, parts in list(self._parts.items()):
                # Few rows are folded once, where those of all tasks meet.
                few = many and sum(map(len, parts)) < FEW_ROWS
                yield from self._emit(self._plan.tables[index], as_is=few)
        if self._writers is not None:
            yield from self._writers.close()
        yield TaskOutput.of(RecordsCounted(TaskMetrics.total(self._metrics)))
        if self._progress or self._changed:
            yield TaskOutput.of(ProgressMade(tuple(self._progress.values()), frozenset(self._changed)))
        if self._letters:
            yield TaskOutput.of(DeadLettersFound(tuple(self._letters)))

    def _changes(self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords) -> Iterator[TaskOutput]:
        if self._writers is None:
            self._writers = self._factory.open(self._plan, task_label(self._plan))
        if not table.upsert:
            yield from self._writers.append(table, part)
            return
        self._changed.add(table.index)
        part, outputs = self._writers.find_key_changes(table, part, run)
        for output in outputs:
            self._moving.add(table.index)
            yield output
        self._parts.setdefault(table.index, []).append(part)
        self._waiting_bytes += part.size_bytes

    def _tell_old_keys(self, before: ChangeBatch, table: TablePlan) -> TaskOutput:
        self._moving.add(table.index)
        bucket = int(before.order.records[0]) % table.buckets
        return TaskOutput(OutputKind.OLD_KEY_ROWS, pack(before), table.index, bucket)

    def _spill(self) -> Iterator[TaskOutput]:
        """Fold all that waits, and hand it on where that leaves too much."""
        for index, parts in self._parts.items():
            parts[:] = compact_changes(parts, self._plan.tables[index], last=index in self._moving)
        self._waiting_bytes = sum(part.size_bytes for parts in self._parts.values() for part in parts)
        if self._waiting_bytes > CHUNK_BYTES // 2:
            for index in list(self._parts):
                yield from self._emit(self._plan.tables[index], as_is=True)
            self._waiting_bytes = 0

    def _emit(self, table: TablePlan, *, as_is: bool = False) -> Iterator[TaskOutput]:
        parts = self._parts.pop(table.index)
        keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
        chosen: Iterable[tuple[ChangeBatch, Ints | None]] = (
            ((part, None) for part in concat_small(parts))
            if as_is
            else choose_changes(parts, table, last=table.index in self._moving)
        )
        for part, rows in chosen:
            for bucket, piece in split_by_bucket(part, keys, table.buckets, rows):
                for each in slice_part(piece):
                    yield TaskOutput(OutputKind.CHANGES, pack(each), table.index, bucket)
