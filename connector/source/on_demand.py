"""A snapshot that a signal asked for + its table's offset -> one chunk of rows -> the publisher -> stored progress.

Changes of the table have their turns between the chunks of an incremental snapshot; a blocking one holds them up. Why
no row of a chunk is older than what consumers have: `snapshots.chunks`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice

import attrs
import structlog
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import ConfigError, FatalError, GapError
from connector.iceberg.read.scan_planning import Entry, FileScanTask, tasks_by_entry
from connector.iceberg.read.table_reader import TableReader
from connector.runtime.monitoring.listeners import ScanStatus, SnapshotReport, SnapshotStage
from connector.source.capture_reports import CaptureReports
from connector.source.changes.chunk_rows import LiveFiles, keep_rows, read_live, read_rewritten
from connector.source.changes.initial_snapshot import SnapshotPart, SnapshotParts, is_numbered
from connector.source.changes.key_values import MISSING_ROW_ID
from connector.source.changes.row_filter import to_condition
from connector.source.changes.row_key import KeyKind
from connector.source.destination import CapturedTable
from connector.source.snapshots.chunks import Chunk, ChunkProgress, advance, is_done, next_chunk
from connector.source.snapshots.next_step import SnapshotMode
from connector.source.snapshots.signal import SnapshotKind, parse_filter
from connector.source.snapshots.snapshot_info import SnapshotInfo, event_ts_ns
from connector.source.snapshots.snapshot_queue import AGGREGATES, QueuedSnapshot
from connector.source.snapshots.table_history import parse_ancestor
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_access import TableAccess
from serde.emit.envelope import SnapshotMarker

_MARKERS: dict[SnapshotKind, SnapshotMarker] = {SnapshotKind.INCREMENTAL: "incremental", SnapshotKind.BLOCKING: "true"}


@attrs.define(eq=False)
class SnapshotOnDemand:
    """Reads the snapshots of one table that signals asked for, one chunk per `step`."""

    access: TableAccess
    reports: CaptureReports
    _parts: SnapshotParts = attrs.field(init=False)
    _live: LiveFiles = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Plan nothing yet."""
        access = self.access
        self._parts = SnapshotParts(access.spark, access.table, access.settings.signals.chunk_rows)
        self._live = LiveFiles(access.spark, access.table)

    def due(self, stored: TableOffset | None, *, idle: bool, had_turn: bool) -> QueuedSnapshot | None:
        """Return the snapshot that has the next turn; None where changes have it, or nothing is there to read.

        Args:
            stored: the table's offset; a table that is not read yet, or not in full, has that before it.
            idle: there are no changes.
            had_turn: the last turn was a chunk's.
        """
        if stored is None or stored.position.reading is not None:
            return None
        snapshot = self.access.offsets.queue.first(self.access.table.name)
        if snapshot is None or idle or snapshot.kind == SnapshotKind.BLOCKING:
            return snapshot
        return None if had_turn else snapshot

    def step(self, snapshot: QueuedSnapshot, stored: TableOffset, newest: int | None) -> None:
        """Begin a snapshot, or publish its next chunk. One that cannot continue is given up, and changes go on.

        Args:
            snapshot: what `due` returned.
            stored: the table's offset.
            newest: the table's newest snapshot; read where the source follows no changes.

        Raises:
            RetriableError: catalog, store or cluster are away.
            FatalError: another process stored the source's offsets.
        """
        try:
            if snapshot.progress is None or self._is_outrun(snapshot, snapshot.progress, stored):
                progress, offset = self._begin(snapshot, self._advance_unfollowed(stored, newest))
                rows = 0
            else:
                progress, offset, rows = self._publish(snapshot, snapshot.progress, stored)
        except (GapError, ConfigError, FatalError) as error:
            self._abort(snapshot, error)
            return
        queue = self.access.offsets.queue
        after = queue.without(snapshot) if progress is None else queue.advance(snapshot, progress)
        self.access.offsets.put_queue(after, {self.access.table.name: offset})
        if progress is None:
            self._finish(snapshot, rows)
        elif rows:
            self._tell(snapshot, "IN_PROGRESS", rows=rows, done=self._count_chunks(progress))

    def _advance_unfollowed(self, stored: TableOffset, newest: int | None) -> TableOffset:
        """Return the offset at which a snapshot begins: where no changes are followed, that of the newest snapshot."""
        mode = SnapshotMode(self.access.settings.capture.snapshot_mode)
        if mode != SnapshotMode.INITIAL_ONLY or newest is None or newest == stored.position.snapshot_id:
            return stored
        info = SnapshotInfo.of(parse_ancestor(self.access.snapshots.retained()[newest]), stored.ts_ns)
        return attrs.evolve(stored.advance_to(self.access.table.uuid, newest), ts_ns=info.ts_ns)

    def _is_outrun(self, snapshot: QueuedSnapshot, progress: ChunkProgress, stored: TableOffset) -> bool:
        """Whether a blocking snapshot was not alone: the offset was reset meanwhile. It begins again."""
        return snapshot.kind == SnapshotKind.BLOCKING and progress.snapshot_id != stored.position.snapshot_id

    def _begin(self, snapshot: QueuedSnapshot, stored: TableOffset) -> tuple[ChunkProgress | None, TableOffset]:
        """Pin the newest published snapshot, once it is known that it can be read; None where it has no rows."""
        pinned = stored.position.snapshot_id
        if pinned is None:
            return None, stored
        info = self._info(stored)
        table = self.access.describe(info, _MARKERS[snapshot.kind])
        if table.key.kind == KeyKind.NONE and snapshot.kind == SnapshotKind.INCREMENTAL:
            raise _NoKey(
                f"table {table.name} has no key, so that its rows could not be told from changes meanwhile; set "
                "identifier columns or message.key.columns, or ask for a blocking snapshot"
            )
        self._condition(snapshot, table)
        summary: dict[str, str] = self.access.snapshots.retained()[pinned].get("summary", {})
        progress = ChunkProgress(self.access.table.uuid, pinned, 0, self._parts.choose_part_bytes(summary))
        # What comes next must not be dated before the rows of the first chunk.
        return progress, attrs.evolve(stored, ts_ns=info.ts_ns)

    def _publish(
        self, snapshot: QueuedSnapshot, progress: ChunkProgress, stored: TableOffset
    ) -> tuple[ChunkProgress | None, TableOffset, int]:
        """Publish the next chunk; return the progress (None: it was the last one), the offset, and the rows so far."""
        began = time.monotonic()
        if progress.table_uuid != stored.position.table_uuid:
            raise GapError(
                f"table {self.access.table.name} was replaced by another one while it was read; send the signal again"
            )
        parts = self._pinned_parts(progress.snapshot_id, progress.chunk_bytes)
        info = self._info(stored)
        pinned = [task for part in parts for task in part.tasks]
        live = pinned if progress.snapshot_id == info.snapshot_id else self._live.at(info.snapshot_id)
        planned, now = tasks_by_entry(pinned, live)
        entries = iter(planned)
        chunk = next_chunk([list(islice(entries, len(part.tasks))) for part in parts], now.keys(), progress)
        if chunk is None:
            return None, stored, progress.rows
        table = self.access.describe(info, _MARKERS[snapshot.kind])
        if table.key.kind == KeyKind.ROW_ID and not all(map(is_numbered, parts)):
            raise FatalError(f"table {table.name}, snapshot {progress.snapshot_id}: {MISSING_ROW_ID}")
        tasks, operations = self._publish_rows(snapshot, table, stored, (chunk, planned, now))
        after = advance(progress, chunk, sum(task.records for task in tasks))
        offset = attrs.evolve(
            stored, target_id=self.access.publisher.target_id(table), schema_id=table.schema.document.get("schema-id")
        )
        self.reports.report_chunk(
            stored.position.snapshot_id or 0, after.chunk, len(parts), time.monotonic() - began, operations
        )
        return None if is_done(len(parts), after) else after, offset, after.rows

    def _publish_rows(
        self,
        snapshot: QueuedSnapshot,
        table: CapturedTable,
        stored: TableOffset,
        files: tuple[Chunk[Entry], dict[Entry, FileScanTask], dict[Entry, FileScanTask]],
    ) -> tuple[list[FileScanTask], Mapping[str, int]]:
        """Publish the rows of a chunk; return the files that they were looked for in, and what was published."""
        access, (chunk, planned, now) = self.access, files
        operations: Mapping[str, int] = {}
        access.publisher.check_target(table, stored.target_id)
        access.publish_schema(table, stored)
        reader = TableReader(access.spark, access.table, table.schema)
        with access.reads(table.snapshot.snapshot_id):
            if chunk.live:
                tasks = [now[entry] for entry in chunk.live]
                rows = read_live(reader, tasks, table.key)
            else:
                tasks = [task for entry, task in now.items() if entry not in planned]
                rows = read_rewritten(reader, [planned[entry] for entry in chunk.removed_files], tasks, table.key)
            if tasks:
                operations = access.publisher.publish(keep_rows(rows, self._condition(snapshot, table)), table)
        return tasks, operations

    def _condition(self, snapshot: QueuedSnapshot, table: CapturedTable) -> Column | None:
        if not snapshot.filter:
            return None
        return to_condition(parse_filter(snapshot.filter), table.schema.iceberg, F.col("after"))

    def _count_chunks(self, progress: ChunkProgress) -> tuple[int, int]:
        """Return how many chunks are published, and how many there are, by the plan that the last one was read by."""
        chunks = len(self._parts.plan(progress.snapshot_id, progress.chunk_bytes))
        return min(progress.chunk, chunks), chunks

    def _pinned_parts(self, snapshot_id: int, chunk_bytes: int) -> tuple[SnapshotPart, ...]:
        if snapshot_id not in self.access.snapshots.retained():
            raise GapError(
                f"table {self.access.table.name}: snapshot {snapshot_id} expired while it was read; keep snapshots for "
                "longer (history.expire.max-snapshot-age-ms), and send the signal again"
            )
        return self._parts.plan(snapshot_id, chunk_bytes)

    def _info(self, stored: TableOffset) -> SnapshotInfo:
        """Describe the newest published snapshot, dated as its changes were: nothing of it is newer."""
        retained = self.access.snapshots.retained()
        snapshot = None if stored.position.snapshot_id is None else retained.get(stored.position.snapshot_id)
        if snapshot is None:
            raise GapError(
                f"table {self.access.table.name}: snapshot {stored.position.snapshot_id} expired before it was "
                "read; keep snapshots for longer (history.expire.max-snapshot-age-ms), and send the signal again"
            )
        at = parse_ancestor(snapshot)
        ts_ns = event_ts_ns(at.timestamp_ms, None) if stored.ts_ns is None else stored.ts_ns
        return SnapshotInfo(at.snapshot_id, at.parent_id, at.sequence_number, ts_ns)

    def _finish(self, snapshot: QueuedSnapshot, rows: int) -> None:
        """Tell that a table is read; `queue` has it no more."""
        self._parts.forget()
        self._live.forget()
        tables = (snapshot.table, *self.access.offsets.queue.tables_of(snapshot))
        status: ScanStatus = "SUCCEEDED" if rows else "EMPTY"
        self._tell(snapshot, "TABLE_SCAN_COMPLETED", tables, rows=rows, status=status)
        if len(tables) == 1:
            self._tell(snapshot, "COMPLETED", tables)

    def _abort(self, snapshot: QueuedSnapshot, error: GapError | ConfigError | FatalError) -> None:
        """Give a snapshot up and say why; the table goes on with its changes."""
        self._parts.forget()
        offsets = self.access.offsets
        offsets.put_queue(offsets.queue.without(snapshot))
        structlog.get_logger().error(
            "snapshot on demand aborted, changes continue", table=snapshot.table, id=snapshot.id, reason=str(error)
        )
        status: ScanStatus = "SQL_EXCEPTION" if isinstance(error, ConfigError) else ""
        if isinstance(error, _NoKey):
            self._tell(snapshot, "TABLE_SCAN_COMPLETED", (snapshot.table,), status="NO_PRIMARY_KEY")
        self._tell(snapshot, "ABORTED", (snapshot.table,), status=status)

    def _tell(
        self,
        snapshot: QueuedSnapshot,
        stage: SnapshotStage,
        tables: tuple[str, ...] = (),
        *,
        rows: int = 0,
        status: ScanStatus = "",
        done: tuple[int, int] = (0, 0),
    ) -> None:
        named = tables or self.access.offsets.queue.tables_of(snapshot)
        aggregate = AGGREGATES[snapshot.kind]
        report = SnapshotReport(aggregate, stage, snapshot.id, named, snapshot.table, rows, status, *done)
        self.reports.report_snapshot(report)


class _NoKey(FatalError):
    """The rows of a table have no key."""
