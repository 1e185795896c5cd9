"""Walking old and new rows side by side: nothing that changed is dropped, whatever the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.source.changes.rewrites import row_alignment
from connector.source.changes.rewrites.file_alignment import FileRewrite, RowGroupMatch, group_rewrites, is_in_order
from tests.harness.rounds import draws

pytestmark = pytest.mark.laws

SHAPE = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.float64())])
VALUES = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
ROWS = st.lists(st.tuples(st.integers(0, 9) | st.none(), st.sampled_from(["x", "y", None]), VALUES), max_size=40)
Row = tuple[Any, ...]


def _batches(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        columns = list(zip(*rows[start : start + size], strict=True))
        arrays = [pa.array(values, field.type) for values, field in zip(columns, SHAPE, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SHAPE)


def _left(before: list[Row], after: list[Row], size: int) -> tuple[list[Row], list[Row]]:
    left: tuple[list[Row], list[Row]] = ([], [])
    windows = mock.patch.multiple(row_alignment, WINDOW_ROWS=4, MAX_WINDOW_ROWS=16)
    with windows:
        walk = row_alignment.find_unequal_rows(
            _batches(before, size),
            _batches(after, size),
            SHAPE,
            lambda t: t.column("c0").combine_chunks(),
            ("c0", "c1", "c2"),
        )
        for side, table in walk:
            left[side].extend(tuple(row.values()) for row in table.to_pylist())
    return left


def _counted(rows: list[Row]) -> Counter[Row]:
    return Counter(tuple(map(repr, row)) for row in rows)


@given(ROWS, ROWS, st.integers(1, 7))
def test_only_equal_pairs_are_dropped(before: list[Row], after: list[Row], size: int) -> None:
    """What is dropped on one side is exactly what is dropped on the other."""
    gone, new = _left(before, after, size)
    dropped = _counted(before) - _counted(gone)
    assert dropped == _counted(after) - _counted(new)
    assert _counted(gone) <= _counted(before) and _counted(new) <= _counted(after)


@given(st.data(), st.integers(5, 200), st.integers(1, 7))
@settings(max_examples=draws(60))
def test_order_kept_leaves_only_changes(data: st.DataObject, count: int, size: int) -> None:
    """Where a rewrite kept the order and keys are unique, only updated, deleted and inserted rows are left."""
    before: list[Row] = [(i, "x", float(i)) for i in range(count)]
    changed = data.draw(st.sets(st.integers(0, count - 1), max_size=5))
    removed = data.draw(st.sets(st.integers(0, count - 1), max_size=3)) - changed
    after = [(i, "y" if i in changed else v, d) for i, v, d in before if i not in removed]
    gone, new = _left(before, after, size)
    assert {row[0] for row in gone} == changed | removed
    assert {row[0] for row in new} == changed


@given(ROWS, st.integers(1, 7))
def test_nothing_is_equal_to_nothing(rows: list[Row], size: int) -> None:
    """With one side empty, all of the other is left."""
    assert _counted(_left(rows, [], size)[0]) == _counted(rows)
    assert _counted(_left([], rows, size)[1]) == _counted(rows)


SIGHTINGS = st.lists(
    st.builds(
        RowGroupMatch, st.integers(0, 5), st.integers(0, 2), st.integers(0, 4), st.integers(0, 99), st.integers(0, 99)
    )
)


@given(SIGHTINGS)
def test_every_file_is_in_one_group(sightings: list[RowGroupMatch]) -> None:
    """Files that share rows are in one group, and no file is in two or in none."""
    groups = group_rewrites(sightings, 6, 5)
    assert sorted(i for g in groups for i in g.before) == list(range(6))
    assert sorted(i for g in groups for i in g.after) == list(range(5))
    for seen in sightings:
        assert any(seen.before in g.before and seen.after in g.after for g in groups)


def test_old_files_come_in_the_order_of_the_new_ones() -> None:
    """Old files are walked as their rows appear in the new file."""
    seen = [RowGroupMatch(0, 0, 0, 500, 515), RowGroupMatch(2, 0, 0, 0, 15), RowGroupMatch(1, 0, 1, 0, 15)]
    assert set(group_rewrites(seen, 3, 2)) == {FileRewrite((2, 0), (0,)), FileRewrite((1,), (1,))}


def test_scattered_rows_are_not_in_order() -> None:
    """Row groups whose first rows were spread over a new file speak against walking side by side."""
    assert is_in_order([RowGroupMatch(i, 0, 0, i * 100, i * 100 + 15) for i in range(4)], 4)
    assert not is_in_order([RowGroupMatch(i, 0, 0, 0, 9000) for i in range(4)], 4)
    assert not is_in_order([], 4)
