"""blocks -> changes: envelopes flattened as ExtractNewRecordState would, flattened events as they came.

Source: Debezium's pages "New Record State Extraction" (delete mode rewrite, add.fields), and "Data change events" of
each connector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from serde.arrays import Ints, Mask, children, column_at, valid_mask
from serde.events.added_fields import find_added_path
from serde.events.images.cassandra_rows import ORIGIN_PATHS
from serde.events.images.envelope_images import choose_images, find_image
from serde.events.images.modified_columns import CAPTURE_TYPE
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope, is_other_event
from serde.events.kinds.operations import DELETE, MESSAGE, TRUNCATE, Ops, encode_ops
from serde.events.kinds.sourceless import IMAGES
from serde.events.positions.log_positions import LogPositions
from serde.events.positions.origins import ORIGIN_FIELDS, drop_unused_names, join_origin
from serde.events.positions.source_positions import (
    POSITION_FIELDS,
    TRANSACTION_FIELDS,
    FindColumn,
    mark_clock_dates,
    read_positions,
)
from serde.faults import RecordError
from serde.messages import MessageBlock, Rows

DELETED_COLUMN = "__deleted"
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
_UNITS = (("ts_ns", 1), ("ts_us", 1_000), ("ts_ms", 1_000_000))
_FINE_DATES = {f"source.{name}": factor for name, factor in _UNITS if name != "ts_ms"}
SOURCE_DATES = tuple(name for name, _ in _UNITS)
"""When a row changed at its source, the most precise first."""


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


@frozen(eq=False)
class Changes:
    """The row changes of a block; every column has len(rows).

    rows: input indices; row: flattened columns (null where there is no image); op: character codes, 0 unknown;
    deleted: the change removes its key; ts_ns: when it was made at the source, null where unknown; place: where it is
    in the source's log; total_order: and in its transaction, null where unknown; clock_dated: `ts_ns` is of a node's
    clock, or another date that does not rise with the log;
    optional: dotted path of a column, or of a field within one (see `MessageBlock`) -> optional flag where a schema
    block says so; origin: the source, as "server.database.schema.table", parts that events do not tell left empty, the
    schema out, and what tells its logs apart (`positions.source_positions`); documents: columns of JSON texts, by the
    schema; numbers: dotted paths of texts that are numbers, by the schema; added: the columns of add.fields of a block
    in which some events have no image, told of those too.
    """

    rows: Rows
    row: pa.StructArray
    op: Ops
    deleted: Mask
    ts_ns: pa.Int64Array
    place: LogPositions
    total_order: pa.Int64Array
    clock_dated: Mask
    optional: Mapping[str, bool]
    origin: pa.DictionaryArray
    documents: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    added: Mapping[str, pa.Array] = field(factory=dict)


def extract_changes(block: MessageBlock, unwrap: UnwrapSettings) -> tuple[Changes | None, tuple[RecordError, ...], int]:
    """The changes of a block, the events that cannot be one, and how many events are of another kind."""
    if is_cloud_event(block):
        block = unwrap_cloud_events(block)
    elif is_other_event(block):
        return None, (), len(block.rows)
    if is_envelope(block.fields.type):
        return _flatten_envelopes(block, unwrap)
    return _read_flattened(block, unwrap), (), 0


def _flatten_envelopes(
    block: MessageBlock, unwrap: UnwrapSettings
) -> tuple[Changes | None, tuple[RecordError, ...], int]:
    op = encode_ops(block.fields.field("op"))
    after, before = find_image(block, "after"), find_image(block, "before")
    message = op == MESSAGE
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
    order = _to_int64(column_at(block.fields, "transaction.total_order"), len(op))
    find: FindColumn = lambda name: _envelope_position(block.fields, name)  # noqa: E731
    place, origin = read_positions(find, order, origin)
    made = Changes(
        rows=block.rows,
        row=row,
        op=op,
        deleted=op == DELETE,
        ts_ns=_read_ts_ns(block.fields, "source."),
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
    bare, ranges = np.isin(op, np.frombuffer(b"cru", np.uint8)) & ~there, (op == TRUNCATE) & there
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
    optional = _select_paths(sides, columns)
    flag = pc.if_else(pa.array(op == DELETE), "true", "false")
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
        if path in _FINE_DATES and (column is None or column.null_count):
            column = _derive_date(fields, column, _FINE_DATES[path])
        if column is not None:
            out[name] = column
    return out


def _derive_date(fields: pa.StructArray, own: pa.Array | None, factor: int) -> pa.Array | None:
    """A date of the source, from coarser ones where events have none so fine: as Debezium does it since 2.6."""
    told = _read_ts_ns(fields, "source.")
    if told.null_count == len(told) or (own is not None and own.type != told.type):
        return own
    made = told if factor == 1 else pc.divide(told, factor)
    return made if own is None else pc.coalesce(own, made)


def _envelope_or_source(fields: pa.StructArray, name: str) -> pa.Array | None:
    """A name without a struct is the envelope's own field, else one of source."""
    own = column_at(fields, name)
    return own if own is not None else column_at(fields, f"source.{name}")


