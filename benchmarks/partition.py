"""keys -> partitions: Kafka's murmur2 in numpy, so that the reference knows each event's partition and offset.

The rule is that of Apache Kafka's DefaultPartitioner: `toPositive(murmur2(key)) % partitions`, where toPositive clears
the sign bit. Keys of one length are hashed together, four bytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_MASK = 0xFFFFFFFF


def partitions_of(keys: Sequence[bytes], partitions: int) -> NDArray[np.int64]:
    """The partition of each key, shape (len(keys),)."""
    return (murmur2(keys) & np.uint64(0x7FFFFFFF)).astype(np.int64) % partitions


def murmur2(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    """The 32-bit hash of each key as an unsigned number, shape (len(keys),)."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    hashes = np.zeros(len(keys), np.uint64)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        joined = b"".join([keys[index] for index in where.tolist()])
        hashes[where] = _murmur2_of_length(np.frombuffer(joined, np.uint8).reshape(len(where), length))
    return hashes


def offsets_within(partition: NDArray[np.int64], partitions: int) -> NDArray[np.int64]:
    """The offset of each event in its partition when events are produced in order into empty partitions."""
    offsets = np.zeros(len(partition), np.int64)
    for number in range(partitions):
        where = np.flatnonzero(partition == number)
        offsets[where] = np.arange(len(where))
    return offsets


def _murmur2_of_length(keys: NDArray[np.uint8]) -> NDArray[np.uint64]:
    count, length = keys.shape
    whole = length // 4 * 4
    hashes = np.full(count, (_SEED ^ length) & _MASK, np.uint64)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint64)
    for column in range(words.shape[1]):
        word = _times(words[:, column])
        hashes = _times(hashes) ^ _times(word ^ (word >> np.uint64(_R)))
    if length > whole:
        for byte in range(length - whole):
            hashes = hashes ^ (keys[:, whole + byte].astype(np.uint64) << np.uint64(8 * byte))
        hashes = _times(hashes)
    hashes = _times(hashes ^ (hashes >> np.uint64(13)))
    return hashes ^ (hashes >> np.uint64(15))


def _times(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (value * np.uint64(_M)) & np.uint64(_MASK)
