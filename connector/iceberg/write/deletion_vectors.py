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

_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
PUFFIN_MAGIC = b"PFA1"
"""What a Puffin file starts with."""

_BLOB_TYPE, _POSITION_FIELD_ID = "deletion-vector-v1", 2147483645
_FRAME_BYTES = 4 + len(_VECTOR_MAGIC) + 4


@attrs.frozen
class VectorBlob:
    """One vector's place in a Puffin file: the data file it is about, and how many rows it deletes."""

    data_file: str
    offset: int
    size_bytes: int
    cardinality: int


def encode_vector(positions: BitMap64) -> bytes:
    """Return a vector's blob: length, magic, bitmap, checksum."""
    positions.run_optimize()
    body = _VECTOR_MAGIC + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes) -> BitMap64:
    """Read a vector's blob.

    Raises:
        ValueError: it is damaged.
    """
    body = blob[4:-4]
    length, checksum = struct.unpack(">I", blob[:4])[0], struct.unpack(">I", blob[-4:])[0]
    if len(blob) < _FRAME_BYTES or length != len(body) or body[:4] != _VECTOR_MAGIC or checksum != zlib.crc32(body):
        raise ValueError("a deletion vector is damaged")
    return BitMap64.deserialize(body[4:])


def encode_footer(blobs: Sequence[VectorBlob]) -> bytes:
    """Return what a Puffin file ends with."""
    described = [
        {
            "type": _BLOB_TYPE,
            "fields": [_POSITION_FIELD_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": blob.offset,
            "length": blob.size_bytes,
            "properties": {"referenced-data-file": blob.data_file, "cardinality": str(blob.cardinality)},
        }
        for blob in blobs
    ]
    payload = orjson.dumps({"blobs": described, "properties": {"created-by": "icebridge"}})
    return PUFFIN_MAGIC + payload + struct.pack("<I", len(payload)) + bytes(4) + PUFFIN_MAGIC
