"""The job of a batch in this process: map and reduce tasks as plain generators, without Spark, broker or tables."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.destinations.opensearch.lookups.remembered_deletes import pack_deletes
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import map_task
from connector.sink.job.reduce_task import reduce_task
from connector.sink.job.shuffle_slots import ShuffleSlots
from connector.sink.model.destination import Lookups, WriterFactory
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import DriverOutput, JobResult, KeyLookup
from connector.sink.model.task_output import (
    OutputKind,
    Task,
    TaskOutput,
    read_rows,
    tell_driver,
    to_batches,
    unpack_keys,
    unpack_value,
)

Records = Mapping[TopicPartition, ConsumerRecords]
_COMPLETED = {
    OutputKind.TOMBSTONES,
    OutputKind.UNAVAILABLE_ROWS,
    OutputKind.OLD_KEY_ROWS,
    OutputKind.LAST_ROWS,
    OutputKind.PATCHED_ROWS,
}
"""What look-ups take."""
_DELETE_COLUMNS = (("key", pa.string()), ("date", pa.int64()))


@attrs.frozen(eq=False)
class LocalRecords:
    """What tasks read, in place of an assignment of ranges of a cluster."""

    shares: tuple[tuple[OffsetRange, ...], ...]
    records: Records

    def chunks(self, task: int, meter: FetchMeter | None = None) -> Iterator[ConsumerRecords]:
        """Return the records of one task's share; there is nothing to meter."""
        for wanted in self.shares[task]:
            run = self.records[wanted.topic, wanted.partition]
            own = (run.offset >= wanted.start) & (run.offset < wanted.end)
            yield run if own.all() else run.only(np.flatnonzero(own))


@attrs.define(eq=False)
class LocalJob:
    """Runs jobs over `records` (`model.job.Job`). Look-ups get and give outputs in lists; of keys
    whose rows are looked for the outputs are in a list too. `travels`: what tasks get is pickled, as Spark sends it."""

    records: Records
    parallelism: int = 2
    travels: bool = True
    plans: list[BatchPlan] = attrs.field(factory=list)

    def run(self, plan: BatchPlan, writers: WriterFactory, lookups: Lookups | None = None) -> JobResult:
        """Run one batch, task after task."""
        lookups = lookups or Lookups()
        feed = LocalRecords(plan.assignment.shares, self.records)
        plan = attrs.evolve(plan, assignment=feed)
        if self.travels:
            plan, writers = pickle.loads(pickle.dumps((plan, writers)))
        self.plans.append(plan)
        outputs = [one for share in range(len(feed.shares)) for one in self.map_share(plan, writers, share)]
        if any(table.upsert for table in plan.tables):
            outputs = list(_reduce(outputs, plan, writers, travels=self.travels))
        result = JobResult().add(_told(outputs))
        result.progress = merge_progress(result.progress)
        late = _judge_late(outputs, plan, lookups.late_events, result) if result.ready else []
        if late:
            outputs += (judged := list(_reduce(late, plan, writers, judged=True, travels=self.travels)))
            result.add(_told(judged))
        for table in plan.tables if result.ready else ():
            for lookup in lookups.joins:
                if lookup.applies(table, result):
                    own: Any = [one for one in outputs if one.table == table.index]
                    frames: Any = lookup.run(own, table, result, result.resources)
                    for frame in frames:
                        outputs += frame
                        result.add(_told(frame))
        known = {OutputKind.DRIVER, OutputKind.WAITING_KEYS, OutputKind.DELETES_WANTED}
        known |= {*({OutputKind.LATE_CANDIDATES} if lookups.late_events is not None else ())}
        known |= {OutputKind.KEY_CHANGES} if lookups.late_events is not None else set()
        known |= _COMPLETED if lookups.joins else set()
        known |= {OutputKind.KEYS} if any(table.needs_row_lookup for table in plan.tables) else set()
        for table in plan.tables if result.ready else ():
            ranges = KeyRanges.join(result.key_ranges.get(table.index, ()))
            if table.needs_row_lookup and ranges.count:
                keys: Any = [one for one in outputs if one.kind == OutputKind.KEYS and one.table == table.index]
                result.key_lookups[table.index] = KeyLookup(keys, ranges, plan.reducers)
        assert {one.kind for one in outputs} <= known, "only a table could tell more"
        return result

    def map_share(self, plan: BatchPlan, writers: WriterFactory, share: int) -> Iterable[TaskOutput]:
        """Run one map task."""
        return map_task(plan, writers)([share])


def run_task(task: Task, outputs: Iterable[TaskOutput]) -> list[TaskOutput]:
    """Run a task over outputs."""
    return list(_run_task(task, to_batches(outputs)))


def find_deletes_in_memory(
    outputs: Iterable[TaskOutput], remembered: Iterable[Mapping[str, Any]], table: TablePlan
) -> TaskOutput:
    """As `remembered_deletes.find_deletes`, over outputs and rows in lists."""
    wanted = [one for one in outputs if one.kind == OutputKind.DELETES_WANTED]
    asked = {key for one in wanted for key in unpack_keys(pa.py_buffer(one.payload)).column(0).to_pylist()}
    found = [row for row in remembered if row["key"] in asked]
    keys, versions = (pa.array([row[name] for row in found], kind) for name, kind in _DELETE_COLUMNS)
    return pack_deletes(keys, versions, table.index)


def _told(outputs: Iterable[TaskOutput]) -> Iterator[DriverOutput]:
    return map(unpack_value, tell_driver(outputs))


def _judge_late(outputs: list[TaskOutput], plan: BatchPlan, lookup: Any, result: JobResult) -> list[TaskOutput]:
    """What stands of late candidates, for the reduce task again."""
    return [
        one
        for table in (plan.tables if lookup is not None else ())
        if lookup.applies(table, result)
        for frame in lookup.run([one for one in outputs if one.table == table.index], table, result, result.resources)
        for one in frame
    ]


def _reduce(
    outputs: Iterable[TaskOutput],
    plan: BatchPlan,
    writers: WriterFactory,
    *,
    judged: bool = False,
    travels: bool = True,
) -> Iterator[TaskOutput]:
    slots = ShuffleSlots.of(plan)
    shuffled: dict[int, list[tuple[int, TaskOutput]]] = {slot: [] for slot in range(slots.count)}
    for one in outputs:
        own = slots.key(pickle.loads(pickle.dumps(one)) if travels else one)
        shuffled[own[0]].append(own)
    for first in range(0, slots.count, slots.depth):
        own_slots = [one for slot in range(first, first + slots.depth) for one in shuffled[slot]]
        yield from reduce_task(plan, writers, judged=judged)(slots.sort(own_slots))


def _run_task(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[TaskOutput]:
    for batch in task(iter(batches)):
        for kind, table, bucket, payload in read_rows(batch):
            yield TaskOutput(kind, payload.to_pybytes(), table, bucket)
