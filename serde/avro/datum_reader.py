"""datums -> wire rows: a datum has to end where its schema does."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from serde.avro import single_datum
from serde.avro.codec import Codec
from serde.avro.column_reader import read_column
from serde.byte_windows import ByteWindows
from serde.cursor import TOO_LONG, Cursor
from serde.messages import Rows
from serde.pieces import DatumReader, read_pieces


def read_datums(texts: ByteWindows, codec: Codec) -> tuple[Rows, pa.Array, dict[int, str]]:
    """The datums that could be read: their positions (ascending), the wire column; and why the others could not."""
    reader = DatumReader(codec.wire, partial(_read_whole, codec), partial(single_datum.read_datum, codec))
    return read_pieces(texts, reader)


def _read_whole(codec: Codec, at: Cursor) -> pa.Array:
    array = read_column(codec, at)
    behind = at.pos < at.end
    if behind.any():
        at.fail(behind, TOO_LONG)
    return array
