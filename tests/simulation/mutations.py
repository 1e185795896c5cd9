"""Known faults of other programs -> this one with such a fault, for as long as a test needs it.

Each is what a peer does, or did, put into the place where this program does otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import numpy as np
from pyroaring import BitMap64

from connector.errors import CommitRefused
from connector.iceberg.commit.commit_attempts import _CommitAttempts
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.maintenance import expiry
from connector.maintenance.lease_rules import UnfinishedRun
from connector.opensearch.indexes.index_admin import IndexAdmin
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.write_modes.position_delete import PositionDelete
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.fold import fold
from connector.sink.microbatch.processor import BatchProcessor

Mutation = Callable[[], AbstractContextManager[None]]
"""Plants a fault, for as long as a test needs it."""


@contextmanager
def offsets_before_commit() -> Iterator[None]:
    """The position is stored before the tables have the batch: a crash between the two loses it."""
    whole = BatchProcessor._commit

    def commit(self: Any, batch: Any, plan: Any, names: Any, result: Any, position: KafkaOffsets) -> Any:
        self._offsets.save(position, {})
        return whole(self, batch, plan, names, result, position)

    with patch.object(BatchProcessor, "_commit", commit):
        yield


@contextmanager
def small_transactions_lose_updates() -> Iterator[None]:
    """Of a key only the first change of a transaction is applied, as where all have one date and a later one must be
    greater.
    """
    whole = fold._prefer_delete_events

    def first(parts: Any, codes: Any, order: Any, winning: Any) -> Any:
        at: dict[tuple[int, int], int] = {}
        for row in np.lexsort((order.offset, order.partition)):
            at.setdefault((int(codes[row]), int(order.dedup[row])), int(row))
        found = whole(parts, codes, order, winning)
        return np.sort(np.array([at[int(codes[row]), int(order.dedup[row])] for row in found], found.dtype))

    with patch.object(fold, "_prefer_delete_events", first):
        yield


@contextmanager
def creates_are_doubled() -> Iterator[None]:
    """A create deletes nothing, as it must be new: one that comes again doubles its row."""
    with patch(
        "connector.sink.destinations.iceberg.write_modes.equality_delete.may_exist",
        lambda keys, known: np.zeros(len(next(iter(keys.values()))), np.bool_),
    ):
        yield


@contextmanager
def deletes_are_resurrected() -> Iterator[None]:
    """Nobody remembers what was deleted: an old change that comes again brings the row back."""
    with patch.object(DeletedKeysTable, "add", lambda *_: None):
        yield


@contextmanager
def watermarks_are_ignored() -> Iterator[None]:
    """No change is ever late: what a connector sends again goes over newer rows."""
    with patch("connector.sink.convert.row_builder.mark_late_candidates", lambda order, *_: np.zeros(len(order), bool)):
        yield


@contextmanager
def a_recreated_topic_stalls() -> Iterator[None]:
    """Topics have no ids: of one that was made again nothing is read until it is as long as the old one."""
    with (
        patch("connector.sink.microbatch.start_offsets.check_topic_id", lambda *_: None),
        patch("connector.sink.microbatch.processor.check_topic_id", lambda *_: None),
        patch("connector.sink.microbatch.start_offsets._check_range", lambda *_: None),
        patch("tests.simulation.history.History._check_ends", lambda *_: None),
    ):
        yield


@contextmanager
def a_lost_answer_is_a_refusal() -> Iterator[None]:
    """A commit that nobody answered is taken for refused, and its files are deleted."""

    def judge(self: Any, error: Exception) -> Any:
        self._leftovers.delete(self._table)
        return CommitRefused(str(error))

    with patch.object(_CommitAttempts, "_judge", judge):
        yield


@contextmanager
def commits_are_not_exclusive() -> Iterator[None]:
    """A commit lands whatever this connector's newest one is: a second process applies its batch once more."""

    def always(*_: Any) -> Callable[[Any], bool]:
        return lambda _: True

    with patch("connector.iceberg.commit.commit.expect_last_commit", always):
        yield


@contextmanager
def replayed_batches_are_not_filtered() -> Iterator[None]:
    """Tables do not tell what they have: a batch whose offsets were not stored is applied once more."""
    whole = IcebergTables.plan

    def plan(self: Any, name: str, index: int, start: Mapping[Any, int]) -> Any:
        return attrs.evolve(whole(self, name, index, start), committed={})

    with patch.object(IcebergTables, "plan", plan):
        yield


