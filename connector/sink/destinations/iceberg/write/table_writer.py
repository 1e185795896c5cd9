"""Rows and winners of one task -> data files and equality deletes of Iceberg tables. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from connector.iceberg.write.rolling_file import RollingFile
from connector.iceberg.write.table_writer import OpenFile, TableWriter
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.key_change_headers import build_old_key_rows, mark_key_changes
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write.file_writer import write_append, write_upserts
from connector.sink.destinations.iceberg.write_modes.scd2_versions import emit_for_lookup
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.fold.values.row_lives import find_rows_of_lives
from connector.sink.fold.values.unavailable_values import mark_unavailable, split_winners
from connector.sink.job.shuffle import pack
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, gather
from connector.sink.model.destination import TaskWriter
from connector.sink.model.driver_output import DeletedKeysWritten, UnavailableValuesSeen, Written
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput


@attrs.frozen
class IcebergWriterFactory:
    """Opens the files of Iceberg tables; with `memory` hard deletes are recorded there. `files` opens a file."""

    memory: DeletedKeyLog | None = None
    files: OpenFile = RollingFile
    follows_keys: bool = False

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
        """Begin in one task; `label` goes into file names."""
        return IcebergTaskWriter(plan, label, self.memory, self.files)


class IcebergTaskWriter:
    """The open files of one task, by table."""

    def __init__(
        self, plan: BatchPlan, label: str, memory: DeletedKeyLog | None, files: OpenFile = RollingFile
    ) -> None:
        """Open nothing yet."""
        self._plan, self._label, self._memory, self._files = plan, label, memory, files
        self._deleted: TableWriter | None = None
        self._writers: dict[int, TableWriter] = {}

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        """Write every event that has a row."""
        write_append(self._writer(table), part, table)
        yield from ()

    def find_key_changes(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, list[TaskOutput]]:
        """Mark creates that a key change made, and pass on the old keys."""
        if not table.patches or run.old_key is None:
            return part, []
        part = mark_key_changes(part, run.offset, run.old_key)
        before = build_old_key_rows(part, run.offset, run.old_key, table)
        if before is None:
            return part, []
        # They pass a reduce task on their way, each run's another one.
        bucket = int(before.order.records[0]) % table.buckets
        return part, [TaskOutput(OutputKind.OLD_KEY_ROWS, pack(before), table.index, bucket)]

    def upsert(
        self,
        table: TablePlan,
        folded: FoldedChanges,
        elsewhere: Sequence[bytes] = (),  # noqa: ARG002 - joins find other keys
    ) -> Iterator[TaskOutput]:
        """Write winners; pass on rows that only the table can complete.

        See `lookups.unavailable_values`, `lookups.tombstones`, and for tables that keep history `write_modes.scd2`.
        """
        if table.history:
            yield from emit_for_lookup(folded, table)
            return
        self._remember(folded, table)
        missing = mark_unavailable(folded, keep_deletes=table.keep_deletes, suspicious=not table.patches)
        if table.patches:
            for part in find_rows_of_lives(folded, table.layout.keys):
                yield TaskOutput(OutputKind.LAST_ROWS, pack(part), table.index)
        if missing.any() and table.patches:
            folded, rows = split_winners(folded, missing, table.layout.keys)
            for part in rows:
                whole = attrs.evolve(part, rows=mark_deleted(part.rows, part.deleted)) if part.deleted.any() else part
                yield from _emit_incomplete_rows(whole, table)
        elif missing.any():
            yield TaskOutput.of(UnavailableValuesSeen(table.index))
        yield from write_upserts(self._writer(table), folded, table)
        if table.needs_tombstone_lookup:
            for part in gather(folded.parts, folded.winners[folded.images < 0]):
                yield TaskOutput(OutputKind.TOMBSTONES, pack(part), table.index)

    def close(self) -> Iterator[TaskOutput]:
        """Finish every file and describe it."""
        for index, writer in self._writers.items():
            yield from (TaskOutput.of(Written(index, file)) for file in writer.close())
        if self._deleted is not None:
            yield from (TaskOutput.of(DeletedKeysWritten(file)) for file in self._deleted.close())

    def _remember(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Record the deleted keys: a late change of them would find no row to be compared with."""
        if self._memory is None or not table.dated or table.keep_deletes:
            return
        rows = build_deleted_key_rows(folded, table, self._plan.ranks, self._memory)
        if len(rows):
            self._deleted = self._deleted or TableWriter(self._memory.layout, self._label, self._files)
            self._deleted.write_rows(rows)

    def _writer(self, table: TablePlan) -> TableWriter:
        if table.index not in self._writers:
            self._writers[table.index] = TableWriter(file_layout(table), self._label, self._files)
        return self._writers[table.index]


def _emit_incomplete_rows(part: ChangeBatch, table: TablePlan) -> Iterator[TaskOutput]:
    """Pass on rows that lack values, and separately rows of which only changes are known."""
    patched = np.zeros(len(part), np.bool_) if part.patches is None else np.asarray(part.patches.is_valid())
    for kind, which in ((OutputKind.UNAVAILABLE_ROWS, ~patched), (OutputKind.PATCHED_ROWS, patched)):
        if which.any():
            yield TaskOutput(kind, pack(part.take(np.flatnonzero(which))), table.index)
