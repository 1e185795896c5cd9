"""many datums -> wire rows of any format: in pieces through a columnar reader, single datums where that is better.

What is no datum of its schema is left out with the reason, and its neighbours are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from attrs import frozen

from serde.arrays import Ints
from serde.byte_windows import ByteWindows, window_array
from serde.cursor import NEEDS_ROW_READER, NOT_UTF8, OUTSIDE_SCHEMA, TOO_LONG, TOO_SHORT, Cursor, DatumBuffer
from serde.faults import Unfit
from serde.messages import Rows
from serde.piece_sizes import choose_piece_bytes

ENDS_EARLY = "ends before its schema does"
TRAILING_BYTES = "has bytes after its last field"
VALUE_OUTSIDE_SCHEMA = "holds a value that its schema has not"
INVALID_UTF8 = "holds text that is no UTF-8"
_REASONS: Mapping[int, str] = {
    TOO_SHORT: ENDS_EARLY,
    TOO_LONG: TRAILING_BYTES,
    OUTSIDE_SCHEMA: VALUE_OUTSIDE_SCHEMA,
    NOT_UTF8: INVALID_UTF8,
}
_PIECE_ROWS = 1 << 14


@frozen(eq=False)
class DatumReader:
    """How a schema's datums are read: all of a cursor as a column of type `wire`, or one as a value of it.

    `columns` marks bad datums, and those with bytes left that the schema has none for; `single` raises Unfit.
    """

    wire: pa.DataType
    columns: Callable[[Cursor], pa.Array]
    single: Callable[[bytes], object]


def read_pieces(texts: ByteWindows, reader: DatumReader) -> tuple[Rows, pa.Array, dict[int, str]]:
    """The datums that could be read: their positions (ascending), the wire column; and why the others could not."""
    where: list[Rows] = []
    columns: list[pa.Array] = []
    faults: dict[int, str] = {}
    for low, high in _split_pieces(texts, choose_piece_bytes(reader.wire)):
        rows, array = _read_piece(texts, low, high, reader, faults)
        where.append(rows)
        columns.append(array)
    if not columns:
        return np.zeros(0, np.int64), pa.array([], reader.wire), faults
    return np.concatenate(where), columns[0] if len(columns) == 1 else pa.concat_arrays(columns), faults


def _split_pieces(texts: ByteWindows, piece_bytes: int) -> list[tuple[int, int]]:
    """Cuts the datums into runs of about so many bytes."""
    out, low = [], 0
    while low < len(texts):
        high = int(np.searchsorted(texts.ends, texts.starts[low] + piece_bytes, side="right"))
        high = min(max(high, low + 1), low + _PIECE_ROWS, len(texts))
        out.append((low, high))
        low = high
    return out


def _read_piece(
    texts: ByteWindows, low: int, high: int, reader: DatumReader, faults: dict[int, str]
) -> tuple[Rows, pa.Array]:
    starts, ends = texts.starts[low:high], texts.ends[low:high]
    base = int(starts[0])
    piece = DatumBuffer.of(texts.view[base : int(ends[-1])], starts - base)
    array = reader.columns(Cursor(piece, np.arange(high - low), starts - base, ends - base))
    rows = np.arange(low, high)
    if not piece.bad.any():
        return rows, array
    for index in np.flatnonzero((piece.bad != 0) & (piece.bad != NEEDS_ROW_READER)).tolist():
        faults[low + index] = _REASONS[int(piece.bad[index])]
    good = np.flatnonzero(piece.bad == 0)
    slow = np.flatnonzero(piece.bad == NEEDS_ROW_READER)
    return _merge_slow_rows(texts, rows[good], array.take(pa.array(good)), rows[slow], reader, faults)


def _merge_slow_rows(
    texts: ByteWindows, rows: Rows, array: pa.Array, slow: Rows, reader: DatumReader, faults: dict[int, str]
) -> tuple[Rows, pa.Array]:
    """The rows of a piece with those that have to be read one by one, in order."""
    values: list[object] = []
    kept: list[int] = []
    for row in slow.tolist():
        try:
            values.append(reader.single(texts.text(row)))
            kept.append(row)
        except Unfit as unfit:
            faults[row] = str(unfit)
    if not kept:
        return rows, array
    joined = np.concatenate([rows, np.array(kept, np.int64)])
    order = np.argsort(joined, kind="stable")
    whole = pa.concat_arrays([array, pa.array(values, reader.wire)])
    return joined[order], whole.take(pa.array(order))


def window_column(at: Cursor, starts: Ints, sizes: Ints, *, text: bool) -> pa.Array:
    """Windows of a piece, ascending, as a column of bytes or text; text that is no UTF-8 makes its datum bad."""
    column = window_array(pa.py_buffer(at.piece.view), starts, starts + sizes)
    if not text:
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return _decode_texts(column, at)


def _decode_texts(data: pa.BinaryArray, at: Cursor) -> pa.Array:
    """The texts of a column in which some are no UTF-8."""
    wrong = np.zeros(len(data), np.bool_)
    for index, value in enumerate(data):
        try:
            value.as_py().decode()
        except UnicodeDecodeError:
            wrong[index] = True
    at.fail(wrong, NOT_UTF8)
    return pa.array([None if bad else value.as_py() for bad, value in zip(wrong, data, strict=True)], pa.binary()).cast(
        pa.string()
    )
