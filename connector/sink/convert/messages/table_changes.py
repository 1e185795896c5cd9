"""Changes of one table -> its rows, the schema change that they need first, or faults."""

from __future__ import annotations

import attrs

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.column_fitting import fit_columns
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
    if plan.case_insensitive and table is not None:
        parts = split_spellings(change, table.layout.columns.names)
        if len(parts) > 1:
            for part in parts:
                convert_changes(work, part, table, name, documents=documents)
            return
    work.truncates.extend(read_truncates(run, change, table))
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
