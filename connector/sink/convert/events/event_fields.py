"""Operation words of events that are no envelopes -> operation codes of their changes, a column at a time (pure).

The words are those of Data Prepper's Iceberg sink: index, insert, create, c, i, r are inserts, update, u are
updates, delete, d are deletes, in any case; anything else is a fault of that record alone.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, column_at
from serde.events.changes import Changes, filter_changes
from serde.events.kinds.operations import OP_DELETE
from serde.faults import RecordError

DEFAULT_OP_FIELD = "__op"
_OP_WORDS = {"index": "c", "insert": "c", "create": "c", "c": "c", "i": "c", "r": "r"} | {
    "update": "u",
    "u": "u",
    "delete": "d",
    "d": "d",
}
_KNOWN_WORDS = pa.array(list(_OP_WORDS))
_WORD_CODES = np.frombuffer("".join(_OP_WORDS.values()).encode(), np.uint8)
_CRUD_CODES = np.frombuffer(b"crud", np.uint8)
_ALL_CODES = np.frombuffer(b"crudtm", np.uint8)


def read_operations(change: Changes, field: str) -> tuple[Changes | None, list[RecordError]]:
    """Read operations by word where a letter did not tell; records whose word means nothing are faults.

    Args:
        change: changes of flattened events.
        field: the column with the operation, dotted when nested. `__op` is Debezium's own: an event without it is an
            upsert. Any other was configured, and then an event without it is a fault too.
    """
    configured = field != DEFAULT_OP_FIELD
    open_ = ~np.isin(change.op, _CRUD_CODES if configured else _ALL_CODES)
    if not open_.any():
        return change, []
    column = column_at(change.row, field)
    text = column if column is not None and pa.types.is_string(column.type) else None
    if text is None and not configured:
        return change, []
    place = np.full(len(open_), -1) if text is None else _find_words(text)
    missing = np.ones(len(open_), np.bool_) if text is None else np.asarray(text.is_null())
    bad = open_ & (place < 0) & (configured | ~missing)
    return _set_operations(change, place, open_, bad, field, missing)


def _find_words(text: pa.StringArray) -> Ints:
    positions = pc.index_in(pc.ascii_lower(text), value_set=_KNOWN_WORDS)
    return np.asarray(positions.fill_null(-1), np.int64)


def _set_operations(
    change: Changes,
    place: Ints,
    open_: Mask,
    bad: Mask,
    field: str,
    missing: Mask,
) -> tuple[Changes | None, list[RecordError]]:
    op = np.where(open_ & (place >= 0), _WORD_CODES[place], change.op).astype(np.uint8)
    changes = attrs.evolve(change, op=op, deleted=change.deleted | (op == OP_DELETE))
    if not bad.any():
        return changes, []
    why = (f"field {field} holds no known operation", f"the event has no operation in field {field}")
    faults = [RecordError(int(change.rows[i]), "TASK_PUT", why[bool(missing[i])]) for i in np.flatnonzero(bad)]
    return (None if bad.all() else filter_changes(changes, ~bad)), faults
