"""A table of the catalog and our commits to it -> what batches need to know: layout, key bounds, last commit."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit import CommittedSnapshot
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.keys.file_key_bounds import widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.settings.iceberg.write_mode import DECLARED_MODES

_REPLACE = "replace"
"""The operation of snapshots that change no row."""


@attrs.define(eq=False)
class TargetTable:
    """One table of the sink; `known_keys` and `stored` describe the snapshot `base`.

    `shape` is the table's that `layout` is of; `altered` tells that others have changed it since.
    """

    table: Table
    layout: TableLayout
    write_mode: str
    known_keys: KeyBounds
    stored: LastCommit
    base: int | None
    shape: tuple[int, ...] = ()
    altered: bool = False

    @property
    def upsert(self) -> bool:
        """Whether the table keeps one row per key."""
        return DECLARED_MODES[self.write_mode].replaces_rows

    def record_commit(self, files: Iterable[FileDescription], done: CommittedSnapshot) -> None:
        """Follow a commit of our own."""
        # After another writer's commit the bounds that we kept are not those of the whole table.
        is_next = _is_based_on(self.table, done.snapshot_id, self.base)
        keys = widen_bounds(self.known_keys, self.layout, files) if is_next else KeyBounds()
        self.known_keys = keys if self.upsert else KeyBounds()
        self.stored, self.base = done.stored, done.snapshot_id
        self.altered = self.table.shape != self.shape


def _is_based_on(table: Table, snapshot_id: int, base: int | None) -> bool:
    """Tell whether a commit directly follows a snapshot; snapshots that only replace files do not count."""
    parent = table.java.snapshot(snapshot_id).parentId()
    while parent is not None and parent != base:
        snapshot = table.java.snapshot(parent)
        if snapshot is None or str(snapshot.operation()) != _REPLACE:
            return False
        parent = snapshot.parentId()
    return bool(parent == base)
