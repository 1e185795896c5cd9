"""The letters of operations -> their codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Bytes, valid_mask, view_bytes

KNOWN_OPS = b"crudtm"
"""Debezium's: create, read, update, delete, truncate, message."""
OP_CREATE, OP_READ, OP_UPDATE, OP_DELETE, OP_TRUNCATE, OP_MESSAGE = KNOWN_OPS
NO_OP = 0
"""Of an event that tells none, or none of these: a row without envelope."""
TOMBSTONE = ord("-")
"""Of a record without value, which no event tells."""
_INSERT = ord("i")
Ops = Bytes


def encode_ops(op: pa.StringArray) -> Ops:
    """First byte of each op that is one known letter, else `NO_OP`; Cassandra's `i`, an insert, is a create."""
    data, starts, ends = view_bytes(op)
    single = valid_mask(op) & (ends - starts == 1)
    codes = np.zeros(len(op), np.uint8)
    codes[single] = data[starts[single]]
    codes[codes == _INSERT] = OP_CREATE
    codes[~np.isin(codes, np.frombuffer(KNOWN_OPS, np.uint8))] = NO_OP
    return codes
