"""Creates that a change of key made -> the key their row had before. Runs on executors; no I/O.

Debezium writes such an update as a delete of the old key and a create of the new one, and says of the create in a
header which key it was. The create leaves out what an update leaves out: the old key's row has those values.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.nested_columns import read_path, set_column
from connector.iceberg.types.values.conversion import convert
from connector.sink.convert.columns.column_renames import follow_key_renames
from connector.sink.convert.columns.expected_types import find_own_texts
from connector.sink.convert.record_keys import RecordKeys, align_record_keys, key_type, reject_base64_keys
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints, Mask, children, valid_mask, with_columns
from serde.connect.values.binary_values import base64_to_binary
from serde.connect.values.variable_scale_decimal import to_text
from serde.events.kinds.operations import NO_OP, OP_CREATE
from serde.formats import make_deserializer
from serde.messages import DecodedMessages, MessageBlock

_SCALE = '"scale"'
_SCALED = pa.struct([("scale", pa.int64()), ("value", pa.string())])
_HEADER_CONVERTER = make_deserializer("auto")
"""Debezium writes the header with the connector's header converter: as JSON, by default."""


def mark_key_changes(part: ChangeBatch, offsets: Ints, old_keys: pa.Array) -> ChangeBatch:
    """Set the operation of creates with an old key to `OP_KEY_CHANGE`; events without operation count by the header.

    Args:
        part: changes of one run.
        offsets: those of the run's records, ascending.
        old_keys: the header's bytes of each of them, null without it.
    """
    if old_keys.null_count == len(old_keys):
        return part
    rows = np.searchsorted(offsets, part.order.offset)
    moved = np.isin(part.order.op, (OP_CREATE, NO_OP)) & valid_mask(old_keys)[rows]
    op = np.where(moved, np.uint8(OP_KEY_CHANGE), part.order.op)
    return attrs.evolve(part, order=attrs.evolve(part.order, op=op))


def build_old_key_rows(part: ChangeBatch, offsets: Ints, old_keys: pa.Array, table: TablePlan) -> ChangeBatch | None:
    """Give, for each moved create, a change of its place whose key is the old one; None without any."""
    at = np.flatnonzero(part.order.op == OP_KEY_CHANGE)
    if not len(at):
        return None
    own = part.take(at)
    raw = old_keys.take(pa.array(np.searchsorted(offsets, own.order.offset)))
    old_columns = _decode_header_keys(raw, own, table)
    if old_columns is None:
        return None
    return name_old_keys(own, old_columns, table)


def name_old_keys(moved: ChangeBatch, keys: dict[str, pa.Array], table: TablePlan) -> ChangeBatch:
    """Return changes of the places of those that a change of key made, under the keys before.

    Of their values numbers and instants stay, among which is the time of the change (`lookups.held_rows`).
    """
    kept = {
        field.name: column if _is_time(field.type) else pa.nulls(len(moved), field.type)
        for field, column in zip(moved.rows.schema, moved.rows.columns, strict=True)
    }
    columns = _replace_keys(kept, keys, table)
    return attrs.evolve(moved, rows=pa.RecordBatch.from_arrays(columns, schema=moved.rows.schema))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def pair_with_other_key(
    part: ChangeBatch, offsets: Ints, keys: pa.Array, table: TablePlan
) -> tuple[ChangeBatch, ChangeBatch] | None:
    """Return the changes of a part whose header names another key, and the same under that key; None without any.

    Args:
        part: changes of one run.
        offsets: those of the run's records, ascending.
        keys: the header's bytes of each of them, null without it.
        table: tells the types of keys.
    """
    at = np.flatnonzero(valid_mask(keys)[np.searchsorted(offsets, part.order.offset)])
    if not len(at):
        return None
    own = part.take(at)
    other_columns = _decode_header_keys(keys.take(pa.array(np.searchsorted(offsets, own.order.offset))), own, table)
    if other_columns is None:
        return None
    readable = np.logical_and.reduce([valid_mask(column) for column in other_columns.values()])
    columns = _replace_keys(dict(zip(own.rows.schema.names, own.rows.columns, strict=True)), other_columns, table)
    other = attrs.evolve(own, rows=pa.RecordBatch.from_arrays(columns, schema=own.rows.schema))
    kept = np.flatnonzero(readable)
    return (own.take(kept), other.take(kept)) if len(kept) else None


