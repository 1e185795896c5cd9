"""Changes of a task -> those that a later fold, or the table, needs; what map and reduce tasks share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyspark import TaskContext

from connector.sink.fold.fold import find_first_changes, find_last_deletes, find_rows_to_keep, fold
from connector.sink.fold.values.row_lives import find_needed_rows
from connector.sink.fold.values.unavailable_values import fill_in_batch, find_open_starts
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, concat_small, locate
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import Ints


def fold_changes(parts: list[ChangeBatch], table: TablePlan) -> FoldedChanges:
    """Return the winners of the keys in some parts, with values that earlier changes of their keys have.

    Of a history only those of the same version: the version before it may be in the table (`write_modes.scd2`).
    """
    folded = fold(parts, table.identity)
    return fill_in_batch(folded, table.identity, variants=table.layout.variants)


def compact_changes(parts: list[ChangeBatch], table: TablePlan, *, last: bool = False) -> list[ChangeBatch]:
    """Fold to the changes that a later fold needs (`choose_changes`)."""
    chosen = choose_changes(parts, table, last=last)
    return [part if len(rows) == len(part) else part.take(rows) for part, rows in chosen]


def choose_changes(
    parts: list[ChangeBatch], table: TablePlan, *, last: bool = False
) -> Iterator[tuple[ChangeBatch, Ints]]:
    """Find the changes that a later fold needs: parts, and which rows of each.

    `last` keeps the last row of deleted keys too, which other keys' rows may need.
    """
    folded = fold_changes(concat_small(parts), table)
    also = find_last_deletes(parts) if table.tombstones == "delete" else np.zeros(0, np.int64)
    more, keys = table.patches or last, table.layout.keys
    more_of = np.union1d(also, find_needed_rows(folded, keys) if more else find_open_starts(folded.parts, keys))
    if table.history:
        more_of = np.union1d(more_of, find_first_changes(folded.parts, table.identity))
    return locate(folded.parts, find_rows_to_keep(folded, table.identity, more_of, numbered=table.numbered))


def task_label(plan: BatchPlan) -> str:
    """Return what tells the files of the running task from those of others."""
    context = TaskContext.get()
    return f"{plan.label}-{context.partitionId():05d}" if context else plan.label
