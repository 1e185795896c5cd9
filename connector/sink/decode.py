"""bytes -> rows of a table: decode, unwrap, convert, a column at a time. Runs on executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.conversion import converted
from connector.iceberg.evolution import grown
from connector.iceberg.types import nullable
from connector.kafka.registry import registry
from connector.settings import EventSettings, RegistrySettings
from connector.sink.fold import NONE, Ints, Mask, Order
from connector.sink.parts import Part
from connector.sink.plan import BatchPlan, Need, TablePlan
from connector.sink.record_keys import RecordKeys, key_type, put_keys, record_keys
from connector.sink.truncates import OP, Truncate
from serde.bits import children
from serde.block import Decoded
from serde.changes import Changes, Unwrap, changes, only
from serde.converter import Converter, converter
from serde.faults import Fault
from serde.registry import Fetch

DELETED = "__deleted"
_NO_OP = np.uint8(0)


@attrs.frozen(eq=False)
class Run:
    """Consecutive records of one topic-partition: `key` and `value` as bytes, `offset` ascending.

    `old_key` is the header of that name (`connector.sink.moves`), where it was read.
    """

    topic: str
    partition: int
    offset: Ints
    key: pa.Array
    value: pa.Array
    old_key: pa.Array | None = None


@attrs.frozen(eq=False)
class Outcome:
    """What became of a run: rows, shapes the table is not ready for, unusable records (by row of the run)."""

    parts: tuple[Part, ...] = ()
    needs: tuple[Need, ...] = ()
    faults: tuple[Fault, ...] = ()
    tombstones: int = 0
    ignored: int = 0
    truncates: tuple[Truncate, ...] = ()


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
    return _converters(plan.events, _unwrap(plan, keep_before=True).wanted)


def _unwrap(plan: BatchPlan, *, keep_before: bool) -> Unwrap:
    return Unwrap(plan.events.add_fields, plan.events.add_fields_prefix, plan.op_field, keep_before)


def decode(run: Run, plan: BatchPlan) -> Outcome:
    """Turn a run of records into rows of its table.

    Returns a need instead of rows for a shape that the table cannot take in yet. Cost: linear, vectorised.
    """
    if run.topic in plan.refused:
        return Outcome(faults=tuple(Fault(row, "TASK_PUT", plan.refused[run.topic]) for row in range(len(run.offset))))
    index = plan.routes.get(run.topic)
    table = None if index is None else plan.tables[index]
    known = None if table is None else pa.struct(list(table.layout.columns))
    reading = converters(plan)
    values = reading.value.decode(run.value, "VALUE_CONVERTER", known)
    keyed = table is None or table.mode == "upsert"
    keys = (
        record_keys(reading.key.decode(run.key, "KEY_CONVERTER", key_type(table)), len(run.offset)) if keyed else None
    )
    return _outcome(run, plan, table, values, keys)


def _outcome(run: Run, plan: BatchPlan, table: TablePlan | None, values: Decoded, keys: RecordKeys | None) -> Outcome:
    parts: list[Part] = []
    needs: list[Need] = []
    faults = list(values.faults)
    ignored = 0
    truncates: list[Truncate] = []
    for made, wrong, other in _changes(values, plan, table):
        faults.extend(wrong)
        ignored += other
        truncates.extend(_truncates(run, made, table))
        change = None if made is None else _true_after(run, made, table)
        if change is None:
            continue
        need = _need(run.topic, change, keys, table, plan)
        if table is None and keys is not None and keys.all_faulty(change.rows):
            # Nothing here could become a row, so it is no reason for a table.
            faults.extend(keys.faults_of(change.rows))
        elif need is not None:
            needs.append(need)
        elif table is not None:
            part, unfit = _part(run, change, keys, table, plan)
            parts.append(part)
            faults.extend(unfit)
    if table is not None and keys is not None and len(values.tombstones) and table.tombstones == "delete":
        part, wrong = _tombstones(run, values.tombstones, keys, table, plan)
        parts.append(part)
        faults.extend(wrong)
    kept = tuple(part for part in parts if len(part))
    return Outcome(kept, tuple(needs), tuple(_one_per_row(faults)), len(values.tombstones), ignored, tuple(truncates))


def _truncates(run: Run, change: Changes | None, table: TablePlan | None) -> Iterator[Truncate]:
    """Give the truncates among changes, but those that a replay brings again."""
    if change is None:
        return
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


def _changes(
    values: Decoded, plan: BatchPlan, table: TablePlan | None
) -> Iterator[tuple[Changes | None, Sequence[Fault], int]]:
    keep_before = table is None or table.mode == "append" or table.keep_deletes
    unwrap = _unwrap(plan, keep_before=keep_before)
    for block in values.blocks:
        yield changes(block, unwrap)


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
) -> tuple[Part, list[Fault]]:
    """Make the table's rows of one block's changes."""
    columns, bad = _columns(change, table)
    faults = [Fault(int(change.rows[i]), "TASK_PUT", reason) for i, reason in bad.items()]
    image = np.asarray(change.row.is_valid())
    if table.mode == "upsert" and keys is not None:
        faults += put_keys(columns, change.rows, keys, table)
        _mark_deleted(columns, change.deleted, table)
    part = _assembled(columns, _order(run, change, plan), change.deleted, image, table)
    dropped = {fault.row for fault in faults}
    if table.mode == "append":
        dropped.update(change.rows[~image].tolist())
    return _kept(run, part, change.rows, dropped, table), faults


def _columns(change: Changes, table: TablePlan) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Convert each column of the rows to the table's type; the second result tells why rows (by index) do not fit."""
    result: dict[str, pa.Array] = {}
    bad: dict[int, str] = {}
    found = dict(zip(change.row.type.names, children(change.row), strict=True))
    for field in table.layout.columns:
        column = found.get(field.name)
        if column is None:
            result[field.name] = pa.nulls(len(change.rows), field.type)
            continue
        result[field.name], faults = converted(column, field.type)
        if not change.optional and pa.types.is_decimal(field.type) and pa.types.is_string(column.type):
            result[field.name], faults = _without_base64(column, result[field.name], faults)
        if faults is not None:
            reason = f"column {field.name}: a value of type {column.type} does not fit the table's {field.type}"
            bad.update((int(i), reason) for i in np.flatnonzero(faults))
    return result, bad


def _without_base64(text: pa.Array, made: pa.Array, faults: Mask | None) -> tuple[pa.Array, Mask | None]:
    """Take back decimals made of text that may be the base64 of an unscaled number: nothing tells without a schema.

    `decimal.handling.mode=string` writes all digits of the scale, so its texts have a point, which base64 has not.
    """
    if not made.type.scale:
        return made, faults
    suspect = pc.invert(pc.match_substring(text, ".")).fill_null(False)
    if not pc.any(suspect).as_py():
        return made, faults
    wrong: Mask = suspect.to_numpy(zero_copy_only=False)
    return pc.if_else(suspect, pa.scalar(None, made.type), made), wrong if faults is None else wrong | faults


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
