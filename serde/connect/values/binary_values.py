"""Text or bytes -> binaries, decimals and UUIDs, as Connect encodes them; whole columns at a time."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from serde.arrays import Bytes, Ints, Mask, valid_mask, view_bytes

_BAD = 255
_WORD_BYTES = 8
_DECIMAL_BYTES = 16
_WORD_BITS = 64
_SIGN_BIT = 128
_MAX_PADS = 2
_UUID_CHARS = 36


def _lookup_table(alphabet: bytes) -> Bytes:
    table = np.full(256, _BAD, np.uint8)
    table[np.frombuffer(alphabet, np.uint8)] = np.arange(len(alphabet), dtype=np.uint8)
    return table


_BASE64_VALUES = _lookup_table(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_HEX_VALUES = _lookup_table(b"0123456789abcdef")
_HEX_VALUES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16, dtype=np.uint8)


def decode_base64(text: pa.StringArray) -> tuple[Bytes, Ints, Mask]:
    """Base64 column -> all bytes, row bounds (len + 1),
    mask of rows whose text is not base64 (they decode to nothing).
    """
    if not len(text):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.bool_)
    data, starts, ends = view_bytes(text)
    sizes = np.where(valid_mask(text), ends - starts, 0)
    bad = _is_malformed(data, starts, sizes)
    if bad.any() or int(sizes.sum()) != int(ends[-1] - starts[0]):
        sizes = np.where(bad, 0, sizes)
        data = data[_window_indices(starts, sizes)]
    else:
        data = data[int(starts[0]) : int(ends[-1])]
    return (*_decode_quads(data, sizes), bad)


def _is_malformed(data: Bytes, starts: Ints, sizes: Ints) -> Mask:
    """Rows whose length is no multiple of four, or with a foreign character, or padding in the wrong place."""
    bad: Mask = sizes % 4 != 0
    if not len(data):
        return bad
    alien = np.flatnonzero(_BASE64_VALUES[data] == _BAD)
    if not len(alien):
        return bad
    ends = starts + sizes
    owner = np.searchsorted(starts, alien, side="right") - 1
    inside = (owner >= 0) & (alien < ends[owner])
    alien, owner = alien[inside], owner[inside]
    tail = ends[owner] - alien
    pad = (data[alien] == ord("=")) & (
        (tail == 1) | ((tail == _MAX_PADS) & (data[np.minimum(alien + 1, len(data) - 1)] == ord("=")))
    )
    bad[owner[~pad]] = True
    return bad


def _window_indices(starts: Ints, sizes: Ints) -> Ints:
    """Indices of all bytes of the windows, in order."""
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    spread: Ints = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
    return spread


def _decode_quads(data: Bytes, sizes: Ints) -> tuple[Bytes, Ints]:
    """Concatenated well-formed base64 -> bytes and bounds:
    padding makes each row whole quads, so rows decode together.
    """
    six = _BASE64_VALUES[data].reshape(-1, 4)
    six[six == _BAD] = 0
    out = np.empty((len(six), 3), np.uint8)
    out[:, 0] = six[:, 0] << 2 | six[:, 1] >> 4
    out[:, 1] = six[:, 1] << 4 | six[:, 2] >> 2
    out[:, 2] = six[:, 2] << 6 | six[:, 3]
    whole = np.concatenate([[0], np.cumsum(sizes)])
    pads = _count_pads(data, whole, sizes)
    flat = out.reshape(-1)
    bounds = whole // 4 * 3
    if not pads.any():
        return flat, bounds
    keep = np.ones(len(flat), np.bool_)
    keep[bounds[1:][pads >= 1] - 1] = False
    keep[bounds[1:][pads == _MAX_PADS] - 2] = False
    return flat[keep], bounds - np.concatenate([[0], np.cumsum(pads)])


def _count_pads(data: Bytes, whole: Ints, sizes: Ints) -> Ints:
    """Padding characters per row, 0 to 2."""
    pads = np.zeros(len(sizes), np.int64)
    filled = np.flatnonzero(sizes)
    ends = whole[1:][filled]
    pads[filled] = (data[ends - 1] == ord("=")).astype(np.int64) + (data[ends - 2] == ord("="))
    return pads


def base64_to_binary(text: pa.StringArray) -> tuple[pa.BinaryArray, Mask | None]:
    """Base64 column -> binary column and a mask of rows that are not base64."""
    data, bounds, bad = decode_base64(text)
    valid = valid_mask(text) & ~bad
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    binary = pa.Array.from_buffers(
        pa.binary(),
        len(text),
        [validity, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))],
    )
    return binary, bad if bad.any() else None


def bytes_to_decimal(data: pa.BinaryArray, kind: pa.Decimal128Type) -> tuple[pa.Decimal128Array, Mask | None]:
    """Big-endian two's complement -> decimal128; bad: empty, or beyond the declared precision."""
    values, starts, ends = view_bytes(data)
    bounds = np.append(starts[:1], ends) if len(data) else np.zeros(1, np.int64)
    valid, sizes = valid_mask(data), np.diff(bounds)
    bad = valid & ((sizes == 0) | (sizes > _DECIMAL_BYTES))
    low, high = _read_words(values, bounds[1:], np.where(bad | ~valid, 0, sizes))
    bad |= valid & _exceeds(low, high, kind.precision)
    words = np.empty((len(valid), 2), np.uint64)
    words[:, 0], words[:, 1] = low, high.view(np.uint64)
    kept = valid & ~bad
    validity = None if kept.all() else pa.py_buffer(np.packbits(kept, bitorder="little"))
    decimals = pa.Array.from_buffers(kind, len(valid), [validity, pa.py_buffer(words)])
    return decimals, bad if bad.any() else None


