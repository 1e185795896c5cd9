"""One table: what to do next -> its rows or changes -> out -> the standing moves on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

import attrs
import structlog
from pyspark.sql import DataFrame, SparkSession

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema, snapshot_schema
from connector.iceberg.catalog.snapshots import Snapshots
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.kafka_position import is_ours
from connector.iceberg.java import jvm
from connector.iceberg.read.table_reader import release
from connector.settings import SourceSettings
from connector.source.changes import initial_snapshot
from connector.source.changes.read_errors import reading
from connector.source.changes.record_key import UNNUMBERED
from connector.source.changes.row_identity import identity
from connector.source.changes.snapshot_diff import changes
from connector.source.envelope.event_format import At, stamp, wire_of
from connector.source.envelope.row_schema import record
from connector.source.snapshots import next_step as rules
from connector.source.snapshots.next_step import Ancestor, Head, Position, Progress, SnapshotMode, decide
from connector.source.snapshots.offset_store import Standings
from connector.source.snapshots.table_history import ancestor, head, history
from connector.source.snapshots.table_offset import Standing
from connector.source.snapshots.table_warnings import warn
from connector.source.table_format import Shape
from serde.emit.row_schema import Record


@attrs.frozen
class Done:
    """One step of a table: `what` happened, for which snapshot, how long it took; `part` of `parts` of a full read."""

    table: str
    what: Literal["part read", "snapshot published", "snapshot skipped"]
    snapshot_id: int
    seconds: float
    operation: str = ""
    part: int = 0
    parts: int = 0


class Out(Protocol):
    """Where a table's changes go: topics (`emit.Emitter`), or an index (`documents.Indexer`)."""

    def emit(self, changes: DataFrame, shape: Shape, *, reads: bool) -> None:
        """Bring changes of one snapshot, or rows of a full read, there; they are acknowledged when it returns."""

    def check(self, shape: Shape, place: str) -> None:
        """See that what was brought out before, to a place that was noted so, is still there; empty: begin anew.

        Raises:
            GapError: it is gone.
        """

    def note(self, shape: Shape) -> str:
        """Give what is to be noted of the place that changes were brought to; empty where nothing is."""

    def announce(self, shape: Shape, row: Record, *, creates: bool) -> None:
        """Tell what a table looks like from this snapshot on."""


