"""A table and one of its snapshots -> what is published of it: schema, key, columns; for changes and chunks alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.iceberg.catalog.snapshot_schema import load_current_schema, load_snapshot_schema
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import is_icebridge_commit
from connector.iceberg.read.table_reader import release_reads
from connector.settings import SourceSettings
from connector.source.changes.read_errors import translate_read_errors
from connector.source.changes.row_key import RowKey, choose_row_key
from connector.source.destination import CapturedTable, ChangePublisher
from connector.source.envelope.row_schema import describe_row
from connector.source.snapshots.next_step import Ancestor
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.snapshot_info import SnapshotInfo
from connector.source.snapshots.table_history import parse_ancestor
from connector.source.snapshots.table_offset import TableOffset
from connector.source.snapshots.table_warnings import log_warnings
from serde.emit.envelope import SnapshotMarker
from serde.emit.row_schema import RowStruct


@attrs.define(eq=False)
class TableAccess:
    """A table that the source reads, its snapshots, its stored offset, and who publishes it."""

    spark: SparkSession
    settings: SourceSettings
    table: Table
    snapshots: SnapshotHistory
    offsets: TableOffsetStore
    publisher: ChangePublisher
    _told: RowKey | None = None
    """The key that its owner was told of."""

    @property
    def name(self) -> str:
        """The table's name with namespace."""
        return self.table.name

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
        columns = describe_row(schema.document).members
        row = RowStruct(tuple(column for column in columns if capture.keeps(self.name, column.name)))
        wanted = {*(column.name for column in row.members), *(name.partition(".")[0] for name in key.columns)}
        if excluded := {column.name for column in columns} - wanted:
            schema = schema.leave_out(excluded)
        self._tell_key(key, len(row.members))
        table = CapturedTable(self.name, snapshot, schema, key, row, marker)
        self.publisher.check_columns(table)
        return table

    def _tell_key(self, key: RowKey, columns: int) -> None:
        """Log what is to be known of a table's key, again where it is another one by now."""
        before, self._told = self._told, key
        if before is not None and (before.kind, before.columns) == (key.kind, key.columns):
            return
        if before is not None:
            names = {"before": [before.kind, *before.columns], "now": [key.kind, *key.columns]}
            structlog.get_logger().warning("events have another key from here on", table=self.name, **names)
        log_warnings(self.table, key, columns)

    def publish_schema(self, table: CapturedTable, before: TableOffset) -> None:
        """Publish the table's schema, where that is configured and it is another than before."""
        if self.settings.outgoing.schema_changes and table.schema.document.get("schema-id") != before.schema_id:
            self.publisher.schema_changed(table, created=before.schema_id is None)

    @contextmanager
    def reads(self, snapshot_id: int) -> Iterator[None]:
        """Translate what Spark raises in the block, and release what reading staged in the JVM after it."""
        try:
            with translate_read_errors(self.name, snapshot_id):
                yield
        finally:
            release_reads(self.spark, self.table)

    def snapshot_info(self, snapshot_id: int, before: TableOffset) -> SnapshotInfo:
        """Describe a snapshot, dated not before what was published until then."""
        return SnapshotInfo.of(parse_ancestor(self.snapshots.retained()[snapshot_id]), before.ts_ns)

    def summary(self, snapshot_id: int) -> dict[str, str]:
        """Return a snapshot's summary."""
        summary: dict[str, str] = self.snapshots.retained()[snapshot_id].get("summary", {})
        return summary

    def skips(self, snapshot: Ancestor) -> bool:
        """Whether a snapshot is left out because a sink of this program made it: its summary carries a sink's name."""
        return self.settings.capture.skip_own and is_icebridge_commit(self.summary(snapshot.snapshot_id))
