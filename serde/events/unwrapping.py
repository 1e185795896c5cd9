"""blocks -> changes: envelopes flattened as ExtractNewRecordState would, flattened events as they came.

Source: Debezium's pages "New Record State Extraction" (delete mode rewrite, add.fields), and "Data change events" of
each connector.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from serde.arrays import children, column_at, valid_mask
from serde.events.added_fields import find_added_path
from serde.events.changes import DELETED_COLUMN, Changes, filter_changes, select_paths
from serde.events.flattened_rows import read_flattened
from serde.events.images.cassandra_rows import ORIGIN_PATHS
from serde.events.images.envelope_images import choose_images, find_image
from serde.events.images.modified_columns import CAPTURE_TYPE
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope, is_other_event
from serde.events.kinds.missing_op import mark_missing_op
from serde.events.kinds.operations import OP_DELETE, OP_MESSAGE, OP_TRUNCATE, Ops, encode_ops
from serde.events.kinds.sourceless import IMAGES
from serde.events.positions.event_times import FINE_DATES, derive_date, read_total_order, read_ts_ns
from serde.events.positions.origins import ORIGIN_FIELDS, join_origin
from serde.events.positions.position_numbers import FindColumn
from serde.events.positions.source_positions import (
    POSITION_FIELDS,
    TRANSACTION_FIELDS,
    mark_clock_dates,
    read_positions,
)
from serde.faults import RecordError
from serde.messages import MessageBlock

_POSITION = frozenset(
    {
        "op",
        "source.ts_ns",
        "source.ts_us",
        "source.ts_ms",
        "transaction.total_order",
        *(f"source.{n}" for n in POSITION_FIELDS),
        *TRANSACTION_FIELDS,
    }
)


@frozen
class UnwrapSettings:
    """How envelopes become rows: add.fields and its prefix; keep_before: the image of deletes is wanted."""

    add_fields: tuple[str, ...]
    prefix: str = "__"
    op_field: str = "__op"
    keep_before: bool = True

    @property
    def wanted(self) -> frozenset[str]:
        """Paths of an envelope, images apart, that `extract_changes` looks at."""
        paths = [find_added_path(term) for term in self.add_fields]
        origin = {f"source.{name}" for name in ORIGIN_FIELDS}
        documents = {"updateDescription", "source.collection"}
        own = {*paths, *(f"source.{path}" for path in paths if "." not in path)}
        return _POSITION | origin | documents | {CAPTURE_TYPE, *ORIGIN_PATHS} | own

    @property
    def added_names(self) -> tuple[str, ...]:
        """The columns that add.fields makes, a name for each."""
        terms = (term.partition(":") for term in self.add_fields)
        return tuple(self.prefix + (name or path.replace(".", "_")) for path, _, name in terms)


def extract_changes(block: MessageBlock, unwrap: UnwrapSettings) -> tuple[Changes | None, tuple[RecordError, ...], int]:
    """The changes of a block, the events that cannot be one, and how many events are of another kind."""
    if is_cloud_event(block):
        block = unwrap_cloud_events(block)
    elif is_other_event(block):
        return None, (), len(block.rows)
    if is_envelope(block.fields.type):
        return _flatten_envelopes(block, unwrap)
    lost = mark_missing_op(block)
    if not lost.any():
        return read_flattened(block, unwrap.prefix, unwrap.op_field), (), 0
    told = tuple(RecordError(int(row), "VALUE_CONVERTER", "envelope without op") for row in block.rows[lost])
    if lost.all():
        return None, told, 0
    return read_flattened(block.filter(~lost), unwrap.prefix, unwrap.op_field), told, 0


def _flatten_envelopes(
    block: MessageBlock, unwrap: UnwrapSettings
) -> tuple[Changes | None, tuple[RecordError, ...], int]:
    op = encode_ops(block.fields.field("op"))
    after, before = find_image(block, "after"), find_image(block, "before")
    message = op == OP_MESSAGE
    faults = _find_faults(block, op, after)
    keep = ~message
    keep[[fault[0] for fault in faults]] = False
    told = tuple(RecordError(int(block.rows[at]), "VALUE_CONVERTER", reason) for at, reason in faults)
    if not keep.any():
        return None, told, int(message.sum())
    image = choose_images(after, before if unwrap.keep_before else None, op)
    added = _added_columns(block.fields, unwrap)
    row, optional = _add_fields(block, image, op, added)
    origin = join_origin([column_at(block.fields, f"source.{name}") for name in ORIGIN_FIELDS], len(op))
    order = read_total_order(block.fields, ("transaction.total_order",))
    find: FindColumn = lambda name: _envelope_position(block.fields, name)  # noqa: E731
    place, origin = read_positions(find, order, origin)
    made = Changes(
        rows=block.rows,
        row=row,
        op=op,
        deleted=op == OP_DELETE,
        ts_ns=read_ts_ns(block.fields, "source."),
        place=place,
        total_order=order,
        clock_dated=mark_clock_dates(find, len(op)),
        optional=optional,
        origin=origin,
        documents=_image_documents(block, row),
        numbers=_image_paths(block.numbers),
        added=added if row.null_count else {},
    )
    return (made if keep.all() else filter_changes(made, keep)), told, int(message.sum())


def _envelope_position(fields: pa.StructArray, name: str) -> pa.Array | None:
    return column_at(fields, name if name in TRANSACTION_FIELDS else f"source.{name}")


def _find_faults(block: MessageBlock, op: Ops, after: pa.StructArray | None) -> list[tuple[int, str]]:
    there = valid_mask(after) if after is not None else np.zeros(len(op), np.bool_)
    bare, ranges = np.isin(op, np.frombuffer(b"cru", np.uint8)) & ~there, (op == OP_TRUNCATE) & there
    if not (bare.any() or ranges.any()) and op.all():
        return []
    text = valid_mask(block.fields.field("op"))
    faults = [(at, "envelope without op" if not text[at] else "unknown op") for at in np.flatnonzero(op == 0).tolist()]
    faults += [(at, "envelope without after image") for at in np.flatnonzero(bare).tolist()]
    # Cassandra's range of deleted rows, by its EnvelopeTransformation: it must not empty the table.
    return sorted([*faults, *((at, "a truncate of some rows only") for at in np.flatnonzero(ranges).tolist())])


def _add_fields(
    block: MessageBlock, image: pa.StructArray, op: Ops, told: Mapping[str, pa.Array]
) -> tuple[pa.StructArray, dict[str, bool]]:
    """The image with __deleted and the added fields; a column of the source with such a name stays what it is."""
    columns = {child.name: column for child, column in zip(image.type, children(image), strict=True)}
    side = "after." if any(path.startswith("after.") for path in block.optional) else "before."
    sides = {path.removeprefix(side): told for path, told in block.optional.items() if path.startswith(side)}
    optional = select_paths(sides, columns)
    flag = pc.if_else(pa.array(op == OP_DELETE), "true", "false")
    added = {DELETED_COLUMN: flag, **told}
    for name, column in added.items():
        if name not in columns:
            columns[name] = column
            if block.optional:
                optional[name] = True
    gone = image.is_null() if image.null_count else None
    row = pa.StructArray.from_arrays(
        list(columns.values()), fields=[pa.field(name, column.type) for name, column in columns.items()], mask=gone
    )
    return row, optional


def _image_documents(block: MessageBlock, row: pa.StructArray) -> frozenset[str]:
    """The columns of the images that are JSON documents."""
    return frozenset(f.name for f in row.type if {f"after.{f.name}", f"before.{f.name}"} & block.documents)


def _image_paths(paths: frozenset[str]) -> frozenset[str]:
    """The paths within the images, by the columns of the row."""
    parts = (path.partition(".") for path in paths)
    return frozenset(rest for image, _, rest in parts if image in IMAGES and rest)


def _added_columns(fields: pa.StructArray, unwrap: UnwrapSettings) -> dict[str, pa.Array]:
    """Columns of add.fields by their new names; what the events do not have is left out."""
    out: dict[str, pa.Array] = {}
    for term, name in zip(unwrap.add_fields, unwrap.added_names, strict=True):
        path = find_added_path(term)
        column = column_at(fields, path) if "." in path else _envelope_or_source(fields, path)
        if path in FINE_DATES and (column is None or column.null_count):
            column = derive_date(fields, column, FINE_DATES[path])
        if column is not None:
            out[name] = column
    return out


def _envelope_or_source(fields: pa.StructArray, name: str) -> pa.Array | None:
    """A name without a struct is the envelope's own field, else one of source."""
    own = column_at(fields, name)
    return own if own is not None else column_at(fields, f"source.{name}")
