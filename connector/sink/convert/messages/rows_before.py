"""Updates that left a key of the value, or a table -> deletes of the rows before them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from connector.sink.convert.columns.column_fitting import fit_columns
from connector.sink.convert.columns.routed_types import is_read_alike
from connector.sink.convert.converters import unwrap_settings
from connector.sink.convert.messages.change_reading import split_blocks
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.convert.routing import route_changes
from connector.sink.convert.row_builder import build_rows
from connector.sink.convert.value_keys import drop_rows_that_stay, find_rows_before, leaves_keys
from connector.sink.model.plan import TablePlan
from serde.events.changes import Changes
from serde.events.unwrapping import extract_changes
from serde.messages import MessageBlock


def delete_rows_before(work: MessageConversion, block: MessageBlock, table: TablePlan | None) -> None:
    """Take the rows out of tables that updates of a block gave another key, or another table; an update that is a dead
    letter, or tells no row before it that could be one of the table, takes none out.
    """
    plan = work.plan
    before = find_rows_before(block, () if table is None else table.layout.keys)
    deletes = None if before is None else extract_changes(before, unwrap_settings(plan, keep_before=True))[0]
    if before is None or deletes is None:
        return
    routed: list[tuple[TablePlan | None, Changes]] = [(table, deletes)]
    if plan.routing is not None:
        known = plan.routing.known
        split, _, _ = route_changes(deletes, before, work.run.topic, plan, plan.routing)
        routed = [(plan.tables[known[one.table]], one.change) for one in split if one.table in known]
    dead = np.asarray(sorted({fault.row for fault in work.faults}), np.int64)
    leaving = [(target, own) for target, own in routed if target is not None and leaves_keys(target)]
    for target, own_deletes in [(one, own) for one, some in leaving for own in _read_as(work, some, one)]:
        change = fit_columns(own_deletes, target, plan)[0]
        if change is None:
            continue
        built = build_rows(work.run, change, None, target, plan)
        part = built.part.take(np.flatnonzero(~np.isin(built.part.order.offset, work.run.offset[dead])))
        own = [rows for rows, index in zip(work.parts, work.tables, strict=True) if index == target.index]
        work.add_rows(drop_rows_that_stay(part, own, target.layout.keys), target)
        # No tombstone is about a delete that no record told.
        work.note_progress(attrs.evolve(built.progress, after_delete=-1))


def _read_as(work: MessageConversion, deletes: Changes, table: TablePlan) -> Iterator[Changes]:
    """Return deletes of rows before updates as the table that had these reads them."""
    if work.plan.routing is None or is_read_alike(deletes, table, work.plan):
        yield deletes
        return
    for block, _ in split_blocks(work, None, work.read_values(table, np.sort(deletes.rows)), table):
        before = find_rows_before(block)
        change = None if before is None else extract_changes(before, unwrap_settings(work.plan, keep_before=True))[0]
        if change is not None:
            yield change
