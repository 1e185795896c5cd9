"""Repaired dead letters -> one commit of their table. On the driver; their keys are looked up in the table by Spark.

Changes in other topic-partitions are found in the table: a key moves to another partition when partitions are added,
and its changes since then are in its row, or in the record of its delete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from connector.errors import DataFault
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.lookups.table_lookups import drop_late_changes
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write.file_writer import write_append, write_upserts
from connector.sink.destinations.replayed_rows import drop_superseded_rows, find_dropped
from connector.sink.fold.fold import fold
from connector.sink.fold.values.unavailable_values import fill_in_batch, mark_unavailable
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import TaskOutput

REPLAYED_PROPERTY = "icebridge.replayed"
"""Summary property of a commit: the names of the letters that it put through, with commas."""


@attrs.frozen
class IcebergReplay:
    """Makes one commit per table, at the table's current offsets; the commit names the dead letters."""

    tables: IcebergTables
    committer: IcebergCommitter

    def find_replayed(self, name: str) -> set[str]:
        """Return the dead letters that a table's commits already name."""
        done: set[str] = set()
        for snapshot in self.tables[name].table.ancestors():
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            done.update(filter(None, summary.get(REPLAYED_PROPERTY, "").split(",")))
        return done

    def replay(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows, *, execute: bool) -> ReplayOutcome:
        """Write and commit. Raises as the protocol says."""
        table, target = plan.tables[index], self.tables[name]
        if table.upsert and table.history:
            raise DataFault(
                f"table {target.table.name} has scd-type=2, in which dead letters cannot be replayed; write the "
                "version by other means"
            )
        standing = self._drop_superseded(plan, table, target, [part for part, _ in parts])
        overtaken = find_dropped(parts, standing)
        if standing:
            folded = _fold_rows(standing, table, target.table.name) if table.upsert else None
            if execute:
                replayed = {one for _, ids in parts for one in ids} - overtaken
                self._commit(table, name, standing, folded, replayed)
        return ReplayOutcome(overtaken)

    def _drop_superseded(
        self, plan: BatchPlan, table: TablePlan, target: TargetTable, parts: list[ChangeBatch]
    ) -> list[ChangeBatch]:
        """Leave out the rows of keys that the table has newer rows of, where it tells."""
        if not (table.upsert and table.dated):
            return parts
        deleted_keys = self.tables.deleted_keys
        return drop_superseded_rows(
            target.table.spark,
            table,
            parts,
            lambda key_outputs, ranges, until: drop_late_changes(
                key_outputs, ranges, plan, table, target.table, deleted_keys, until
            ),
        )

    def _commit(
        self,
        table: TablePlan,
        name: str,
        parts: Sequence[ChangeBatch],
        folded: FoldedChanges | None,
        replayed: Collection[str],
    ) -> None:
        """Write rows, or what they fold to, and commit them with the names of their letters."""
        writer, key_outputs = TableWriter(file_layout(table), "replay"), list[TaskOutput]()
        if folded is None:
            for part in parts:
                write_append(writer, part, table)
        else:
            key_outputs = list(write_upserts(writer, folded, table))
        noted = {REPLAYED_PROPERTY: ",".join(sorted(replayed))}
        files, position = list(writer.close()), self.tables[name].stored.position
        self.committer.commit_table_files(
            table, name, files, self.committer.look_up_keys(key_outputs), position, properties=noted
        )


def _fold_rows(parts: list[ChangeBatch], table: TablePlan, name: str) -> FoldedChanges:
    """Return one row for each key. DataFault where it lacks values that only the table has."""
    keys, variants = table.layout.keys, table.layout.variants
    folded = fill_in_batch(fold(parts, keys), keys, variants=variants)
    if mark_unavailable(folded, keep_deletes=table.keep_deletes).any():
        raise DataFault(f"table {name}: a dead letter lacks values that only the stored row has; add them")
    return folded
