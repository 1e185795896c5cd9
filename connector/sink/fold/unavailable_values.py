"""Folded changes -> the same with values that an update did not send: those of the change of the key before it.

PostgreSQL sends no TOASTed value that an update did not change; Debezium puts a placeholder there, which must never
overwrite what the table holds. What no change of the key in the batch tells is left for `lookups.unavailable_values`.
So is a create with placeholders that a change of key made (`convert.key_change_headers`): the old key's row has the
values. Any other create holds all values, so one that looks like the placeholder is meant. Pure rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.sink.fold.document_patches import apply_in_batch
from connector.sink.fold.winners import find_winners, mark_run_starts, sort_changes
from connector.sink.model.change_rows import (
    OP_CREATE,
    OP_KEY_CHANGE,
    ChangeBatch,
    ChangeOrder,
    FoldedChanges,
    compute_key_codes,
    gather,
)
from serde.arrays import Ints, Mask, place_others
from serde.events.document_patches import apply_patch, find_patches
from serde.events.source_positions import NO_VALUE
from serde.events.unavailable_value import find_unavailable

_OP_READ, _OP_DELETE = ord("r"), ord("d")


def find_unavailable_columns(part: ChangeBatch, *, suspicious: bool = False) -> dict[str, Mask]:
    """Return the columns of a part that have unsent values, and where.

    Reads and creates hold all values, deletes none. `suspicious`: creates may be moved ones that nobody has marked yet.
    """
    result = {}
    for name, column in zip(part.rows.schema.names, part.rows.columns, strict=True):
        found = find_unavailable(column)
        if found is not None:
            op = part.order.op
            whole = (op == _OP_READ) | (op == _OP_DELETE) | ((op == OP_CREATE) & (not suspicious))
            found &= part.image & ~whole
            if found.any():
                result[name] = found
    return result


def fill_in_batch(
    folded: FoldedChanges, keys: Sequence[str], *, by_date: bool = False, variants: frozenset[str] = frozenset()
) -> FoldedChanges:
    """Fill each unavailable value from the latest earlier change of its key that has one; so are documents of which
    only changes are known (`fold.document_patches`).

    `by_date`: of versions, which go by their dates alone, the one of the date before. `variants`: columns of JSON.

    Cost: a look at the lengths of texts; where there is such a value, a sort of all changes.
    """
    found = [find_unavailable_columns(part) for part in folded.parts]
    names = list(dict.fromkeys(name for each in found for name in each))
    patched = any(part.patches is not None for part in folded.parts)
    if not names and not patched:
        return folded
    sequence, starts = _sort_by_key(folded.parts, keys, by_date=by_date)
    starts = _find_row_starts(folded.parts, sequence, starts)
    giving = np.concatenate([part.image & ~part.deleted for part in folded.parts])
    parts = list(folded.parts)
    if patched:
        parts = apply_in_batch(parts, giving, sequence, starts, variants)
    for name in names:
        none = [np.zeros(len(part), np.bool_) for part in parts]
        unsent = np.concatenate([each.get(name, no) for each, no in zip(found, none, strict=True)])
        whole = pa.concat_arrays([part.rows.column(name) for part in parts])
        patches = find_patches(whole)
        if patches is None:
            made = whole.take(pa.array(_find_sources(unsent, giving & ~unsent, sequence, starts)))
        else:
            made = _join_patches(whole, patches & unsent, giving, sequence, starts)
        parts = _replace_column(parts, name, made)
    return attrs.evolve(folded, parts=tuple(parts))


def mark_unavailable(folded: FoldedChanges, *, keep_deletes: bool = False, suspicious: bool = False) -> Mask:
    """Mark the winners whose row still has unsent values; those of deleted keys only where their rows are kept."""
    sizes = [len(part) for part in folded.parts]
    open_rows = np.zeros(sum(sizes), np.bool_)
    start = 0
    for part, size in zip(folded.parts, sizes, strict=True):
        for mask in find_unavailable_columns(part, suspicious=suspicious).values():
            open_rows[start : start + size] |= mask
        if part.patches is not None:
            open_rows[start : start + size] |= np.asarray(part.patches.is_valid())
        start += size
    if not open_rows.any():
        return np.zeros(len(folded.winners), np.bool_)
    marked: Mask = (folded.images >= 0) & open_rows[np.maximum(folded.images, 0)]
    if not keep_deletes:
        marked &= ~np.concatenate([part.deleted for part in folded.parts])[folded.winners]
    return marked


def split_winners(folded: FoldedChanges, which: Mask, keys: Sequence[str]) -> tuple[FoldedChanges, list[ChangeBatch]]:
    """Take some winners out; give the rest, and the rows of those taken, `deleted` telling whether they are gone.

    A row that goes back to a create has that create's place in Kafka and its operation.
    """
    rest = attrs.evolve(folded, winners=folded.winners[~which], images=folded.images[~which])
    rows = folded.images[which]
    order = np.argsort(rows)
    rows = rows[order]
    gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners[which]][order]
    places = ChangeOrder.concat([part.order for part in folded.parts])
    first = _find_creates(folded.parts, places, keys)[rows]
    origin = np.where(first >= 0, first, rows)
    taken, start = [], 0
    for part in gather(folded.parts, rows):
        own = slice(start, start + len(part))
        place = attrs.evolve(
            part.order,
            partition=places.partition[origin[own]],
            offset=places.offset[origin[own]],
            op=places.op[origin[own]],
        )
        taken.append(attrs.evolve(part, deleted=gone[own], order=place))
        start += len(part)
    return rest, taken


def _find_creates(parts: Sequence[ChangeBatch], places: ChangeOrder, keys: Sequence[str]) -> Ints:
    """For every change the last create of its key up to it, -1 without one."""
    sequence, starts = _sort_by_key(parts, keys)
    made = np.isin(places.op[sequence], (OP_CREATE, OP_KEY_CHANGE))
    last = np.maximum.accumulate(np.where(made, np.arange(len(sequence)), -1))
    result = np.full(len(sequence), -1, np.int64)
    found = last >= starts
    result[sequence[found]] = sequence[last[found]]
    return result


def find_last_rows(folded: FoldedChanges, keys: Sequence[str]) -> Ints:
    """Find the last row that the batch knows of each key, whether it is gone or not; what deletes say is no row.

    Returns:
        Indices, ascending, that count through the parts in turn.
    """
    order = ChangeOrder.concat([part.order for part in folded.parts])
    gives = np.concatenate([part.image & ~part.deleted for part in folded.parts])
    rows = np.flatnonzero(gives)
    codes = compute_key_codes(folded.parts, keys)
    return np.sort(rows[find_winners(codes[rows], order.take(rows))])


def find_needed_rows(folded: FoldedChanges, keys: Sequence[str]) -> Ints:
    """Find what a later fold has to know besides the winners: last rows, the moved creates that rows go back to, and
    rows that were deleted before their key was given to another.
    """
    op = np.concatenate([part.order.op for part in folded.parts])
    deletes, rows = _find_reused_keys(folded, keys)
    return np.unique(np.concatenate([find_last_rows(folded, keys), np.flatnonzero(op == OP_KEY_CHANGE), deletes, rows]))


def find_rows_of_lives(folded: FoldedChanges, keys: Sequence[str]) -> list[ChangeBatch]:
    """Return the last row that the batch knows of each life of a key: a key may be given to another row again.

    `deleted` tells that a delete ended it: it is in the order of that delete. Where no row of the batch comes before a
    delete, and one behind it, only the key is known, as what a delete says of other columns is invented. The others are
    in their own order, but that reads have no date. Place in Kafka and operation are those of the create that a row
    goes back to, where there is one.
    """
    last = find_last_rows(folded, keys)
    deletes, rows = _find_reused_keys(folded, keys)
    order = ChangeOrder.concat([part.order for part in folded.parts])
    if len(deletes):
        codes = compute_key_codes(folded.parts, keys)
        told = np.column_stack([codes[deletes], order.dedup[deletes], order.place[deletes]])
        _, first = np.unique(told, axis=0, return_index=True)
        deletes, rows = deletes[first], rows[first]
    ended = _tell_lives(folded, rows, deletes, keys)
    left = _tell_lives(folded, last, _find_ends(folded, order, last, keys), keys)
    return [one for one in (left, ended) if len(one)]


def _find_ends(folded: FoldedChanges, order: ChangeOrder, rows: Ints, keys: Sequence[str]) -> Ints:
    """Find the delete event behind each of some rows; the row itself where none follows."""
    ending = np.concatenate([part.deleted for part in folded.parts]) & ~order.bare
    if not ending.any():
        return rows
    sequence, starts = _sort_by_key(folded.parts, keys)
    place, count = np.arange(len(sequence)), len(sequence)
    following = np.minimum.accumulate(np.where(ending[sequence], place, count)[::-1])[::-1]
    ends = np.where(np.append(starts, -1)[following] == starts, np.append(sequence, -1)[following], -1)
    end = np.empty(count, np.int64)
    end[sequence] = ends
    return np.where(end[rows] >= 0, end[rows], rows)


def _tell_lives(folded: FoldedChanges, rows: Ints, ends: Ints, keys: Sequence[str]) -> ChangeBatch:
    """Return rows in the order of their ends: themselves, or the deletes behind them; a delete stands for no row."""
    chosen, ended = np.unique(rows), np.concatenate([part.deleted for part in folded.parts])[ends]
    whole = ChangeBatch.concat(gather(folded.parts, chosen) or [folded.parts[0].take(chosen)])
    taken = whole.take(np.searchsorted(chosen, rows))
    places = ChangeOrder.concat([part.order for part in folded.parts])
    first = _find_creates(folded.parts, places, keys)[rows]
    origin = np.where(first >= 0, first, rows)
    told = places.take(ends)
    order = attrs.evolve(
        told,
        dedup=np.where(told.op == _OP_READ, NO_VALUE, told.dedup),
        partition=places.partition[origin],
        offset=places.offset[origin],
        op=places.op[origin],
    )
    known = _forget_values(taken.rows, ended & (rows == ends), keys)
    return attrs.evolve(taken, rows=known, deleted=ended, order=order)


def _forget_values(rows: pa.RecordBatch, which: Mask, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the rows with null in place of values that are no keys, where `which`; structs, which hold keys, stay."""
    places = pa.array(np.arange(len(which)), mask=which)
    columns = [
        column if field.name in keys or pa.types.is_struct(field.type) else column.take(places)
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _find_reused_keys(folded: FoldedChanges, keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Find the deletes that another row of their key follows, and the last row before each: or itself, without one.

    Cost: a look at the operations; where there are deletes beside rows, a sort of all changes.
    """
    deleted = np.concatenate([part.deleted for part in folded.parts])
    gives = np.concatenate([part.image for part in folded.parts]) & ~deleted
    none = np.zeros(0, np.int64)
    if not deleted.any() or not gives.any():
        return none, none
    sequence, starts = _sort_by_key(folded.parts, keys)
    place = np.arange(len(sequence))
    last = np.maximum.accumulate(np.where(gives[sequence], place, -1))
    following = np.minimum.accumulate(np.where(gives[sequence], place, len(place))[::-1])[::-1]
    reused = deleted[sequence] & (np.append(starts, -1)[following] == starts)
    # A tombstone repeats the delete before it, and does not tell when that was.
    repeats = ChangeOrder.concat([part.order for part in folded.parts]).bare[sequence] & (place > starts)
    found = np.flatnonzero(reused & ~(repeats & deleted[np.roll(sequence, 1)]))
    before = np.where(last[found] >= starts[found], last[found], found)
    return sequence[found], sequence[before]


def _find_row_starts(parts: Sequence[ChangeBatch], sequence: Ints, starts: Ints) -> Ints:
    """Return for each sorted change where the life of its row begins: at the last create up to it, or with its key."""
    op = np.concatenate([part.order.op for part in parts])[sequence]
    place = np.where(np.isin(op, (OP_CREATE, OP_KEY_CHANGE)), np.arange(len(sequence)), 0)
    begun: Ints = np.maximum(np.maximum.accumulate(place), starts)
    return begun


def _sort_by_key(parts: Sequence[ChangeBatch], keys: Sequence[str], *, by_date: bool = False) -> tuple[Ints, Ints]:
    """Return all changes sorted by key and place, and for each sorted one where its key begins."""
    codes = compute_key_codes(parts, keys)
    order = ChangeOrder.concat([part.order for part in parts])
    dates = (order.offset, order.partition, order.dedup, codes)
    sequence = np.lexsort(dates) if by_date else sort_changes(codes, order)
    ordered = codes[sequence]
    return sequence, np.maximum.accumulate(np.where(mark_run_starts(ordered), np.arange(len(ordered)), 0))


def _find_sources(unsent: Mask, giving: Mask, sequence: Ints, starts: Ints) -> Ints:
    """For every change the one whose value it takes: itself, or the last one before it that gives one."""
    place = np.where(giving[sequence], np.arange(len(sequence)), -1)
    last = np.maximum.accumulate(place)
    takes = unsent[sequence] & (last >= starts)
    source = np.arange(len(sequence))
    source[sequence[takes]] = sequence[last[takes]]
    return source


def _join_patches(column: pa.Array, patches: Mask, giving: Mask, sequence: Ints, starts: Ints) -> pa.Array:
    """Apply each patch of a document to the change of its key before it, which may be a patch itself.

    Cost: Python per patch; both are JSON texts.
    """
    place = np.where(giving[sequence], np.arange(len(sequence)), -1)
    before = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]])
    made: dict[int, str] = {}
    for at in np.flatnonzero(patches[sequence] & (before >= starts)).tolist():
        base, own = int(sequence[before[at]]), int(sequence[at])
        text = made.get(base) or column[base].as_py()
        if text is not None:
            made[own] = apply_patch(text, column[own].as_py())
    texts = pa.array(list(made.values()), pa.string())
    return pa.concat_arrays([column, texts]).take(place_others(len(column), list(made)))


def _replace_column(parts: Sequence[ChangeBatch], name: str, made: pa.Array) -> list[ChangeBatch]:
    """Set a column of the parts; `made` has it one part after the other."""
    result, start = [], 0
    for part in parts:
        position = part.rows.schema.get_field_index(name)
        column = made.slice(start, len(part))
        rows = part.rows.set_column(position, part.rows.schema.field(position), column)
        result.append(attrs.evolve(part, rows=rows))
        start += len(part)
    return result
