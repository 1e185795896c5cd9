"""One table: what to do next -> its rows or changes -> published -> the standing moves on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import structlog
from pyspark.sql import DataFrame, SparkSession

from connector.errors import GapError
from connector.iceberg.scan import release
from connector.iceberg.schemas import SnapshotSchema, snapshot_schema
from connector.iceberg.table import Table
from connector.settings import SourceSettings
from connector.source import initial
from connector.source.changes import changes
from connector.source.emit import Emitter
from connector.source.keys import KeyKind, Keys, keys_of
from connector.source.standing import FullRead, Standing
from connector.source.standings import Standings
from connector.source.warnings import warn
from connector.source.wire import At, stamp, wire_of


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


@attrs.define(eq=False)
class Feed:
    """The way of one table to Kafka; one `step` at a time."""

    spark: SparkSession
    settings: SourceSettings
    table: Table
    standings: Standings
    emitter: Emitter
    told: Callable[[Done], None]
    _warned: bool = False
    _fresh: bool = False
    _parts: tuple[int, tuple[initial.Part, ...]] | None = None

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
        if not (pinned and self._fresh):
            self.table.refresh()
            self._fresh = True
        standing = self.standings.of(self.name)
        line = list(self.table.ancestors())
        if not line:
            return False
        if standing is None:
            head = line[0]
            ns = stamp(head.timestamp_ms, None)
            read = FullRead(64 * 1024 * 1024)
            standing = Standing(self.table.uuid, head.snapshot_id, head.sequence_number or 0, ns, read)
            self.standings.put(self.name, standing)
        if standing.read is not None:
            assert standing.snapshot_id is not None and standing.ts_ns is not None
            at = At(standing.snapshot_id, None, standing.sequence_number, standing.ts_ns)
            self._read(at, standing, standing.read)
            return True
        newer = []
        for snapshot in line:
            if snapshot.snapshot_id == standing.snapshot_id:
                break
            newer.append(snapshot)
        else:
            raise GapError(f"table {self.name}: gap")
        if not newer:
            return False
        nxt = newer[-1]
        ns = stamp(nxt.timestamp_ms, standing.ts_ns)
        at = At(nxt.snapshot_id, nxt.parent_snapshot_id, nxt.sequence_number or 0, ns)
        after = Standing(self.table.uuid, nxt.snapshot_id, at.sequence_number, ns)
        operation = nxt.summary.operation.value if nxt.summary else ""
        if operation == "replace":
            self.standings.put(self.name, after)
            return True
        self._publish(at, operation, after)
        return True

    def _read(self, at: At, standing: Standing, read: FullRead) -> None:
        """Publish the next part of a full read, and store how far it is."""
        began = time.monotonic()
        parts = self._parts_of(at.snapshot_id, read.part_bytes)
        if read.parts_done < len(parts):
            schema, keys = self._shape(at.snapshot_id)
            with self._staged():
                rows = initial.rows(self.spark, self.table, at.snapshot_id, parts[read.parts_done], keys)
                self._emit(rows, schema, keys, at, reads=True)
        done = read.parts_done + 1
        left = attrs.evolve(read, parts_done=done) if done < len(parts) else None
        self.standings.put(self.name, attrs.evolve(standing, read=left))
        self.told(
            Done(
                self.name,
                "part read",
                at.snapshot_id,
                time.monotonic() - began,
                part=min(done, len(parts)),
                parts=len(parts),
            )
        )

    def _publish(self, at: At, operation: str, standing: Standing) -> None:
        """Publish a snapshot's changes, then move on to it."""
        began = time.monotonic()
        schema, keys = self._shape(at.snapshot_id)
        with self._staged():
            found = changes(self.spark, self.table, at.snapshot_id, keys)
            self._emit(found, schema, keys, at, reads=False)
        self.standings.put(self.name, standing)
        seconds = time.monotonic() - began
        self.told(Done(self.name, "snapshot published", at.snapshot_id, seconds, operation=operation))

    def _emit(self, rows: DataFrame, schema: SnapshotSchema, keys: Keys, at: At, *, reads: bool) -> None:
        wire = wire_of(self.settings, self.name, schema.document, keys, at, reads=reads)
        self.emitter.emit(rows, wire, reads=reads)

    def _shape(self, snapshot_id: int) -> tuple[SnapshotSchema, Keys]:
        schema = snapshot_schema(self.spark, self.table, snapshot_id)
        configured = self.settings.capture.key_columns(self.name)
        keys = keys_of(schema, self.table.format_version, configured, self.name)
        if not self._warned:
            self._warned = True
            warn(self.table, keys)
        return schema, keys

    def _parts_of(self, snapshot_id: int, part_bytes: int) -> tuple[initial.Part, ...]:
        if self._parts is None or self._parts[0] != snapshot_id:
            self._parts = snapshot_id, initial.parts(self.spark, self.table, snapshot_id, part_bytes)
        return self._parts[1]

    @contextmanager
    def _staged(self) -> Iterator[None]:
        """Forget afterwards what reading staged in the JVM."""
        try:
            yield
        finally:
            release(self.spark, self.table)
