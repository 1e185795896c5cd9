"""A packed section of a record batch -> the bytes of its records, never more than a limit (pure).

What a producer packed is unpacked piece by piece, and given up at the limit: a few bytes can stand for many.
Source: Kafka's protocol documentation, "Record Batch"; RFC 1952 for gzip's members, snappy's framing of xerial.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

from connector.kafka.consumer.records.unreadable_records import UnreadableRecords

MAX_BATCH_BYTES = 2**31 - 64
"""Most that a batch may unpack to, whatever the limit: what a reader of records can place."""

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_GZIP_WINDOW, _GZIP_START = 31, b"\x1f\x8b"
_PIECE_BYTES, _USUAL_RATIO = 1 << 16, 8
_FIRST_PIECE_BYTES = 1 << 10
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_MAX_RATIO, _SNAPPY_LENGTH_BITS = 64, 35
"""Snappy cannot pack better: its copies of at most 64 bytes take two. Its length has 32 bits."""


def decompress_section(section: memoryview, codec: int, limit: int) -> bytes | memoryview:
    """Return the bytes of a section.

    Args:
        section: bytes as they are in the batch.
        codec: the number in the batch's attributes; 0 is none.
        limit: the most bytes that are unpacked.

    Raises:
        UnreadableRecords: an unknown codec, bytes that it cannot read, or more of them than the limit.
    """
    if codec == 0:
        return section
    unpack = _CODECS.get(codec)
    if unpack is None:
        raise UnreadableRecords(f"compression {codec} of a record batch is not known")
    try:
        return unpack(section, min(limit, MAX_BATCH_BYTES))
    except (zlib.error, OSError, IndexError, MemoryError, pa.ArrowException) as error:
        raise UnreadableRecords(f"a record batch that cannot be unpacked: {error}") from error


def _raise_limit(limit: int) -> None:
    raise UnreadableRecords(
        f"a record batch that unpacks to more than {limit} bytes, which is consumer.batch.unpacked.max.bytes; "
        "raise it, and reset the offsets to read the batch"
    )


def _decompress_gzip(section: memoryview, limit: int) -> bytes:
    """Unpack all members, one behind the other; what is behind the last and begins none is ignored, as by Java.

    Where it was a member before its start was spoilt, the batch has fewer records than it says, and is refused.
    Members are fed in pieces that begin small: zlib copies what it is given beyond a member's end, and a section may
    hold a member in every twenty bytes.
    """
    parts: list[bytes] = []
    size = at = 0
    while at < len(section) and (not parts or section[at : at + len(_GZIP_START)] == _GZIP_START):
        member, piece = zlib.decompressobj(wbits=_GZIP_WINDOW), _FIRST_PIECE_BYTES
        while not member.eof:
            chunk = section[at : at + piece]
            if not chunk:
                raise UnreadableRecords("a record batch whose packed bytes end too early")
            parts.append(member.decompress(chunk, limit - size + 1))
            size += len(parts[-1])
            if size > limit:
                _raise_limit(limit)
            at += len(chunk) - len(member.unused_data)
            piece *= 2
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_stream(codec: str) -> Callable[[memoryview, int], bytes | memoryview]:
    def unpack(section: memoryview, limit: int) -> bytes | memoryview:
        parts: list[memoryview] = []
        size, piece = 0, max(_PIECE_BYTES, _USUAL_RATIO * len(section))
        with pa.CompressedInputStream(pa.py_buffer(section), codec) as stream:
            # Not `read`: where that fails, the bytes it had made room for are never given back.
            while (data := stream.read_buffer(min(piece, limit - size + 1))).size:
                parts.append(memoryview(data))
                size += data.size
                if size > limit:
                    _raise_limit(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return unpack


def _decompress_snappy(section: memoryview, limit: int) -> bytes:
    """Unpack blocks: Java's clients write them with lengths behind a header of their own, librdkafka one bare block."""
    if bytes(section[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(section, limit)
    parts: list[bytes] = []
    size, at = 0, _XERIAL_HEADER_BYTES
    while at < len(section):
        length = int.from_bytes(section[at : at + 4], "big")
        if length > len(section) - at - 4:
            raise UnreadableRecords("a packed block that ends after its batch")
        parts.append(_decompress_block(section[at + 4 : at + 4 + length], limit - size))
        size += len(parts[-1])
        at += 4 + length
    return b"".join(parts)


def _decompress_block(block: memoryview, limit: int) -> bytes:
    size = shift = at = 0
    while True:
        byte = block[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            break
        if shift == _SNAPPY_LENGTH_BITS:
            raise UnreadableRecords("a packed block whose size is no number")
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise UnreadableRecords(f"a packed block of {len(block)} bytes that says it holds {size}")
    if size > limit:
        _raise_limit(limit)
    return pa.decompress(pa.py_buffer(block), size, "snappy", asbytes=True)


_CODECS: dict[int, Callable[[memoryview, int], bytes | memoryview]] = {
    _GZIP: _decompress_gzip,
    _SNAPPY: _decompress_snappy,
    _LZ4: _decompress_stream("lz4"),
    _ZSTD: _decompress_stream("zstd"),
}
