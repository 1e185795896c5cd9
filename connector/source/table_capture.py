"""A captured table: the next step -> the rows or changes of one snapshot -> the publisher -> the stored offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshot_schema import load_current_schema, load_snapshot_schema
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import is_icebridge_commit
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.runtime.monitoring.listeners import (
    ScanStatus,
    SnapshotListener,
    SnapshotReport,
    SnapshotStage,
    SourceListener,
    StepKind,
    StepReport,
)
from connector.settings import SourceSettings
from connector.source.changes.initial_snapshot import SnapshotParts, is_numbered, read_part
from connector.source.changes.key_values import MISSING_ROW_ID
from connector.source.changes.read_errors import translate_read_errors
from connector.source.changes.row_key import KeyKind, choose_row_key
from connector.source.changes.snapshot_diff import read_changes
from connector.source.destination import CapturedTable, ChangePublisher
from connector.source.envelope.row_schema import describe_row
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
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.snapshot_info import SnapshotInfo
from connector.source.snapshots.table_history import parse_ancestor, read_head, read_history
from connector.source.snapshots.table_offset import TableOffset
from connector.source.snapshots.table_warnings import log_warnings
from serde.emit.envelope import SnapshotMarker
from serde.emit.row_schema import RowStruct


@attrs.define(eq=False)
class TableCapture:
    """Captures one table, one `step` at a time: an initial snapshot in parts, then the changes of each snapshot.

    Between them it reads the snapshots that signals asked for. `looked` hears before each step when the oldest snapshot
    that is to be published was committed (epoch milliseconds, None: there is none).
    """

    spark: SparkSession
    settings: SourceSettings
    table: Table
    snapshots: SnapshotHistory
    offsets: TableOffsetStore
    publisher: ChangePublisher
    listeners: Sequence[SourceListener] = ()
    snapshot_listeners: Sequence[SnapshotListener] = ()
    looked: Callable[[str, int | None], None] = lambda _name, _waiting_ms: None
    _reading: bool = False
    _starting: bool = True
    _warned: bool = False
    _head: TableHead | None = None
    _had_chunk: bool = False
    _parts: SnapshotParts = attrs.field(init=False)
    _on_demand: SnapshotOnDemand = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Plan nothing yet."""
        self._parts = SnapshotParts(self.spark, self.table, self.settings.capture.max_batch_size)
        self._on_demand = SnapshotOnDemand(self, self._tell, self._report_chunk)

    @property
    def name(self) -> str:
        """The table's name with namespace."""
        return self.table.name

    def step(self, *, pinned: bool) -> bool:
        """Do the next thing there is to do; return False when there is nothing.

        Args:
            pinned: go no further than the snapshot that the table had at the first step.

        Raises:
            GapError: history that is needed is gone, or another than the stored one.
            RetriableError: catalog, store or cluster are away.
            FatalError: the table cannot be read, or its changes cannot be published.
        """
        if self._head is None or not pinned:
            self._head = read_head(self.table, self.snapshots)
        stored = self.offsets.of(self.name)
        decision = self._decide(stored, self._head)
        self._reading = isinstance(decision, next_step.ReadSnapshot)
        self.looked(self.name, self._waiting_since(decision))
        if self._read_on_demand(stored, decision, self._head):
            return True
        before = stored or TableOffset(SnapshotOffset(self._head.table_uuid, None))
        match decision:
            case next_step.Idle() | next_step.Completed():
                return False
            case next_step.Fail():
                raise GapError(decision.reason)
            case next_step.StartStreaming():
                structlog.get_logger().info("changes from here on", table=self.name, snapshot_id=decision.snapshot_id)
                self._store(before.published(self.table.uuid, decision.snapshot_id))
            case next_step.ReadSnapshot():
                self._publish_part(decision, before)
            case next_step.SkipSnapshot():
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges() if self.settings.capture.skip_own and self._is_own_commit(decision.snapshot):
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges():
                self._publish_changes(decision.snapshot, before)
        self._starting = False
        return True

    def abandon(self) -> None:
        """Tell that the table is stepped no more, where that ends its initial snapshot before it is complete."""
        if self._reading:
            self._tell_initial("ABORTED")

    def _waiting_since(self, decision: next_step.Decision) -> int | None:
        match decision:
            case next_step.StreamChanges() | next_step.SkipSnapshot():
                return decision.snapshot.timestamp_ms
            case next_step.ReadSnapshot():
                found = self.snapshots.retained().get(decision.snapshot_id)
                return None if found is None else parse_ancestor(found).timestamp_ms
        return None

    def _read_on_demand(self, stored: TableOffset | None, decision: next_step.Decision, head: TableHead) -> bool:
        """Publish a chunk of a snapshot on demand, if it has a turn; return whether it had."""
        idle = isinstance(decision, next_step.Idle | next_step.Completed)
        if stored is None or not (idle or isinstance(decision, next_step.StreamChanges | next_step.SkipSnapshot)):
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
            RetriableError, FatalError: as `step`; the offset is as it was.
        """
        began = time.monotonic()
        current = read_head(self.table, self.snapshots).snapshot_id
        if current is None:
            raise GapError(f"table {self.name} has no snapshot to read")
        before = self.offsets.of(self.name) or TableOffset(SnapshotOffset(self.table.uuid, None))
        table = self.describe(self._snapshot_info(current, before), "true")
        reader = TableReader(self.spark, self.table, table.schema)
        parts = self._parts.plan(current, self._parts.choose_part_bytes(self._summary(current)))
        for part in parts:
            with self.reads(current):
                publisher.publish(read_part(reader, part, table.key), table)
        before_offset_moves()
        self._store_published(attrs.evolve(before, target_id=self.publisher.target_id(table)), table)
        return StepReport(self.name, "part read", current, time.monotonic() - began, part=len(parts), parts=len(parts))

    def describe(self, snapshot: SnapshotInfo, marker: SnapshotMarker) -> CapturedTable:
        """Return the table at a snapshot: its schema, its key, and the columns that are published.

        Raises:
            GapError: the snapshot has expired.
            ConfigError, FatalError: its key or a column cannot be published.
        """
        schema, capture = load_snapshot_schema(self.spark, self.table, snapshot.snapshot_id), self.settings.capture
        key = choose_row_key(
            schema,
            load_current_schema(self.spark, self.table),
            capture.key_columns(self.name),
            self.name,
            has_row_ids=self.table.has_row_ids,
        )
        if not self._warned:
            self._warned = True
            log_warnings(self.table, key)
        columns = describe_row(schema.document).members
        row = RowStruct(tuple(column for column in columns if capture.keeps(self.name, column.name)))
        table = CapturedTable(self.name, snapshot, schema, key, row, marker)
        self.publisher.check_columns(table)
        return table

    def _decide(self, stored: TableOffset | None, head: TableHead) -> next_step.Decision:
        position = None if stored is None else stored.position
        mode = SnapshotMode(self.settings.capture.snapshot_mode)
        return decide_next_step(
            self.name, position, mode, head, lambda: read_history(self.snapshots), starting=self._starting
        )

    def _skip(self, snapshot: Ancestor, before: TableOffset) -> None:
        began = time.monotonic()
        self._store(before.published(self.table.uuid, snapshot.snapshot_id))
        self._report("snapshot skipped", snapshot, began)

    def _publish_part(self, read: next_step.ReadSnapshot, before: TableOffset) -> None:
        """Publish one part of an initial snapshot, and store how far it is."""
        began = time.monotonic()
        snapshot_id = read.snapshot_id
        table = self.describe(self._snapshot_info(snapshot_id, before), "true")
        part_bytes = read.part_bytes or self._parts.choose_part_bytes(self._summary(snapshot_id))
        parts = self._parts.plan(snapshot_id, part_bytes)
        if table.key.kind == KeyKind.ROW_ID and not all(map(is_numbered, parts)):
            # Known before the read has begun: it must not be pinned to a snapshot whose rows never have ids.
            raise FatalError(f"table {self.name}, snapshot {snapshot_id}: {MISSING_ROW_ID}")
        if read.part_bytes is None:
            # Stored before the first row is published: after a crash the read must not begin anew at a later snapshot,
            # in which rows that are published already may be gone.
            before = attrs.evolve(before, target_id="")
            self._store(before.reading(self.table.uuid, SnapshotProgress(snapshot_id, 0, part_bytes)))
            self._tell_initial("STARTED", 0, len(parts))
        operations: Mapping[str, int] = {}
        if read.part < len(parts):
            self.publisher.check_target(table, before.target_id)
            if read.part == 0:
                self.publish_schema(table, before)
            with self.reads(snapshot_id):
                reader = TableReader(self.spark, self.table, table.schema)
                operations = self.publisher.publish(read_part(reader, parts[read.part], table.key), table)
            before = attrs.evolve(before, target_id=self.publisher.target_id(table))
        done = read.part + 1
        if done < len(parts):
            self._store(before.reading(self.table.uuid, SnapshotProgress(snapshot_id, done, part_bytes)))
        else:
            self._store_published(before, table)
            self._parts.forget()
        rows = sum(one.rows for one in parts[:done])
        self._tell_initial("IN_PROGRESS" if done < len(parts) else "TABLE_SCAN_COMPLETED", done, len(parts), rows)
        if done >= len(parts):
            self._tell_initial("COMPLETED", len(parts), len(parts), rows)
        snapshot = parse_ancestor(self.snapshots.retained()[snapshot_id])
        self._report("part read", snapshot, began, operations, (min(done, len(parts)), len(parts)))

    def _publish_changes(self, snapshot: Ancestor, before: TableOffset) -> None:
        """Publish the changes of a snapshot, and store that they are published."""
        began = time.monotonic()
        table = self.describe(SnapshotInfo.of(snapshot, before.ts_ns), "false")
        self.publisher.check_target(table, before.target_id)
        self.publish_schema(table, before)
        with self.reads(snapshot.snapshot_id):
            reader = TableReader(self.spark, self.table, table.schema)
            operations = self.publisher.publish(read_changes(reader, snapshot.snapshot_id, table.key), table)
        self._store_published(attrs.evolve(before, target_id=self.publisher.target_id(table)), table)
        self._report("snapshot published", snapshot, began, operations)

    def publish_schema(self, table: CapturedTable, before: TableOffset) -> None:
        """Publish the table's schema, where that is configured and it is another than before."""
        if self.settings.outgoing.schema_changes and table.schema.document.get("schema-id") != before.schema_id:
            self.publisher.schema_changed(table, created=before.schema_id is None)

    def _store_published(self, before: TableOffset, table: CapturedTable) -> None:
        after = before.published(self.table.uuid, table.snapshot.snapshot_id)
        self._store(attrs.evolve(after, ts_ns=table.snapshot.ts_ns, schema_id=table.schema.document.get("schema-id")))

    def _store(self, offset: TableOffset) -> None:
        self.offsets.put(self.name, offset)

    def _report_chunk(self, number: int, of: int, seconds: float, operations: Mapping[str, int]) -> None:
        stored = self.offsets.of(self.name)
        snapshot_id = 0 if stored is None else stored.position.snapshot_id or 0
        self._hand_on(
            StepReport(
                self.name, "chunk read", snapshot_id, seconds, part=min(number, of), parts=of, operations=operations
            )
        )

    def _tell(self, report: SnapshotReport) -> None:
        for listener in self.snapshot_listeners:
            listener.on_snapshot(report)

    def _tell_initial(self, stage: SnapshotStage, part: int = 0, parts: int = 0, rows: int = 0) -> None:
        status: ScanStatus = "" if stage != "TABLE_SCAN_COMPLETED" else "SUCCEEDED" if rows else "EMPTY"
        tables = (self.name,)
        self._tell(SnapshotReport("Initial Snapshot", stage, "", tables, self.name, rows, status, part, parts))

    def _report(
        self,
        what: StepKind,
        snapshot: Ancestor,
        began: float,
        operations: Mapping[str, int] | None = None,
        parts: tuple[int, int] = (0, 0),
    ) -> None:
        self._hand_on(
            StepReport(
                self.name,
                what,
                snapshot.snapshot_id,
                time.monotonic() - began,
                snapshot.operation,
                *parts,
                operations=operations or {},
                committed_ms=snapshot.timestamp_ms,
            )
        )

    def _hand_on(self, report: StepReport) -> None:
        for listener in self.listeners:
            listener.on_step(report)

    def _snapshot_info(self, snapshot_id: int, before: TableOffset) -> SnapshotInfo:
        return SnapshotInfo.of(parse_ancestor(self.snapshots.retained()[snapshot_id]), before.ts_ns)

    def _summary(self, snapshot_id: int) -> dict[str, str]:
        summary: dict[str, str] = self.snapshots.retained()[snapshot_id].get("summary", {})
        return summary

    def _is_own_commit(self, snapshot: Ancestor) -> bool:
        """Whether a sink of this program made the snapshot: such commits carry its name in their summary."""
        return is_icebridge_commit(self._summary(snapshot.snapshot_id))

    @contextmanager
    def reads(self, snapshot_id: int) -> Iterator[None]:
        """Translate what Spark raises in the block, and release what reading staged in the JVM after it."""
        try:
            with translate_read_errors(self.name, snapshot_id):
                yield
        finally:
            release_reads(self.spark, self.table)
