"""One table: what to do next -> its rows or changes -> out -> the standing moves on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import attrs
import structlog
from pyspark.sql import DataFrame, SparkSession

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema, load_snapshot_schema
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.kafka_position import is_icebridge_commit
from connector.iceberg.java import jvm
from connector.iceberg.read.table_reader import release_reads
from connector.runtime.monitoring.listeners import SourceListener, StepKind, StepReport
from connector.settings import SourceSettings
from connector.source.changes import initial_snapshot
from connector.source.changes.read_errors import translate_read_errors
from connector.source.changes.record_key import MISSING_ROW_ID
from connector.source.changes.row_identity import choose_row_key
from connector.source.changes.snapshot_diff import read_changes
from connector.source.envelope.event_format import SnapshotInfo, build_event_format, event_ts_ns
from connector.source.envelope.row_schema import describe_row
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
from connector.source.snapshots.table_history import parse_ancestor, read_head, read_history
from connector.source.snapshots.table_offset import TableOffset
from connector.source.snapshots.table_warnings import log_warnings
from connector.source.table_format import TableFormat
from serde.emit.row_schema import RowStruct


class ChangePublisher(Protocol):
    """Where a table's changes go: topics (`kafka.KafkaPublisher`), or an index (`opensearch.OpenSearchPublisher`)."""

    def publish(self, changes: DataFrame, shape: TableFormat, *, reads: bool) -> None:
        """Bring changes of one snapshot, or rows of a full read, there; they are acknowledged when it returns."""

    def check(self, shape: TableFormat, place: str) -> None:
        """See that what was brought out before, to a place that was noted so, is still there; empty: begin anew.

        Raises:
            GapError: it is gone.
        """

    def note(self, shape: TableFormat) -> str:
        """Give what is to be noted of the place that changes were brought to; empty where nothing is."""

    def announce(self, shape: TableFormat, row: RowStruct, *, creates: bool) -> None:
        """Tell what a table looks like from this snapshot on."""


