"""Headers of records as Python values -> bytes as they are in record batches, which `record_headers` reads (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serde.arrays import Bytes, Ints

Headers = Sequence[tuple[str, bytes | None]]


def encode_headers(records: Sequence[Headers | None]) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes of all headers, and where those of each record begin and end."""
    data = bytearray()
    bounds = [0]
    for headers in records:
        data += _varint(len(headers or ()))
        for name, value in headers or ():
            encoded = name.encode()
            data += _varint(len(encoded)) + encoded
            data += _varint(-1) if value is None else _varint(len(value)) + value
        bounds.append(len(data))
    view = np.frombuffer(bytes(data), np.uint8) if data else np.zeros(0, np.uint8)
    return view, np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits go into a byte
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
