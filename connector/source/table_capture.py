"""A captured table: the next step -> the rows or changes of one snapshot -> the publisher -> the stored offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import structlog

from connector.errors import FatalError, GapError, RetriableError
from connector.iceberg.read.table_reader import TableReader
from connector.runtime.monitoring.listeners import SnapshotStage, StepReport
from connector.runtime.stop_signals import finish_first
from connector.source.capture_reports import CaptureReports
from connector.source.changes.initial_snapshot import SnapshotParts, is_numbered, read_part
from connector.source.changes.key_values import MISSING_ROW_ID
from connector.source.changes.row_key import KeyKind
from connector.source.changes.snapshot_diff import read_changes
from connector.source.changes.unchanged_rows import drop_unchanged
from connector.source.destination import CapturedTable, ChangePublisher
from connector.source.on_demand import SnapshotOnDemand
from connector.source.snapshots import next_step
from connector.source.snapshots.next_step import (
    Ancestor,
    SnapshotMode,
    SnapshotOffset,
    SnapshotProgress,
    TableHead,
    decide_next_step,
)
from connector.source.snapshots.snapshot_info import SnapshotInfo
from connector.source.snapshots.table_history import TableGoneError, parse_ancestor, read_head, read_history
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_access import TableAccess


@attrs.define(eq=False)
class TableCapture:
    """Captures one table, one `step` at a time: an initial snapshot in parts, then the changes of each snapshot.

    Between them it reads the snapshots that signals asked for. `on_look` hears before each step when the oldest
    snapshot that is to be published was committed (epoch milliseconds, None: there is none).
    """

    access: TableAccess
    reports: CaptureReports
    on_look: Callable[[str, int | None], None] = lambda _name, _waiting_ms: None
    _reading: bool = False
    _starting: bool = True
    _head: TableHead | None = None
    _had_chunk: bool = False
    _uuid: str = attrs.field(init=False)
    _parts: SnapshotParts = attrs.field(init=False)
    _on_demand: SnapshotOnDemand = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Plan nothing yet."""
        access = self.access
        self._uuid = access.table.uuid
        self._parts = SnapshotParts(access.spark, access.table, access.settings.capture.max_batch_size)
        self._on_demand = SnapshotOnDemand(access, self.reports)

    @property
    def name(self) -> str:
        """The table's name with namespace."""
        return self.access.name

    def step(self, *, pinned: bool) -> bool:
        """Do the next thing there is to do; return False when there is nothing.

        Args:
            pinned: go no further than the snapshot that the table had at the first step.

        Raises:
            TableGoneError: the table was dropped; open it again to see whether another one has its name.
            NoBranchError: it has no such branch; it may have one later.
            GapError: history that is needed is gone, or another than the stored one.
            RetriableError: catalog, store or cluster are away.
            FatalError: the table cannot be read, or its changes cannot be published.
        """
        if self._head is None or not pinned:
            self._head = self._look()
        stored = self.access.offsets.of(self.name)
        decision = self._decide(stored, self._head)
        self._reading = isinstance(decision, next_step.ReadSnapshot)
        self.on_look(self.name, self._waiting_since(decision, self._head))
        if self._read_on_demand(stored, decision, self._head):
            return True
        before = _offset_before(stored, self._head)
        match decision:
            case next_step.Idle() | next_step.Completed():
                return False
            case next_step.Fail():
                raise GapError(decision.reason)
            case next_step.StartStreaming():
                structlog.get_logger().info(
                    "publishing changes from this snapshot on", table=self.name, snapshot_id=decision.snapshot_id
                )
                self._store(before.advance_to(self.access.table.uuid, decision.snapshot_id))
                if SnapshotMode(self.access.settings.capture.snapshot_mode) == SnapshotMode.NO_DATA:
                    self.reports.report_initial("SKIPPED")
            case next_step.ReadSnapshot():
                with self._detect_drop(), self._detect_expiry(decision.snapshot_id):
                    self._publish_part(decision, before)
            case next_step.SkipSnapshot():
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges() if self.access.skips(decision.snapshot):
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges():
                child = decision.snapshot
                with self._detect_drop(), self._detect_expiry(child.snapshot_id, child.parent_id):
                    self._publish_changes(child, before)
        self._starting = False
        return True

    def abandon(self) -> None:
        """Tell that the table is stepped no more, where that ends its initial snapshot before it is complete."""
        if self._reading:
            self.reports.report_initial("ABORTED")

    def _waiting_since(self, decision: next_step.Decision, head: TableHead) -> int | None:
        match decision:
            case next_step.StreamChanges() | next_step.SkipSnapshot():
                return decision.snapshot.timestamp_ms
            case next_step.ReadSnapshot():
                return self._committed_ms(decision.snapshot_id)
            case next_step.Fail():
                # Of what is gone nobody knows when it came; the newest waits too, until a person has looked.
                return self._committed_ms(head.snapshot_id)
        return None

    def _committed_ms(self, snapshot_id: int | None) -> int | None:
        snapshot = None if snapshot_id is None else self.access.snapshots.retained().get(snapshot_id)
        return None if snapshot is None else parse_ancestor(snapshot).timestamp_ms

    def _read_on_demand(self, stored: TableOffset | None, decision: next_step.Decision, head: TableHead) -> bool:
        """Publish a chunk of a snapshot on demand, if it has a turn; return whether it had."""
        if stored is None or stored.is_forgotten:
            return False
        idle = isinstance(decision, next_step.Idle | next_step.Completed)
        if not (idle or isinstance(decision, next_step.StreamChanges | next_step.SkipSnapshot)):
            return False
        snapshot = self._on_demand.due(stored, idle=idle, had_turn=self._had_chunk)
        self._had_chunk = snapshot is not None
        if snapshot is not None:
            self._on_demand.step(snapshot, stored, head.snapshot_id)
        return snapshot is not None

    def reload(self, publisher: ChangePublisher, before_offset_moves: Callable[[], object]) -> StepReport:
        """Publish the newest snapshot in full to another target, and continue from there.

        Args:
            publisher: publishes to the other target.
            before_offset_moves: called when all rows are published, before the offset is stored.

        Raises:
            GapError: the table has no snapshot.
            RetriableError, FatalError: as `step`; the offset is as it was. Where another process has moved it since,
                nothing is called.
        """
        began = time.monotonic()
        current = self._look().snapshot_id
        if current is None:
            raise GapError(
                f"table {self.name} has no snapshot to read; write to it, or take it out of table.include.list"
            )
        before = self.access.offsets.of(self.name) or TableOffset(SnapshotOffset(self.access.table.uuid, None))
        table = self.access.describe(self.access.snapshot_info(current, before), "true")
        reader = TableReader(self.access.spark, self.access.table, table.schema)
        parts = self._parts.plan(current, self._parts.choose_part_bytes(self.access.summary(current)))
        # Of a snapshot without rows there is no part, and the target is what searches see next.
        publisher.schema_changed(table, created=True)
        for part in parts:
            with self.access.reads(current):
                publisher.publish(read_part(reader, part, table.key), table)
        with finish_first():
            # What it has published since to the target of now would not be in this one.
            self.access.offsets.check_unmoved(self.name)
            before_offset_moves()
            self._store_published(attrs.evolve(before, target_id=self.access.publisher.target_id(table)), table)
        return StepReport(self.name, "part read", current, time.monotonic() - began, part=len(parts), parts=len(parts))

    def _look(self) -> TableHead:
        """Poll the table; raises as `step`."""
        with self._detect_drop():
            return read_head(self.access.table, self.access.snapshots)

    @contextmanager
    def _detect_drop(self) -> Iterator[None]:
        """Raise TableGoneError where what fails in the block does because the table was dropped."""
        try:
            yield
        except FatalError as error:
            # There are as many ways to tell of it as there are catalogs; and its files may go with it.
            if not self.access.table.is_gone(self._uuid):
                raise
            self.on_look(self.name, None)  # Nothing waits any more.
            raise TableGoneError(
                f"table {self.name} was dropped; take it out of table.include.list, or set snapshot.mode=when_needed, "
                "with which the source waits for another one of that name and reads it in full"
            ) from error

    @contextmanager
    def _detect_expiry(self, *needed: int | None) -> Iterator[None]:
        """Raise RetriableError where what fails in the block may do so because snapshots expired, whose files go too.

        The next step looks at the table anew, and decides what that means.
        """
        try:
            yield
        except FatalError as error:
            gone = self._find_expired(needed)
            if gone is None:
                raise
            self._head = None
            raise RetriableError(
                f"table {self.name}: snapshot {gone} expired while it was read; keep snapshots for longer "
                "(history.expire.max-snapshot-age-ms)"
            ) from error

    def _find_expired(self, snapshot_ids: Sequence[int | None]) -> int | None:
        """Return one of some snapshots that the table has no more; None too where it cannot be looked at."""
        try:
            self.access.snapshots.poll()
            retained = self.access.snapshots.retained()
        except FatalError:
            return None
        return next((one for one in snapshot_ids if one is not None and one not in retained), None)

    def _decide(self, stored: TableOffset | None, head: TableHead) -> next_step.Decision:
        position = None if stored is None or stored.is_forgotten else stored.position
        mode = SnapshotMode(self.access.settings.capture.snapshot_mode)
        return decide_next_step(
            self.name, position, mode, head, lambda: read_history(self.access.snapshots), starting=self._starting
        )

    def _skip(self, snapshot: Ancestor, before: TableOffset) -> None:
        began = time.monotonic()
        self._store(before.advance_to(self.access.table.uuid, snapshot.snapshot_id))
        self.reports.report_step("snapshot skipped", snapshot, began)

    def _publish_part(self, read: next_step.ReadSnapshot, before: TableOffset) -> None:
        """Publish one part of an initial snapshot, and store how far it is."""
        began = time.monotonic()
        snapshot_id = read.snapshot_id
        table = self.access.describe(self.access.snapshot_info(snapshot_id, before), "true")
        part_bytes = read.part_bytes or self._parts.choose_part_bytes(self.access.summary(snapshot_id))
        parts = self._parts.plan(snapshot_id, part_bytes)
        if table.key.kind == KeyKind.ROW_ID and not all(map(is_numbered, parts)):
            # Known before the read has begun: it must not be pinned to a snapshot whose rows never have ids.
            raise FatalError(f"table {self.name}, snapshot {snapshot_id}: {MISSING_ROW_ID}")
        if read.part_bytes is None:
            # Stored before the first row is published: after a crash the read must not begin again at a later snapshot,
            # in which rows that are published already may be gone.
            before = attrs.evolve(before, target_id="")
            self._store(before.reading(self.access.table.uuid, SnapshotProgress(snapshot_id, 0, part_bytes)))
            self.reports.report_initial("STARTED", 0, len(parts))
        operations: Mapping[str, int] = {}
        if read.part < len(parts):
            self.access.publisher.check_target(table, before.target_id)
        if read.part == 0:
            # Of a table without rows too: its first event is one of a later snapshot, by the schema that is stored now.
            self.access.publish_schema(table, before)
        if read.part < len(parts):
            with self.access.reads(snapshot_id):
                reader = TableReader(self.access.spark, self.access.table, table.schema)
                operations = self.access.publisher.publish(read_part(reader, parts[read.part], table.key), table)
            before = attrs.evolve(before, target_id=self.access.publisher.target_id(table))
        done = read.part + 1
        if done < len(parts):
            self._store(before.reading(self.access.table.uuid, SnapshotProgress(snapshot_id, done, part_bytes)))
        else:
            self._store_published(before, table)
            self._parts.forget()
        rows = sum(one.rows for one in parts[:done])
        stage: SnapshotStage = "IN_PROGRESS" if done < len(parts) else "TABLE_SCAN_COMPLETED"
        self.reports.report_initial(stage, done, len(parts), rows)
        if done >= len(parts):
            self.reports.report_initial("COMPLETED", len(parts), len(parts), rows)
        snapshot = parse_ancestor(self.access.snapshots.retained()[snapshot_id])
        self.reports.report_step("part read", snapshot, began, operations, (min(done, len(parts)), len(parts)))

    def _publish_changes(self, snapshot: Ancestor, before: TableOffset) -> None:
        """Publish the changes of a snapshot, and store that they are published."""
        began = time.monotonic()
        table = self.access.describe(SnapshotInfo.of(snapshot, before.ts_ns), "false")
        self.access.publisher.check_target(table, before.target_id)
        self.access.publish_schema(table, before)
        with self.access.reads(snapshot.snapshot_id):
            reader = TableReader(self.access.spark, self.access.table, table.schema)
            changes = read_changes(reader, snapshot.snapshot_id, table.key)
            if self.access.settings.outgoing.skips_unchanged:
                changes = drop_unchanged(changes, [one.name for one in table.row.members], table.key.columns)
            operations = self.access.publisher.publish(changes, table)
        self._store_published(attrs.evolve(before, target_id=self.access.publisher.target_id(table)), table)
        self.reports.report_step("snapshot published", snapshot, began, operations)

    def _store_published(self, before: TableOffset, table: CapturedTable) -> None:
        after = before.advance_to(self.access.table.uuid, table.snapshot.snapshot_id)
        self._store(attrs.evolve(after, ts_ns=table.snapshot.ts_ns, schema_id=table.schema.document.get("schema-id")))

    def _store(self, offset: TableOffset) -> None:
        self.access.offsets.put(self.name, offset)


def _offset_before(stored: TableOffset | None, head: TableHead) -> TableOffset:
    """Return what a step goes on from; another table of the name counts its schemas anew, and none of them is told."""
    if stored is None:
        return TableOffset(SnapshotOffset(head.table_uuid, None))
    return stored if stored.position.table_uuid == head.table_uuid else attrs.evolve(stored, schema_id=None)
