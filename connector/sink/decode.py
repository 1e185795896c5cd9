"""bytes -> rows of a table: decode, unwrap, convert, a column at a time. Runs on executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.coercion import coerced, converted_by
from connector.iceberg.conversion import converted
from connector.iceberg.evolution import grown
from connector.iceberg.types import nullable
from connector.kafka.registry import registry
from connector.settings import EventSettings, RegistrySettings
from connector.sink import raw_events
from connector.sink.fold import NONE, Ints, Mask, Order
from connector.sink.matching import matched, renames
from connector.sink.operations import DEFAULT_FIELD, named
from connector.sink.parts import Part
from connector.sink.plan import BatchPlan, Need, TablePlan
from connector.sink.record_keys import RecordKeys, key_type, put_keys, record_keys
from connector.sink.rereading import read_again
from connector.sink.routing import FieldRoutes, routed
from connector.sink.truncates import OP, Truncate
from serde.bits import children
from serde.block import Block, Decoded
from serde.changes import Changes, Unwrap, changes, only
from serde.converter import Converter, converter
from serde.faults import Fault
from serde.registry import Fetch
from serde.shape import is_envelope

DELETED = "__deleted"
_NO_OP = np.uint8(0)


@attrs.frozen(eq=False)
class Run:
    """Consecutive records of one topic-partition: `key` and `value` as bytes, `offset` ascending."""

    topic: str
    partition: int
    offset: Ints
    key: pa.Array
    value: pa.Array


@attrs.frozen(eq=False)
class Outcome:
    """What became of a run: rows, shapes the table is not ready for, unusable records (by row of the run).

    `tables` has the table of each part; `nulled` and `drift` are as in `Tally`.
    """

    parts: tuple[Part, ...] = ()
    needs: tuple[Need, ...] = ()
    faults: tuple[Fault, ...] = ()
    tombstones: int = 0
    ignored: int = 0
    truncates: tuple[Truncate, ...] = ()
    tables: tuple[int, ...] = ()
    nulled: int = 0
    drift: frozenset[tuple[int, str]] = frozenset()


@attrs.frozen(eq=False)
class Converters:
    """How this connector reads keys and values."""

    key: Converter
    value: Converter


@lru_cache(maxsize=8)
def _converters(events: EventSettings, wanted: frozenset[str]) -> Converters:
    key, value = (_fetch(side) for side in (events.key_registry, events.value_registry))
    return Converters(converter(events.key_format, None, key), converter(events.value_format, wanted, value))


def _fetch(settings: RegistrySettings | None) -> Fetch | None:
    return None if settings is None else registry(settings).schema


def converters(plan: BatchPlan) -> Converters:
    """Give the converters of a connector; they, and what they know of schemas, live as long as the process."""
    paths = plan.routing.rule.paths if plan.routing is not None else frozenset[str]()
    return _converters(plan.events, _unwrap(plan, keep_before=True).wanted | paths)


def _unwrap(plan: BatchPlan, *, keep_before: bool) -> Unwrap:
    return Unwrap(plan.events.add_fields, plan.events.add_fields_prefix, plan.op_field, keep_before)


def decode(run: Run, plan: BatchPlan) -> Outcome:
    """Turn a run of records into rows of its table, or of the tables that the records name.

    Returns a need instead of rows for a shape that a table cannot take in yet. Cost: linear, vectorised.
    """
    if run.topic in plan.refused:
        return Outcome(faults=tuple(Fault(row, "TASK_PUT", plan.refused[run.topic]) for row in range(len(run.offset))))
    index = plan.routes.get(run.topic)
    table = None if index is None else plan.tables[index]
    known = None if table is None else pa.struct(list(table.layout.columns))
    if plan.raw_ms is not None:
        return _as_text(run, table, plan)
    reading = converters(plan)
    values = reading.value.decode(run.value, "VALUE_CONVERTER", known)
    if not plan.evolve and values.faults and known is not None:
        values = read_again(values, run.value, reading.value)
    return _outcome(_Work(run, plan, reading), table, values)


def _as_text(run: Run, table: TablePlan | None, plan: BatchPlan) -> Outcome:
    if table is None:
        return Outcome(needs=(raw_events.need(run.topic),))
    rank = plan.ranks[run.topic, run.partition]
    part, faults = raw_events.part_of(run.topic, rank, run.offset, run.key, run.value, table, plan)
    done = table.committed.get((run.topic, run.partition), 0)
    part = part if not done else part.take(np.flatnonzero(part.order.offset >= done))
    return Outcome((part,) if len(part) else (), faults=tuple(faults), tables=(table.index,) if len(part) else ())


class _Work:
    """A run on its way: what was made of it so far."""

    def __init__(self, run: Run, plan: BatchPlan, reading: Converters) -> None:
        self.run, self.plan, self._reading = run, plan, reading
        self.parts: list[Part] = []
        self.tables: list[int] = []
        self.needs: list[Need] = []
        self.faults: list[Fault] = []
        self.truncates: list[Truncate] = []
        self.drift: set[tuple[int, str]] = set()
        self.ignored = self.nulled = 0
        self._keys: dict[int | None, RecordKeys] = {}

    def keys(self, table: TablePlan | None) -> RecordKeys | None:
        """Give the record keys by the types of a table, decoded once; None where they are not looked at."""
        if not (self.plan.record_keys if table is None else table.keyed):
            return None
        # Events that name their tables share one reading of the keys: the types are those that they have.
        place = None if table is None or self.plan.routing is not None else table.index
        if place not in self._keys:
            kind = key_type(table) if place is not None else None
            decoded = self._reading.key.decode(self.run.key, "KEY_CONVERTER", kind)
            self._keys[place] = record_keys(decoded, len(self.run.offset))
        return self._keys[place]

    def part(self, part: Part, table: TablePlan) -> None:
        """Take rows of a table."""
        if len(part):
            self.parts.append(part)
            self.tables.append(table.index)


def _outcome(work: _Work, table: TablePlan | None, values: Decoded) -> Outcome:
    plan, run = work.plan, work.run
    work.faults.extend(values.faults)
    for block in values.blocks:
        made, wrong, other = changes(block, _unwrap(plan, keep_before=_keeps_before(table)))
        work.faults.extend(wrong)
        work.ignored += other
        if made is not None and not is_envelope(block.fields.type) and _by_operation(plan, table):
            made, unnamed = named(made, plan.op_field)
            work.faults.extend(unnamed)
        if made is not None and plan.routing is not None:
            _routed(work, made, block, plan.routing)
        elif made is not None:
            _taken(work, made, table, None)
    for target in _tombstoned(plan, table) if len(values.tombstones) else ():
        keys = work.keys(target)
        if keys is not None:
            part, unkeyed = _tombstones(run, values.tombstones, keys, target, plan)
            work.part(part, target)
            work.faults.extend(unkeyed)
    return Outcome(
        tuple(work.parts),
        tuple(work.needs),
        tuple(_one_per_row(work.faults)),
        len(values.tombstones),
        work.ignored,
        tuple(work.truncates),
        tuple(work.tables),
        work.nulled,
        frozenset(work.drift),
    )


def _by_operation(plan: BatchPlan, table: TablePlan | None) -> bool:
    """Tell whether operations matter: not for a table that takes every event, unless a field for them was named."""
    return table is None or table.mode == "upsert" or plan.op_field != DEFAULT_FIELD


def _tombstoned(plan: BatchPlan, table: TablePlan | None) -> list[TablePlan]:
    """Give the tables in which a record without value deletes its key; it names no table itself."""
    tables = [] if table is None else [table]
    if plan.routing is not None:
        known = plan.routing.known
        tables = [plan.tables[known[name]] for name in plan.routing.whole if name in known]
    return [one for one in tables if one.keyed and one.tombstones == "delete"]


def _routed(work: _Work, change: Changes, block: Block, routes: FieldRoutes) -> None:
    made, faults, ignored = routed(change, block, work.run.topic, routes)
    work.faults.extend(faults)
    work.ignored += ignored
    for one in made:
        if one.table in routes.refused:
            work.faults.extend(Fault(int(row), "TASK_PUT", routes.refused[one.table]) for row in one.change.rows)
        else:
            index = routes.known.get(one.table)
            _taken(work, one.change, None if index is None else work.plan.tables[index], one.table)


def _taken(work: _Work, made: Changes, table: TablePlan | None, name: str | None) -> None:
    """Take changes of one table: as rows, as a need, or as faults."""
    plan, run = work.plan, work.run
    work.truncates.extend(_truncates(run, made, table))
    change = _true_after(run, made, table)
    if change is None:
        return
    if plan.case_insensitive and table is not None:
        change = matched(change, table.layout.columns.names)
    keys = work.keys(table)
    if plan.case_insensitive and table is not None and keys is not None:
        wanted = renames(keys.columns, table.layout.keys)
        keys = attrs.evolve(keys, columns={wanted.get(name, name): column for name, column in keys.columns.items()})
    need = _need(run.topic, change, keys, table, plan)
    if table is None and keys is not None and keys.all_faulty(change.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(change.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        part, unfit, nulled = _part(run, change, keys, table, plan)
        work.part(part, table)
        work.faults.extend(unfit)
        work.nulled += nulled
        if not plan.evolve:
            work.drift.update((table.index, field) for field in _strangers(change, table, plan))


def _shown(shape: pa.StructType, change: Changes) -> pa.StructType:
    """Give a shape without the fields that none of these changes has: events of other tables brought them."""
    if change.optional:
        return shape
    empty = {f.name for f, c in zip(change.row.type, children(change.row), strict=True) if c.null_count == len(c)}
    return pa.struct([field for field in shape if field.name not in empty])


def _strangers(change: Changes, table: TablePlan, plan: BatchPlan) -> Iterator[str]:
    """Give the fields of events that the table does not have; what unwrapping added is not theirs."""
    known, prefix = set(table.layout.columns.names), plan.events.add_fields_prefix
    for field in change.row.type:
        ours = field.name == DELETED or (bool(prefix) and field.name.startswith(prefix))
        if field.name not in known and not ours and field.name not in plan.excluded_columns:
            yield field.name


def _keeps_before(table: TablePlan | None) -> bool:
    return table is None or table.mode == "append" or table.keep_deletes or table.keys_from == "value"


def _truncates(run: Run, change: Changes, table: TablePlan | None) -> Iterator[Truncate]:
    """Give the truncates among changes, but those that a replay brings again."""
    for index in np.flatnonzero(change.op == OP).tolist():
        offset = int(run.offset[change.rows[index]])
        if table is None or offset >= table.committed.get((run.topic, run.partition), 0):
            place = (_integers(column)[index] for column in (change.ts_ns, change.lsn, change.total_order))
            yield Truncate(run.topic, run.partition, offset, *map(int, place))


def _true_after(run: Run, change: Changes, table: TablePlan | None) -> Changes | None:
    """Leave out truncates themselves, and what came before the one that emptied the table."""
    keep = change.op != OP
    if table is not None and table.cut is not None:
        places = [_integers(column) for column in (change.ts_ns, change.lsn, change.total_order)]
        keep &= table.cut.after((run.topic, run.partition), run.offset[change.rows], *places)
    if keep.all():
        return change
    return only(change, keep) if keep.any() else None


def _one_per_row(faults: Iterable[Fault]) -> Iterator[Fault]:
    seen: set[int] = set()
    for fault in faults:
        if fault.row not in seen:
            seen.add(fault.row)
            yield fault


def _need(
    topic: str, change: Changes, keys: RecordKeys | None, table: TablePlan | None, plan: BatchPlan
) -> Need | None:
    shape = _without(change.row.type, plan.excluded_columns)
    if plan.routing is not None:
        shape = _shown(shape, change)
    if table is not None:
        columns = table.layout.columns
        if not change.optional:
            shape = _as_in_table(change.row, shape, columns)
        if grown(columns, shape, add=plan.evolve).equals(columns):
            return None
    key = keys.type if keys is not None and len(keys.columns) else None
    return Need(topic, shape, key, change.optional)


def _as_in_table(row: pa.StructArray, shape: pa.StructType, columns: pa.Schema) -> pa.StructType:
    """Give the shape of events without schema block: numbers have the table's type where their values fit it.

    JSON knows whole numbers and others, no widths: a narrow column is not widened before a value needs it.
    """
    fields = []
    columns_of_row = dict(zip(row.type.names, children(row), strict=True))
    for field in shape:
        kind = columns.field(field.name).type if field.name in columns.names else field.type
        narrow = pa.types.is_integer(kind) and pa.types.is_integer(field.type) and kind != field.type
        if (narrow and converted(columns_of_row[field.name], kind)[1] is None) or pa.types.is_float32(kind):
            fields.append(field.with_type(kind))
        else:
            fields.append(field)
    return pa.struct(fields)


def _without(shape: pa.StructType, excluded: frozenset[str]) -> pa.StructType:
    return pa.struct([field for field in shape if field.name not in excluded]) if excluded else shape


def _part(
    run: Run, change: Changes, keys: RecordKeys | None, table: TablePlan, plan: BatchPlan
) -> tuple[Part, list[Fault], int]:
    """Make the table's rows of one block's changes; also gives how many values became null."""
    columns, bad, nulled = _columns(change, table, plan)
    faults = [Fault(int(change.rows[i]), "TASK_PUT", reason) for i, reason in bad.items()]
    image = np.asarray(change.row.is_valid())
    if table.keyed and keys is not None:
        faults += put_keys(columns, change.rows, keys, table)
    if table.mode == "upsert":
        _mark_deleted(columns, change.deleted, table)
    faults += _missing(columns, change, image, table)
    part = _assembled(columns, _order(run, change, plan), change.deleted, image, table)
    dropped = {fault.row for fault in faults}
    if table.mode == "append":
        dropped.update(change.rows[~image].tolist())
    return _kept(run, part, change.rows, dropped, table), faults, nulled


def _missing(columns: dict[str, pa.Array], change: Changes, image: Mask, table: TablePlan) -> list[Fault]:
    """Give the rows that lack what the table requires; a row that is removed needs its key only."""
    written = image & ~change.deleted if table.mode == "upsert" and not table.keep_deletes else image
    faults = []
    for field in table.layout.columns:
        key = table.mode == "upsert" and table.keys_from == "value" and field.name in table.layout.keys
        if (field.nullable and not key) or (table.keyed and field.name in table.layout.keys):
            continue
        if columns[field.name].null_count:
            lacking = np.asarray(columns[field.name].is_null()) & (True if key else written)
            reason = f"column {field.name} is {'a key' if key else 'required'}, and the event has no value for it"
            faults += [Fault(int(change.rows[i]), "TASK_PUT", reason) for i in np.flatnonzero(lacking)]
    return faults


def _columns(change: Changes, table: TablePlan, plan: BatchPlan) -> tuple[dict[str, pa.Array], dict[int, str], int]:
    """Convert each column of the rows to the table's type; the second result tells why rows (by index) do not fit.

    Where tables follow their events a value that does not fit is a fault; where they do not, the seed's mismatch table
    holds (`connector.iceberg.coercion`), and the third result counts the values that became null by it.
    """
    result: dict[str, pa.Array] = {}
    bad: dict[int, str] = {}
    nulled = 0
    found = dict(zip(change.row.type.names, children(change.row), strict=True))
    if not plan.evolve:
        bad.update(_without_match(change, found, table))
    for field in table.layout.columns:
        column = found.get(field.name)
        if column is None:
            result[field.name] = pa.nulls(len(change.rows), field.type)
            continue
        faults = None
        if plan.evolve or field.name in table.layout.keys or not field.nullable:
            result[field.name], faults = converted_by(column, field.type, lenient=not plan.evolve)
        else:
            result[field.name], _, lost = coerced(column, field)
            nulled += lost
        if faults is not None:
            reason = f"column {field.name}: a value of type {column.type} does not fit the table's {field.type}"
            bad.update((int(i), reason) for i in np.flatnonzero(faults))
    return result, bad, nulled


def _without_match(change: Changes, found: Mapping[str, pa.Array], table: TablePlan) -> dict[int, str]:
    """Give the rows that have fields, and none that the table has (seed: "No fields match schema")."""
    known = set(table.layout.columns.names)
    told = np.zeros(len(change.rows), np.bool_)
    for name, column in found.items():
        if name in known and name != DELETED:
            if not column.null_count:
                return {}
            told |= np.asarray(column.is_valid())
    image = np.asarray(change.row.is_valid())
    if any(name in known for name in found) and change.optional:
        return {}
    others = np.zeros(len(change.rows), np.bool_)
    for name, column in found.items():
        if name not in known:
            others |= np.asarray(column.is_valid())
    return dict.fromkeys(
        np.flatnonzero(image & ~told & others).tolist(), "no field of the event is a column of the table"
    )


def _mark_deleted(columns: dict[str, pa.Array], deleted: Mask, table: TablePlan) -> None:
    """Fill `__deleted` where the event did not bring it (soft delete of topics without the rewrite mode)."""
    if DELETED in columns and columns[DELETED].null_count:
        kind = columns[DELETED].type
        told = pa.array(deleted) if pa.types.is_boolean(kind) else pc.if_else(pa.array(deleted), "true", "false")
        columns[DELETED] = columns[DELETED].fill_null(told.cast(kind)) if table.keep_deletes else columns[DELETED]


def _order(run: Run, change: Changes, plan: BatchPlan) -> Order:
    rank = plan.ranks[run.topic, run.partition]
    return Order(
        partition=np.full(len(change.rows), rank, np.int64),
        offset=run.offset[change.rows],
        dedup=_integers(_dedup(change, plan.dedup_column)),
        lsn=_integers(change.lsn),
        total_order=_integers(change.total_order),
        op=change.op,
    )


def _dedup(change: Changes, name: str) -> pa.Array:
    position = change.row.type.get_field_index(name) if name else -1
    if position < 0:
        return change.ts_ns if name == "__source_ts_ns" else pa.nulls(len(change.rows), pa.int64())
    column = children(change.row)[position]
    return column if pa.types.is_integer(column.type) else converted(column, pa.int64())[0]


def _integers(column: pa.Array) -> Ints:
    return np.asarray(column.cast(pa.int64()).fill_null(NONE), dtype=np.int64)


def _assembled(columns: Mapping[str, pa.Array], order: Order, deleted: Mask, image: Mask, table: TablePlan) -> Part:
    schema = nullable(table.layout.columns)
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
    return Part(batch, order, np.asarray(deleted), image)


def _kept(run: Run, part: Part, rows: Ints, dropped: set[int], table: TablePlan) -> Part:
    """Leave out faulty rows, and what the table has from before (a batch that is replayed)."""
    keep = np.ones(len(rows), np.bool_)
    if dropped:
        keep &= ~np.isin(rows, np.fromiter(dropped, np.int64))
    done = table.committed.get((run.topic, run.partition), 0)
    if done and len(rows):
        keep &= part.order.offset >= done
    return part if keep.all() else part.take(np.flatnonzero(keep))


def _tombstones(run: Run, rows: Ints, keys: RecordKeys, table: TablePlan, plan: BatchPlan) -> tuple[Part, list[Fault]]:
    """Make changes without a row: the key is gone. A tombstone without key says nothing (tables without a key)."""
    rows = rows[keys.usable[rows] | np.isin(rows, [fault.row for fault in keys.faults])]
    columns = {field.name: pa.nulls(len(rows), field.type) for field in table.layout.columns}
    faults = put_keys(columns, rows, keys, table)
    unknown = np.full(len(rows), NONE, np.int64)
    rank = np.full(len(rows), plan.ranks[run.topic, run.partition], np.int64)
    op = np.full(len(rows), _NO_OP, np.uint8)
    order = Order(rank, run.offset[rows], unknown, unknown, unknown, op)
    gone, image = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    part = _assembled(columns, order, gone, image, table)
    return _kept(run, part, rows, {fault.row for fault in faults}, table), faults