def _replace_keys(columns: dict[str, pa.Array], keys: dict[str, pa.Array], table: TablePlan) -> list[pa.Array]:
    for path, column in zip(table.layout.key_paths, keys.values(), strict=True):
        set_column(columns, path, column)
    return list(columns.values())


def _decode_header_keys(raw: pa.Array, own: ChangeBatch, table: TablePlan) -> dict[str, pa.Array] | None:
    """Decode the keys of headers, which are about rows of `own`; null where one cannot be read."""
    kind = key_type(table)
    decoded = _read_headers(raw, kind, find_own_texts(table, any_case=True))
    keys = align_record_keys(reject_base64_keys(decoded, kind, any_case=True), len(raw))
    keys = follow_key_renames(keys, table.renames).match_case((*table.layout.keys, *table.layout.key_columns))
    columns = {field.name: keys.of(field.name) for field in table.layout.key_fields}
    if all(column is None for column in columns.values()):
        return None
    added = _mark_added_fields(raw, keys, table)
    result: dict[str, pa.Array] = {}
    for field, path in zip(table.layout.key_fields, table.layout.key_paths, strict=True):
        column = columns[field.name]
        values = pa.nulls(len(raw), field.type) if column is None else convert(column, field.type)[0]
        if field.name in added:
            current = read_path(own.rows.column(path[0]), path[1:])
            values = pc.if_else(pa.array(added[field.name] & ~valid_mask(values)), current, values)
        result[field.name] = values
    return result


def _read_headers(raw: pa.Array, kind: pa.StructType | None, words: frozenset[str]) -> DecodedMessages:
    """Read the keys, with these columns as the table has them (`find_own_texts`).

    A number that is text in the table, as its scale differs per row, is a struct in a header without schema.
    """
    scaled = kind is not None and pc.any(pc.match_substring(raw, _SCALE)).as_py() is True
    if kind is None or not scaled:
        return _HEADER_CONVERTER.decode(raw, "KEY_CONVERTER", kind, words)
    texts = [field.name for field in kind if pa.types.is_string(field.type)]
    expected = pa.struct([field.with_type(pa.null()) if field.name in texts else field for field in kind])
    decoded = _HEADER_CONVERTER.decode(raw, "KEY_CONVERTER", expected, words)
    return attrs.evolve(decoded, blocks=tuple(_read_numbers(block, texts) for block in decoded.blocks))


def _read_numbers(block: MessageBlock, names: Sequence[str]) -> MessageBlock:
    columns = dict(zip(block.fields.type.names, children(block.fields), strict=True))
    scaled = [name for name in names if name in columns and columns[name].type == _SCALED]
    for name in scaled:
        scale, value = columns[name].flatten()
        parts = [scale.cast(pa.int32(), safe=False), base64_to_binary(value)[0]]
        columns[name], _ = to_text(pa.StructArray.from_arrays(parts, ["scale", "value"], mask=columns[name].is_null()))
    if not scaled:
        return block
    return attrs.evolve(block, fields=with_columns(block.fields, columns), numbers=frozenset(scaled))


def _mark_added_fields(raw: pa.Array, keys: RecordKeys, table: TablePlan) -> dict[str, Mask]:
    """Mark, by key field, the headers that do not have it, as a transform added it to the record's key: all rows of one
    physical table have the same value there (`ToLogicalTopicRouter` of Debezium, `key.enforce.uniqueness`).

    A header with a field that the table's key has not may call one of its fields by another name: nothing is sure then.
    """
    paths = {path[0] for path in table.layout.key_paths}
    foreign = [valid_mask(column) for name, column in keys.columns.items() if name not in paths]
    sure = keys.usable & ~np.logical_or.reduce(foreign) if foreign else keys.usable
    marks: dict[str, Mask] = {}
    for field in table.layout.key_fields:
        names = (field.name, *(old for old, now in table.renames.items() if now == field.name))
        absent = sure.copy()
        for name in names:
            word = orjson.dumps(name.rpartition(".")[2]).decode()
            absent &= ~np.asarray(pc.match_substring(raw, word, ignore_case=True).fill_null(True))
        if absent.any():
            marks[field.name] = absent
    return marks if len(marks) < len(table.layout.key_fields) else {}
