"""Changes of keys in any order -> the last change of each that tells something, up to each of them."""

from __future__ import annotations

import numpy as np
import pytest

from connector.sink.fold.order.key_runs import find_last_known
from connector.sink.model.change_rows import ChangeOrder
from serde.events.positions.log_positions import unknown_positions

pytestmark = pytest.mark.unit

TELLS, BARE = True, False


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([(0, 0, 1, TELLS), (0, 0, 2, BARE), (0, 0, 3, TELLS), (0, 0, 4, BARE), (0, 0, 5, BARE)], [0, 0, 2, 2, 2]),
        ([(0, 0, 1, TELLS), (1, 0, 2, TELLS), (0, 0, 3, BARE), (1, 0, 4, BARE)], [0, 1, 0, 1]),
        ([(0, 0, 1, TELLS), (1, 0, 2, BARE), (1, 0, 3, BARE)], [0, 1, 1]),
        ([(0, 0, 1, TELLS), (0, 1, 1, BARE), (0, 0, 2, BARE), (0, 1, 2, BARE)], [0, 1, 0, 1]),
        ([(0, 0, 3, BARE), (0, 0, 1, TELLS), (0, 0, 2, TELLS)], [2, 1, 2]),
        ([(0, 0, 1, BARE), (0, 0, 2, BARE), (0, 0, 3, TELLS)], [0, 0, 2]),
    ],
)
def test_what_a_bare_change_stands_behind(changes: list[tuple[int, int, int, bool]], found: list[int]) -> None:
    """It is the last change of the same key and partition before it that tells something, or else the first of them."""
    codes, partition, offset, known = (np.array(column) for column in zip(*changes, strict=True))
    unknown = np.zeros(len(changes), np.int64)
    op = np.full(len(changes), ord("u"), np.uint8)
    order = ChangeOrder(partition, offset, unknown, unknown, unknown_positions(len(changes)), op)
    assert find_last_known(codes, order, known).tolist() == found
