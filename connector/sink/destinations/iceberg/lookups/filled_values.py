"""Values that came, and those that are held elsewhere -> the same, whole: unsent ones are filled. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, choose_values, place_others, valid_mask
from serde.events.document_patches import apply_patches, find_patches
from serde.events.unavailable_value import find_unavailable


def coalesce_unavailable(came: pa.Array, held: pa.Array) -> pa.Array:
    """Return the column that came, with what is held elsewhere where a value was not sent."""
    unsent = find_unavailable(came)
    if unsent is None:
        return came
    patches = find_patches(came)
    if patches is not None:
        return fill_patches(came, held, patches)
    return choose_values(came, held, unsent & valid_mask(held))


def fill_patches(came: pa.Array, held: pa.Array, patches: Mask) -> pa.Array:
    """Return a column of documents with patches applied to what is held; a patch without document stays one."""
    places = np.flatnonzero(patches & valid_mask(held))
    made = apply_patches(held.take(pa.array(places)), came.take(pa.array(places)))
    return pa.concat_arrays([came, made]).take(place_others(len(came), places))
