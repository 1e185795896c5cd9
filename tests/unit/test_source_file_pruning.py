"""Bounds of the files that a snapshot removed and added -> which of them have rows to pair with."""

from __future__ import annotations

import pytest

from connector.source.changes.file_pruning import files_without_partner

pytestmark = pytest.mark.unit


def test_files_outside_of_the_other_side_are_alone() -> None:
    """A file whose span in one column touches no other file's needs no partner; unknown spans touch all."""
    others = [{"id": (1, 5), "p": ("a", "a")}, {"id": (4, 9), "p": ("a", "a")}, {"id": (20, 30), "p": ("c", "c")}]
    files = [{"id": (10, 19)}, {"id": (9, 19)}, {"id": (31, 31)}, {"id": (0, 50), "p": ("b", "b")}, {}, {"id": (0, 0)}]
    assert files_without_partner(files, others, ["id", "p"]) == [True, False, True, True, False, True]
    assert files_without_partner(files, [*others, {}], ["id", "p"]) == [False] * 6
    assert files_without_partner(files, [], ["id"]) == [True, True, True, True, False, True]


def test_bounds_of_no_columns_prune_nothing() -> None:
    """Without a column to go by every file may have partners."""
    assert files_without_partner([{"id": (1, 2)}], [{"id": (3, 4)}], []) == [False]
