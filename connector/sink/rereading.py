"""Messages of another shape than the table -> blocks of their own, where tables do not follow their events.

Messages without schema are read by the table's types, and what does not fit is a fault. With `allow-field-addition`
off such a value may still be converted, or be null (`connector.iceberg.coercion`): so those messages are read anew,
without expectation, those of one shape at a time. Costs nothing for messages that fit.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from serde.block import Decoded
from serde.converter import Converter

_ROUNDS = 8


def read_again(values: Decoded, data: pa.Array, converter: Converter) -> Decoded:
    """Read faulty messages anew; what cannot be read by itself either stays a fault with its first reason."""
    blocks = list(values.blocks)
    reasons = {fault.row: fault for fault in values.faults}
    waiting = np.array(sorted(reasons), np.int64)
    for _ in range(_ROUNDS):
        found = converter.decode(data.take(pa.array(waiting)), "VALUE_CONVERTER", None)
        blocks += [attrs.evolve(block, rows=waiting[block.rows]) for block in found.blocks]
        left = np.array(sorted({fault.row for fault in found.faults}), np.int64)
        done = len(left) == len(waiting)
        waiting = waiting[left] if len(left) else left
        if done or not len(waiting):
            break
    return Decoded(tuple(blocks), values.tombstones, tuple(reasons[int(row)] for row in waiting))
