"""Changes of rows, the columns that a block of events becomes -> the same under other names, or some of them (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa
from attrs import evolve, field, frozen

from serde.arrays import Ints, Mask, children
from serde.events.kinds.operations import Ops
from serde.events.positions.log_positions import LogPositions
from serde.events.positions.origins import drop_unused_names
from serde.messages import Rows

DELETED_COLUMN = "__deleted"


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


def select_paths(optional: Mapping[str, bool], names: Collection[str]) -> dict[str, bool]:
    """The flags of columns of these names, and of what is within them."""
    within = tuple(f"{name}." for name in names)
    return {path: flag for path, flag in optional.items() if path in names or path.startswith(within)}


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