@contextmanager
def conflicts_are_not_looked_for() -> Iterator[None]:
    """Deletes are left out by what the table held, and nobody looks whether another writer added the key meanwhile."""
    whole = IcebergCommitter._build_pending

    def build(self: Any, *values: Any) -> Any:
        return attrs.evolve(whole(self, *values), guarded=False)

    with patch.object(IcebergCommitter, "_build_pending", build):
        yield


@contextmanager
def bounds_are_forgotten() -> Iterator[None]:
    """What was committed does not widen what the table may hold."""
    with patch(
        "connector.sink.destinations.iceberg.tables.target_table.widen_bounds", lambda known, *_: known or KeyBounds()
    ):
        yield


@contextmanager
def offsets_go_back() -> Iterator[None]:
    """A batch that is read again and ends earlier puts the table's offsets back (once a fault of this program)."""
    with patch.object(KafkaOffsets, "_at_least", lambda self, at, offset, other: offset):
        yield


@contextmanager
def moved_rows_are_deleted_where_they_were() -> Iterator[None]:
    """Positions are deleted in a data file that a compaction has put another in the place of."""
    whole = PositionDelete.apply

    def apply(self: Any, update: Any, rows: Any) -> None:
        demanded = set(update.demands.exist)
        whole(self, update, rows)
        update.demands.exist = demanded

    with patch.object(PositionDelete, "apply", apply):
        yield


@contextmanager
def vectors_forget() -> Iterator[None]:
    """A new vector of a data file has only what the batch deletes: earlier deletes in it come back."""
    with patch(
        "connector.iceberg.write.position_deletes.read_deleted_positions",
        lambda *_: BitMap64(),
    ):
        yield


@contextmanager
def looked_up_rows_are_not_guarded() -> Iterator[None]:
    """Nobody looks whether another writer added or moved rows between the look-up and the commit."""
    with patch("connector.iceberg.commit.commit._start_row_delta", _start_unguarded):
        yield


def _start_unguarded(table: Any, pending: Any) -> Any:
    update = table.java.newRowDelta()
    if pending.base is not None:
        update.validateFromSnapshot(pending.base)
    if pending.rows_to_replace is not None and pending.replace_rows is not None:
        pending.replace_rows(update, pending.rows_to_replace)
    return update


@contextmanager
def indexes_forget_where_they_stood() -> Iterator[None]:
    """A start knows nothing of the versions that documents were given (once partly a fault of ours)."""
    with patch.object(OpenSearchIndexes, "position", lambda *_: KafkaOffsets()):
        yield


@contextmanager
def clusters_that_start_are_believed() -> Iterator[None]:
    """A cluster that has just started, and knows no index yet, is taken for one that lost them (once our fault)."""
    with patch.object(IndexAdmin, "_check_recovered", lambda *_: None):
        yield


@contextmanager
def conversions_lose_deletes() -> Iterator[None]:
    """A conversion takes deletes by key out, and puts nothing in their place: rows that they hit live again."""
    with patch("tests.simulation.maintenance._write_hits", lambda *_, **__: ([], frozenset())):
        yield


@contextmanager
def expiry_forgets_writers() -> Iterator[None]:
    """The snapshot that tells where a sink stands expires before its offsets are stored: its batch comes once more."""
    with patch.object(expiry, "newest_commits", lambda *_: ()):
        yield


@contextmanager
def files_of_killed_runs_go_at_once() -> Iterator[None]:
    """Files of a run that was killed are deleted although its commit may still land."""
    with patch.object(UnfinishedRun, "can_commit", lambda *_: False):
        yield


MUTATIONS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    made.__name__: made
    for made in (
        offsets_before_commit,
        small_transactions_lose_updates,
        creates_are_doubled,
        deletes_are_resurrected,
        watermarks_are_ignored,
        a_recreated_topic_stalls,
        a_lost_answer_is_a_refusal,
        commits_are_not_exclusive,
        replayed_batches_are_not_filtered,
        conflicts_are_not_looked_for,
        bounds_are_forgotten,
        offsets_go_back,
        moved_rows_are_deleted_where_they_were,
        vectors_forget,
        looked_up_rows_are_not_guarded,
        indexes_forget_where_they_stood,
        clusters_that_start_are_believed,
        conversions_lose_deletes,
        expiry_forgets_writers,
    )
}
