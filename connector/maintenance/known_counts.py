"""A table's snapshots + what was counted of it, here or by others -> its state. On the driver; no file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from connector.iceberg.catalog.table import Table
from connector.maintenance.file_counts import FileCounts, count_up_to
from connector.maintenance.lease import LeaseTable
from connector.maintenance.table_state import SnapshotSummary, TableState, summarize


@attrs.define(eq=False)
class KnownCounts:
    """What was counted of each table: by this process, or else what another one stored with the table's lease."""

    leases: LeaseTable
    _by_table: dict[str, FileCounts] = attrs.field(factory=dict)

    def of(self, table: str) -> FileCounts:
        """Return what is known; asks nobody."""
        stored = self.leases.recall(table).counts
        own = self._by_table.get(table, stored)
        return own if own.orphan_bytes is not None else attrs.evolve(own, orphan_bytes=stored.orphan_bytes)

    def note(self, table: str, counts: FileCounts, *, orphan_bytes: int | None = None) -> FileCounts:
        """Take note of what was counted, and of orphans if they were looked for; return all that is known then."""
        orphans = self.of(table).orphan_bytes if orphan_bytes is None else orphan_bytes
        self._by_table[table] = attrs.evolve(counts, orphan_bytes=orphans)
        return self._by_table[table]

    def advance(self, table: str, ancestors: Sequence[SnapshotSummary]) -> FileCounts | None:
        """Return the counts as of the newest snapshot, and begin there the next time: older ones may expire."""
        counts = count_up_to(self.of(table), ancestors)
        return None if counts is None else self.note(table, counts)

    def describe(
        self, table: Table, history: Sequence[SnapshotSummary], fruitless: Mapping[str, int] | None = None
    ) -> TableState:
        """Return a table's state by its snapshots, the newest first; `fruitless` as in `summarize`."""
        found = self.advance(table.name, history)
        known = found or self.of(table.name)
        state = attrs.evolve(
            summarize(history, fruitless),
            metadata_files=table.metadata_files,
            small_files=known.small_files,
            orphan_bytes=known.orphan_bytes,
        )
        if found is None:
            return state
        return attrs.evolve(
            state,
            equality_delete_files=found.equality_delete_files,
            position_delete_files=found.position_delete_files,
            deletion_vectors=found.deletion_vectors,
        )
