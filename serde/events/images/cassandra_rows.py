"""Cassandra's envelopes, whose columns are cells -> plain columns, and patches; deleted ranges are faults.

A cell is {"value": .., "deletion_ts": .., "set": true}; one that an event does not set is null as a whole. Cassandra
reads nothing before it writes, so an insert may be one into a row that is there: like an update it leaves what it does
not set as it was (`images.document_patches`). Rows of a snapshot are whole; they stand before the commit log.
Source: Debezium's Cassandra page, "Change event values"; its connector's key has plain columns.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import Mask, column_at, valid_mask, with_columns, without_columns
from serde.events.images.cells import CELL_SET, CELL_VALUE, lacks_columns, strip_cells, unpack_cells
from serde.events.kinds.event_kind import is_envelope
from serde.faults import RecordError
from serde.messages import MessageBlock

ORIGIN_PATHS = ("source.cluster", "source.keyspace")
"""What tells Cassandra's envelopes from others."""

_DELETION = "deletion_ts"
_CELL = frozenset({CELL_VALUE, _DELETION, CELL_SET})
_RANGES = ("_range_start", "_range_end")
_CELL_TEXT = re.compile(rb'\{\s*"value"\s*:.*"set"\s*:\s*(?:true|false)\s*\}', re.DOTALL)
_RANGE_REASON = "Cassandra deleted a range of rows, and the event does not tell which"


def is_of_cassandra(message: bytes | None) -> bool:
    """Tell whether a message of JSON seems to have Cassandra's cells."""
    return message is not None and b'"cassandra"' in message and _CELL_TEXT.search(message) is not None


def cassandra_types(columns: pa.StructType) -> pa.StructType:
    """The types of cells that have values of these types."""
    kinds = [pa.struct([(CELL_VALUE, one.type), (_DELETION, pa.int64()), (CELL_SET, pa.bool_())]) for one in columns]
    return pa.struct(list(zip(columns.names, kinds, strict=True)))


def holds_cassandra_rows(kind: pa.StructType) -> bool:
    """True for envelopes of Cassandra's connector."""
    index = kind.get_field_index("after")
    if index < 0 or not is_envelope(kind) or not pa.types.is_struct(kind.field(index).type):
        return False
    source, after = kind.field("source").type, kind.field(index).type
    told = all(source.get_field_index(path.partition(".")[2]) >= 0 for path in ORIGIN_PATHS)
    cells = [field.type for field in after if field.name not in _RANGES]
    return told and bool(cells) and all(map(_is_cell, cells))


def _is_cell(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return False
    # Of columns that are null in all events without schema nothing but `set` is left.
    return {CELL_SET} <= set(kind.names) <= _CELL and pa.types.is_boolean(kind.field(CELL_SET).type)


def unpack_cassandra_rows(
    block: MessageBlock, known: frozenset[str] = frozenset()
) -> tuple[MessageBlock, list[RecordError]]:
    """The block with plain columns, patches beside rows that leave columns out; and the events that are no row's.

    known: columns that rows may have, as for `unpack_envelopes`.
    """
    after = block.fields.field(block.fields.type.get_field_index("after"))
    ranges = np.zeros(len(after), np.bool_)
    for name in set(_RANGES) & set(after.type.names):
        ranges |= valid_mask(column_at(after, name))
    faults = [RecordError(int(row), "VALUE_CONVERTER", _RANGE_REASON) for row in block.rows[ranges]]
    kept = block.filter(~ranges) if faults else block
    rows = without_columns(column_at(kept.fields, "after"), _RANGES)
    after = unpack_cells(rows, _find_partial(kept.fields), more=lacks_columns(block, rows, known))
    fields = with_columns(kept.fields, {"after": after})
    optional = {path: flag for path, flag in block.optional.items() if not _is_dropped(path)}
    return evolve(kept, fields=fields, optional=optional, numbers=strip_cells(block.numbers)), faults


def _find_partial(fields: pa.StructArray) -> Mask:
    """Mark the events that may leave columns out."""
    written = np.asarray(pc.is_in(fields.field("op"), pa.array(["i", "c", "u"])))
    place = column_at(fields, "source.pos")
    if place is None or not pa.types.is_integer(place.type):
        return written
    streamed: Mask = np.asarray(pc.greater_equal(place, 0).fill_null(True))
    return written & streamed


def _is_dropped(path: str) -> bool:
    image, _, rest = path.partition(".")
    within = rest.partition(".")[0] in _RANGES or rest.endswith(tuple(f".{name}" for name in _CELL))
    return image == "after" and within
