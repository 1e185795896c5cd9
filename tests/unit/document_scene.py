"""Recorded events -> map and reduce tasks -> an index of the tests' own, without a node.

The index keeps OpenSearch's rules for external versions; the real ones are met in tests/kafka/test_search_fixtures.py.
All fields have other names than their columns: what is written, and read again, has to follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.opensearch.bulk.actions import WriteOptions
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.sink.convert.decoder import decode
from connector.sink.destinations.deleted_keys import DeletedKeyLog, keys_to_text
from connector.sink.destinations.late_event_tasks import is_older, proof
from connector.sink.destinations.opensearch.lookups.waiting_keys import waiting_task
from connector.sink.destinations.opensearch.write.document_requests import IndexTarget
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchWriterFactory
from connector.sink.destinations.table_schema import with_keys
from connector.sink.fold.watermarks import advance_watermarks, merge_progress
from connector.sink.job.map_task import MapTask
from connector.sink.job.reduce_task import ReduceTask
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.events.positions.log_positions import unknown_positions
from tests.clients.search import typed
from tests.model import truth
from tests.model.recordings import Record
from tests.unit.local_job import find_deletes_in_memory, run_task
from tests.unit.sink_plans import layout, plan

Row = dict[str, Any]


HEADERS = ("__debezium.oldkey", "__debezium.newkey")


TOMBSTONES = ("json_unwrap_tombstone", "json_unwrap_drop")
"""Variants whose deletes are tombstones, if anything."""


def to_field(column: str) -> str:
    return f"{column}_9"


def to_columns(document: Row) -> Row:
    assert all(field.endswith("_9") for field in document)
    return {field.removesuffix("_9"): value for field, value in document.items()}


class Index:
    """Documents by id with their versions, the versions of deleted ones, and the table of deleted keys."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, Row]] = {}
        self.gone: dict[str, int] = {}
        self.remembered: list[Row] = []
        self.refused: set[str] = set()

    def take(self, body: bytes) -> None:
        """A bulk request's lines."""
        lines = iter(body.decode().splitlines())
        for line in lines:
            ((action, told),) = json.loads(line).items()
            document = to_columns(json.loads(next(lines))) if action == "index" else None
            known = max(self.held.get(told["_id"], (-1,))[0], self.gone.get(told["_id"], -1))
            if told["version"] < known:
                continue
            self.held.pop(told["_id"], None)
            if document is None:
                self.gone[told["_id"]] = told["version"]
            else:
                self.held[told["_id"]] = told["version"], document


def make_runs(records: Sequence[Record]) -> list[ConsumerRecords]:
    runs = []
    for at in sorted({(r.topic, r.partition) for r in records}):
        own = [r for r in records if (r.topic, r.partition) == at]
        raw = [[r.key for r in own], [r.value for r in own]]
        raw += [[dict(r.headers).get(name) for r in own] for name in HEADERS]
        columns = [pa.array(column, pa.binary()) for column in raw]
        runs.append(ConsumerRecords(*at, np.array([r.offset for r in own], np.int64), *columns))
    return runs


def make_plan(
    runs: Sequence[ConsumerRecords], buckets: int, *, tombstones: bool = False, remembers: bool = False, **more: Any
) -> BatchPlan:
    ranks = {(run.topic, run.partition): rank for rank, run in enumerate(runs)}
    settings = {name: more.pop(name) for name in ("dedup_column", "events") if name in more}
    empty = plan(routes={}, ranks=ranks, **settings)
    needs = [need for run in runs for need in decode(run, empty).needs]
    keys = tuple(next(need.key for need in needs if need.key is not None).names)
    columns = with_keys(union_shapes(need.row for need in needs), needs, keys)
    schema = build_table_schema(columns, keys, frozenset(), nanoseconds=True).model_dump_json()
    made, deletes = RowLayout("i", schema), "delete" if tombstones else "skip"
    kept = {"keep_deletes": False, "tombstones": deletes, "numbered": not tombstones, "remembers": remembers, **more}
    table = TablePlan(0, made, upsert=True, buckets=buckets, **kept)
    return attrs.evolve(empty, tables=(table,), routes={runs[0].topic: 0})


def make_writers(batch: BatchPlan) -> OpenSearchWriterFactory:
    (table,) = batch.tables
    fields = {name: to_field(name) for name in table.layout.columns.names}
    target = IndexTarget(WriteOptions("i", fields=fields), "offset" if table.tombstones == "delete" else "source")
    memory = DeletedKeyLog(layout({}), "documents", 0) if table.remembers else None
    return OpenSearchWriterFactory(ConnectionSettings(()), BulkSettings(), {"i": target}, memory)


