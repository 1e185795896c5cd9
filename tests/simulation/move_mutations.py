"""Faults of this program in which rows lost their large values, or got others', on their way through keys -> it with
such a fault again, for as long as a test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from connector.sink.destinations.iceberg.lookups.filled_values import TableSides
from connector.sink.fold.order import original_order
from connector.sink.fold.order.key_runs import find_evidence, mark_run_starts
from connector.sink.fold.order.original_order import restore_order
from connector.sink.fold.values import key_histories, unavailable_values
from connector.sink.job import compaction
from tests.simulation.row_ages import RowAges


@contextmanager
def what_comes_again_ends_rows_of_today() -> Iterator[None]:
    """A delete that comes again counts for the row in front of it in Kafka (once a fault of this program)."""
    with patch.object(key_histories, "restore_order", lambda group, _: np.arange(len(group))):
        yield


@contextmanager
def rows_are_not_asked_for_their_own_values() -> Iterator[None]:
    """A change of key that comes again asks only what had the old key (once a fault of this program)."""
    with patch.object(RowAges, "find_own", lambda *_: None):
        yield


@contextmanager
def rows_are_not_looked_for_under_keys_between() -> Iterator[None]:
    """A row that got several keys is asked for under the first and the last of them only (once a fault of this
    program).
    """
    with patch.object(RowAges, "find_within", lambda *_: None):
        yield


@contextmanager
def values_are_filled_in_the_order_of_kafka() -> Iterator[None]:
    """An update that comes again takes what it left out from the row in front of it in Kafka (once a fault of this
    program).
    """

    def sort(parts: Any, keys: Any) -> Any:
        return key_histories.sort_both_ways(parts, keys)[0]

    with patch.object(unavailable_values, "sort_by_origin", sort), patch.object(key_histories, "sort_by_origin", sort):
        yield


@contextmanager
def gaps_behind_repetitions_are_not_seen() -> Iterator[None]:
    """What a batch has of a repetition's beginning counts for changes that come much later in the source's log (once a
    fault of this program).
    """
    with patch.object(key_histories, "_find_gaps", lambda _, keys, *__: keys):
        yield


@contextmanager
def creates_that_leave_values_out_are_let_go() -> Iterator[None]:
    """A later fold fills what they left out from the row that had the key before (once a fault of this program)."""
    with patch.object(compaction, "find_open_starts", lambda *_: np.zeros(0, np.int64)):
        yield


# --- too rare for a search (`rare_mutations`) -------------------------------------------------------------------------


@contextmanager
def older_rows_are_taken_along() -> Iterator[None]:
    """A change of key takes along what the batch has of its old key, though the table has a later row (once a fault of
    this program).
    """
    with patch.object(RowAges, "is_between", lambda *_: False):
        yield


@contextmanager
def what_nobody_told_is_taken_from_others() -> Iterator[None]:
    """A row whose value came before the topic begins takes that of another row which has, or had, its old key (once a
    fault of this program).
    """
    with patch.object(TableSides, "take", lambda _, __, stored, ___: stored):
        yield


@contextmanager
def partitions_of_grown_topics_are_read_unevenly() -> Iterator[None]:
    """A batch may have a change from the new partition of its key, and lack earlier ones of the old one (once a fault
    of this program).
    """
    with patch("connector.sink.microbatch.aligned_ends.find_grown_topics", lambda _: set()):
        yield


@contextmanager
def what_comes_again_stays_in_its_partition() -> Iterator[None]:
    """What the new partition of a key repeats from the old one counts as later than that (once a fault of this
    program).
    """

    def restore(codes: Any, order: Any) -> Any:
        return restore_order(np.cumsum(mark_run_starts(codes, order.partition)) - 1, order)

    with patch.object(key_histories, "restore_order", restore):
        yield


@contextmanager
def repetitions_in_another_partition_go_on() -> Iterator[None]:
    """What one partition has of a repetition is taken for what came right before the changes in another."""
    find_gaps = key_histories._find_gaps
    with patch.object(key_histories, "_find_gaps", lambda *told: find_gaps(*told[:3], np.zeros_like(told[3]))):
        yield


@contextmanager
def tables_are_not_asked_whether_partitions_go_on() -> Iterator[None]:
    """What may be older than the table's row is no reason to ask: another partition never goes on behind it (once a
    fault of this program).
    """
    with patch("connector.sink.fold.late_events.find_doubtful_ends", lambda *_: np.zeros(0, np.int64)):
        yield


@contextmanager
def tombstones_are_of_another_log() -> Iterator[None]:
    """Where a tombstone comes first, whose delete is not in the batch, nothing of its key is known to be sent again
    (once a fault of this program).
    """
    with patch.object(original_order, "_find_neighbours", lambda group, order: find_evidence(order, group)):
        yield


MOVE_MUTATIONS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    made.__name__: made
    for made in (
        what_comes_again_ends_rows_of_today,
        rows_are_not_asked_for_their_own_values,
        rows_are_not_looked_for_under_keys_between,
        values_are_filled_in_the_order_of_kafka,
        gaps_behind_repetitions_are_not_seen,
        creates_that_leave_values_out_are_let_go,
    )
}
