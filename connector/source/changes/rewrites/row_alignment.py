"""Rows before and after a rewrite, both in file order -> the rows that have no equal partner. On executors.

An engine that rewrites a file keeps the order of its rows. So both streams are walked side by side, a window at a
time: rows of one key that are equal in every column are dropped, everything else is handed on. Dropping one row on each
side is right whatever the order; where the order was not kept, more is handed on, never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WINDOW_ROWS = 1 << 17
MAX_WINDOW_ROWS = 4 * WINDOW_ROWS
"""Rows that may wait on one side for a partner; beyond it they are handed on."""

BEFORE, AFTER = 0, 1
Indices = np.ndarray[Any, np.dtype[np.int64]]
KeyOf = Callable[[pa.Table], pa.Array]


@attrs.define
class _RowStream:
    """One side: what has been read and waits, and whether there is more."""

    batches: Iterator[pa.RecordBatch]
    waiting: pa.Table
    ended: bool = False

    def fill(self, rows: int) -> None:
        parts = [self.waiting]
        count = self.waiting.num_rows
        while count < rows and not self.ended:
            batch = next(self.batches, None)
            if batch is None:
                self.ended = True
            else:
                parts.append(pa.Table.from_batches([batch]))
                count += batch.num_rows
        self.waiting = pa.concat_tables(parts).combine_chunks()

    def cut(self, rows: int) -> pa.Table:
        done, self.waiting = self.waiting.slice(0, rows), self.waiting.slice(rows)
        return done


def find_unequal_rows(
    before: Iterator[pa.RecordBatch],
    after: Iterator[pa.RecordBatch],
    shape: pa.Schema,
    key: KeyOf,
    compared: tuple[str, ...],
) -> Iterator[tuple[int, pa.Table]]:
    """Return the rows without an equal partner, each with its side.

    Args:
        before: rows of the files that went, in order.
        after: rows of the files that came, in order.
        shape: the columns of both.
        key: what partners have in common.
        compared: the columns that must be equal.
    """
    one, two = _RowStream(before, shape.empty_table()), _RowStream(after, shape.empty_table())
    wanted = WINDOW_ROWS
    while True:
        one.fill(wanted)
        two.fill(wanted)
        last = one.ended and two.ended
        mine, theirs = _match_rows(key(one.waiting), key(two.waiting))
        if not last and not len(mine) and wanted < MAX_WINDOW_ROWS:
            wanted *= 2
            continue
        wanted = WINDOW_ROWS
        same = _is_equal(_take_rows(one.waiting, mine), _take_rows(two.waiting, theirs), compared)
        flush = last or not len(mine)
        for side, stream, met in ((BEFORE, one, mine), (AFTER, two, theirs)):
            end = stream.waiting.num_rows if flush else int(met.max()) + 1
            keep = np.ones(end, dtype=bool)
            keep[met[same]] = False
            yield side, stream.cut(end).filter(pa.array(keep))
        if last:
            return


def _match_rows(mine: pa.Array, theirs: pa.Array) -> tuple[Indices, Indices]:
    """Match rows by key, each at most once: those in step by place, the rest by a look-up, the first of several."""
    count = _count_in_step(mine, theirs)
    step = np.arange(count, dtype=np.int64)
    if count == len(mine) or count == len(theirs):
        return step, step
    partners = np.asarray(pc.fill_null(pc.index_in(theirs.slice(count), value_set=mine.slice(count)), -1)).astype(
        np.int64
    )
    places = np.flatnonzero(partners >= 0)
    _, first = np.unique(partners[places], return_index=True)
    places = places[np.sort(first)]
    return np.concatenate([step, partners[places] + count]), np.concatenate([step, places + count])


def _count_in_step(mine: pa.Array, theirs: pa.Array) -> int:
    """Count the rows at the beginning whose keys are the same at the same place."""
    count = min(len(mine), len(theirs))
    same = np.asarray(pc.fill_null(pc.equal(mine.slice(0, count), theirs.slice(0, count)), False))
    return count if same.all() else int(np.argmin(same))


def _take_rows(table: pa.Table, rows: Indices) -> pa.Table:
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all()):
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


def _is_equal(one: pa.Table, two: pa.Table, columns: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    same = np.ones(one.num_rows, dtype=bool)
    for name in columns:
        a, b = _float_bits(one.column(name)), _float_bits(two.column(name))
        equal = pc.fill_null(pc.equal(a, b), False)
        if a.null_count or b.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(a), pc.is_null(b)))
        same &= np.asarray(equal)
    return same


def _float_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare floating point by its bits: NaN equals itself, -0.0 is not 0.0."""
    if pa.types.is_floating(column.type):
        whole = pa.int64() if column.type.bit_width == 64 else pa.int32()  # noqa: PLR2004 - double or float
        return pa.chunked_array([chunk.view(whole) for chunk in column.chunks], type=whole)
    return column
