"""CloudEvents -> envelopes: Debezium's CloudEventsConverter wraps the images in `data` and the source in attributes.

Source: Debezium's documentation, "Emitting change event records in CloudEvents format" (attributes iodebezium*, which
`extension.attributes.enable=false` leaves out; `metadata.source=header`, whose data is the whole value).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from serde.arrays import children, valid_mask
from serde.events.positions.source_positions import POSITION_FIELDS
from serde.messages import MessageBlock

CLOUD_EVENT_FIELDS = frozenset({"specversion", "data"})
"""Rows may have such columns too: `holds_images` and `is_sent_by_debezium` tell which are events."""
CLOUD_EVENT_SOURCE = "/debezium/"
"""How the source of each begins: then come the connector and its topic prefix."""
REQUIRED_ATTRIBUTES = CLOUD_EVENT_FIELDS | {"id", "source", "type"}
CLOUD_OPERATION = "iodebeziumop"
_PREFIX = "iodebezium"
_DATA = ("before", "after", "updateDescription")
_FRAME = frozenset({"schema", "payload"})
_LARGEST = str(2**63 - 1)
_SAME = ("version", "connector", "name", "snapshot", "db", "schema", "table", "collection", "file", "gtid", "shard")
_TEXTS = (*_SAME, "commit_lsn", "change_lsn")
_NUMBERS = tuple(name for name in ("ts_ms", "ts_us", "ts_ns", "txId", *POSITION_FIELDS) if name not in _TEXTS)
_OF_TRANSACTION = "tx"
"""Begins the attributes that are of the transaction."""


def is_framed(inside: Collection[str]) -> bool:
    """True when `data` has these members because its converter wrote a schema, or none, beside it."""
    return "payload" in inside and _FRAME.issuperset(inside)


def holds_images(attributes: Collection[str], inside: Collection[str]) -> bool:
    """Tell a change event of Debezium among CloudEvents: by its operation, else by the images in its data."""
    if CLOUD_OPERATION in attributes:
        return True
    return REQUIRED_ATTRIBUTES.issubset(attributes) and not {"before", "after"}.isdisjoint(inside)


def is_cloud_event(block: MessageBlock) -> bool:
    """True for change events of Debezium in CloudEvents' structured form."""
    kind = block.fields.type
    names = {child.name for child in kind}
    if not names >= CLOUD_EVENT_FIELDS or not pa.types.is_struct(data := kind.field("data").type):
        return False
    if is_framed(data.names) and pa.types.is_struct(data.field("payload").type):
        data = data.field("payload").type
    return holds_images(names, data.names) and is_sent_by_debezium(block)


def is_sent_by_debezium(block: MessageBlock) -> bool:
    """True when each event has an attribute of Debezium's own, or a source that is one of its connectors."""
    kind = block.fields.type
    if CLOUD_OPERATION in kind.names:
        return True
    if "source" not in kind.names or not pa.types.is_string(kind.field("source").type):
        return False
    return pc.all(pc.starts_with(block.fields.field("source"), CLOUD_EVENT_SOURCE)).as_py() is True


def is_cloud_document(event: Mapping[str, Any]) -> bool:
    """True for a parsed message that has what a change event of Debezium has around its data."""
    if not event.keys() >= CLOUD_EVENT_FIELDS:
        return False
    return CLOUD_OPERATION in event or str(event.get("source")).startswith(CLOUD_EVENT_SOURCE)


def unwrap_cloud_events(block: MessageBlock) -> MessageBlock:
    """The block as envelopes: images from `data`, op and source from the attributes; times and positions as numbers."""
    columns = _child_columns(block.fields)
    data, path = columns["data"], "data."
    inside = _child_columns(data)
    if is_framed(inside) and pa.types.is_struct(inside["payload"].type):
        data, path = inside["payload"], "data.payload."
        inside = _child_columns(data)
    made = {name: column for name in _DATA if (column := inside.get(name)) is not None and not _is_untold(column)}
    images = {name: f"{path}{name}" for name in made}
    if inside and inside.keys().isdisjoint(_DATA):
        # A row that was flattened before the converter had it.
        made, images = {"before": data, "after": data}, dict.fromkeys(("before", "after"), path.removesuffix("."))
    made["op"] = columns[CLOUD_OPERATION] if CLOUD_OPERATION in columns else _derive_ops(made, len(block.rows))
    made["source"] = _build_source(columns, len(block.rows))
    if transaction := _find_transaction(columns):
        made["transaction"] = _build_struct(transaction, len(block.rows))
    optional = {f"{name}{rest}": block.optional[old] for name, old, rest in _select_paths(images, block.optional)}
    documents = frozenset(f"{name}{rest}" for name, _, rest in _select_paths(images, block.documents))
    numbers = frozenset(f"{name}{rest}" for name, _, rest in _select_paths(images, block.numbers))
    fields = _build_struct(made, len(block.rows))
    return evolve(block, fields=fields, optional=optional, documents=documents, numbers=numbers)


def _is_untold(image: pa.Array) -> bool:
    """True where all events say null, and nothing says what else it could be: in a table's envelopes it is left out."""
    return image.null_count == len(image) and not image.type.num_fields


def _select_paths(images: Mapping[str, str], paths: Collection[str]) -> list[tuple[str, str, str]]:
    """The image, the path, and what is left of it within the image, of each path that is in one."""
    return [
        (name, path, path.removeprefix(start))
        for path in paths
        for name, start in images.items()
        if path == start or path.startswith(f"{start}.")
    ]


def _derive_ops(images: Mapping[str, pa.Array], count: int) -> pa.StringArray:
    """What the images tell of an operation that no attribute does; null where there is none."""
    before, after, update = (
        valid_mask(images[name]) if name in images else np.zeros(count, np.bool_) for name in _DATA
    )
    ops = np.select([update | (before & after), after, before], ["u", "c", "d"], "")
    return pa.array(ops, pa.string(), mask=ops == "")


def _child_columns(array: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((child.name for child in array.type), children(array), strict=True))


def _build_source(columns: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    texts = {name: column for name in _TEXTS if (column := _find_attribute(columns, name)) is not None}
    numbers = {name: _to_int64(column) for name in _NUMBERS if (column := _find_attribute(columns, name)) is not None}
    return _build_struct(texts | numbers, count)


def _find_transaction(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """What events say of their transaction; only those that tell a place in it name it."""
    numbers = {
        name: _find_attribute(columns, _OF_TRANSACTION + name) for name in ("total_order", "data_collection_order")
    }
    told = {name: _to_int64(column) for name, column in numbers.items() if column is not None}
    named = columns.get(f"{_PREFIX}{_OF_TRANSACTION}id") if told else None
    return told if named is None else {"id": named, **told}


def _find_attribute(columns: Mapping[str, pa.Array], name: str) -> pa.Array | None:
    """The attribute of a field: its name without underscores, with its capital letters, else all in small ones."""
    short = _PREFIX + name.replace("_", "")
    column = columns.get(short)
    return columns.get(short.lower()) if column is None else column


def _to_int64(column: pa.Array) -> pa.Array:
    """Attributes may be texts of digits; what is no number is null."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    # Of texts of 19 digits the order is that of the numbers.
    long = pc.and_(pc.match_substring_regex(column, r"^\d{19}$"), pc.less_equal(column, _LARGEST))
    digits = pc.or_(pc.match_substring_regex(column, r"^-?\d{1,18}$"), long).fill_null(False)
    return pc.if_else(digits, column, pa.scalar(None, pa.string())).cast(pa.int64())


def _build_struct(columns: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
