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
from connector.sink.fold.values import key_histories, unavailable_values
from connector.sink.job import compaction
from tests.simulation.missing_values import _Ages


@contextmanager
def what_comes_again_ends_rows_of_today() -> Iterator[None]:
    """A delete that comes again counts for the row in front of it in Kafka (once a fault of this program)."""
    with patch.object(key_histories, "restore_order", lambda group, _: np.arange(len(group))):
        yield


@contextmanager
def rows_are_not_asked_for_their_own_values() -> Iterator[None]:
    """A change of key that comes again asks only what had the old key (once a fault of this program)."""
    with patch.object(_Ages, "find_own", lambda *_: None):
        yield


@contextmanager
def rows_are_not_looked_for_under_keys_between() -> Iterator[None]:
    """A row that got several keys is asked for under the first and the last of them only (once a fault of this
    program).
    """
    with patch.object(_Ages, "find_within", lambda *_: None):
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
    with patch.object(key_histories, "_find_gaps", lambda _, keys, __: keys):
        yield


@contextmanager
def creates_that_leave_values_out_are_let_go() -> Iterator[None]:
    """A later fold fills what they left out from the row that had the key before (once a fault of this program)."""
    with patch.object(compaction, "find_open_starts", lambda *_: np.zeros(0, np.int64)):
        yield


@contextmanager
def what_nobody_told_is_taken_from_others() -> Iterator[None]:
    """A row whose value came before the topic begins takes that of another row which has, or had, its old key (once a
    fault of this program).
    """
    with patch.object(TableSides, "take", lambda _, __, stored, ___: stored):
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
        what_nobody_told_is_taken_from_others,
    )
}
