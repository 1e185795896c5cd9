"""Late candidates -> what stands of them: the product's own tasks, joined in this process with rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.state.deleted_keys_schema import DELETE_ORDER_COLUMNS
from connector.sink.destinations.join_columns import column_aliases
from connector.sink.destinations.late_event_tasks import (
    CANDIDATE_COLUMNS,
    candidate_task,
    drop_late_task,
    find_age_columns,
    find_older_than_delete,
    older_than_row_task,
)
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind, TaskOutput, read_rows, to_batches
from tests.simulation.catalog_server import Rows
from tests.simulation.interruptions import Interruptions
from tests.simulation.java_table import JavaTable
from tests.simulation.store import store_away
from tests.simulation.tables import SimulatedDeletedKeys


@attrs.frozen(eq=False)
class MemoryLateEventLookup:
    """As the product's own look-up (`lookups.table_lookups.LateEventLookup`), over outputs in a list."""

    plan: BatchPlan
    tables: Sequence[JavaTable]
    deleted_keys: SimulatedDeletedKeys | None
    calls: Interruptions

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        return table.index in result.late_ranges

    def run(
        self, outputs: Sequence[TaskOutput], table: TablePlan, result: JobResult, until: ExitStack
    ) -> Iterator[list[TaskOutput]]:
        java = self.tables[table.index]
        held = self.calls.call(f"read rows of {java.now.name}", lambda: _rows_at(java, table.base), store_away)
        gone = None
        if self.deleted_keys is not None and not table.keep_deletes:
            gone = self.deleted_keys.remembered(table.layout.name)
        yield judge_late(outputs, table, self.plan, held, gone)


def judge_late(
    outputs: Sequence[TaskOutput], table: TablePlan, plan: BatchPlan, held: Rows, gone: Rows | None
) -> list[TaskOutput]:
    """What stands of late candidates, by the rows that a table holds and the keys that were deleted."""
    asked = [one for one in outputs if one.kind == OutputKind.LATE_CANDIDATES and one.table == table.index]
    suspects = list(candidate_task(table, plan)(to_batches(asked)))
    lost = _find_lost(suspects, table, plan, held, gone)
    judged = pa.RecordBatch.from_pydict(
        {
            "bucket": [one.bucket for one in asked],
            "payload": pa.array([one.payload for one in asked], pa.binary()),
            "lost": [sorted(row for bucket, row in lost if bucket == one.bucket) for one in asked],
        }
    )
    return [
        TaskOutput(kind, payload.to_pybytes(), index, bucket)
        for batch in drop_late_task(table)(iter([judged]))
        for kind, index, bucket, payload in read_rows(batch)
    ]


def _rows_at(java: JavaTable, base: int | None) -> Rows:
    table = java.server.tables.get(java.now.name)
    if base is not None and (table is None or base not in table.snapshots):
        raise FatalError(f"snapshot {base} of {java.now.name} is gone")
    try:
        return [] if base is None else java.server.rows(java.now.name, base)
    except KeyError as gone:
        raise FatalError(f"file {gone} of {java.now.name} is gone") from gone


def _find_lost(
    suspects: Sequence[pa.RecordBatch], table: TablePlan, plan: BatchPlan, held: Rows, gone: Rows | None
) -> set[tuple[int, int]]:
    """Return bucket and row of the suspects that lose."""
    lost: set[tuple[int, int]] = set()
    keys = column_aliases("key", len(table.layout.keys))
    telling = sorted(find_age_columns(table.layout, plan))
    for batch in suspects:
        rows = batch.to_pylist()
        lost |= {(row["_bucket"], row["_row"]) for row in rows if row["_cut"]}
        pairs = [
            (place, row)
            for place, suspect in enumerate(rows)
            for row in held
            if all(suspect[key] == row[name] for key, name in zip(keys, table.layout.keys, strict=True))
        ]
        schema = pa.schema([table.layout.columns.field(name) for name in telling])
        aliases = column_aliases("held", len(telling))
        joined = _join(batch, pairs, schema, aliases)
        lost |= _told(older_than_row_task(telling, plan)(iter([joined])))
        if gone is not None:
            texts = [suspect["_text"] for suspect in rows]
            pairs = [(place, row) for place, text in enumerate(texts) for row in gone if row["key"] == text]
            order = pa.schema([(name, pa.int64()) for name in DELETE_ORDER_COLUMNS])
            lost |= _told(find_older_than_delete(iter([_join(batch, pairs, order, list(order.names))])))
    return lost


def _join(
    batch: pa.RecordBatch, pairs: Sequence[tuple[int, dict[str, Any]]], schema: pa.Schema, names: list[str]
) -> pa.RecordBatch:
    own = batch.select(list(CANDIDATE_COLUMNS)).take(pa.array([place for place, _ in pairs], pa.int64()))
    others = [pa.array([row[field.name] for _, row in pairs], field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*own.columns, *others], [*CANDIDATE_COLUMNS, *names])


def _told(batches: Iterator[pa.RecordBatch]) -> set[tuple[int, int]]:
    return {(row["_bucket"], row["_row"]) for batch in batches for row in batch.to_pylist()}
