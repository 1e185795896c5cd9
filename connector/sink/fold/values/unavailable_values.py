"""Folded changes -> the same, with values that an update did not send taken from earlier changes of the key. Pure.

PostgreSQL does not send a TOASTed value that an update did not change; Debezium puts a placeholder there, which must
never overwrite what the table holds.

If no change of the key in the batch has the value, `lookups.unavailable_values` looks it up. So it is with placeholders
in a create that a key change made (`convert.key_change_headers`): the old key's row has the values. Any other create
holds all values, so one that looks like the placeholder is taken literally.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.sink.fold.values.document_patches import apply_in_batch, find_chains
from connector.sink.fold.values.key_histories import (
    CREATES,
    KeyHistories,
    find_creates,
    find_row_starts,
    mark_deletes,
    sort_by_origin,
)
from connector.sink.fold.values.row_lives import find_needed_rows
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, gather
from serde.arrays import Ints, Mask, place_others
from serde.events.images.document_patches import PatchedDocument, find_patches
from serde.events.kinds.operations import NO_OP, OP_CREATE, OP_DELETE, OP_READ


def find_unavailable_columns(part: ChangeBatch, *, suspicious: bool = False, deletes: bool = False) -> dict[str, Mask]:
    """Return the columns of a part that have unavailable values, and in which rows.

    Reads and creates hold all values. With `suspicious`, creates may be moved ones that are not marked yet. With
    `deletes`, the rows that deletes had count too: Oracle leaves large values out of them as of updates.
    """
    if not part.unsent_values:
        return {}
    op = part.order.op
    whole = (op == OP_READ) | ((op == OP_DELETE) & (not deletes)) | ((op == OP_CREATE) & (not suspicious))
    meant = {name: found & part.image & ~whole for name, found in part.unsent_values.items()}
    return {name: found for name, found in meant.items() if found.any()}


def find_open_starts(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> Ints:
    """Find where the lives of rows begin that a change of key may have made, and which have unavailable values.

    That is their create, or the delete in front of an event without operation. A later fold needs these: it takes no
    value from before them, where another row had the key.

    Returns:
        Indices that count through the parts in turn, ascending.
    """
    unsent = np.concatenate([_mark_unsent(part) for part in parts])
    op = np.concatenate([part.order.op for part in parts])
    found = [np.flatnonzero(unsent & np.isin(op, CREATES))]
    untold = unsent & (op == NO_OP)
    if untold.any():
        histories = sort_by_origin(parts, keys)
        starts = find_row_starts(parts, histories)[untold[histories.sequence]]
        found.append(histories.sequence[np.where(histories.keys[starts] < starts, starts - 1, starts)])
    return np.unique(np.concatenate(found))


def _mark_unsent(part: ChangeBatch) -> Mask:
    none = np.zeros(len(part), np.bool_)
    marks: Mask = np.logical_or.reduce([none, *find_unavailable_columns(part, suspicious=True).values()])
    return marks


def fill_in_batch(
    folded: FoldedChanges,
    keys: Sequence[str],
    *,
    histories: KeyHistories | None = None,
    variants: frozenset[str] = frozenset(),
) -> FoldedChanges:
    """Fill each unavailable value from the latest earlier change of its key that has one; documents from patches too.

    `histories`: all changes in order, where it is not that of their source. `variants`: columns of JSON texts. See
    `fold.document_patches` for documents.

    Cost: a look at the lengths of texts; where there is such a value, a sort of all changes.
    """
    unavailable = [find_unavailable_columns(part, deletes=True) for part in folded.parts]
    names = list(dict.fromkeys(name for each in unavailable for name in each))
    patched = any(part.patches is not None for part in folded.parts)
    if not names and not patched:
        return folded
    histories = histories or sort_by_origin(folded.parts, keys)
    sequence, starts = histories.sequence, find_row_starts(folded.parts, histories)
    giving = np.concatenate([_mark_whole_rows(part) for part in folded.parts])
    parts = list(folded.parts)
    needed = _mark_needed(folded, keys) if patched else None
    if needed is not None:
        parts = apply_in_batch(parts, giving, sequence, starts, variants, needed)
    for name in names:
        none = [np.zeros(len(part), np.bool_) for part in parts]
        unsent = np.concatenate([each.get(name, no) for each, no in zip(unavailable, none, strict=True)])
        whole = pa.concat_arrays([part.rows.column(name) for part in parts])
        patches = find_patches(whole)
        if patches is None:
            filled = whole.take(pa.array(_find_sources(unsent, giving & ~unsent, sequence, starts)))
        else:
            needed = _mark_needed(folded, keys) if needed is None else needed
            filled = _join_patches(whole, patches & unsent, giving, sequence, starts, needed)
        parts = _replace_column(parts, name, filled)
    return attrs.evolve(folded, parts=tuple(parts))


def _mark_whole_rows(part: ChangeBatch) -> Mask:
    """Mark the changes whose rows have real values: rows that a truncate ended too, but not delete events."""
    whole: Mask = part.image & ~mark_deletes(part)
    return whole


def mark_unavailable(folded: FoldedChanges, *, keep_deletes: bool = False, suspicious: bool = False) -> Mask:
    """Mark the winners whose row still has unavailable values; those of deleted keys only if their rows are kept."""
    sizes = [len(part) for part in folded.parts]
    open_rows = np.zeros(sum(sizes), np.bool_)
    start = 0
    for part, size in zip(folded.parts, sizes, strict=True):
        for mask in find_unavailable_columns(part, suspicious=suspicious, deletes=keep_deletes).values():
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
    """Take some winners out; return the others, and the rows of those taken, where `deleted` marks rows that are gone.

    A row that goes back to a create has that create's position in Kafka and its operation.
    """
    rest = attrs.evolve(folded, winners=folded.winners[~which], images=folded.images[~which])
    rows = folded.images[which]
    order = np.argsort(rows)
    rows = rows[order]
    deleted = np.concatenate([part.deleted for part in folded.parts])[folded.winners[which]][order]
    places = ChangeOrder.concat([part.order for part in folded.parts])
    first = find_creates(folded.parts, places, keys)[rows]
    origin = np.where(first >= 0, first, rows)
    split_off, start = [], 0
    for part in gather(folded.parts, rows):
        own = slice(start, start + len(part))
        place = attrs.evolve(
            part.order,
            partition=places.partition[origin[own]],
            offset=places.offset[origin[own]],
            op=places.op[origin[own]],
        )
        split_off.append(attrs.evolve(part, deleted=deleted[own], order=place))
        start += len(part)
    return rest, split_off


def _find_sources(unsent: Mask, giving: Mask, sequence: Ints, starts: Ints) -> Ints:
    """For every change return the one whose value it takes: itself, or the last one before it that has a value."""
    place = np.where(giving[sequence], np.arange(len(sequence)), -1)
    last = np.maximum.accumulate(place)
    takes = unsent[sequence] & (last >= starts)
    source = np.arange(len(sequence))
    source[sequence[takes]] = sequence[last[takes]]
    return source


def _mark_needed(folded: FoldedChanges, keys: Sequence[str]) -> Mask:
    """Mark the changes whose rows somebody looks at once values are filled in."""
    count = sum(map(len, folded.parts))
    if folded.decision is None:
        return np.ones(count, np.bool_)
    marks = np.zeros(count, np.bool_)
    marks[folded.winners] = marks[folded.decision.rows_to_keep()] = True
    marks[folded.images[folded.images >= 0]] = marks[find_needed_rows(folded, keys)] = True
    return marks


def _join_patches(
    column: pa.Array, patches: Mask, giving: Mask, sequence: Ints, starts: Ints, needed: Mask
) -> pa.Array:
    """Apply each patch of a document to the change of its key before it, which may be a patch itself.

    Cost: Python per patch; both are JSON texts.
    """
    joined: dict[int, str] = {}
    for root, chain in find_chains(patches, giving, sequence, starts, needed).items():
        first, *rest = chain if column[root].as_py() is None else (root, *chain)
        document = PatchedDocument(column[first].as_py())
        for own in rest:
            document.apply(column[own].as_py())
            if needed[own]:
                joined[own] = document.text
    texts = pa.array(list(joined.values()), pa.string())
    return pa.concat_arrays([column, texts]).take(place_others(len(column), list(joined)))


def _replace_column(parts: Sequence[ChangeBatch], name: str, values: pa.Array) -> list[ChangeBatch]:
    """Set a column of the parts; `made` has it one part after the other."""
    result, start = [], 0
    for part in parts:
        position = part.rows.schema.get_field_index(name)
        column = values.slice(start, len(part))
        rows = part.rows.set_column(position, part.rows.schema.field(position), column)
        result.append(attrs.evolve(part, rows=rows))
        start += len(part)
    return result
