"""Faults of this program that a search of ten thousand histories does not meet -> each, and the story beside it that
goes wrong with it.

Longer searches found the stories when the product had the faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from connector.iceberg import java
from connector.iceberg.commit import last_commit
from connector.sink.fold.watermarks import merge_partitions
from connector.sink.microbatch import start_offsets
from connector.sink.model.truncates import TableTruncate
from tests.simulation.found import FOUND
from tests.simulation.found_moves import FOUND_MOVES
from tests.simulation.move_mutations import MOVE_MUTATIONS, partitions_of_grown_topics_are_read_unevenly
from tests.simulation.mutations import Mutation
from tests.simulation.steps import Story


@contextmanager
def grown_topics_settle_where_they_are_read() -> Iterator[None]:
    """How far a source had come when its keys moved is taken from what is read of it, not from what its logs have.

    Batches of grown topics end unevenly, as with more records of one moment than a batch may have.
    """

    def settle(known: Any, topic: str, name: str, *_: Any) -> Any:
        return {name: merge_partitions(known, topic, name)}

    with partitions_of_grown_topics_are_read_unevenly(), patch("connector.sink.fold.grown_topics._settle", settle):
        yield


@contextmanager
def marked_rows_take_what_comes_again() -> Iterator[None]:
    """What comes again behind its truncate changes the row that was marked (once a fault of this program)."""
    with patch.object(TableTruncate, "mark_repeated", lambda _, __, offset, ___: np.zeros(len(offset), np.bool_)):
        yield


@contextmanager
def a_rollback_is_taken_for_an_expiry() -> Iterator[None]:
    """A commit that is gone from a table's history has expired, whatever is left of it."""
    with patch.object(last_commit, "is_rolled_back", lambda *_: False):
        yield


@contextmanager
def tables_behind_their_offsets_are_read_on() -> Iterator[None]:
    """A table that was rolled back is read on from where the offsets table stands: its rows are missing."""
    with patch.object(start_offsets, "_check_tables", lambda *_: None):
        yield


@contextmanager
def exceptions_that_pyspark_makes_its_own_have_no_name() -> Iterator[None]:
    """Java says that a batch is made of a snapshot that is gone, in words of PySpark: nobody understands."""

    def find(error: BaseException | None) -> Any:
        return getattr(error, "java_exception", None)

    with patch.object(java, "_find_java_exception", find):
        yield


GROWN = Story(*FOUND["a topic grows while its old partition is behind, and a restart comes first in the new one"])
"""It ends well where batches of grown topics end unevenly, too."""
_TRUNCATED = Story(*FOUND["a truncate, and a part of a transaction before it once more"])
_REFUSED = "a table is rolled back while a second sink commits"
_EXPIRED = "what a second sink did again after a rollback is rolled back, and older snapshots have expired"
_BEHIND = "a second sink does a part of what a rollback took, and the first stores what it had done"

BESIDE_FOUND: Mapping[str, tuple[Mutation, Story, str]] = {
    made.__name__: (made, story, wrong)
    for made, story, wrong in (
        (grown_topics_settle_where_they_are_read, GROWN, "is not there"),
        (marked_rows_take_what_comes_again, _TRUNCATED, "the marked row"),
        (a_rollback_is_taken_for_an_expiry, Story(*FOUND[_EXPIRED]), "does not get to the end"),
        (tables_behind_their_offsets_are_read_on, Story(*FOUND[_BEHIND]), "does not get to the end"),
        (exceptions_that_pyspark_makes_its_own_have_no_name, Story(*FOUND[_REFUSED]), "stops for no reason"),
    )
}
RARE_MUTATIONS: Mapping[str, tuple[Mutation, Story, str]] = {
    **BESIDE_FOUND,
    **{
        made.__name__: (made, story, "must be")
        for story, made in FOUND_MOVES.values()
        if made.__name__ not in MOVE_MUTATIONS
    },
}
