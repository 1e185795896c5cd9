"""lines -> wire columns: Arrow's JSON reader with an explicit type, in pieces, and proof that rows did not shift.

Alignment: each text starts with { and ends with }, texts are joined by newlines, and the reader must return as many
rows as texts.
A text that is not complete by itself cannot pass: after its last } the next { is a syntax error, and a string may not
hold a
raw newline. So a piece holds at least one row per text, and equality of the counts means exactly one each.
A piece that fails is cut at the row that the reader names, else in halves, until single bad rows are left over.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from attrs import define, field
from pyarrow import json as arrow_json

from serde.arrays import Ints
from serde.byte_windows import ByteWindows
from serde.json.columns.misread_rows import MisreadChecks
from serde.piece_sizes import choose_piece_bytes

_PIECE_ROWS = 1 << 14
_LEAF_ROWS = 16
_MAX_CUTS = 24
_AT_ROW = re.compile(r"in row (\d+)$")


@define(eq=False)
class ReadResult:
    """What was read: parts (positions, wire rows), `failed` positions to be read one by one,
    `rest` not tried any more.
    """

    parts: list[tuple[Ints, pa.StructArray]] = field(factory=list)
    failed: list[Ints] = field(factory=list)
    rest: list[Ints] = field(factory=list)


@define(eq=False)
class ColumnReader:
    """Reads texts as one struct type. strict: a field outside the type fails its row (else it is ignored)."""

    texts: ByteWindows
    kind: pa.StructType
    strict: bool
    give_up: int | None = None
    """Stop after so many failed leaves and leave the remainder in `rest`: somebody wants to look at what failed."""
    cut_off: bool = False
    """True for objects whose last fields were cut off: the last byte of each text is a comma, read as the end."""
    out: ReadResult = field(factory=ReadResult)
    cuts: int = 0
    leaves: int = 0
    doubts: MisreadChecks | None = None

    def read(self) -> ReadResult:
        """Reads everything."""
        self.doubts = MisreadChecks.of(self.kind)
        for low, high in _split_pieces(self.texts, choose_piece_bytes(self.kind)):
            self.cuts = 0
            self._read_piece(low, high)
        return self.out

    def _read_piece(self, low: int, high: int) -> None:
        """Reads [low, high), cutting out what fails; a stack, since bad rows may be many."""
        todo = [(low, high)]
        while todo:
            low, high = todo.pop()
            if self.give_up is not None and self.leaves >= self.give_up:
                self.out.rest.append(np.arange(low, high))
                continue
            array, at = self._try_read(low, high)
            if array is not None:
                self._keep(low, high, array)
            elif high - low <= _LEAF_ROWS or self.cuts >= _MAX_CUTS:
                self._add_failed(low, high)
            else:
                self.cuts += 1
                todo.extend(reversed(self._cut_out(low, high, at)))

    def _keep(self, low: int, high: int, array: pa.StructArray) -> None:
        """Takes the rows of a piece, but those that may have been misread."""
        rows = np.arange(low, high)
        doubtful = self.doubts.about(array, self.texts.pick(rows)) if self.doubts is not None else None
        if doubtful is None:
            self.out.parts.append((rows, array))
            return
        self.leaves += 1
        self.out.failed.append(rows[doubtful])
        if not doubtful.all():
            self.out.parts.append((rows[~doubtful], array.filter(pa.array(~doubtful))))

    def _cut_out(self, low: int, high: int, at: int | None) -> list[tuple[int, int]]:
        if at is not None and at < high - low:
            self._add_failed(low + at, low + at + 1)
            spans = [(low, low + at), (low + at + 1, high)]
        else:
            spans = [(low, (low + high) // 2), ((low + high) // 2, high)]
        return [span for span in spans if span[0] < span[1]]

    def _add_failed(self, low: int, high: int) -> None:
        self.leaves += 1
        self.out.failed.append(np.arange(low, high))

    def _try_read(self, low: int, high: int) -> tuple[pa.StructArray | None, int | None]:
        """The rows of a piece, or the row (from low) at which the reader stopped if it said so."""
        lines = self.texts.lines(low, high, ord("}") if self.cut_off else None)
        try:
            check_utf8(lines)
            table = _parse(lines, self.kind, strict=self.strict)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            at = _AT_ROW.search(str(error)) if isinstance(error, pa.ArrowInvalid) else None
            return None, int(at[1]) if at else None
        if table.num_rows != high - low:
            return None, None
        return _to_struct_array(table, self.kind), None


def _split_pieces(texts: ByteWindows, piece_bytes: int) -> list[tuple[int, int]]:
    """Cuts the texts into runs of about so many bytes."""
    total = np.concatenate([[0], np.cumsum(texts.sizes)])
    out, low = [], 0
    while low < len(texts):
        high = int(np.searchsorted(total, total[low] + piece_bytes, side="right")) - 1
        high = min(max(high, low + 1), low + _PIECE_ROWS, len(texts))
        out.append((low, high))
        low = high
    return out


def check_utf8(lines: pa.Buffer) -> None:
    """Raises ArrowInvalid unless the buffer is UTF-8 (the JSON reader does not look)."""
    bounds = pa.py_buffer(np.array([0, lines.size], np.int64))
    pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, lines]).validate(full=True)


def _parse(lines: pa.Buffer, kind: pa.StructType, *, strict: bool) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 64),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="error" if strict else "ignore"
        ),
    )


def _to_struct_array(table: pa.Table, kind: pa.StructType) -> pa.StructArray:
    columns = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(kind))
