"""The port of the source: changes of a captured table -> a `ChangePublisher` (Kafka topics, OpenSearch indexes).

One publisher per source, opened by `destinations.registry` for `debezium.sink.type`. How a new one is added:
docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.row_key import RowKey
from connector.source.snapshots.snapshot_info import SnapshotInfo
from serde.emit.envelope import SnapshotMarker
from serde.emit.row_schema import RowStruct


@attrs.frozen
class PublishTarget:
    """The topic or index that has the changes of a table."""

    kind: Literal["topic", "index"]
    name: str


@attrs.frozen(eq=False)
class CapturedTable:
    """A table at one snapshot: its name with namespace, the snapshot, its schema, and what identifies its rows.

    `row` describes the columns that are published. `marker` says what its rows are: changes (false), those of a full
    read (true), or of one that goes on beside changes (incremental).
    """

    name: str
    snapshot: SnapshotInfo
    schema: SnapshotSchema
    key: RowKey
    row: RowStruct
    marker: SnapshotMarker = "false"

    @property
    def is_read(self) -> bool:
        """Whether the rows are reads, not changes."""
        return self.marker != "false"


@attrs.frozen(eq=False)
class TargetRebuild:
    """A fresh target of one table, beside the one that consumers see under `alias`.

    `put_in_place` swaps them; `discard` deletes it before that, when nobody writes to it any more.
    """

    name: str
    alias: str
    publisher: ChangePublisher
    put_in_place: Callable[[], object]
    discard: Callable[[], object]


class ChangePublisher(Protocol):
    """Publishes the changes of a source's tables.

    All methods that reach a server raise RetriableError where it is away, and FatalError where it refuses.
    """

    def target(self, table: str) -> PublishTarget:
        """Return where the changes of a table go; no two tables may share a target."""

    def check_columns(self, table: CapturedTable) -> None:
        """Check, before anything is published or stored, that the table's columns can be published.

        Raises:
            FatalError: one cannot.
        """

    def check_target(self, table: CapturedTable, target_id: str) -> None:
        """Check that the target still has what was published before.

        Args:
            table: whose changes come next.
            target_id: what `target_id` returned when they were published; empty: the table is read from its beginning.

        Raises:
            GapError: the target is gone, or another one has its name.
        """

    def target_id(self, table: CapturedTable) -> str:
        """Return what tells the table's target from later ones of its name; empty where nothing has to."""

    def schema_changed(self, table: CapturedTable, *, created: bool) -> None:
        """Publish that the table has another schema from this snapshot on; `created`: it is the first one."""

    def publish(self, changes: DataFrame, table: CapturedTable) -> Mapping[str, int]:
        """Publish changes of one snapshot, or rows of an initial one; they are acknowledged when it returns.

        `changes` has columns `op`, `before`, `after` and `row_id` (see `changes.snapshot_diff`). It may be published
        again after a failure: consumers then find the same events, or the same documents.

        Returns:
            How many events were published of each operation (`r`, `c`, `u`, `d`), counted by the tasks that did it.
        """

    def heartbeat(self, ts_ms: int) -> None:
        """Publish that the source is alive, where the destination has a place for it."""


def drop_skipped(changes: DataFrame, skipped: frozenset[str]) -> DataFrame:
    """Return the changes without those of `skipped.operations`."""
    return changes.filter(~F.col("op").isin(*skipped)) if skipped else changes
