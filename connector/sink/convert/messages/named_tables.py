"""Events that name their tables -> changes of each of these: alike ones at once, others table by table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.column_fitting import fit_columns
from connector.sink.convert.columns.routed_types import is_read_alike
from connector.sink.convert.columns.schema_needs import find_schema_change, find_unknown_fields
from connector.sink.convert.messages.change_reading import read_changes
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.convert.messages.rows_before import delete_rows_before
from connector.sink.convert.messages.second_reading import find_clashing, route_again, sort_rows
from connector.sink.convert.messages.table_changes import convert_changes
from connector.sink.convert.routing import RoutedChanges, gather_alike, route_changes
from connector.sink.convert.row_builder import ConvertedRows, complete_rows, convert_rows
from connector.sink.convert.value_keys import leaves_keys
from connector.sink.model.plan import BatchPlan, FieldRoutes, TablePlan
from serde.events.changes import Changes, slice_changes
from serde.events.kinds.operations import OP_TRUNCATE
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock


def convert_named_changes(work: MessageConversion, values: DecodedMessages, routes: FieldRoutes) -> None:
    """Take events that name their tables; those that could not be read beside others are read among their like."""
    clashing = list(find_clashing(values.faults, work.run.value))
    again = {int(row) for rows, _ in clashing for row in rows}
    left = tuple(fault for fault in values.faults if fault.row not in again)
    _convert_block_by_block(work, attrs.evolve(values, faults=left), routes)
    for rows, faults in clashing:
        # A table that is to be made for others first will be known when the job runs again.
        waiting = frozenset(need.table for need in work.needs)
        read = work.read_values(None, rows)
        told = {fault.row: fault for fault in faults}
        read = attrs.evolve(read, faults=tuple(told[fault.row] for fault in read.faults))
        _convert_block_by_block(work, read, routes, waiting)


def _convert_block_by_block(
    work: MessageConversion, values: DecodedMessages, routes: FieldRoutes, waiting: frozenset[str | None] = frozenset()
) -> None:
    for change, block, documents in read_changes(work, None, values):
        if change is not None:
            _convert_routed(work, change, block, routes, waiting, documents=documents)
        if not documents and any(map(leaves_keys, work.plan.tables)):
            delete_rows_before(work, block, None)


def _convert_routed(
    work: MessageConversion,
    change: Changes,
    block: MessageBlock,
    routes: FieldRoutes,
    waiting: frozenset[str | None],
    *,
    documents: bool,
) -> None:
    routed, faults, metrics = route_changes(change, block, work.run.topic, work.plan, routes)
    work.faults.extend(faults)
    work.metrics += metrics
    for group in gather_alike(routed, work.plan, routes):
        table = _find_known(work.plan, group[0].table, routes)
        if table is None:
            _take_group(work, [one for one in group if one.table not in waiting], routes, documents=documents)
        elif is_read_alike(slice_changes(group[0].ordered, group[0].start, group[-1].stop), table, work.plan):
            _take_group(work, group, routes, documents=documents)
        else:
            _take_again(work, group, routes, table)


def _find_known(plan: BatchPlan, name: str, routes: FieldRoutes) -> TablePlan | None:
    index = routes.find_table(name)
    return None if index is None else plan.tables[index]


def _take_again(work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, table: TablePlan) -> None:
    """Take the changes of a group, read by its tables' types: those of its first one are those of all."""
    rows, owners = sort_rows(group)
    for change, _, documents in read_changes(work, None, work.read_values(table, rows), table):
        routed = [] if change is None else route_again(change, group, rows, owners)
        for part in gather_alike(routed, work.plan, routes):
            _take_group(work, part, routes, documents=documents)


def _take_group(
    work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, *, documents: bool
) -> None:
    """Take the rows of tables that convert them alike at once; then what has to be looked at table by table."""
    for one in _convert_group(work, group, routes, documents=documents) if len(group) > 1 else group:
        if one.table in routes.refused:
            work.faults.extend(RecordError(int(row), "TASK_PUT", routes.refused[one.table]) for row in one.change.rows)
        else:
            table = _find_known(work.plan, one.table, routes)
            convert_changes(work, one.change, table, one.table, documents=documents)


def _convert_group(
    work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, *, documents: bool
) -> Iterator[RoutedChanges]:
    """Take the rows of a group; return what cannot be told of all tables by one of them: truncates, needs, faults."""
    plan, run, tables = work.plan, work.run, [work.plan.tables[routes.known[one.table]] for one in group]
    first, start = tables[0], group[0].start
    change = slice_changes(group[0].ordered, start, group[-1].stop)
    if first.renames and not change.optional:
        # Which names are used anew its messages tell, one by one.
        yield from group
        return
    rest, unfit = (None, []) if (change.op == OP_TRUNCATE).any() else fit_columns(change, first, plan)
    keys = work.keys(first, documents=documents)
    if rest is None or unfit or find_schema_change(run.topic, rest, keys, first, plan) is not None:
        yield from group
        return
    converted = convert_rows(run, rest, keys, first, plan)
    faults = converted.faults
    if faults and converted.nulled:
        yield from group
        return
    if converted.nulled:
        work.metrics += TaskMetrics(nulled=converted.nulled)
    faulty = np.isin(rest.rows, [fault.row for fault in faults]) if faults else None
    drifts = not plan.evolve and any(find_unknown_fields(rest, first, plan))
    for one, table in zip(group, tables, strict=True):
        own = slice(one.start - start, one.stop - start)
        if faulty is not None and faulty[own].any():
            yield one
            continue
        rows = ConvertedRows(converted.part.slice(own.start, own.stop - own.start), [])
        mine = slice_changes(rest, own.start, own.stop)
        work.take(complete_rows(run, mine, rows, table, plan), table)
        if drifts:
            work.count_unknown(mine, table)
