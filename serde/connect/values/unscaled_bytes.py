"""decimals -> their unscaled numbers as bytes, as Connect's Decimal has them; whole columns at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Bytes, Ints, valid_mask

_WORD_BYTES, _WORD_DIGITS = 8, 18
_DECIMAL_BYTES = 16
_SIGN_BIT, _MINUS_ONE = 0x80, 0xFF


def encode_decimals(column: pa.Decimal128Array) -> pa.BinaryArray:
    """Write each number as BigInteger.toByteArray does: big-endian two's complement, as few bytes as hold it."""
    width = _WORD_BYTES if column.type.precision <= _WORD_DIGITS else _DECIMAL_BYTES
    digits, valid = _to_big_endian(column, width), valid_mask(column)
    sizes = np.where(valid, width - _count_redundant(digits), 0)
    kept = np.arange(width) >= (width - sizes)[:, None]
    bounds = np.zeros(len(column) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    present = column.is_valid().buffers()[1] if column.null_count else None
    buffers = [present, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(digits)[kept])]
    return pa.BinaryArray.from_buffers(pa.binary(), len(column), buffers)


def _to_big_endian(column: pa.Decimal128Array, width: int) -> Bytes:
    """Return the last bytes of each number, the greatest first."""
    raw = np.frombuffer(column.buffers()[1], np.uint8)[: (column.offset + len(column)) * _DECIMAL_BYTES]
    return raw.reshape(-1, _DECIMAL_BYTES)[column.offset :, width - 1 :: -1]


def _count_redundant(digits: Bytes) -> Ints:
    """Count the bytes in front that only repeat the sign: the next one begins with it, too."""
    sign = digits[:, :1] & _SIGN_BIT
    differs = digits != np.where(sign, _MINUS_ONE, 0).astype(np.uint8)
    differs[:, -1] = True
    first = differs.argmax(axis=1)
    other = (np.take_along_axis(digits, first[:, None], axis=1) ^ sign) & _SIGN_BIT
    return first - (other[:, 0] != 0)
