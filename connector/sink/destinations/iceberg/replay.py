"""Repaired dead letters -> one commit of their table. On the driver; no Spark job."""

from __future__ import annotations

import attrs

from connector.errors import DataFault
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.file_layout import file_layout
from connector.sink.destinations.iceberg.file_writer import write_append, write_upserts
from connector.sink.destinations.iceberg.tables import IcebergTables
from connector.sink.fold.fold import fold
from connector.sink.fold.unavailable_values import fill_in_batch, mark_unavailable
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import TaskOutput

REPLAYED_PROPERTY = "icebridge.replayed"
"""Summary property of a commit: the ids of the letters that it put through, with commas."""


@attrs.frozen
class IcebergReplay:
    """Gives each table one commit, at the offsets that it has; the commit names the letters."""

    tables: IcebergTables
    committer: IcebergCommitter

    def find_replayed(self, name: str) -> set[str]:
        """Return the letters that a table's commits name already."""
        done: set[str] = set()
        for snapshot in self.tables[name].table.ancestors():
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            done.update(filter(None, summary.get(REPLAYED_PROPERTY, "").split(",")))
        return done

    def replay(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows) -> ReplayOutcome:
        """Write and commit. Raises as the protocol says."""
        table, target = plan.tables[index], self.tables[name]
        writer, asked = TableWriter(file_layout(table), "replay"), list[TaskOutput]()
        if not table.upsert:
            for part, _ in parts:
                write_append(writer, part, table)
        elif table.history:
            raise DataFault(f"table {target.table.name} has scd-type=2: dead letters cannot be replayed")
        else:
            folded = fill_in_batch(fold([part for part, _ in parts], table.layout.keys), table.layout.keys)
            if mark_unavailable(folded, keep_deletes=table.keep_deletes).any():
                raise DataFault(
                    f"table {target.table.name}: a dead letter lacks values that only the stored row has; add them"
                )
            asked = list(write_upserts(writer, folded, table))
        noted = {REPLAYED_PROPERTY: ",".join(sorted({one for _, ids in parts for one in ids}))}
        files, position = list(writer.close()), target.stored.position
        self.committer.commit_table_files(
            table, name, files, self.committer.look_up_keys(asked), position, properties=noted
        )
        return ReplayOutcome()
