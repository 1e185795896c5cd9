"""datums -> wire rows: pieces of about a megabyte through the columnar reader, single ones where that is better.

A datum has to end where its schema does: what ends too early or too late, or holds a value that its schema has not, is
left out with the reason, and its neighbours are not touched.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.avro import single_datum
from serde.avro.codec import Codec
from serde.avro.column_reader import read_column
from serde.avro.cursor import NEEDS_ROW_READER, NOT_UTF8, OUTSIDE_SCHEMA, TOO_LONG, TOO_SHORT, Cursor, DatumBuffer
from serde.byte_windows import ByteWindows
from serde.faults import Unfit
from serde.messages import Rows

_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1 << 14
_REASONS = {
    TOO_SHORT: single_datum.ENDS_EARLY,
    TOO_LONG: single_datum.TRAILING_BYTES,
    OUTSIDE_SCHEMA: single_datum.VALUE_OUTSIDE_SCHEMA,
    NOT_UTF8: single_datum.INVALID_UTF8,
}


def read_datums(texts: ByteWindows, codec: Codec) -> tuple[Rows, pa.Array, dict[int, str]]:
    """The datums that could be read: their positions (ascending), the wire column; and why the others could not."""
    where: list[Rows] = []
    made: list[pa.Array] = []
    faults: dict[int, str] = {}
    for low, high in _split_pieces(texts):
        rows, array = _read_piece(texts, low, high, codec, faults)
        where.append(rows)
        made.append(array)
    if not made:
        return np.zeros(0, np.int64), pa.array([], codec.wire), faults
    return np.concatenate(where), made[0] if len(made) == 1 else pa.concat_arrays(made), faults


def _split_pieces(texts: ByteWindows) -> list[tuple[int, int]]:
    """Cuts the datums into runs that fit the processor's cache."""
    out, low = [], 0
    while low < len(texts):
        high = int(np.searchsorted(texts.ends, texts.starts[low] + _PIECE_BYTES, side="right"))
        high = min(max(high, low + 1), low + _PIECE_ROWS, len(texts))
        out.append((low, high))
        low = high
    return out


def _read_piece(texts: ByteWindows, low: int, high: int, codec: Codec, faults: dict[int, str]) -> tuple[Rows, pa.Array]:
    starts, ends = texts.starts[low:high], texts.ends[low:high]
    base = int(starts[0])
    piece = DatumBuffer.of(texts.view[base : int(ends[-1])], starts - base)
    at = Cursor(piece, np.arange(high - low), starts - base, ends - base)
    array = read_column(codec, at)
    behind = at.pos < at.end
    if behind.any():
        at.fail(behind, TOO_LONG)
    rows = np.arange(low, high)
    if not piece.bad.any():
        return rows, array
    for index in np.flatnonzero((piece.bad != 0) & (piece.bad != NEEDS_ROW_READER)).tolist():
        faults[low + index] = _REASONS[int(piece.bad[index])]
    good = np.flatnonzero(piece.bad == 0)
    slow = np.flatnonzero(piece.bad == NEEDS_ROW_READER)
    return _merge_slow_rows(texts, rows[good], array.take(pa.array(good)), rows[slow], codec, faults)


def _merge_slow_rows(
    texts: ByteWindows, rows: Rows, array: pa.Array, slow: Rows, codec: Codec, faults: dict[int, str]
) -> tuple[Rows, pa.Array]:
    """The rows of a piece with those that have to be read one by one, in order."""
    values: list[object] = []
    kept: list[int] = []
    for row in slow.tolist():
        try:
            values.append(single_datum.read_datum(codec, texts.text(row)))
            kept.append(row)
        except Unfit as unfit:
            faults[row] = str(unfit)
    if not kept:
        return rows, array
    joined = np.concatenate([rows, np.array(kept, np.int64)])
    order = np.argsort(joined, kind="stable")
    whole = pa.concat_arrays([array, pa.array(values, codec.wire)])
    return joined[order], whole.take(pa.array(order))
