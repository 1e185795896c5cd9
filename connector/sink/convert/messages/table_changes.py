"""Changes of one table -> its rows, the schema change that they need first, or faults."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.column_fitting import fit_columns
from connector.sink.convert.columns.column_renames import split_reused_names
from connector.sink.convert.columns.field_matching import split_spellings
from connector.sink.convert.columns.schema_needs import find_schema_change
from connector.sink.convert.events.truncate_events import drop_truncated, read_truncates, refuse_truncates
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.convert.row_builder import build_rows
from connector.sink.model.plan import TablePlan
from serde.events.changes import Changes


def convert_changes(
    work: MessageConversion, change: Changes, table: TablePlan | None, name: str | None, *, documents: bool
) -> None:
    """Take changes of one table: as rows, as a need, or as faults."""
    plan, run = work.plan, work.run
    parts = [] if table is None else _split_by_names(work, change, table)
    if parts:
        for part, own in parts:
            convert_changes(work, part, own, name, documents=documents)
        return
    work.truncates.extend(read_truncates(run, change, table, plan.dedup_column))
    work.faults.extend(refuse_truncates(change, table))
    truncated = drop_truncated(run, change, table)
    work.metrics += TaskMetrics(untold=truncated.untold)
    rest = truncated.left
    if rest is None:
        return
    rest, unfit = fit_columns(rest, table, plan)
    work.faults.extend(unfit)
    if rest is None:
        return
    keys = work.keys(table, documents=documents)
    if plan.case_insensitive and table is None and keys is not None:
        keys = keys.match_case(rest.row.type.names)
    need = find_schema_change(run.topic, rest, keys, table, plan)
    if table is None and keys is not None and keys.has_only_faults(rest.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(rest.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        ready = build_rows(run, rest, keys, table, plan, truncated.before)
        work.take(ready, table)
        if not plan.evolve:
            work.count_unknown(rest, table)


def _split_by_names(work: MessageConversion, change: Changes, table: TablePlan) -> Sequence[tuple[Changes, TablePlan]]:
    """Return changes in parts that each mean one thing by the names of their fields; none where all of them do."""
    columns = table.layout.columns.names
    if work.plan.case_insensitive:
        spelled = split_spellings(change, columns)
        if len(spelled) > 1:
            return [(part, table) for part in spelled]
    reused = split_reused_names(change, table.renames, columns, work.run.value) if table.renames else []
    if all(renames == table.renames for _, renames in reused):
        return []
    return [(part, attrs.evolve(table, renames=renames)) for part, renames in reused]
