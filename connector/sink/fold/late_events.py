"""Winning changes -> those that are applied at once, and those that must be compared with the table's row first."""

from __future__ import annotations

import attrs
import numpy as np

from connector.sink.fold.fold import fold
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, compute_key_codes


def split_late_candidates(
    folded: FoldedChanges, keys: tuple[str, ...]
) -> tuple[FoldedChanges | None, ChangeBatch | None]:
    """Split off the keys whose winner may be late; of all their changes these winners are the late candidates."""
    suspect = np.concatenate([part.suspect for part in folded.parts])[folded.winners]
    if not suspect.any():
        return folded, None
    codes = compute_key_codes(folded.parts, keys)
    aside = np.isin(codes, codes[folded.winners[suspect]])
    marks = np.zeros(len(codes), np.bool_)
    marks[folded.winners[suspect]] = True
    whole = attrs.evolve(ChangeBatch.concat(folded.parts), candidate=marks)
    rest = None if aside.all() else fold([whole.take(np.flatnonzero(~aside))], keys)
    return rest, whole.take(np.flatnonzero(aside))
