"""Folded changes -> the last row of each life of a key, which rows under other keys may need. Pure rules.

If a row's key changes, the event under the new key lacks the values that the update did not send
(`fold.unavailable_values`). The row of the old key has them, and the old key may have been given to another row since.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.sink.fold.order.winners import find_winners
from connector.sink.fold.values.key_histories import KeyHistories, find_creates, sort_both_ways, sort_by_origin
from connector.sink.model.change_rows import (
    OP_KEY_CHANGE,
    ChangeBatch,
    ChangeOrder,
    FoldedChanges,
    compute_key_codes,
    gather,
)
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_READ
from serde.events.positions.log_positions import NO_VALUE


def find_last_rows(folded: FoldedChanges, keys: Sequence[str]) -> Ints:
    """Find the last row that the batch has for each key, deleted or not; the columns of a delete event are not a row.

    Returns:
        Indices, ascending, that count through the parts in turn.
    """
    order = ChangeOrder.concat([part.order for part in folded.parts])
    gives = np.concatenate([part.image & ~part.deleted for part in folded.parts])
    rows = np.flatnonzero(gives)
    codes = compute_key_codes(folded.parts, keys)
    return np.sort(rows[find_winners(codes[rows], order.take(rows))])


def find_needed_rows(folded: FoldedChanges, keys: Sequence[str]) -> Ints:
    """Find what a later fold needs besides the winners.

    These are last rows, the moved creates that rows go back to, and rows that were deleted before their key was given
    to another row.
    """
    op = np.concatenate([part.order.op for part in folded.parts])
    needed = [find_last_rows(folded, keys), np.flatnonzero(op == OP_KEY_CHANGE)]
    if _may_reuse_keys(folded):
        # A later fold may know more of what is repeated: in Kafka's order other rows are in front of the same deletes.
        for histories in sort_both_ways(folded.parts, keys):
            needed += _find_reused_keys(folded, histories)
    return np.unique(np.concatenate(needed))


def find_rows_of_lives(folded: FoldedChanges, keys: Sequence[str]) -> list[ChangeBatch]:
    """Return the last row that the batch has for each life of a key: a key may be given to another row.

    `deleted` marks lives that a delete ended; these are ordered by that delete. If no row of the batch comes before a
    delete, but one comes after it, only the key is known, because the other columns of a delete event are made up.
    Other rows keep their own order, except that reads have no timestamp. Position in Kafka and operation are those of
    the create that a row goes back to, if there is one.
    """
    last = find_last_rows(folded, keys)
    deletes = rows = np.zeros(0, np.int64)
    if _may_reuse_keys(folded):
        deletes, rows = _find_reused_keys(folded, sort_by_origin(folded.parts, keys))
    order = ChangeOrder.concat([part.order for part in folded.parts])
    if len(deletes):
        codes = compute_key_codes(folded.parts, keys)
        delete_positions = np.column_stack([codes[deletes], order.dedup[deletes], order.place[deletes]])
        _, first = np.unique(delete_positions, axis=0, return_index=True)
        deletes, rows = deletes[first], rows[first]
    ended = _tell_lives(folded, rows, deletes, keys)
    lives = _tell_lives(folded, last, _find_ends(folded, order, last, keys), keys)
    return [one for one in (lives, ended) if len(one)]


def _find_ends(folded: FoldedChanges, order: ChangeOrder, rows: Ints, keys: Sequence[str]) -> Ints:
    """Find the delete event after each of some rows; the row itself if none follows."""
    ending = np.concatenate([part.deleted for part in folded.parts]) & ~order.bare
    if not ending.any():
        return rows
    histories = sort_by_origin(folded.parts, keys)
    sequence, starts = histories.sequence, histories.starts
    place, count = np.arange(len(sequence)), len(sequence)
    following = np.minimum.accumulate(np.where(ending[sequence], place, count)[::-1])[::-1]
    ends = np.where(np.append(starts, -1)[following] == starts, np.append(sequence, -1)[following], -1)
    end = np.empty(count, np.int64)
    end[sequence] = ends
    return np.where(end[rows] >= 0, end[rows], rows)


def _tell_lives(folded: FoldedChanges, rows: Ints, ends: Ints, keys: Sequence[str]) -> ChangeBatch:
    """Return rows in the order of their ends: themselves, or the deletes after them; a delete counts as no row."""
    chosen, ended = np.unique(rows), np.concatenate([part.deleted for part in folded.parts])[ends]
    whole = ChangeBatch.concat(gather(folded.parts, chosen) or [folded.parts[0].take(chosen)])
    selected = whole.take(np.searchsorted(chosen, rows))
    places = ChangeOrder.concat([part.order for part in folded.parts])
    first = find_creates(folded.parts, places, keys)[rows]
    origin = np.where(first >= 0, first, rows)
    end_positions = places.take(ends)
    order = attrs.evolve(
        end_positions,
        dedup=np.where(end_positions.op == OP_READ, NO_VALUE, end_positions.dedup),
        partition=places.partition[origin],
        offset=places.offset[origin],
        op=places.op[origin],
    )
    known = _forget_values(selected.rows, ended & (rows == ends), keys)
    return attrs.evolve(selected, rows=known, deleted=ended, order=order)


def _forget_values(rows: pa.RecordBatch, which: Mask, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the rows with all values but keys set to null where `which`; structs, which hold keys, stay."""
    places = pa.array(np.arange(len(which)), mask=which)
    columns = [
        column if field.name in keys or pa.types.is_struct(field.type) else column.take(places)
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _may_reuse_keys(folded: FoldedChanges) -> bool:
    deleted = np.concatenate([part.deleted for part in folded.parts])
    return bool(deleted.any() and (np.concatenate([part.image for part in folded.parts]) & ~deleted).any())


def _find_reused_keys(folded: FoldedChanges, histories: KeyHistories) -> tuple[Ints, Ints]:
    """Find the deletes that are followed by another row of their key, and the last row before each (else itself)."""
    deleted = np.concatenate([part.deleted for part in folded.parts])
    gives = np.concatenate([part.image for part in folded.parts]) & ~deleted
    sequence, keys, starts = histories.sequence, histories.keys, histories.starts
    place = np.arange(len(sequence))
    last = np.maximum.accumulate(np.where(gives[sequence], place, -1))
    following = np.minimum.accumulate(np.where(gives[sequence], place, len(place))[::-1])[::-1]
    reused = deleted[sequence] & (np.append(keys, -1)[following] == keys)
    # A tombstone repeats the delete before it, and does not tell when that was.
    repeats = ChangeOrder.concat([part.order for part in folded.parts]).bare[sequence] & (place > starts)
    places = np.flatnonzero(reused & ~(repeats & deleted[np.roll(sequence, 1)]))
    before = np.where(last[places] >= starts[places], last[places], places)
    return sequence[places], sequence[before]
