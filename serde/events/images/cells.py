"""Envelopes whose columns are cells, {"value": .., "set": true} -> the same with plain columns, and patches.

YugabyteDB's connector (`yboutput`, gRPC) says of each column whether an event has it: an update may have no others than
those that it set. Those it leaves out stay as they are; a null that was set is one (`images.document_patches`).
Source: YugabyteDB's documentation, "YugabyteDB connector", replica identities, message formats.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import Mask, children, column_at, valid_mask, with_columns
from serde.events.images.document_patches import PATCH_COLUMN, format_row_patches
from serde.events.kinds.event_kind import is_envelope
from serde.messages import MessageBlock

CELL_VALUE, CELL_SET = "value", "set"
_CELL = frozenset({CELL_VALUE, CELL_SET})
_IMAGES = ("before", "after")
_UPDATE = "u"
_CELL_TEXT = re.compile(
    rb'\{\s*"[^"]*"\s*:\s*(?:null\s*,.*)?\{\s*"value"\s*:.*"set"\s*:\s*(?:true|false)\s*\}', re.DOTALL
)


def is_of_cells(message: bytes | None) -> bool:
    """Tell whether a message of JSON, or a key, seems to have such columns."""
    return message is not None and b'"cassandra"' not in message and _CELL_TEXT.search(message) is not None


def cell_types(columns: pa.StructType) -> pa.StructType:
    """The types of cells that have values of these types."""
    return pa.struct([(field.name, pa.struct([(CELL_VALUE, field.type), (CELL_SET, pa.bool_())])) for field in columns])


def holds_cells(kind: pa.StructType) -> bool:
    """True for rows, or keys, whose columns are cells."""
    return bool(kind.num_fields) and all(_is_cell(field.type) for field in kind)


def _is_cell(kind: pa.DataType) -> bool:
    # Of columns that are null in all events without schema nothing but `set` is left.
    return (
        pa.types.is_struct(kind)
        and {CELL_SET} <= set(kind.names) <= _CELL
        and pa.types.is_boolean(kind.field(CELL_SET).type)
    )


def unpack_envelopes(block: MessageBlock, *, patches: bool, known: frozenset[str] = frozenset()) -> MessageBlock:
    """The block with plain columns; with `patches` updates that leave some out say so. Other blocks as they are.

    known: columns that rows may have, as without schema those that no event of the block gives are not there.
    """
    kind = block.fields.type
    images = [field.name for field in kind if field.name in _IMAGES and pa.types.is_struct(field.type)]
    images = [name for name in images if kind.field(name).type.num_fields]
    if not (images and is_envelope(kind) and all(holds_cells(kind.field(name).type) for name in images)):
        return block
    columns, op = {}, np.asarray(pc.equal(column_at(block.fields, "op"), _UPDATE).fill_null(False))
    for name in images:
        rows, partial = column_at(block.fields, name), op if patches and name == "after" else None
        columns[name] = unpack_cells(rows, partial, more=lacks_columns(block, rows, known))
    optional = {path: flag for path, flag in block.optional.items() if not _is_within_cell(path)}
    numbers = strip_cells(block.numbers)
    return evolve(block, fields=with_columns(block.fields, columns), optional=optional, numbers=numbers)


def strip_cells(paths: frozenset[str]) -> frozenset[str]:
    """Return the paths of values of cells as those of the columns that they become."""
    return frozenset(path.removesuffix(f".{CELL_VALUE}") for path in paths)


def _is_within_cell(path: str) -> bool:
    image, _, rest = path.partition(".")
    return image in _IMAGES and rest.endswith((f".{CELL_VALUE}", f".{CELL_SET}"))


def lacks_columns(block: MessageBlock, rows: pa.StructArray, known: frozenset[str]) -> bool:
    """Tell whether rows of a block have columns that none of its events gives."""
    return not block.schema_id and not known <= set(rows.type.names)


def unpack_cells(rows: pa.StructArray, partial: Mask | None = None, *, more: bool = False) -> pa.StructArray:
    """Rows with the values of their cells; `partial` marks those that may leave columns out, which get a patch.

    more: whether there are columns that none of the rows gives.
    """
    names, cells = rows.type.names, children(rows)
    values = [_read_values(cell) for cell in cells]
    made = dict(zip(names, values, strict=True))
    if partial is not None and (partial & valid_mask(rows)).any():
        given = np.column_stack([np.asarray(pc.struct_field(cell, CELL_SET).fill_null(False)) for cell in cells])
        patches = format_row_patches(names, given, values, partial & valid_mask(rows), more=more)
        made |= {} if patches is None else {PATCH_COLUMN: patches}
    return with_columns(rows, made)


def _read_values(cell: pa.StructArray) -> pa.Array:
    if CELL_VALUE not in cell.type.names:
        return pa.nulls(len(cell))
    return pc.if_else(pc.struct_field(cell, CELL_SET).fill_null(False), pc.struct_field(cell, CELL_VALUE), None)