def bring_in(
    batch: BatchPlan,
    runs: Sequence[ConsumerRecords],
    known: Sequence[Row] = (),
    index: Index | None = None,
    *,
    forgets: bool = False,
) -> BatchPlan:
    """One batch: a map task for each run, one reduce task for each bucket; gives the plan of the next one.

    `known` is what the table of deleted keys has; those that may be late are compared with it, as the join does. What
    waits for documents is compared with what the `index` remembers by then, which `forgets` by itself what was deleted
    before they move.
    """
    handed: list[TaskOutput] = []
    seen: list[SourceProgress] = []
    for run in runs:
        work = MapTask(batch, make_writers(batch))
        handed += [*work.take([run]), *work.finish()]
        seen += work._progress.values()
    (table,) = batch.tables
    told = run_reduce_task(batch, handed, judged=False)
    asked = [p for p in told if p.kind == OutputKind.LATE_CANDIDATES]
    stand = [part for p in asked for part in judge_asked(p, known, table)]
    told += run_reduce_task(batch, [*stand, *(p for p in told if p.kind == OutputKind.KEY_CHANGES)], judged=True)
    if index is not None and forgets:
        index.gone.clear()
    run_moves(batch, told, index.remembered if index is not None else ())
    marks = {**table.watermarks, **advance_watermarks(table.watermarks, merge_progress(seen))}
    return attrs.evolve(batch, tables=(attrs.evolve(table, watermarks=marks),))


def run_moves(batch: BatchPlan, told: Sequence[TaskOutput], remembered: Sequence[Row]) -> list[TaskOutput]:
    """What waits is written, once the task knows the deletes that it asks for."""
    (table,) = batch.tables
    waiting = [one for one in told if one.kind == OutputKind.WAITING_KEYS]
    first = run_task(waiting_task(batch, table, make_writers(batch), asks=True), waiting)
    if not any(one.kind == OutputKind.DELETES_WANTED for one in first):
        return first
    found = find_deletes_in_memory(first, remembered, table)
    return run_task(waiting_task(batch, table, make_writers(batch), asks=False), [*waiting, found])


def run_reduce_task(batch: BatchPlan, handed: Sequence[TaskOutput], *, judged: bool) -> list[TaskOutput]:
    reducing = ReduceTask(batch, make_writers(batch), judged=judged)
    kept = [p for p in handed if p.kind in (OutputKind.CHANGES, OutputKind.KEY_CHANGES)]
    told: list[TaskOutput] = []
    for parcel in sorted(kept, key=lambda p: p.bucket):
        told += reducing.take(parcel)
    return told + list(reducing.finish())


def judge_asked(asked: TaskOutput, known: Sequence[Row], table: TablePlan) -> Iterator[TaskOutput]:
    part = unpack(pa.py_buffer(asked.payload), table.layout.rows)
    keys = keys_to_text(read_columns(part.rows, table.layout.keys)).to_pylist()
    lost = set()
    for at in np.flatnonzero(part.candidate & ~part.deleted):
        own = proof(part.order.take(np.array([at])), table)
        gone = [np.array([one["date"]]) for one in known if one["key"] == keys[at]]
        if any(is_older(*own, date, unknown_positions(1))[0] for date in gone):
            lost.add(keys[at])
    stands = np.flatnonzero([key not in lost for key in keys])
    if len(stands):
        yield TaskOutput(OutputKind.CHANGES, pack(part.take(stands)), asked.table, asked.bucket)


def cut_batches(records: Sequence[Record], size: int, *, swapped: bool) -> Iterator[list[Record]]:
    """Records in the order of the source, so many at a time; swapped: creates before deletes of their transaction."""

    def place(record: Record) -> tuple[int, int, int]:
        last[record.key] = json.loads(record.value)["source"]["ts_ns"] if record.value else last.get(record.key, 0)
        created = record.value is not None and json.loads(record.value)["op"] != "d"
        return last[record.key], int(not created) if swapped else int(created), record.offset

    last: dict[bytes | None, int] = {}
    ordered = sorted(records, key=place)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def find_faults(index: Index, batch: BatchPlan, variant: str, table: str) -> list[str]:
    schema = json.loads(batch.tables[0].layout.schema_json)
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    rows = [{n: typed(v, kinds.get(n)) for n, v in row.items()} for _, row in index.held.values()]
    return truth.faults(variant, table, rows)
