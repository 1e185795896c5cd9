"""commit_lsn and change_lsn of SQL Server, Db2 and Informix -> position numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask, view_bytes
from serde.events.positions.log_positions import NO_VALUE
from serde.events.positions.position_numbers import FindColumn, PositionNumbers, read_integers

_LSN_CHARS, _WIDE_LSN_CHARS = 22, 34
_DIGIT = np.full(256, 255, np.int64)
_DIGIT[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGIT[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_LOW_32_BITS = 0xFFFFFFFF


def read_hex_lsns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    """Return the place in SQL Server's log, or in Db2's, whose numbers are longer."""
    commit, change = column("commit_lsn"), column("change_lsn")
    if commit is None or not pa.types.is_string(commit.type):
        return None
    top, slot = _parse_hex_lsns(commit)
    if change is not None and (pa.types.is_string(change.type) or pa.types.is_null(change.type)):
        # Snapshots have none.
        high, low = _parse_hex_lsns(change.cast(pa.string()))
    else:
        high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    known = (top != NO_VALUE) & (high != NO_VALUE)
    wide = np.asarray(pc.equal(pc.utf8_length(commit), _WIDE_LSN_CHARS).fill_null(False))
    high, low = np.where(known & wide, high, 0), np.where(wide, low, 0)
    numbers = (np.where(known, top, NO_VALUE), slot << 32 | high >> 32, (high & _LOW_32_BITS) << 16 | low)
    return PositionNumbers(numbers, known)


def _parse_hex_lsns(text: pa.StringArray) -> tuple[Ints, Ints]:
    """The first 64 bits of "00000027:00000ac0:0002", and the 16 behind them; of Db2's longer form the last 64.

    `NO_VALUE` for what is neither, or does not fit.
    """
    data, starts, ends = view_bytes(text)
    top, low = np.full(len(text), NO_VALUE, np.int64), np.zeros(len(text), np.int64)
    there = valid_mask(text)
    for chars, skipped in ((_LSN_CHARS, 0), (_WIDE_LSN_CHARS, 16)):
        rows = np.flatnonzero(there & (ends - starts == chars))
        if not len(rows):
            continue
        at = np.delete(np.arange(chars), (8, 17))
        digits = _DIGIT[data[starts[rows, None] + at]]
        fits = (digits <= 15).all(axis=1) & ~digits[:, :skipped].any(axis=1) & (digits[:, skipped] < 8)  # noqa: PLR2004
        rows, digits = rows[fits], digits[fits]
        top[rows] = digits[:, skipped : skipped + 16] @ (1 << np.arange(60, -1, -4, dtype=np.int64))
        if not skipped:
            low[rows] = digits[:, 16:] @ (1 << np.arange(12, -1, -4, dtype=np.int64))
    return top, low


def read_decimal_lsns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    """Return the place in Informix's log."""
    commit, change = column("commit_lsn"), column("change_lsn")
    if commit is None or change is None or not pa.types.is_string(commit.type):
        return None
    first, then = read_integers(commit, count), read_integers(change, count)
    # Snapshots have 0.
    known = (first > 0) & (then > 0)
    return PositionNumbers((np.where(known, first, NO_VALUE), then), known)


def mark_narrow_lsns(told: pa.Array | None, count: int) -> Mask:
    """Mark the positions that are texts shorter than Db2's: those of SQL Server and Informix."""
    if told is None or not pa.types.is_string(told.type):
        return np.zeros(count, np.bool_)
    mask: Mask = np.asarray(pc.less(pc.utf8_length(told), _WIDE_LSN_CHARS).fill_null(False))
    return mask
