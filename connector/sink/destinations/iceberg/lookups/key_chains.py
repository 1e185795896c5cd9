"""Changes of key that follow each other -> for each of them the changes that tell its values. Pure, on columns.

A row may get several keys in a batch (1 -> 2 -> 3). Each change knows the row that it took along; where that row was
made by a change of key itself and leaves values out, the change before it has them, and so on.
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
    """Which changes of key tell something of others: `of` takes columns from `source`, `columns` a row of marks each.

    Of the sources of a change the one with the greatest `depth` tells the key that its row had before the batch.
    """

    of: Ints
    source: Ints
    columns: Marks
    depth: Ints


def follow_chains(at: Ints, before: Ints, known: Marks) -> Iterator[ChainSources]:
    """Follow changes of key to those before them, and find for each column the nearest one that knows it.

    Changes that come before themselves, as far as anything tells, are followed once around; the first of them in Kafka
    counts as the one with the key from before the batch.

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
    """Return the last that each comes to; of a circle the one with the smallest number."""
    count = len(after)
    place = np.arange(count)
    least, last, jump, steps = place, np.where(after == _NONE, place, after), after, 1
    while steps <= count and (jump != _NONE).any():
        least = np.where(jump == _NONE, least, np.minimum(least, least[jump]))
        jump, last, steps = _jump_twice(jump), last[last], steps * 2
    # Whoever still goes on is in a circle by now, and `least` of where it is has been all around.
    return np.where(jump == _NONE, last, least[last])


def _find_nearest(after: Ints, known: Mask) -> Ints:
    """Return the first that knows a column, from each on; -1 where none does."""
    found, jump, steps = np.where(known, np.arange(len(after)), _NONE), np.where(known, _NONE, after), 1
    while steps <= len(after) and (jump != _NONE).any():
        found = np.where((jump != _NONE) & (found == _NONE), found[jump], found)
        jump, steps = _jump_twice(jump), steps * 2
    return found


def _jump_twice(jump: Ints) -> Ints:
    return np.where(jump == _NONE, _NONE, jump[jump])


def _collect(
    rows: Ints, at: Ints, first: Ints, outside: Ints, sources: Sequence[npt.NDArray[np.int32]]
) -> ChainSources:
    """Return what some of the changes take from where."""
    ends, beyond, width = at[first[rows]], outside[rows], len(sources)
    told = [np.where(found[rows] == _NONE, beyond, at[found[rows]]) for found in sources]
    source = np.concatenate([*told, ends, beyond])
    of = np.tile(rows, width + 2)
    column = np.repeat([*range(width), _NONE, _NONE], len(rows))
    depth = np.repeat([*[0] * width, 1, 2], len(rows))
    there = np.flatnonzero(source != _NONE)
    there = there[np.lexsort((source[there], of[there]))]
    fresh = np.ones(len(there), np.bool_)
    fresh[1:] = (np.diff(source[there]) != 0) | (np.diff(of[there]) != 0)
    pair = np.cumsum(fresh) - 1
    marks = np.zeros((np.count_nonzero(fresh), width + 1), np.bool_)
    marks[pair, column[there]] = True
    deepest = np.zeros(len(marks), np.int64)
    np.maximum.at(deepest, pair, depth[there])
    pairs = there[fresh]
    return ChainSources(at[of[pairs]], source[pairs], marks[:, :width], deepest)
