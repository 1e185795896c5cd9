"""Records as they were fetched -> one of their headers as a column (pure); few batches need any.

Source: Kafka's protocol documentation, "Record Header". Cost: a pass of numpy per header that a record has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connector.kafka.fetch.records import Records, binary, varint


def header(found: Records, name: str) -> pa.BinaryArray:
    """Give the bytes of the first header of that name, null where a record has none."""
    wanted = np.frombuffer(name.encode(), np.uint8)
    count = len(found.offset)
    place, size = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    left, at = varint(found.data, found.headers)
    open_ = left > 0
    while open_.any():
        rows = np.flatnonzero(open_)
        name_size, name_at = varint(found.data, at[rows])
        value_size, value_at = varint(found.data, name_at + np.maximum(name_size, 0))
        same = name_size == len(wanted)
        same[same] = (found.data[name_at[same, None] + np.arange(len(wanted))] == wanted).all(axis=1)
        place[rows[same]], size[rows[same]] = value_at[same], value_size[same]
        at[rows] = value_at + np.maximum(value_size, 0)
        left[rows] -= 1
        open_[rows] = ~same & (left[rows] > 0)
    return binary(found.data, place, size)
