"""datums -> Avro object container file: its header and its blocks, each compressed on its own.

Source: the Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from attrs import frozen

from serde.arrays import view_bytes

BLOCK_BYTES = 256 * 1024
"""Bytes of datums that fill a block: large enough for compression, small enough to skip to where a split begins."""

_MAGIC = b"Obj\x01"
_VARINT_BITS, _CONTINUATION = 7, 0x80


@frozen(eq=False)
class Compression:
    """One of the specification's codecs, by its name in files."""

    name: str
    compress: Callable[[memoryview], bytes]


@frozen
class Container:
    """A file's frame: the schema as JSON, the compression of its blocks, the 16 bytes that mark where each ends."""

    schema: str
    compression: Compression
    sync: bytes

    def header(self) -> bytes:
        """What the file begins with."""
        metadata = {"avro.schema": self.schema.encode(), "avro.codec": self.compression.name.encode()}
        return _MAGIC + _encode_map(metadata) + self.sync

    def blocks(self, datums: pa.BinaryArray) -> Iterator[bytes]:
        """Cut datums into blocks of about `BLOCK_BYTES`."""
        if not len(datums):
            return
        data, starts, ends = view_bytes(datums)
        bounds = np.append(starts[:1], ends)
        whole, row = data.data, 0
        while row < len(datums):
            stop = max(row + 1, int(np.searchsorted(bounds, bounds[row] + BLOCK_BYTES, side="right")) - 1)
            block = self.compression.compress(whole[bounds[row] : bounds[stop]])
            yield _encode_long(stop - row) + _encode_long(len(block)) + block + self.sync
            row = stop


def null() -> Compression:
    """Bytes as they are."""
    return Compression("null", bytes)


def deflate(level: int) -> Compression:
    """Raw deflate; level 1 to 9."""

    def compress(data: memoryview) -> bytes:
        work = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        return work.compress(data) + work.flush()

    return Compression("deflate", compress)


def zstandard(level: int) -> Compression:
    """A Zstandard frame for each block."""
    codec = pa.Codec("zstd", compression_level=level)
    return Compression("zstandard", lambda data: codec.compress(pa.py_buffer(data), asbytes=True))


def snappy() -> Compression:
    """Snappy's raw format, then the big-endian CRC-32 of what was compressed."""
    codec = pa.Codec("snappy")

    def compress(data: memoryview) -> bytes:
        packed: bytes = codec.compress(pa.py_buffer(data), asbytes=True)
        return packed + zlib.crc32(data).to_bytes(4, "big")

    return Compression("snappy", compress)


def _encode_map(values: Mapping[str, bytes]) -> bytes:
    entries = b"".join(_encode_sized(name.encode()) + _encode_sized(value) for name, value in values.items())
    return _encode_long(len(values)) + entries + _encode_long(0)


def _encode_sized(data: bytes) -> bytes:
    return _encode_long(len(data)) + data


def _encode_long(value: int) -> bytes:
    """A zigzag varint of a number that is not negative."""
    remaining, done = value << 1, bytearray()
    while remaining >= _CONTINUATION:
        done.append(remaining & (_CONTINUATION - 1) | _CONTINUATION)
        remaining >>= _VARINT_BITS
    return bytes([*done, remaining])
