"""wire columns of one schema -> datums: a pass over the schema writes each field of all rows in one step.

The mirror of `columns`. Small things (branches, lengths, numbers) become columns of single bytes, each with a mask of
the rows that have it; a run of them is cut out of one grid at a time. Texts and bytes stay Arrow's, and all pieces of a
row are put side by side in C++. Arrays and maps are written as one block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from serde.arrays import Bytes, Ints, Mask, valid_mask, view_bytes
from serde.avro.codec import (
    Array,
    Boolean,
    Codec,
    Enum,
    Fixed,
    Float,
    Integer,
    LengthPrefixed,
    MapBlocks,
    Null,
    Optional,
    Record,
    Union,
)
from serde.faults import Unfit

ByteGrid = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
_VARINT_BITS = 7
_DECIMAL_BYTES = 16
_CONTINUATION, _PAYLOAD_BITS = np.uint8(0x80), np.uint64(0x7F)


def encode_datums(codec: Codec, array: pa.Array) -> pa.BinaryArray:
    """The datums of a column, empty ones where a row is null and the schema is not.

    array: of the type that the decoder gives (`codec.wire`), or one that holds the same values; structs by position.
    Raises Unfit: a null, an item of an enum or a size that the schema has not.
    """
    out = DatumBuilder(len(array))
    write_column(codec, array, out, None if _takes_null(codec) or not array.null_count else valid_mask(array))
    return out.join()


def encode_records(codec: Record, columns: Sequence[pa.Array], count: int, head: bytes = b"") -> pa.BinaryArray:
    """The datums of so many rows of a record, whose fields in order are these columns; `head` is put before each.

    columns: as `encode_datums` takes them, or of Arrow's dates, times, timestamps, decimals (128 bits) and uuids,
    which are written as the numbers and bytes that they are (Avro 1.12, "Logical Types").
    Raises Unfit: as `encode_datums`.
    """
    out = DatumBuilder(count)
    if head:
        out.constant(head)
    for member, column in zip(codec.members, columns, strict=True):
        write_field(member.name, member.codec, column, out, None)
    return out.join()


def _takes_null(codec: Codec) -> bool:
    """Whether a null is a datum of its own."""
    return isinstance(codec, Optional | Null) or (isinstance(codec, Union) and codec.null >= 0)


@define(eq=False)
class DatumBuilder:
    """What the datums of `count` rows are put together from, in order."""

    count: int
    _done: list[pa.Array | pa.Scalar] = field(factory=list)
    _columns: list[tuple[Bytes | int, Mask | None]] = field(factory=list)

    def byte(self, value: Bytes | int, mask: Mask | None) -> None:
        """One byte of each row; `mask` None: of all."""
        self._columns.append((value, mask))

    def varint(self, values: Ints, mask: Mask | None) -> None:
        """A zigzag varint of each row."""
        remaining = ((values << 1) ^ (values >> 63)).view(np.uint64)
        if mask is not None:
            remaining = np.where(mask, remaining, np.uint64(0))
        here = mask
        while True:
            rest = remaining >> np.uint64(_VARINT_BITS)
            longer = rest != 0
            low = (remaining & _PAYLOAD_BITS).astype(np.uint8)
            if not longer.any():
                self.byte(low, here)
                return
            self.byte(np.where(longer, low | _CONTINUATION, low), here)
            remaining, here = rest, longer

    def words(self, values: ByteGrid, mask: Mask | None) -> None:
        """A row of a grid of bytes for each."""
        for place in range(values.shape[1]):
            self.byte(values[:, place], mask)

    def data(self, array: pa.BinaryArray) -> None:
        """Bytes of each row, none where it is null."""
        self._flush()
        self._done.append(array)

    def constant(self, data: bytes) -> None:
        """The same bytes in every row."""
        self._flush()
        self._done.append(pa.scalar(data, pa.binary()))

    def join(self) -> pa.BinaryArray:
        """The datums."""
        self._flush()
        if not any(isinstance(piece, pa.Array) for piece in self._done):
            self._done.append(_build_array(np.zeros(0, np.uint8), np.zeros(self.count, np.int64)))
        if len(self._done) == 1 and not self._done[0].null_count:
            return self._done[0]
        return pc.binary_join_element_wise(*self._done, b"", null_handling="replace", null_replacement="")

    def _flush(self) -> None:
        """Cut the bytes out of the columns that wait."""
        if not self._columns:
            return
        width = len(self._columns)
        grid = np.empty((self.count, width), np.uint8)
        used = np.ones((self.count, width), np.bool_)
        for place, (value, mask) in enumerate(self._columns):
            grid[:, place] = value
            if mask is not None:
                used[:, place] = mask
        if all(mask is None for _, mask in self._columns):
            datums = _build_array(grid.reshape(-1), np.full(self.count, width))
        else:
            sizes = np.count_nonzero(used, axis=1)
            datums = _build_array(np.compress(used.reshape(-1), grid.reshape(-1)), sizes)
        self._columns.clear()
        self._done.append(datums)


def write_column(codec: Codec, array: pa.Array, out: DatumBuilder, live: Mask | None) -> None:  # noqa: PLR0912 - one case per type
    """Adds the pieces of a column.

    live: the rows in which the column is written, None for all; in others it is null, as what holds it is.
    """
    if not isinstance(codec, Optional | Union | Null):
        _require_values(array, live)
    match codec:
        case Null():
            return
        case Boolean():
            out.byte(_to_numbers(array).astype(np.uint8), live)
        case Integer():
            out.varint(_to_numbers(_to_stored(array)).astype(np.int64), live)
        case Float():
            kind = np.dtype("<f4" if codec.size == 4 else "<f8")  # noqa: PLR2004
            numbers = np.ascontiguousarray(_to_numbers(array), kind)
            out.words(numbers.view(np.uint8).reshape(-1, codec.size), live)
        case LengthPrefixed():
            data = array if array.type == pa.binary() else array.cast(pa.binary())
            out.varint(_to_numbers(pc.binary_length(data)).astype(np.int64), live)
            out.data(data)
        case Fixed():
            data = _encode_fixed(array, codec.size)
            if pc.any(pc.not_equal(pc.binary_length(data), codec.size)).as_py():
                raise Unfit(f"bytes of another size than {codec.size}")
            out.data(data)
        case Enum():
            index = pc.index_in(array, pa.array(codec.symbols, pa.string()))
            _require_values(index, live)
            out.varint(_to_numbers(index).astype(np.int64), live)
        case Record():
            for member, child in zip(codec.members, array.flatten(), strict=True):
                write_field(member.name, member.codec, child, out, live)
        case Optional():
            _write_optional(codec, array, out, live)
        case Union():
            _write_union(codec, array, out, live)
        case Array():
            _write_blocks(codec.item, array, out, live)
        case MapBlocks():
            _write_blocks(codec.pair, array, out, live)


def write_field(name: str, codec: Codec, array: pa.Array, out: DatumBuilder, live: Mask | None) -> None:
    """Adds the pieces of a field; Unfit then names it."""
    try:
        write_column(codec, array, out, live)
    except Unfit as unfit:
        raise unfit.under(name) from None


def _map_to_list(array: pa.MapArray) -> pa.ListArray:
    """The pairs of a map as a list of them."""
    pair = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    return array.cast(pa.list_(pair))


def _require_values(array: pa.Array, live: Mask | None) -> None:
    """Sees that nothing is null that has to be there."""
    if array.null_count and (live is None or array.null_count > np.count_nonzero(~live)):
        raise Unfit("a null where the schema has none")


def _write_optional(codec: Optional, array: pa.Array, out: DatumBuilder, live: Mask | None) -> None:
    if codec.null < 0:
        out.byte(0, live)
        write_column(codec.codec, array, out, live)
        return
    present, null = 2 - 2 * codec.null, 2 * codec.null
    if array.null_count == len(array):
        out.byte(null, live)
        return
    if not array.null_count:
        out.byte(present, live)
        write_column(codec.codec, array, out, live)
        return
    valid = valid_mask(array)
    out.byte(np.where(valid, np.uint8(present), np.uint8(null)), live)
    write_column(codec.codec, array, out, valid)


def _write_union(codec: Union, array: pa.StructArray, out: DatumBuilder, live: Mask | None) -> None:
    """A union of several types is a struct of which one field is there."""
    children = [(valid_mask(child), child) for child in array.flatten()]
    chosen = np.full(len(array), codec.null, np.int64)
    for position, (valid, _) in enumerate(children):
        chosen[valid] = position + (0 <= codec.null <= position)
    if ((chosen < 0) & (live if live is not None else True)).any():
        raise Unfit("a null where the schema has none")
    out.varint(chosen, live)
    for branch, (valid, child) in zip(codec.branches, children, strict=True):
        if valid.any():
            write_column(branch.codec, child, out, valid)


def _write_blocks(item: Codec, array: pa.ListArray | pa.MapArray, out: DatumBuilder, live: Mask | None) -> None:
    """All items of a row are one block: their count, themselves, and the end."""
    array = _map_to_list(array) if isinstance(array, pa.MapArray) else array
    sizes = _to_numbers(pc.list_value_length(array)).astype(np.int64)
    out.varint(sizes, live)
    items = array.flatten()
    if len(items):
        datums = encode_datums(item, items)
        data, starts, ends = view_bytes(datums)
        bounds = np.append(starts[:1], ends)[np.append(0, np.cumsum(sizes))]
        out.data(_build_array(data[bounds[0] : bounds[-1]], np.diff(bounds)))
        out.byte(0, sizes > 0)


def _to_stored(array: pa.Array) -> pa.Array:
    """Dates, times and timestamps as their numbers."""
    if not pa.types.is_temporal(array.type):
        return array
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())  # noqa: PLR2004


def _encode_fixed(array: pa.Array, size: int) -> pa.BinaryArray:
    """The bytes of values of one size; of decimals the last ones of their number, which must hold it."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not len(array) or not pa.types.is_decimal128(array.type):
        return array.cast(pa.binary()) if len(array) else pa.array([], pa.binary())
    stored = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * _DECIMAL_BYTES :][: len(array) * _DECIMAL_BYTES]
    number = stored.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    kept = np.ascontiguousarray(number[:, _DECIMAL_BYTES - size :])
    sign = np.where(kept[:, :1] >> _VARINT_BITS, np.uint8(0xFF), np.uint8(0))
    valid = valid_mask(array)
    if ((number[:, : _DECIMAL_BYTES - size] != sign).any(axis=1) & valid).any():
        raise Unfit(f"a decimal of more than {size} bytes")
    validity = pa.py_buffer(np.packbits(valid, bitorder="little")) if array.null_count else None
    bounds = np.arange(0, (len(array) + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(array), [validity, pa.py_buffer(bounds), pa.py_buffer(kept)])


def _to_numbers(array: pa.Array) -> Ints:
    """The values as numpy has them, zeros where they are null."""
    filled = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    numbers: Ints = filled.to_numpy(zero_copy_only=False)
    return numbers


def _build_array(data: Bytes, sizes: Sequence[int] | Ints) -> pa.BinaryArray:
    """Bytes and the size of each row as an array."""
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(data))]
    )