@attrs.define(eq=False)
class Feed:
    """The way of one table out; one `step` at a time."""

    spark: SparkSession
    settings: SourceSettings
    table: Table
    snapshots: Snapshots
    standings: Standings
    out: Out
    told: Callable[[Done], None]
    _starting: bool = True
    _head: Head | None = None
    _warned: bool = False
    _parts: dict[tuple[int, int], tuple[initial_snapshot.Part, ...]] = attrs.field(factory=dict)

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
            self._head = head(self.table, self.snapshots)
        standing = self.standings.of(self.name)
        decision = self._decided(standing, self._head)
        before = standing or Standing(Position(self._head.table_uuid, None))
        match decision:
            case rules.Idle() | rules.Done():
                return False
            case rules.Stop():
                raise GapError(decision.reason)
            case rules.Begin():
                self._begin(decision.snapshot_id, before)
            case rules.Read():
                self._read(decision, before)
            case rules.Skip():
                self._skip(decision.snapshot, before)
            case rules.Change() if self.settings.capture.skip_own and self._is_ours(decision.snapshot):
                self._skip(decision.snapshot, before)
            case rules.Change():
                self._publish(decision.snapshot, before)
        self._starting = False
        return True

    def reload(self, out: Out, between: Callable[[], object]) -> Done:
        """Read the newest snapshot in full into another place, and go on from there.

        Args:
            out: where the rows go.
            between: called when all rows are there, before the position moves.

        Raises:
            GapError: the table has no snapshot.
            RetriableError, FatalError: as `step`; the position is as it was.
        """
        began = time.monotonic()
        current = head(self.table, self.snapshots).snapshot_id
        if current is None:
            raise GapError(f"table {self.name} has no snapshot to read")
        before = self.standings.of(self.name) or Standing(Position(self.table.uuid, None))
        at = _at(ancestor(self.snapshots.retained()[current]), before)
        shape = self.shape(at, reads=True)
        parts = self._parts_of(current, self._part_bytes(current))
        for part in parts:
            with self._staged(at):
                out.emit(initial_snapshot.rows(self.spark, self.table, current, part, shape.keys), shape, reads=True)
        between()
        self._moved(attrs.evolve(before, place=self.out.note(shape)), current, at.ts_ns, shape.schema)
        return Done(self.name, "part read", current, time.monotonic() - began, part=len(parts), parts=len(parts))

    def _decided(self, standing: Standing | None, seen: Head) -> rules.Decision:
        position = None if standing is None else standing.position
        mode = SnapshotMode(self.settings.capture.snapshot_mode)
        return decide(self.name, position, mode, seen, lambda: history(self.snapshots), starting=self._starting)

    def _begin(self, snapshot_id: int | None, before: Standing) -> None:
        """Changes count from here on."""
        structlog.get_logger().info("changes from here on", table=self.name, snapshot_id=snapshot_id)
        self._moved(before, snapshot_id)

    def _skip(self, snapshot: Ancestor, before: Standing) -> None:
        began = time.monotonic()
        self._moved(before, snapshot.snapshot_id)
        self._tell("snapshot skipped", snapshot, began)

    def _read(self, read: rules.Read, before: Standing) -> None:
        """Publish one part of a full read, and store how far it is."""
        began = time.monotonic()
        snapshot = ancestor(self.snapshots.retained()[read.snapshot_id])
        at = _at(snapshot, before)
        part_bytes = read.part_bytes or self._part_bytes(read.snapshot_id)
        parts = self._parts_of(read.snapshot_id, part_bytes)
        shape = self.shape(at, reads=True)
        if shape.wire.by_row_id and not all(map(initial_snapshot.is_numbered, parts)):
            # Known before the read has begun: it must not be pinned to a snapshot whose rows never have ids.
            raise FatalError(f"table {self.name}, snapshot {at.snapshot_id}: {UNNUMBERED}")
        if read.part_bytes is None:
            # Stored before the first row is out: after a crash the read must not begin anew at a later snapshot, in
            # which rows that are out already may be gone.
            before = attrs.evolve(before, place="")
            self._reading(before, Progress(at.snapshot_id, 0, part_bytes))
        if read.part < len(parts):
            self.out.check(shape, before.place)
            if read.part == 0:
                self._announce(shape, before)
            with self._staged(at):
                rows = initial_snapshot.rows(self.spark, self.table, at.snapshot_id, parts[read.part], shape.keys)
                self.out.emit(rows, shape, reads=True)
            before = attrs.evolve(before, place=self.out.note(shape))
        done = read.part + 1
        if done < len(parts):
            self._reading(before, Progress(at.snapshot_id, done, part_bytes))
        else:
            self._moved(before, at.snapshot_id, at.ts_ns, snapshot_schema(self.spark, self.table, at.snapshot_id))
            self._parts.clear()
        self._tell("part read", snapshot, began, part=min(done, len(parts)), parts=len(parts))

    def _reading(self, before: Standing, progress: Progress) -> None:
        position = Position(self.table.uuid, before.position.snapshot_id, progress)
        self.standings.put(self.name, attrs.evolve(before, position=position))

    def _publish(self, snapshot: Ancestor, before: Standing) -> None:
        """Publish a snapshot's changes, then move on to it."""
        began = time.monotonic()
        at = _at(snapshot, before)
        shape = self.shape(at, reads=False)
        self.out.check(shape, before.place)
        self._announce(shape, before)
        with self._staged(at):
            found = changes(self.spark, self.table, at.snapshot_id, shape.keys)
            self.out.emit(found, shape, reads=False)
        self._moved(attrs.evolve(before, place=self.out.note(shape)), at.snapshot_id, at.ts_ns, shape.schema)
        self._tell("snapshot published", snapshot, began)

    def _moved(
        self, before: Standing, snapshot_id: int | None, ts_ns: int | None = None, schema: SnapshotSchema | None = None
    ) -> None:
        """Store that everything up to a snapshot is published."""
        self.standings.put(
            self.name,
            Standing(
                Position(self.table.uuid, snapshot_id),
                before.ts_ns if ts_ns is None else ts_ns,
                before.schema_id if schema is None else schema.document.get("schema-id"),
                before.place,
            ),
        )

    def _announce(self, shape: Shape, before: Standing) -> None:
        """Publish the table's schema, where it is wanted and another than before."""
        if self.settings.outgoing.schema_changes and shape.schema.document.get("schema-id") != before.schema_id:
            self.out.announce(shape, record(shape.schema.document), creates=before.schema_id is None)

    def _tell(
        self,
        what: Literal["part read", "snapshot published", "snapshot skipped"],
        snapshot: Ancestor,
        began: float,
        part: int = 0,
        parts: int = 0,
    ) -> None:
        seconds = time.monotonic() - began
        self.told(Done(self.name, what, snapshot.snapshot_id, seconds, snapshot.operation, part, parts))

    def shape(self, at: At, *, reads: bool) -> Shape:
        """Give the table's schema and key at a snapshot, and how its events look."""
        schema = snapshot_schema(self.spark, self.table, at.snapshot_id)
        configured = self.settings.capture.key_columns(self.name)
        current = current_schema(self.spark, self.table)
        keys = identity(schema, current, self.table.format_version, configured, self.name)
        if not self._warned:
            self._warned = True
            warn(self.table, keys)
        return Shape(schema, keys, wire_of(self.settings, self.name, schema.document, keys, at, reads=reads))

    def _is_ours(self, snapshot: Ancestor) -> bool:
        """Whether a sink of this program made it: such commits carry its name in their summary."""
        return is_ours(self.snapshots.retained()[snapshot.snapshot_id].get("summary", {}))

    def _part_bytes(self, snapshot_id: int) -> int:
        """How many bytes hold about `max.batch.size` rows, by the snapshot's own totals."""
        summary = self.snapshots.retained()[snapshot_id].get("summary", {})
        size, count = int(summary.get("total-files-size", 0)), int(summary.get("total-records", 0))
        if not size or not count:
            return initial_snapshot.PART_BYTES
        return max(1, min(initial_snapshot.PART_BYTES, size * self.settings.capture.max_batch_size // count))

    def _parts_of(self, snapshot_id: int, part_bytes: int) -> tuple[initial_snapshot.Part, ...]:
        wanted = snapshot_id, part_bytes
        if wanted not in self._parts:
            self._parts = {wanted: initial_snapshot.parts(self.spark, self.table, snapshot_id, part_bytes)}
        return self._parts[wanted]

    @contextmanager
    def _staged(self, at: At) -> Iterator[None]:
        """Give failures of reading their names, and forget afterwards what reading staged in the JVM."""
        try:
            with reading(self.name, at.snapshot_id):
                yield
        finally:
            release(self.spark, self.table)


def current_schema(spark: SparkSession, table: Table) -> SnapshotSchema:
    """Give the table's schema of now."""
    return SnapshotSchema(jvm(spark).org.apache.iceberg.SchemaParser.toJson(table.java.schema()))


def _at(snapshot: Ancestor, before: Standing) -> At:
    ts_ns = stamp(snapshot.timestamp_ms, before.ts_ns)
    return At(snapshot.snapshot_id, snapshot.parent_id, snapshot.sequence_number, ts_ns)
