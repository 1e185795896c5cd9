"""Key changes that follow each other -> for each of them the changes that have its values. Pure, on columns.

A row may get several keys in a batch (1 -> 2 -> 3). Each change knows the row that it took along. If that row was
itself made by a key change and lacks values, the change before it has them, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from serde.arrays import Ints, Mask

Marks = np.ndarray[tuple[int, int], np.dtype[np.bool_]]
"""A row of marks for each change, one per column."""

CHUNK = 50_000
_NONE = -1


@attrs.frozen(eq=False)
class ChainSources:
    """Which key changes have values for others: `of` takes columns from `source`; `columns` is a row of marks each.

    Among the sources of a change the one with the greatest `depth` has the key that its row had before the batch.
    """

    of: Ints
    source: Ints
    columns: Marks
    depth: Ints


def follow_chains(at: Ints, before: Ints, known: Marks) -> Iterator[ChainSources]:
    """Follow key changes to those before them, and find for each column the nearest one that has it.

    If changes form a circle, as far as is known, it is followed once around; the first change in Kafka then counts as
    the one with the key from before the batch.

    Args:
        at: what each change is known by.
        before: the change that made the row that it took along; one that is not in `at` ends the chain, and may tell
            what no other does.
        known: a row for each change: the columns that the row tells that it took along.

    Cost: a sort, and passes over all changes per column, as many as the length of the longest chain has binary digits.
    Its memory is five bytes per change and column, and some hundred per change.
    """
    order = np.argsort(at, kind="stable")
    at, before, known = at[order], before[order], known[order]
    places = np.minimum(np.searchsorted(at, before), max(len(at) - 1, 0))
    inside = at[places] == before
    after = np.where(inside, places, _NONE)
    first = _find_first(after)
    outside = np.where(inside, _NONE, before)[first]
    sources = [_find_nearest(after, known[:, column]).astype(np.int32) for column in range(known.shape[1])]
    for start in range(0, len(at), CHUNK):
        yield _collect(np.arange(start, min(start + CHUNK, len(at))), at, first, outside, sources)


def _find_first(after: Ints) -> Ints:
    """Return the last change that each one reaches; in a circle the one with the smallest number."""
    count = len(after)
    place = np.arange(count)
    least, last, jump, steps = place, np.where(after == _NONE, place, after), after, 1
    while steps <= count and (jump != _NONE).any():
        least = np.where(jump == _NONE, least, np.minimum(least, least[jump]))
        jump, last, steps = _jump_twice(jump), last[last], steps * 2
    # Whoever still goes on is in a circle by now, and `least` of where it is has been all around.
    return np.where(jump == _NONE, last, least[last])


def _find_nearest(after: Ints, known: Mask) -> Ints:
    """Return the nearest change, from each one on, that knows a column; -1 if none does."""
    nearest, jump, steps = np.where(known, np.arange(len(after)), _NONE), np.where(known, _NONE, after), 1
    while steps <= len(after) and (jump != _NONE).any():
        nearest = np.where((jump != _NONE) & (nearest == _NONE), nearest[jump], nearest)
        jump, steps = _jump_twice(jump), steps * 2
    return nearest


def _jump_twice(jump: Ints) -> Ints:
    return np.where(jump == _NONE, _NONE, jump[jump])


def _collect(
    rows: Ints, at: Ints, first: Ints, outside: Ints, sources: Sequence[npt.NDArray[np.int32]]
) -> ChainSources:
    """Return which changes take which columns from which source."""
    ends, beyond, width = at[first[rows]], outside[rows], len(sources)
    known_at = [np.where(found[rows] == _NONE, beyond, at[found[rows]]) for found in sources]
    source = np.concatenate([*known_at, ends, beyond])
    of = np.tile(rows, width + 2)
    column = np.repeat([*range(width), _NONE, _NONE], len(rows))
    depth = np.repeat([*[0] * width, 1, 2], len(rows))
    has_source = np.flatnonzero(source != _NONE)
    has_source = has_source[np.lexsort((source[has_source], of[has_source]))]
    fresh = np.ones(len(has_source), np.bool_)
    fresh[1:] = (np.diff(source[has_source]) != 0) | (np.diff(of[has_source]) != 0)
    pair = np.cumsum(fresh) - 1
    marks = np.zeros((np.count_nonzero(fresh), width + 1), np.bool_)
    marks[pair, column[has_source]] = True
    deepest = np.zeros(len(marks), np.int64)
    np.maximum.at(deepest, pair, depth[has_source])
    pairs = has_source[fresh]
    return ChainSources(at[of[pairs]], source[pairs], marks[:, :width], deepest)