def _read_words(
    data: Bytes, ends: Ints, sizes: Ints
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Big-endian two's complement of 0 to 16 bytes -> unsigned low word and signed high word."""
    low, high = np.zeros(len(ends), np.uint64), np.zeros(len(ends), np.uint64)
    if len(data):
        for index in range(int(sizes.max(initial=0))):
            byte = np.where(index < sizes, data[np.maximum(ends - 1 - index, 0)], 0).astype(np.uint64)
            word = low if index < _WORD_BYTES else high
            word |= byte << np.uint64(8 * (index % _WORD_BYTES))
        first = data[np.minimum(np.maximum(ends - sizes, 0), len(data) - 1)]
        _extend_sign(low, high, sizes, (first >= _SIGN_BIT) & (sizes > 0))
    return low, high.view(np.int64)


def _extend_sign(
    low: np.ndarray[tuple[int], np.dtype[np.uint64]],
    high: np.ndarray[tuple[int], np.dtype[np.uint64]],
    sizes: Ints,
    negative: Mask,
) -> None:
    """Fills the bits above a negative number with ones, in place."""
    if not negative.any():
        return
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    used_low = np.minimum(sizes, _WORD_BYTES).astype(np.uint64) * np.uint64(8)
    used_high = np.maximum(sizes - _WORD_BYTES, 0).astype(np.uint64) * np.uint64(8)
    above_low = np.where(used_low < _WORD_BITS, ones << np.minimum(used_low, 63), 0).astype(np.uint64)
    above_high = np.where(used_high < _WORD_BITS, ones << np.minimum(used_high, 63), 0).astype(np.uint64)
    low[negative] |= above_low[negative]
    high[negative] |= above_high[negative]


def _exceeds(
    low: np.ndarray[tuple[int], np.dtype[np.uint64]], high: np.ndarray[tuple[int], np.dtype[np.int64]], precision: int
) -> Mask:
    """True where |value| >= 10 ** precision."""
    limit = 10**precision
    top_high, top_low = np.int64(limit >> 64), np.uint64(limit & 0xFFFFFFFFFFFFFFFF)
    least = -limit
    bottom_high, bottom_low = np.int64(least >> 64), np.uint64(least & 0xFFFFFFFFFFFFFFFF)
    above: Mask = (high > top_high) | ((high == top_high) & (low >= top_low))
    below: Mask = (high < bottom_high) | ((high == bottom_high) & (low <= bottom_low))
    return above | below


def text_to_uuid(text: pa.StringArray) -> tuple[pa.Array, Mask | None]:
    """Text of 36 characters with dashes -> uuid (storage of 16 bytes) and a mask of texts that are none."""
    data, starts, ends = view_bytes(text)
    valid = valid_mask(text)
    good = valid & (ends - starts == _UUID_CHARS)
    raw = np.zeros((len(text), _DECIMAL_BYTES), np.uint8)
    chosen = np.flatnonzero(good)
    if len(chosen):
        grid = data[starts[chosen][:, None] + np.arange(_UUID_CHARS)]
        dashes = (grid[:, [8, 13, 18, 23]] == ord("-")).all(axis=1)
        digits = _HEX_VALUES[np.delete(grid, [8, 13, 18, 23], axis=1)]
        proper = dashes & (digits != _BAD).all(axis=1)
        raw[chosen] = digits[:, 0::2] << 4 | digits[:, 1::2] & 15
        good[chosen[~proper]] = False
    bad = valid & ~good
    validity = None if good.all() else pa.py_buffer(np.packbits(good, bitorder="little"))
    storage = pa.Array.from_buffers(pa.binary(_DECIMAL_BYTES), len(text), [validity, pa.py_buffer(raw)])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage), bad if bad.any() else None


def encode_unscaled(unscaled: int) -> str:
    """An integer as base64 of its shortest big-endian two's complement (Java's BigInteger.toByteArray)."""
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
