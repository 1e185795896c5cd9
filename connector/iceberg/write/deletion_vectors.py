"""Deleted positions <-> deletion vectors in Puffin files (specs, "Deletion Vectors" and "Puffin"). Pure.

A vector is the set of positions of one data file whose rows are gone, as a 64-bit roaring bitmap; a Puffin file holds
many of them. The bitmap is serialised by its own library, in the portable form that the spec demands.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import attrs
import orjson
from pyroaring import BitMap64

_MAGIC = b"\xd1\xd3\x39\x64"
BEGIN = b"PFA1"
"""What a Puffin file starts with."""

_TYPE, _POSITION_FIELD = "deletion-vector-v1", 2147483645
_FRAME_BYTES = 4 + len(_MAGIC) + 4


@attrs.frozen
class Blob:
    """One vector's place in a Puffin file: the data file it is about, and how many rows it deletes."""

    data_file: str
    offset: int
    size_bytes: int
    cardinality: int


def encoded(positions: BitMap64) -> bytes:
    """Give a vector's blob: length, magic, bitmap, checksum."""
    positions.run_optimize()
    body = _MAGIC + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decoded(blob: bytes) -> BitMap64:
    """Read a vector's blob.

    Raises:
        ValueError: it is damaged.
    """
    body = blob[4:-4]
    length, checksum = struct.unpack(">I", blob[:4])[0], struct.unpack(">I", blob[-4:])[0]
    if len(blob) < _FRAME_BYTES or length != len(body) or body[:4] != _MAGIC or checksum != zlib.crc32(body):
        raise ValueError("a deletion vector is damaged")
    return BitMap64.deserialize(body[4:])


def footer(blobs: Sequence[Blob]) -> bytes:
    """Give what a Puffin file ends with."""
    described = [
        {
            "type": _TYPE,
            "fields": [_POSITION_FIELD],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": blob.offset,
            "length": blob.size_bytes,
            "properties": {"referenced-data-file": blob.data_file, "cardinality": str(blob.cardinality)},
        }
        for blob in blobs
    ]
    payload = orjson.dumps({"blobs": described, "properties": {"created-by": "icebridge"}})
    return BEGIN + payload + struct.pack("<I", len(payload)) + bytes(4) + BEGIN
