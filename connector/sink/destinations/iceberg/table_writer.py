"""Rows and winners of one task -> data files and equality deletes of Iceberg tables. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from connector.iceberg.write.table_writer import TableWriter
from connector.sink.convert.key_change_headers import marked, moves
from connector.sink.convert.row_builder import Run
from connector.sink.destinations.iceberg.file_writer import mark_deleted, write_append, write_upserts
from connector.sink.destinations.iceberg.lookups.deleted_keys import Memory, remembered
from connector.sink.destinations.iceberg.write_modes.scd2_versions import handed_on
from connector.sink.fold.unavailable_values import last_rows, parted, unknown
from connector.sink.model import task_output
from connector.sink.model.change_rows import Folded, Part, gather, pack
from connector.sink.model.outlet import Writers
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import Parcel


@attrs.frozen
class Files:
    """The outlet of Iceberg tables; with `memory` hard deletes are remembered there."""

    memory: Memory | None = None
    follows_keys: bool = False

    def open(self, plan: BatchPlan, label: str) -> Writers:
        """Begin in one task; `label` goes into file names."""
        return FileWriters(plan, label, self.memory)


class FileWriters:
    """The open files of one task, by table."""

    def __init__(self, plan: BatchPlan, label: str, memory: Memory | None) -> None:
        """Open nothing yet."""
        self._plan, self._label, self._memory = plan, label, memory
        self._deleted: TableWriter | None = None
        self._writers: dict[int, TableWriter] = {}

    def append(self, table: TablePlan, part: Part) -> Iterator[Parcel]:
        """Write every event that has a row."""
        write_append(self._writer(table), part, table)
        yield from ()

    def moved(self, table: TablePlan, part: Part, run: Run) -> tuple[Part, list[Parcel]]:
        """Mark creates that a change of key made, and hand on the keys before."""
        if not table.patches or run.old_key is None:
            return part, []
        part = marked(part, run.offset, run.old_key)
        before = moves(part, run.offset, run.old_key, table)
        return part, [] if before is None else [Parcel(task_output.MOVED, pack(before), table.index)]

    def upsert(
        self,
        table: TablePlan,
        folded: Folded,
        elsewhere: Sequence[bytes] = (),  # noqa: ARG002 - joins find other keys
    ) -> Iterator[Parcel]:
        """Write winners; hand on what only the table can complete.

        See `lookups.unavailable_values`, `lookups.tombstones`, and for tables that keep history `write_modes.scd2`.
        """
        if table.history:
            yield from handed_on(folded, table)
            return
        self._remember(folded, table)
        missing = unknown(folded, keep_deletes=table.keep_deletes, suspicious=not table.patches)
        if table.patches:
            for part in gather(folded.parts, last_rows(folded, table.layout.keys)):
                yield Parcel(task_output.LAST, pack(part), table.index)
        if missing.any() and table.patches:
            folded, rows = parted(folded, missing, table.layout.keys)
            for part in rows:
                whole = attrs.evolve(part, rows=mark_deleted(part.rows, part.deleted)) if part.deleted.any() else part
                yield Parcel(task_output.PATCH, pack(whole), table.index)
        elif missing.any():
            yield Parcel(task_output.OPEN, b"", table.index)
        yield from write_upserts(self._writer(table), folded, table)
        if table.recalls:
            for part in gather(folded.parts, folded.winners[folded.images < 0]):
                yield Parcel(task_output.RECALL, pack(part), table.index)

    def close(self) -> Iterator[Parcel]:
        """Finish every file and describe it."""
        for index, writer in self._writers.items():
            yield from (Parcel(task_output.FILE, description, index) for description in writer.close())
        if self._deleted is not None:
            yield from (Parcel(task_output.DELETED, description) for description in self._deleted.close())

    def _remember(self, folded: Folded, table: TablePlan) -> None:
        """Note the keys that are gone: a change of them that comes again finds no row that tells its age."""
        if self._memory is None or not table.dated or table.keep_deletes:
            return
        rows = remembered(folded, table, self._plan.ranks, self._memory)
        if len(rows):
            self._deleted = self._deleted or TableWriter(self._memory.layout, self._label)
            self._deleted.rows(rows)

    def _writer(self, table: TablePlan) -> TableWriter:
        if table.index not in self._writers:
            self._writers[table.index] = TableWriter(table.layout, self._label)
        return self._writers[table.index]