def _to_int64(column: pa.Array | None, count: int) -> pa.Int64Array:
    return column if column is not None and column.type == pa.int64() else pa.nulls(count, pa.int64())


def _read_ts_ns(fields: pa.StructArray, prefix: str) -> pa.Int64Array:
    """ts_ns, where it is missing ts_us, where that is missing ts_ms."""
    total: pa.Int64Array | None = None
    for unit, factor in _UNITS:
        column = column_at(fields, prefix + unit)
        if column is None or column.type != pa.int64():
            continue
        scaled = column if factor == 1 else _multiply(column, factor)
        total = scaled if total is None else pc.coalesce(total, scaled)
        if not total.null_count:
            break
    return total if total is not None else pa.nulls(len(fields), pa.int64())


def _multiply(column: pa.Int64Array, factor: int) -> pa.Int64Array:
    """Times `factor`; null where that does not fit."""
    limit = (2**63 - 1) // factor
    fits = pc.and_(pc.less_equal(column, limit), pc.greater_equal(column, -limit))
    return pc.multiply(pc.if_else(fits, column, None), factor)


def _select_paths(optional: Mapping[str, bool], names: Collection[str]) -> dict[str, bool]:
    """The flags of columns of these names, and of what is within them."""
    within = tuple(f"{name}." for name in names)
    return {path: flag for path, flag in optional.items() if path in names or path.startswith(within)}


def rename_columns(made: Changes, wanted: Mapping[str, str]) -> Changes:
    """The changes with columns, and all that is told of them, under other names (earlier name -> new name)."""
    fields = [field.with_name(wanted.get(field.name, field.name)) for field in made.row.type]
    gone = made.row.is_null() if made.row.null_count else None
    row = pa.StructArray.from_arrays(children(made.row), fields=fields, mask=gone)
    documents = frozenset(wanted.get(name, name) for name in made.documents)
    optional = rename_paths(made.optional, made.row.type.names, wanted)
    numbers = frozenset(rename_paths(dict.fromkeys(made.numbers, True), made.row.type.names, wanted))
    return evolve(made, row=row, optional=optional, documents=documents, numbers=numbers)


def rename_paths(optional: Mapping[str, bool], names: Collection[str], wanted: Mapping[str, str]) -> dict[str, bool]:
    """Flags by dotted path, where columns of these names have other ones."""
    made = {}
    for path, flag in optional.items():
        within = None if path in names else next((old for old in wanted if path.startswith(f"{old}.")), None)
        made[wanted.get(path, path) if within is None else wanted[within] + path.removeprefix(within)] = flag
    return made


def filter_changes(made: Changes, keep: Mask) -> Changes:
    """The changes under a mask."""
    mask = pa.array(keep)
    return _map_columns(made, keep, lambda column: column.filter(mask))


