"""The two tasks of a batch, as Spark runs them on executors.

map:    offset ranges -> records -> decode -> fold -> parcels by bucket (upsert), or data files (append)
reduce: parcels of a bucket -> fold -> data files and equality deletes

Memory of a task is bounded: by one fetch, `CHUNK_BYTES` of rows, and one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark import TaskContext

from connector.iceberg.types import nullable
from connector.iceberg.writing import TableWriter
from connector.runtime.workers import forget_archives
from connector.sink import parcels
from connector.sink.apply import mark_deleted, write_append, write_upserts
from connector.sink.decode import Run, decode
from connector.sink.moves import HEADER, marked, moves
from connector.sink.parcels import Parcel, Task
from connector.sink.parts import Folded, Part, by_bucket, fold, gather, pack, survivors, unpack
from connector.sink.plan import BatchPlan, Letter, TablePlan, Tally
from connector.sink.unsent import filled, last_rows, needed, parted, unknown

CHUNK_BYTES = 48 * 1024**2
"""Arrow bytes of decoded rows gathered per table before they are folded, and handed on if still more than half."""


def map_task(plan: BatchPlan) -> Task:
    """Give the map task: numbers of shares of the batch's offsets -> parcels."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = _Mapping(plan)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for chunk in plan.feed.chunks(number):
                    yield from _sent(work.take(Run.of(chunk, HEADER if plan.patches else None)))
        yield from _sent(work.finish())
        forget_archives()

    return task


def reduce_task(plan: BatchPlan) -> Task:
    """Give the reduce task: parcels sorted by (table, bucket) -> descriptions of files; other parcels pass through."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = _Reducing(plan)
        for batch in batches:
            for kind, table, bucket, payload in parcels.rows(batch):
                if kind == parcels.CHANGES:
                    yield from _sent(work.take(table, bucket, payload))
                else:
                    yield parcels.batch([Parcel(kind, payload.to_pybytes(), table, bucket)])
        yield from _sent(work.finish())
        forget_archives()

    return task


def _sent(items: Iterator[Parcel]) -> Iterator[pa.RecordBatch]:
    for item in items:
        yield parcels.batch([item])


def _label(plan: BatchPlan) -> str:
    context = TaskContext.get()
    return f"{plan.label}-{context.partitionId():05d}" if context else plan.label


def _folded(parts: list[Part], table: TablePlan) -> Folded:
    return filled(fold(parts, table.layout.keys), table.layout.keys)


def _survivors(parts: list[Part], table: TablePlan) -> list[Part]:
    folded = _folded(parts, table)
    return survivors(folded, needed(folded, table.layout.keys) if table.patches else None)


class _Mapping:
    """The state of one map task."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._parts: dict[int, list[Part]] = {}
        self._writers: dict[int, TableWriter] = {}
        self._tally = Tally()
        self._letters: list[Letter] = []
        self._blocked = False

    def take(self, run: Run) -> Iterator[Parcel]:
        """Decode a run; once a need is known the job will run again, and only further needs are looked for."""
        outcome = decode(run, self._plan)
        counts = (len(outcome.faults), outcome.tombstones, outcome.ignored, len(outcome.truncates), outcome.nulled)
        self._tally += Tally(len(run.offset), *counts, outcome.drift)
        for fault in outcome.faults[: self._plan.max_letters + 1 - len(self._letters)]:
            offset = int(run.offset[fault.row])
            self._letters.append(Letter(run.topic, run.partition, offset, fault.stage, fault.reason))
        if outcome.truncates and run.topic in self._plan.routes:
            yield Parcel.of(parcels.TRUNCATES, outcome.truncates, self._plan.routes[run.topic])
        for need in outcome.needs:
            self._blocked = True
            yield Parcel.of(parcels.NEED, need)
        if not self._blocked:
            for index, part in zip(outcome.tables, outcome.parts, strict=True):
                yield from self._changes(self._plan.tables[index], part, run)

    def finish(self) -> Iterator[Parcel]:
        """Hand on what is left, and the counts."""
        if not self._blocked:
            for index in list(self._parts):
                yield from self._handed_on(self._plan.tables[index])
        for index, writer in self._writers.items():
            yield from (Parcel(parcels.FILE, description, index) for description in writer.close())
        yield Parcel.of(parcels.TALLY, self._tally)
        if self._letters:
            yield Parcel.of(parcels.LETTER, self._letters)

    def _changes(self, table: TablePlan, part: Part, run: Run) -> Iterator[Parcel]:
        if table.mode == "append":
            if table.index not in self._writers:
                self._writers[table.index] = TableWriter(table.layout, _label(self._plan))
            write_append(self._writers[table.index], part, table)
            return
        if table.patches and run.old_key is not None:
            part = marked(part, run.offset, run.old_key)
            moved = moves(part, run.offset, run.old_key, table)
            if moved is not None:
                yield Parcel(parcels.MOVED, pack(moved), table.index)
        parts = self._parts.setdefault(table.index, [])
        parts.append(part)
        if sum(p.size_bytes for p in parts) > CHUNK_BYTES:
            parts[:] = _survivors(parts, table)
            if sum(p.size_bytes for p in parts) > CHUNK_BYTES // 2:
                yield from self._handed_on(table, folded=True)

    def _handed_on(self, table: TablePlan, *, folded: bool = False) -> Iterator[Parcel]:
        parts = self._parts.pop(table.index)
        keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
        for part in parts if folded else _survivors(parts, table):
            for bucket, piece in by_bucket(part, keys, self._plan.buckets):
                yield Parcel(parcels.CHANGES, pack(piece), table.index, bucket)


class _Reducing:
    """The state of one reduce task: the parts of the bucket at hand, and the open files of its table."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._at: tuple[int, int] | None = None
        self._parts: list[Part] = []
        self._writers: dict[int, TableWriter] = {}

    def take(self, table: int, bucket: int, payload: pa.Buffer) -> Iterator[Parcel]:
        """Gather the parts of one bucket; write the one before when the next begins."""
        if self._at != (table, bucket):
            yield from self._write()
            self._at = (table, bucket)
        self._parts.append(unpack(payload, nullable(self._plan.tables[table].layout.columns)))

    def finish(self) -> Iterator[Parcel]:
        """Write the last bucket and give the descriptions of all files."""
        yield from self._write()
        for index, writer in self._writers.items():
            yield from (Parcel(parcels.FILE, description, index) for description in writer.close())

    def _write(self) -> Iterator[Parcel]:
        if self._at is None or not self._parts:
            return
        table = self._plan.tables[self._at[0]]
        if table.index not in self._writers:
            self._writers[table.index] = TableWriter(table.layout, _label(self._plan))
        folded = _folded(self._parts, table)
        self._parts = []
        missing = unknown(folded, keep_deletes=table.keep_deletes, suspicious=not table.patches)
        if table.patches:
            for part in gather(folded.parts, last_rows(folded, table.layout.keys)):
                yield Parcel(parcels.LAST, pack(part), table.index)
        if missing.any() and table.patches:
            folded, rows = parted(folded, missing, table.layout.keys)
            for part in rows:
                whole = attrs.evolve(part, rows=mark_deleted(part.rows, part.deleted)) if part.deleted.any() else part
                yield Parcel(parcels.PATCH, pack(whole), table.index)
        elif missing.any():
            yield Parcel(parcels.OPEN, b"", table.index)
        write_upserts(self._writers[table.index], folded, table)
        if table.recalls:
            for part in gather(folded.parts, folded.winners[folded.images < 0]):
                yield Parcel(parcels.RECALL, pack(part), table.index)
