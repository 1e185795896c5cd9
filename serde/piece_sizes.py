"""the type of many messages' rows -> how many bytes of messages are read in one step (pure)."""

from __future__ import annotations

import pyarrow as pa

_BYTES, _MAX_BYTES = 1 << 20, 1 << 24
_LEAVES_PER_PIECE = 32
"""A step costs some 20 us for each column, whatever it holds: a megabyte of wide rows are too few to make up for it."""


def choose_piece_bytes(kind: pa.DataType) -> int:
    """About a megabyte, as what fits the processor's cache is read faster and an error costs less; of more than 32
    columns so many more, up to 16.
    """
    return min(max(_BYTES, _BYTES * count_leaves(kind) // _LEAVES_PER_PIECE), _MAX_BYTES)


def count_leaves(kind: pa.DataType) -> int:
    """How many columns there are at the bottom of a type."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(count_leaves(kind.field(place).type) for place in range(kind.num_fields))
