"""Incoming values, and stored ones -> the incoming values with unavailable ones filled from the stored. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, choose_values, place_others, valid_mask
from serde.events.images.document_patches import apply_patches, find_patches
from serde.events.images.unavailable_value import find_unavailable


def coalesce_unavailable(incoming: pa.Array, stored: pa.Array) -> pa.Array:
    """Return the incoming column, with the stored value wherever a value was not sent."""
    unsent = find_unavailable(incoming)
    if unsent is None:
        return incoming
    patches = find_patches(incoming)
    if patches is not None:
        return fill_patches(incoming, stored, patches)
    return choose_values(incoming, stored, unsent & valid_mask(stored))


def withhold_unsure(stored: pa.Array, unsure: Mask, untold: Mask | None) -> pa.Array:
    """Return stored values, null where they may be another row's (`unsure`) and the very row lacks them (`untold`)."""
    withheld = unsure if untold is None else unsure & untold
    if untold is None or not withheld.any():
        return stored
    return stored.take(pa.array(np.arange(len(stored)), mask=withheld))


def fill_patches(incoming: pa.Array, stored: pa.Array, patches: Mask) -> pa.Array:
    """Return a column of documents with patches applied to the stored ones; a patch without document is kept."""
    places = np.flatnonzero(patches & valid_mask(stored))
    patched = apply_patches(stored.take(pa.array(places)), incoming.take(pa.array(places)))
    return pa.concat_arrays([incoming, patched]).take(place_others(len(incoming), places))