def take_changes(made: Changes, indices: Ints) -> Changes:
    """The changes at indices, in their order."""
    places = pa.array(indices)
    return _map_columns(made, indices, lambda column: column.take(places))


def slice_changes(made: Changes, start: int, stop: int) -> Changes:
    """The changes from `start` up to, not including, `stop`; nothing is copied."""
    part = slice(start, stop)
    return _map_columns(made, part, lambda column: column[part])


def _map_columns(made: Changes, which: Mask | Ints | slice, pick: Callable[[pa.Array], pa.Array]) -> Changes:
    columns = {name: pick(getattr(made, name)) for name in ("row", "ts_ns", "total_order", "origin")}
    columns["origin"] = drop_unused_names(columns["origin"])
    numbers = {name: getattr(made, name)[which] for name in ("rows", "op", "deleted", "place", "clock_dated")}
    added = {name: pick(column) for name, column in made.added.items()}
    return evolve(made, **columns, **numbers, added=added)


def _read_flattened(block: MessageBlock, unwrap: UnwrapSettings) -> Changes:
    """Events that came flattened; op, position and deletion are read from the columns the transform added."""
    fields, count = block.fields, len(block.rows)
    column = column_at(fields, unwrap.op_field)
    text = column is not None and pa.types.is_string(column.type)
    op = encode_ops(column) if text else np.zeros(count, np.uint8)
    order = _first_number(fields, unwrap.prefix, ("transaction_total_order", "total_order"))
    optional = _select_paths(block.optional, frozenset(fields.type.names))
    deleted = (op == DELETE) | _read_deleted(fields)
    ts_ns = _read_ts_ns(fields, f"{unwrap.prefix}source_")
    place, origin = read_row_position(fields, unwrap.prefix)
    clock = mark_clock_dates(_find_added(fields, unwrap.prefix), count) | _is_document(fields)
    told = (optional, origin, block.documents, block.numbers)
    return Changes(block.rows, fields, op, deleted, ts_ns, place, order, clock, *told)


def _is_document(fields: pa.StructArray) -> bool:
    """Flattened documents of MongoDB have `_id`, and mostly nothing more that tells them from rows of a table."""
    return fields.type.get_field_index("_id") >= 0


def read_row_position(fields: pa.StructArray, prefix: str) -> tuple[LogPositions, pa.DictionaryArray]:
    """Where flattened events, or rows of a table made of some, stand in their source's log, and whose it is."""
    order = _first_number(fields, prefix, ("transaction_total_order", "total_order"))
    return read_positions(
        _find_added(fields, prefix),
        order,
        join_origin([_find_text(fields, prefix, n) for n in ORIGIN_FIELDS], len(fields)),
    )


def _find_added(fields: pa.StructArray, prefix: str) -> FindColumn:
    return lambda name: _find_text(fields, prefix, name)


def _find_text(fields: pa.StructArray, prefix: str, name: str) -> pa.Array | None:
    if name in TRANSACTION_FIELDS:
        return column_at(fields, prefix + name.replace(".", "_"))
    # Without a prefix a bare name is the row's own.
    names = (f"source_{name}", name) if prefix else (f"source_{name}",)
    columns = (column_at(fields, prefix + path) for path in names)
    return next((column for column in columns if column is not None), None)


def _first_number(fields: pa.StructArray, prefix: str, names: tuple[str, ...]) -> pa.Int64Array:
    columns = [column for name in names if (column := column_at(fields, prefix + name)) is not None]
    return _to_int64(columns[0] if columns else None, len(fields))


def _read_deleted(fields: pa.StructArray) -> Mask:
    """__deleted as the text "true" or as a boolean."""
    index = fields.type.get_field_index(DELETED_COLUMN)
    if index < 0:
        return np.zeros(len(fields), np.bool_)
    column = fields.field(index)
    if pa.types.is_string(column.type):
        column = pc.equal(column, "true")
    elif not pa.types.is_boolean(column.type):
        return np.zeros(len(fields), np.bool_)
    mask: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
