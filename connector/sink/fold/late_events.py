"""Winning changes -> those that are applied at once, and those that must be compared with the table's row first."""

from __future__ import annotations

import attrs
import numpy as np

from connector.sink.fold.fold import fold
from connector.sink.fold.values.key_histories import find_doubtful_ends
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, compute_key_codes


def split_late_candidates(
    folded: FoldedChanges, keys: tuple[str, ...], *, has_rows: bool = True
) -> tuple[FoldedChanges | None, ChangeBatch | None]:
    """Split off the keys of which the table's row must be asked; of their changes those that are asked about are
    candidates.

    These are winners that may be late, and changes that values of another partition's may be taken from
    (`values.key_histories.find_doubtful_ends`): the latter are handed on as if they were newer than the table's row.
    `has_rows` tells that there is one such row to ask for each key.
    """
    suspect = np.concatenate([part.suspect for part in folded.parts])
    if not suspect.any():
        return folded, None
    late = folded.winners[suspect[folded.winners]]
    ends = find_doubtful_ends(folded.parts, keys) if has_rows else late[:0]
    if not len(late) and not len(ends):
        return folded, None
    codes = compute_key_codes(folded.parts, keys)
    asked = np.union1d(late, ends)
    aside = np.isin(codes, codes[asked])
    marks = np.zeros(len(codes), np.bool_)
    marks[asked] = True
    suspect[np.setdiff1d(ends, late)] = False
    whole = attrs.evolve(ChangeBatch.concat(folded.parts), candidate=marks, suspect=suspect)
    rest = None if aside.all() else fold([whole.take(np.flatnonzero(~aside))], keys)
    return rest, whole.take(np.flatnonzero(aside))
