"""Changes of one table, in parts -> the winning change of each key, and what a later fold still needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connector.sink.fold.order.key_runs import find_first, find_last_known
from connector.sink.fold.order.winners import Decision, find_row_images
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, compute_key_codes
from serde.arrays import Ints


def fold(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> FoldedChanges:
    """Find the winning change of each key among all parts (rules: `fold.winners`)."""
    decision = Decision(compute_key_codes(parts, keys), ChangeOrder.concat([part.order for part in parts]))
    winning = _prefer_delete_events(parts, decision.codes, decision.order, decision.winners)
    standing = find_row_images(decision.codes, decision.order, winning, np.concatenate([part.image for part in parts]))
    return FoldedChanges(tuple(parts), winning, standing, decision)


def _prefer_delete_events(parts: Sequence[ChangeBatch], codes: Ints, order: ChangeOrder, winning: Ints) -> Ints:
    """Replace a winning tombstone by the delete event directly before it: only the event carries a dedup value."""
    bare = np.concatenate([part.deleted & ~part.image for part in parts]) & order.bare
    if not bare[winning].any() or bare.all():
        return winning
    before = find_last_known(codes, order, ~bare)
    deleted = np.concatenate([part.deleted for part in parts])
    repeats = bare & deleted[before] & ~bare[before]
    return np.sort(np.where(repeats, before, np.arange(len(codes)))[winning])


def find_rows_to_keep(
    folded: FoldedChanges, keys: Sequence[str], also: Ints | None = None, *, numbered: bool = False
) -> Ints:
    """Find what a later fold still needs (`Decision.rows_to_keep`), the rows of tombstones, and those in `also`.

    Returns:
        Indices that count through the parts in turn, ascending.
    """
    order = ChangeOrder.concat([part.order for part in folded.parts])
    decision = folded.decision or Decision(compute_key_codes(folded.parts, keys), order)
    kept = decision.rows_to_keep(numbered=numbered)
    which = np.zeros(len(decision.codes), np.bool_)
    which[_prefer_delete_events(folded.parts, decision.codes, order, kept)] = which[folded.winners] = True
    which[folded.images[folded.images >= 0]] = True
    if also is not None:
        which[also] = True
    return np.flatnonzero(which)


def find_first_changes(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> Ints:
    """Find the first change of each key in each topic-partition.

    Returns:
        Indices that count through the parts in turn, ascending.
    """
    order = ChangeOrder.concat([part.order for part in parts])
    return np.unique(find_first(compute_key_codes(parts, keys), order))


def find_last_deletes(parts: Sequence[ChangeBatch]) -> Ints:
    """Find the delete events at the end of parts: their tombstones may be in what another task reads.

    Returns:
        Indices that count through the parts in turn.
    """
    ends = np.cumsum([len(part) for part in parts]) - 1
    ends_with_delete = (part.deleted[-1] and not part.order.take(np.array([len(part) - 1])).bare[0] for part in parts)
    return ends[np.fromiter(ends_with_delete, np.bool_, len(ends))]
