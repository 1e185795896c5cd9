"""Changes, as their events have them -> the same by the names, and with the types, of a table's columns. Pure."""

from __future__ import annotations

from connector.sink.convert.columns.ambiguous_names import refuse_ambiguous_names
from connector.sink.convert.columns.column_renames import follow_renames
from connector.sink.convert.columns.expected_types import keep_known_empties
from connector.sink.convert.columns.field_matching import match_case
from connector.sink.convert.columns.found_columns import read_instants
from connector.sink.convert.columns.type_changes import follow_type_changes
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.events.changes import Changes
from serde.faults import RecordError


def fit_columns(change: Changes, table: TablePlan | None, plan: BatchPlan) -> tuple[Changes | None, list[RecordError]]:
    """Bring changes to the names and types of a table's columns; None where none of them can be."""
    faults: list[RecordError] = []
    if table is not None:
        change = follow_renames(change, table.renames, table.layout.columns.names)
    if plan.case_insensitive:
        matched, unlike = match_case(change, () if table is None else table.layout.columns.names)
        faults.extend(unlike)
        if matched is None:
            return None, faults
        change = matched
    change = keep_known_empties(change, table, plan)
    if table is not None:
        read, beyond = read_instants(change, table.layout)
        faults.extend(beyond)
        if read is None:
            return None, faults
        change = read
    if table is not None and plan.evolve:
        change = follow_type_changes(change, table.layout, plan.events.type_changes)
    fitting, ambiguous = refuse_ambiguous_names(change, table, plan)
    return fitting, [*faults, *ambiguous]
