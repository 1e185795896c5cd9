"""Envelopes whose updates may leave columns out -> plain ones, with a patch beside what is no whole row. No I/O.

YugabyteDB and Cassandra say of each column whether it was set, Spanner what it captures. A table of one row per key
completes such a row from the one before it (`fold.values.document_patches`); a table of every event has it as it came.
Where neither can be (history, indexes) an update is a dead letter: what it leaves out is no null.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, column_at, valid_mask, with_columns, without_columns
from serde.events.images.cassandra_rows import holds_cassandra_rows, unpack_cassandra_rows
from serde.events.images.cells import unpack_envelopes
from serde.events.images.document_patches import PATCH_COLUMN
from serde.events.images.modified_columns import patch_modified_columns
from serde.faults import RecordError
from serde.messages import MessageBlock

PARTIAL_REASON = (
    "the update tells only the columns that it set, and only tables with one row per key and no history take that"
)
_AFTER = "after"


def expand_partial_updates(
    block: MessageBlock, known: frozenset[str], *, upsert: bool, patches: bool
) -> tuple[MessageBlock, list[RecordError]]:
    """Make envelopes of plain columns of a block, and name the events that are no rows.

    known: the table's columns that are of rows; upsert: whether it has one row per key; patches: whether it completes
    rows of which only changes are known.
    """
    faults: list[RecordError] = []
    if not holds_cassandra_rows(block.fields.type):
        block = unpack_envelopes(block, patches=upsert, known=known)
    elif upsert:
        block, faults = unpack_cassandra_rows(block, known)
    block = patch_modified_columns(block, known) if upsert else block
    patch = column_at(block.fields, f"{_AFTER}.{PATCH_COLUMN}") if upsert else None
    if patch is None:
        return block, faults
    op = block.fields.field("op")
    if patches:
        # An insert that leaves columns out may go into a row, so it begins none.
        fields = with_columns(block.fields, {"op": pc.if_else(patch.is_valid(), "u", op)})
        return attrs.evolve(block, fields=fields), faults
    partial = valid_mask(patch) & np.asarray(pc.equal(op, "u").fill_null(False))
    faults += [RecordError(int(row), "TASK_PUT", PARTIAL_REASON) for row in block.rows[partial]]
    return _without_patches(block, ~partial), faults


def _without_patches(block: MessageBlock, keep: Mask) -> MessageBlock:
    after = without_columns(column_at(block.fields, _AFTER), {PATCH_COLUMN})
    fields = with_columns(block.fields, {_AFTER: after}).filter(pa.array(keep))
    return attrs.evolve(block, rows=block.rows[keep], fields=fields)
