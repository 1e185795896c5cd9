"""Incoming values, and stored ones -> the incoming values with unavailable ones filled from the stored. Pure."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from serde.arrays import Mask, choose_values, place_others, valid_mask
from serde.events.images.document_patches import apply_patches, find_patches
from serde.events.images.unavailable_value import find_unavailable


def coalesce_unavailable(incoming: pa.Array, stored: pa.Array, there: Mask | None = None) -> pa.Array:
    """Return the incoming column, with the stored value wherever a value was not sent.

    there: marks the rows whose stored value is their own, a null too: SQL Server, Oracle and MySQL leave nulls out as
    well. Of others a null says that nobody told the value.
    """
    unsent = find_unavailable(incoming)
    if unsent is None:
        return incoming
    patches = find_patches(incoming)
    if patches is not None:
        return fill_patches(incoming, stored, patches)
    told = valid_mask(stored) if there is None else valid_mask(stored) | there
    return choose_values(incoming, stored, unsent & told)


@attrs.define(eq=False)
class TableSides:
    """What a table's rows give for one column, side by side: where a row lacks the value itself, and whose it may be.

    `own` marks where the very row lacks it, `any_row` where any row does that was asked so far.
    """

    own: Mask | None = None
    any_row: Mask | None = None

    def take(self, side: str, stored: pa.Array, unsure: Mask | None) -> pa.Array:
        """Return a side's values, null where they may be another row's although nobody told those of this one.

        Of a row that went (`struck`) nothing is taken where one that is there lacks the value: it was another.
        """
        withheld = None
        if side == "struck":
            withheld = self.any_row
        elif unsure is not None and self.own is not None:
            withheld = self.own & unsure
        lacking = find_unavailable(stored)
        if side == "own":
            self.own = lacking
        if lacking is not None:
            self.any_row = lacking if self.any_row is None else self.any_row | lacking
        if withheld is None or not withheld.any():
            return stored
        return stored.take(pa.array(np.arange(len(stored)), mask=withheld))


def fill_patches(incoming: pa.Array, stored: pa.Array, patches: Mask) -> pa.Array:
    """Return a column of documents with patches applied to the stored ones; a patch without document is kept."""
    places = np.flatnonzero(patches & valid_mask(stored))
    patched = apply_patches(stored.take(pa.array(places)), incoming.take(pa.array(places)))
    return pa.concat_arrays([incoming, patched]).take(place_others(len(incoming), places))
