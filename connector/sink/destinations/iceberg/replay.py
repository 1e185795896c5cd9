"""Repaired dead letters -> one commit of their table. On the driver; their keys are looked up in the table by Spark.

Of other topic-partitions the table tells: a key moves to another one when a topic gets more of them, and what came
there since is in its row, or remembered of its delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import attrs
import numpy as np
import pyarrow as pa

from connector.errors import DataFault
from connector.iceberg.catalog.table import Table
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch
from connector.iceberg.write.table_writer import TableWriter
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.lookups.table_lookups import drop_late_changes
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write.file_writer import write_append, write_upserts
from connector.sink.fold.fold import fold
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.unavailable_values import fill_in_batch, mark_unavailable
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput, to_batch

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
        if table.upsert and table.history:
            raise DataFault(f"table {target.table.name} has scd-type=2: dead letters cannot be replayed")
        standing = [part for part, _ in parts]
        if table.upsert and table.dated:
            standing = self._drop_late(plan, table, target.table, standing)
        left = {place for part in standing for place in _places(part)}
        ids = {one: place in left for part, own in parts for one, place in zip(own, _places(part), strict=True)}
        outcome = ReplayOutcome(frozenset(one for one, stands in ids.items() if not stands))
        if not standing:
            return outcome
        writer, asked = TableWriter(file_layout(table), "replay"), list[TaskOutput]()
        if not table.upsert:
            for part in standing:
                write_append(writer, part, table)
        else:
            folded = fill_in_batch(fold(standing, table.layout.keys), table.layout.keys)
            if mark_unavailable(folded, keep_deletes=table.keep_deletes).any():
                raise DataFault(
                    f"table {target.table.name}: a dead letter lacks values that only the stored row has; add them"
                )
            asked = list(write_upserts(writer, folded, table))
        noted = {REPLAYED_PROPERTY: ",".join(sorted(one for one, stands in ids.items() if stands))}
        files, position = list(writer.close()), target.stored.position
        self.committer.commit_table_files(
            table, name, files, self.committer.look_up_keys(asked), position, properties=noted
        )
        return outcome

    def _drop_late(
        self, plan: BatchPlan, table: TablePlan, java: Table, parts: Sequence[ChangeBatch]
    ) -> list[ChangeBatch]:
        """Leave out the keys of which the table has what is proven to be newer, or had it deleted."""
        suspects = [attrs.evolve(part, suspect=np.ones(len(part), np.bool_)) for part in parts]
        _, aside = split_late_candidates(fold(suspects, table.layout.keys), table.layout.keys)
        if aside is None:
            return list(parts)
        candidates = to_batch([TaskOutput(OutputKind.LATE_CANDIDATES, pack(aside), table.index)])
        asked = java.spark.createDataFrame(pa.Table.from_batches([candidates]))
        ranges = KeyRanges.of(read_batch(aside.rows, table.layout.keys))
        with raise_task_errors(), ExitStack() as until:
            kept = drop_late_changes(asked, ranges, plan, table, java, self.tables.deleted_keys, until).collect()
        payloads = (pa.py_buffer(bytes(row.payload)) for row in kept if row.kind == OutputKind.CHANGES)
        return [unpack(payload, table.layout.rows) for payload in payloads]


def _places(part: ChangeBatch) -> list[tuple[int, int]]:
    return list(zip(part.order.partition.tolist(), part.order.offset.tolist(), strict=True))
