"""Decoded messages -> rows, schema changes and faults of the tables that they are for. On executors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.decoded_records import DecodedRecords, keep_first_per_row
from connector.sink.convert.messages.change_reading import read_changes
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.convert.messages.named_tables import convert_named_changes
from connector.sink.convert.messages.rows_before import delete_rows_before
from connector.sink.convert.messages.table_changes import convert_changes
from connector.sink.convert.row_builder import build_tombstones
from connector.sink.convert.value_keys import leaves_keys
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import Ints
from serde.events.kinds.operations import OP_DELETE, TOMBSTONE
from serde.messages import DecodedMessages


def convert_messages(work: MessageConversion, table: TablePlan | None, values: DecodedMessages) -> DecodedRecords:
    """Turn messages into rows of `table`, or of the tables that they name where it is None."""
    plan = work.plan
    if plan.routing is None:
        for change, block, documents in read_changes(work, table, values):
            if change is not None:
                convert_changes(work, change, table, None, documents=documents)
            if not documents and leaves_keys(table):
                delete_rows_before(work, block, table)
    else:
        convert_named_changes(work, values, plan.routing)
    if len(values.tombstones):
        _add_tombstones(work, table, values.tombstones)
    unknown = frozenset(name for block in values.blocks for name in block.unknown)
    return DecodedRecords(
        tuple(work.parts),
        tuple(work.needs),
        tuple(keep_first_per_row(work.faults)),
        tuple(work.truncates),
        tuple(work.tables),
        tuple(work.progress),
        work.metrics + TaskMetrics(unknown_types=unknown),
    )


def _add_tombstones(work: MessageConversion, table: TablePlan | None, rows: Ints) -> None:
    """Take records without value: deletes in some tables, and in others nothing."""
    deletes = _find_offsets(work.parts, OP_DELETE)
    for target in _find_tombstone_tables(work.plan, table):
        keys = work.keys(target)
        if keys is not None:
            part, unkeyed = build_tombstones(work.run, rows, keys, target, work.plan)
            work.add_rows(part, target)
            work.faults.extend(unkeyed)
    alone = _count_alone(work.run, _find_offsets(work.parts, TOMBSTONE), deletes)
    work.metrics += TaskMetrics(tombstones=len(rows), lone_tombstones=alone)


def _find_offsets(parts: Sequence[ChangeBatch], op: int) -> Ints:
    """Return the offsets of an operation's records, each once, ascending."""
    found = [part.order.offset[part.order.op == op] for part in parts]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _count_alone(run: ConsumerRecords, tombstones: Ints, deletes: Ints) -> int:
    """Count the tombstones, by their offsets, that no delete event stands before: Debezium sends one behind each."""
    rows = np.searchsorted(run.offset, tombstones)
    before = run.offset[rows[rows > 0] - 1]
    return len(tombstones) - int(np.isin(before, deletes).sum())


def _find_tombstone_tables(plan: BatchPlan, table: TablePlan | None) -> list[TablePlan]:
    """Return the tables in which a record without value deletes its key; it names no table itself."""
    tables = [] if table is None else [table]
    if plan.routing is not None:
        known = plan.routing.known
        tables = [plan.tables[known[name]] for name in plan.routing.whole if name in known]
    return [one for one in tables if one.keyed and one.tombstones == "delete"]
