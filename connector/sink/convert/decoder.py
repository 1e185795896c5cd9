"""bytes -> rows of a table: decode, unwrap, convert, a column at a time. Runs on executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.arrow_types import JSON, is_document
from connector.iceberg.types.conversion import converted, read_by
from connector.iceberg.types.schema_evolution import grown, holds
from connector.kafka.schema_registry import registry
from connector.settings import EventSettings, RegistrySettings
from connector.sink.convert import icebergevents
from connector.sink.convert.decoded_records import Outcome
from connector.sink.convert.event_fields import DEFAULT_FIELD, named
from connector.sink.convert.failing_records import salvaged
from connector.sink.convert.field_matching import matched, renames
from connector.sink.convert.record_keys import RecordKeys, key_type, record_keys
from connector.sink.convert.routing import FieldRoutes, routed
from connector.sink.convert.row_builder import DELETED, Run, dedup, integers, part_of, tombstones_of, uncommitted
from connector.sink.convert.type_mismatch import read_again
from connector.sink.fold.watermarks import Seen
from connector.sink.model.change_rows import Part
from connector.sink.model.plan import VALID_FROM, BatchPlan, Need, TablePlan
from connector.sink.model.truncate_scope import REFUSED, Cuts
from connector.sink.model.truncates import OP, Moments, Truncate, is_again
from serde.arrays import children
from serde.avro.schema_source import Fetch
from serde.converter import Converter, converter
from serde.events.changes import Changes, Unwrap, changes, only, told_apart
from serde.events.event_kind import is_envelope
from serde.events.source_positions import FIRST, NONE, one_log
from serde.faults import Fault
from serde.messages import Block, Decoded

__all__ = ["DELETED", "Outcome", "Run", "converters", "decode", "transaction_converter"]

_OF_TRANSACTIONS = frozenset({"op", "transaction.id", "source.db", "source.schema", "source.table"})


@attrs.frozen(eq=False)
class Converters:
    """How this connector reads keys and values."""

    key: Converter
    value: Converter


@lru_cache(maxsize=8)
def _converters(events: EventSettings, wanted: frozenset[str]) -> Converters:
    key, value = (_fetch(side) for side in (events.key_registry, events.value_registry))
    words = events.temporal_as_text
    return Converters(
        converter(events.key_format, None, key, words), converter(events.value_format, wanted, value, words)
    )


def _fetch(settings: RegistrySettings | None) -> Fetch | None:
    return None if settings is None else registry(settings).schema


def converters(plan: BatchPlan) -> Converters:
    """Give the converters of a connector; they, and what they know of schemas, live as long as the process."""
    paths = plan.routing.rule.paths if plan.routing is not None else frozenset[str]()
    return _converters(plan.events, _unwrap(plan, keep_before=True).wanted | paths)


def transaction_converter(plan: BatchPlan) -> Converter:
    """Give the converter of values for who wants to know the transactions of events, and nothing else."""
    return _converters(plan.events, _OF_TRANSACTIONS).value


def _unwrap(plan: BatchPlan, *, keep_before: bool) -> Unwrap:
    return Unwrap(plan.events.add_fields, plan.events.add_fields_prefix, plan.op_field, keep_before)


def decode(run: Run, plan: BatchPlan) -> Outcome:
    """Turn a run of records into rows of its table, or of the tables that the records name.

    Returns a need instead of rows for a shape that a table cannot take in yet. No record's content makes it raise.
    Cost: linear, vectorised.
    """
    return salvaged(run, partial(_decode, plan=plan))


def _decode(run: Run, plan: BatchPlan) -> Outcome:
    if run.topic in plan.refused:
        return Outcome(faults=tuple(Fault(row, "TASK_PUT", plan.refused[run.topic]) for row in range(len(run.offset))))
    if len(run.broken):
        return _without_broken(run, plan)
    index = plan.routes.get(run.topic)
    table = None if index is None else plan.tables[index]
    known = None if table is None else _expected(table, plan)
    if plan.raw_ms is not None:
        return _as_text(run, table, plan)
    reading = converters(plan)
    values = reading.value.decode(run.value, "VALUE_CONVERTER", known)
    if table is not None and known is not None and (table.layout.variants or not plan.evolve):
        values = read_again(values, run.value, reading.value, known)
    return _outcome(_Work(run, plan, reading), table, values)


def _without_broken(run: Run, plan: BatchPlan) -> Outcome:
    """Decode the records whose headers can be read; the others may be moves of a key, and nobody can tell."""
    good = np.setdiff1d(np.arange(len(run.offset)), run.broken)
    made = _decode(run.only(good), plan) if len(good) else Outcome()
    faults = [Fault(int(row), "TASK_PUT", "the record's headers do not end where it does") for row in run.broken]
    faults += [attrs.evolve(fault, row=int(good[fault.row])) for fault in made.faults]
    return attrs.evolve(made, faults=tuple(faults))


def _expected(table: TablePlan, plan: BatchPlan) -> pa.StructType:
    """Give what messages without schema are read by; a variant takes what there is.

    Where tables follow their events only texts become dates and the like; else numbers do too.
    """
    columns, variants = table.layout.columns, table.layout.variants
    known = [field.with_type(read_by(field.type)) if plan.evolve else field for field in columns]
    return pa.struct([field.with_type(pa.null()) if field.name in variants else field for field in known])


def _as_text(run: Run, table: TablePlan | None, plan: BatchPlan) -> Outcome:
    if table is None:
        return Outcome(needs=(icebergevents.need(run.topic),))
    rank = plan.ranks[run.topic, run.partition]
    part, faults = icebergevents.part_of(run.topic, rank, run.offset, run.key, run.value, table, plan)
    part = uncommitted(run, part, table)
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
        self.seen: list[Seen] = []
        self.ignored = self.nulled = self.untold = self.late = 0
        self._keys: dict[int | None, RecordKeys] = {}

    def keys(self, table: TablePlan | None) -> RecordKeys | None:
        """Give the record keys by the types of a table, decoded once; None where they are not looked at."""
        if not (self.plan.record_keys if table is None else table.keyed):
            return None
        # Events that name their tables share one reading of the keys: the types are those that they have.
        place = None if table is None or self.plan.routing is not None else table.index
        if place not in self._keys:
            kind = key_type(table) if place is not None else None
            reading = None if kind is None else read_by(kind)
            decoded = self._reading.key.decode(self.run.key, "KEY_CONVERTER", reading)
            self._keys[place] = record_keys(decoded, len(self.run.offset), kind)
        return self._keys[place]

    def part(self, part: Part, table: TablePlan) -> None:
        """Take rows of a table."""
        if len(part):
            self.parts.append(part)
            self.tables.append(table.index)


def _outcome(work: _Work, table: TablePlan | None, values: Decoded) -> Outcome:
    plan, run = work.plan, work.run
    work.faults.extend(values.faults)
    for block in (part for whole in values.blocks for part in told_apart(whole)):
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
            part, unkeyed = tombstones_of(run, values.tombstones, keys, target, plan)
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
        tuple(work.seen),
        work.untold,
        work.late,
    )


def _by_operation(plan: BatchPlan, table: TablePlan | None) -> bool:
    """Tell whether operations matter: not for a table that takes every event, unless a field for them was named."""
    upserts = plan.upserts if table is None else table.mode == "upsert"
    return upserts or plan.op_field != DEFAULT_FIELD


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
    work.faults.extend(_refused(made, table))
    change, untold = _true_after(run, made, table)
    work.untold += untold
    if change is None:
        return
    if plan.case_insensitive and table is not None:
        change = matched(change, table.layout.columns.names)
    keys = work.keys(table)
    if plan.case_insensitive and table is not None and keys is not None:
        wanted = renames(keys.columns, (*table.layout.keys, *table.layout.key_columns))
        keys = attrs.evolve(keys, columns={wanted.get(name, name): column for name, column in keys.columns.items()})
    need = _need(run.topic, change, keys, table, plan)
    if table is None and keys is not None and keys.all_faulty(change.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(change.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        ready = part_of(run, change, keys, table, plan)
        work.part(ready.part, table)
        work.faults.extend(ready.faults)
        work.nulled += ready.nulled
        work.late += ready.late
        if ready.seen.marks or ready.seen.after_delete >= 0:
            work.seen.append(ready.seen)
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
    """Give the truncates among changes, but those that a replay or their source brings again."""
    for index in np.flatnonzero(change.op == OP).tolist():
        offset = int(run.offset[change.rows[index]])
        if table is None or offset >= table.committed.get((run.topic, run.partition), 0):
            ts_ns, place = int(integers(change.ts_ns)[index]), change.place[index]
            known = () if place[FIRST] == NONE else tuple(place.tolist())
            total_order = int(integers(change.total_order)[index])
            source, number = one_log(change.origin[index].as_py()), -1 if table is None else table.index
            found = Truncate(run.topic, run.partition, offset, ts_ns, known, total_order, source, number)
            if table is not None and source in table.cuts.refused:
                continue
            if table is None or not is_again(found, table.truncated, table.truncated_at):
                yield found


def _refused(change: Changes, table: TablePlan | None) -> Iterator[Fault]:
    """Give the truncates that empty nothing, as nothing tells what."""
    if table is None or not table.cuts.refused:
        return
    for index in np.flatnonzero(change.op == OP).tolist():
        if one_log(change.origin[index].as_py()) in table.cuts.refused:
            yield Fault(int(change.rows[index]), "TASK_PUT", REFUSED.format(table=table.layout.name))


def _true_after(run: Run, change: Changes, table: TablePlan | None) -> tuple[Changes | None, int]:
    """Leave out truncates themselves, and what came before those that emptied the table; count what is not known."""
    keep, untold = change.op != OP, 0
    if table is not None and table.cuts != Cuts():
        moments = Moments(integers(change.ts_ns), change.op, change.deleted, change.place)
        names = [one_log(name) for name in change.origin.dictionary.to_pylist()]
        cuts = [] if table.cut is None else [(table.cut, np.ones(len(names), np.bool_))]
        for source, (cut, _) in table.cuts.of_sources.items():
            cuts.append((cut, np.array([name == source for name in names], np.bool_)))
        for cut, named in cuts:
            own = named[np.asarray(change.origin.indices)]
            later, unknown = cut.after((run.topic, run.partition), run.offset[change.rows], moments)
            untold += int((keep & own & unknown).sum())
            keep &= later | ~own
    if keep.all():
        return change, untold
    return (only(change, keep) if keep.any() else None), untold


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
    loose = frozenset[str]() if table is None else _not_required(change, table, plan)
    if table is not None and not loose and holds(table.layout.columns, shape):
        return None
    if plan.routing is not None:
        shape = _shown(shape, change)
    if plan.variants:
        shape = _with_documents(shape, change.documents, table)
    if table is not None:
        columns = table.layout.columns
        if not change.optional:
            shape = _as_in_table(change.row, shape, columns)
        if not loose and grown(columns, shape, add=plan.evolve).equals(columns):
            return None
    key = keys.type if keys is not None and len(keys.columns) else None
    dated = dedup(change, plan.dedup_column).null_count == 0
    return Need(topic, shape, key, change.optional, dated=dated, relaxed=loose)


def _not_required(change: Changes, table: TablePlan, plan: BatchPlan) -> frozenset[str]:
    """Give columns that the table requires and that the source, by its schema, does not any more: rows lack them.

    Identifier fields stay required, as Iceberg wants it; so do keys. Without a schema a lacking value proves nothing.
    """
    required = table.layout.required if plan.evolve and change.optional else ()
    written = np.asarray(change.row.is_valid()) & ~change.deleted
    if not required or not written.any():
        return frozenset()
    columns = dict(zip(change.row.type.names, children(change.row), strict=True))
    absent = {name for name in required if name not in columns and name not in (VALID_FROM, DELETED)}
    nulls = {
        name
        for name in required
        if name in columns and change.optional.get(name) and columns[name].null_count
        if (np.asarray(columns[name].is_null()) & written).any()
    }
    return frozenset(absent | nulls)


def _with_documents(shape: pa.StructType, texts: frozenset[str], table: TablePlan | None) -> pa.StructType:
    """Give the shape with what becomes a variant: nested fields, and texts that are JSON by their schema.

    Columns that the table has keep their types.
    """
    there = frozenset[str]() if table is None else set(table.layout.columns.names) - table.layout.variants
    return pa.struct(
        [f.with_type(JSON) if f.name not in there and (f.name in texts or is_document(f.type)) else f for f in shape]
    )


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