@attrs.define(eq=False)
class TableCapture:
    """The way of one table out; one `step` at a time."""

    spark: SparkSession
    settings: SourceSettings
    table: Table
    snapshots: SnapshotHistory
    standings: TableOffsetStore
    out: ChangePublisher
    listeners: Sequence[SourceListener]
    _starting: bool = True
    _head: TableHead | None = None
    _warned: bool = False
    _parts: dict[tuple[int, int], tuple[initial_snapshot.SnapshotPart, ...]] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """The table's name with namespace."""
        return self.table.name

    def step(self, *, pinned: bool) -> bool:
        """Do the next thing there is to do; False when there is nothing.

        Args:
            pinned: go no further than the snapshot that the table had at the first step.

        Raises:
            GapError: history that is needed is gone, or another than the stored one.
            RetriableError: catalog, store or cluster are away.
            FatalError: the table cannot be read, or its events cannot be published.
        """
        if self._head is None or not pinned:
            self._head = read_head(self.table, self.snapshots)
        standing = self.standings.of(self.name)
        decision = self._decide(standing, self._head)
        before = standing or TableOffset(SnapshotOffset(self._head.table_uuid, None))
        match decision:
            case next_step.Idle() | next_step.Completed():
                return False
            case next_step.Fail():
                raise GapError(decision.reason)
            case next_step.StartStreaming():
                self._begin(decision.snapshot_id, before)
            case next_step.ReadSnapshot():
                self._read(decision, before)
            case next_step.SkipSnapshot():
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges() if self.settings.capture.skip_own and self._is_ours(decision.snapshot):
                self._skip(decision.snapshot, before)
            case next_step.StreamChanges():
                self._publish_changes(decision.snapshot, before)
        self._starting = False
        return True

    def reload(self, out: ChangePublisher, between: Callable[[], object]) -> StepReport:
        """Read the newest snapshot in full into another place, and go on from there.

        Args:
            out: where the rows go.
            between: called when all rows are there, before the position moves.

        Raises:
            GapError: the table has no snapshot.
            RetriableError, FatalError: as `step`; the position is as it was.
        """
        began = time.monotonic()
        current = read_head(self.table, self.snapshots).snapshot_id
        if current is None:
            raise GapError(f"table {self.name} has no snapshot to read")
        before = self.standings.of(self.name) or TableOffset(SnapshotOffset(self.table.uuid, None))
        at = _snapshot_info(parse_ancestor(self.snapshots.retained()[current]), before)
        shape = self.shape(at, reads=True)
        parts = self._parts_of(current, self._part_bytes(current))
        for part in parts:
            with self._release_after(at):
                out.publish(
                    initial_snapshot.read_part(self.spark, self.table, current, part, shape.keys), shape, reads=True
                )
        between()
        self._store_offset(attrs.evolve(before, place=self.out.note(shape)), current, at.ts_ns, shape.schema)
        return StepReport(self.name, "part read", current, time.monotonic() - began, part=len(parts), parts=len(parts))

    def _decide(self, standing: TableOffset | None, seen: TableHead) -> next_step.Decision:
        position = None if standing is None else standing.position
        mode = SnapshotMode(self.settings.capture.snapshot_mode)
        return decide_next_step(
            self.name, position, mode, seen, lambda: read_history(self.snapshots), starting=self._starting
        )

    def _begin(self, snapshot_id: int | None, before: TableOffset) -> None:
        """Changes count from here on."""
        structlog.get_logger().info("changes from here on", table=self.name, snapshot_id=snapshot_id)
        self._store_offset(before, snapshot_id)

    def _skip(self, snapshot: Ancestor, before: TableOffset) -> None:
        began = time.monotonic()
        self._store_offset(before, snapshot.snapshot_id)
        self._report_step("snapshot skipped", snapshot, began)

    def _read(self, read: next_step.ReadSnapshot, before: TableOffset) -> None:
        """Publish one part of a full read, and store how far it is."""
        began = time.monotonic()
        snapshot = parse_ancestor(self.snapshots.retained()[read.snapshot_id])
        at = _snapshot_info(snapshot, before)
        part_bytes = read.part_bytes or self._part_bytes(read.snapshot_id)
        parts = self._parts_of(read.snapshot_id, part_bytes)
        shape = self.shape(at, reads=True)
        if shape.wire.by_row_id and not all(map(initial_snapshot.is_numbered, parts)):
            # Known before the read has begun: it must not be pinned to a snapshot whose rows never have ids.
            raise FatalError(f"table {self.name}, snapshot {at.snapshot_id}: {MISSING_ROW_ID}")
        if read.part_bytes is None:
            # Stored before the first row is out: after a crash the read must not begin anew at a later snapshot, in
            # which rows that are out already may be gone.
            before = attrs.evolve(before, place="")
            self._store_progress(before, SnapshotProgress(at.snapshot_id, 0, part_bytes))
        if read.part < len(parts):
            self.out.check(shape, before.place)
            if read.part == 0:
                self._announce(shape, before)
            with self._release_after(at):
                rows = initial_snapshot.read_part(self.spark, self.table, at.snapshot_id, parts[read.part], shape.keys)
                self.out.publish(rows, shape, reads=True)
            before = attrs.evolve(before, place=self.out.note(shape))
        done = read.part + 1
        if done < len(parts):
            self._store_progress(before, SnapshotProgress(at.snapshot_id, done, part_bytes))
        else:
            self._store_offset(
                before, at.snapshot_id, at.ts_ns, load_snapshot_schema(self.spark, self.table, at.snapshot_id)
            )
            self._parts.clear()
        self._report_step("part read", snapshot, began, part=min(done, len(parts)), parts=len(parts))

    def _store_progress(self, before: TableOffset, progress: SnapshotProgress) -> None:
        position = SnapshotOffset(self.table.uuid, before.position.snapshot_id, progress)
        self.standings.put(self.name, attrs.evolve(before, position=position))

    def _publish_changes(self, snapshot: Ancestor, before: TableOffset) -> None:
        """Publish a snapshot's changes, then move on to it."""
        began = time.monotonic()
        at = _snapshot_info(snapshot, before)
        shape = self.shape(at, reads=False)
        self.out.check(shape, before.place)
        self._announce(shape, before)
        with self._release_after(at):
            found = read_changes(self.spark, self.table, at.snapshot_id, shape.keys)
            self.out.publish(found, shape, reads=False)
        self._store_offset(attrs.evolve(before, place=self.out.note(shape)), at.snapshot_id, at.ts_ns, shape.schema)
        self._report_step("snapshot published", snapshot, began)

    def _store_offset(
        self,
        before: TableOffset,
        snapshot_id: int | None,
        ts_ns: int | None = None,
        schema: SnapshotSchema | None = None,
    ) -> None:
        """Store that everything up to a snapshot is published."""
        self.standings.put(
            self.name,
            TableOffset(
                SnapshotOffset(self.table.uuid, snapshot_id),
                before.ts_ns if ts_ns is None else ts_ns,
                before.schema_id if schema is None else schema.document.get("schema-id"),
                before.place,
            ),
        )

    def _announce(self, shape: TableFormat, before: TableOffset) -> None:
        """Publish the table's schema, where it is wanted and another than before."""
        if self.settings.outgoing.schema_changes and shape.schema.document.get("schema-id") != before.schema_id:
            self.out.announce(shape, describe_row(shape.schema.document), creates=before.schema_id is None)

    def _report_step(
        self,
        what: StepKind,
        snapshot: Ancestor,
        began: float,
        part: int = 0,
        parts: int = 0,
    ) -> None:
        seconds = time.monotonic() - began
        report = StepReport(self.name, what, snapshot.snapshot_id, seconds, snapshot.operation, part, parts)
        for listener in self.listeners:
            listener.on_step(report)

    def shape(self, at: SnapshotInfo, *, reads: bool) -> TableFormat:
        """Give the table's schema and key at a snapshot, and how its events look."""
        schema = load_snapshot_schema(self.spark, self.table, at.snapshot_id)
        configured = self.settings.capture.key_columns(self.name)
        current = read_current_schema(self.spark, self.table)
        keys = choose_row_key(schema, current, self.table.format_version, configured, self.name)
        if not self._warned:
            self._warned = True
            log_warnings(self.table, keys)
        return TableFormat(
            schema, keys, build_event_format(self.settings, self.name, schema.document, keys, at, reads=reads)
        )

    def _is_ours(self, snapshot: Ancestor) -> bool:
        """Whether a sink of this program made it: such commits carry its name in their summary."""
        return is_icebridge_commit(self.snapshots.retained()[snapshot.snapshot_id].get("summary", {}))

    def _part_bytes(self, snapshot_id: int) -> int:
        """How many bytes hold about `max.batch.size` rows, by the snapshot's own totals."""
        summary = self.snapshots.retained()[snapshot_id].get("summary", {})
        size, count = int(summary.get("total-files-size", 0)), int(summary.get("total-records", 0))
        if not size or not count:
            return initial_snapshot.PART_BYTES
        return max(1, min(initial_snapshot.PART_BYTES, size * self.settings.capture.max_batch_size // count))

    def _parts_of(self, snapshot_id: int, part_bytes: int) -> tuple[initial_snapshot.SnapshotPart, ...]:
        wanted = snapshot_id, part_bytes
        if wanted not in self._parts:
            self._parts = {wanted: initial_snapshot.plan_parts(self.spark, self.table, snapshot_id, part_bytes)}
        return self._parts[wanted]

    @contextmanager
    def _release_after(self, at: SnapshotInfo) -> Iterator[None]:
        """Give failures of reading their names, and forget afterwards what reading staged in the JVM."""
        try:
            with translate_read_errors(self.name, at.snapshot_id):
                yield
        finally:
            release_reads(self.spark, self.table)


def read_current_schema(spark: SparkSession, table: Table) -> SnapshotSchema:
    """Give the table's schema of now."""
    return SnapshotSchema(jvm(spark).org.apache.iceberg.SchemaParser.toJson(table.java.schema()))


def _snapshot_info(snapshot: Ancestor, before: TableOffset) -> SnapshotInfo:
    ts_ns = event_ts_ns(snapshot.timestamp_ms, before.ts_ns)
    return SnapshotInfo(snapshot.snapshot_id, snapshot.parent_id, snapshot.sequence_number, ts_ns)
