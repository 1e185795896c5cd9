"""Creates that a change of key made -> the key their row had before. Runs on executors; no I/O.

Debezium writes such an update as a delete of the old key and a create of the new one, and says of the create in a
header which key it was. The create leaves out what an update leaves out: the old key's row has those values.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.conversion import converted
from connector.iceberg.types.nested_columns import put
from connector.sink.convert.record_keys import key_type, record_keys
from connector.sink.model.change_rows import Part
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints, valid_of
from serde.converter import converter

HEADER = "__debezium.oldkey"
NEW_KEY = "__debezium.newkey"

CREATE, MOVED = ord("c"), ord("C")
"""The operation of a create, and of one that is known to be an update of another key's row."""

_UNTOLD = 0
_JSON = converter("auto")
"""Debezium writes the header with the connector's header converter: as JSON, by default."""


def marked(part: Part, offsets: Ints, old_keys: pa.Array) -> Part:
    """Give creates with an old key the operation `MOVED`; events that do not tell their operation count by the header.

    Args:
        part: changes of one run.
        offsets: those of the run's records, ascending.
        old_keys: the header's bytes of each of them, null without it.
    """
    if old_keys.null_count == len(old_keys):
        return part
    rows = np.searchsorted(offsets, part.order.offset)
    moved = np.isin(part.order.op, (CREATE, _UNTOLD)) & valid_of(old_keys)[rows]
    op = np.where(moved, np.uint8(MOVED), part.order.op)
    return attrs.evolve(part, order=attrs.evolve(part.order, op=op))


def moves(part: Part, offsets: Ints, old_keys: pa.Array, table: TablePlan) -> Part | None:
    """Give, for each moved create, a change of its place whose key is the old one; None without any."""
    at = np.flatnonzero(part.order.op == MOVED)
    if not len(at):
        return None
    own = part.take(at)
    raw = old_keys.take(pa.array(np.searchsorted(offsets, own.order.offset)))
    found = _columns(raw, table)
    if found is None:
        return None
    none = {field.name: pa.nulls(len(at), field.type) for field in own.rows.schema}
    columns = _with(none, found, table)
    return attrs.evolve(own, rows=pa.RecordBatch.from_arrays(columns, schema=own.rows.schema))


def elsewhere(part: Part, offsets: Ints, keys: pa.Array, table: TablePlan) -> tuple[Part, Part] | None:
    """Give the changes of a part whose header names another key, and the same under that key; None without any.

    Args:
        part: changes of one run.
        offsets: those of the run's records, ascending.
        keys: the header's bytes of each of them, null without it.
        table: tells the types of keys.
    """
    at = np.flatnonzero(valid_of(keys)[np.searchsorted(offsets, part.order.offset)])
    if not len(at):
        return None
    own = part.take(at)
    found = _columns(keys.take(pa.array(np.searchsorted(offsets, own.order.offset))), table)
    if found is None:
        return None
    readable = np.logical_and.reduce([valid_of(column) for column in found.values()])
    columns = _with(dict(zip(own.rows.schema.names, own.rows.columns, strict=True)), found, table)
    other = attrs.evolve(own, rows=pa.RecordBatch.from_arrays(columns, schema=own.rows.schema))
    kept = np.flatnonzero(readable)
    return (own.take(kept), other.take(kept)) if len(kept) else None


def _with(columns: dict[str, pa.Array], keys: dict[str, pa.Array], table: TablePlan) -> list[pa.Array]:
    for path, column in zip(table.layout.key_paths, keys.values(), strict=True):
        put(columns, path, column)
    return list(columns.values())


def _columns(raw: pa.Array, table: TablePlan) -> dict[str, pa.Array] | None:
    """Decode old keys; null where one cannot be read."""
    kind = key_type(table)
    found = record_keys(_JSON.decode(raw, "KEY_CONVERTER", kind), len(raw))
    result: dict[str, pa.Array] = {}
    for field in table.layout.key_fields:
        column = found.of(field.name)
        if column is None:
            return None
        result[field.name] = converted(column, field.type)[0]
    return result
