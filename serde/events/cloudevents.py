"""CloudEvents -> envelopes: Debezium's CloudEventsConverter wraps the images in `data` and the source in attributes.

Source: Debezium's documentation, "Emitting change event records in CloudEvents format" (attributes iodebezium*).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import children
from serde.events.source_positions import POSITION_FIELDS
from serde.messages import MessageBlock

CLOUD_EVENT_FIELDS = frozenset({"specversion", "iodebeziumop", "data"})
_PREFIX = "iodebezium"
_DATA = ("before", "after", "updateDescription")
_SAME = ("version", "connector", "name", "snapshot", "db", "schema", "table", "collection", "file", "gtid", "shard")
_TEXTS = {name: name for name in _SAME} | {
    "commitlsn": "commit_lsn",
    "changelsn": "change_lsn",
}
_NUMBERS: Mapping[str, str] = {
    short: name
    for name in ("ts_ms", "ts_us", "ts_ns", "txId", *POSITION_FIELDS)
    if (short := name.replace("_", "").lower()) not in _TEXTS
}
"""Attributes are in small letters, without underscores."""


def is_cloud_event(kind: pa.StructType) -> bool:
    """True for change events of Debezium in CloudEvents' structured form."""
    names = {child.name for child in kind}
    return names >= CLOUD_EVENT_FIELDS and pa.types.is_struct(kind.field("data").type)


def unwrap_cloud_events(block: MessageBlock) -> MessageBlock:
    """The block as envelopes: images from `data`, op and source from the attributes; times and positions as numbers."""
    columns = _child_columns(block.fields)
    data, path = columns["data"], "data."
    inside = _child_columns(data)
    if "payload" in inside and pa.types.is_struct(inside["payload"].type):
        data, path = inside["payload"], "data.payload."
        inside = _child_columns(data)
    made = {name: inside[name] for name in _DATA if name in inside}
    made["op"] = columns["iodebeziumop"]
    made["source"] = _build_source(columns, len(block.rows))
    order = columns.get("iodebeziumtxtotalorder")
    if order is not None:
        made["transaction"] = _build_struct({"total_order": _to_int64(order)}, len(block.rows))
    optional = {name.removeprefix(path): flag for name, flag in block.optional.items() if name.startswith(path)}
    documents = frozenset(name.removeprefix(path) for name in block.documents if name.startswith(path))
    return evolve(block, fields=_build_struct(made, len(block.rows)), optional=optional, documents=documents)


def _child_columns(array: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((child.name for child in array.type), children(array), strict=True))


def _build_source(columns: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    made = {name: columns[_PREFIX + short] for short, name in _TEXTS.items() if _PREFIX + short in columns}
    made |= {
        name: _to_int64(columns[_PREFIX + short]) for short, name in _NUMBERS.items() if _PREFIX + short in columns
    }
    return _build_struct(made, count)


def _to_int64(column: pa.Array) -> pa.Array:
    """Attributes may be texts of digits; what is no number is null."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    digits = pc.match_substring_regex(column, r"^-?\d{1,18}$").fill_null(False)
    text = pc.if_else(digits, column, pa.scalar(None, pa.string()))
    long = pc.match_substring_regex(column, r"^\d{19}$").fill_null(False)
    try:
        return pc.coalesce(text, pc.if_else(long, column, pa.scalar(None, pa.string()))).cast(pa.int64())
    except pa.ArrowInvalid:
        return text.cast(pa.int64())


def _build_struct(columns: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
