"""Decoded changes -> rows of one table with their order: converted, keyed, checked. Runs on executors; no I/O.

Where tables follow their events a value that does not fit is a fault; where they do not, the seed's mismatch table
holds (`types.lenient_conversion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.commit.kafka_position import TopicPartition
from connector.iceberg.types.conversion import converted
from connector.iceberg.types.lenient_conversion import coerced, converted_by
from connector.iceberg.types.nested_columns import Path, within
from connector.iceberg.types.variants import LONGEST_BYTES, as_text
from connector.kafka.consumer import Chunk
from connector.kafka.consumer.record_headers import headers
from connector.sink.convert.record_keys import RecordKeys, put_keys
from connector.sink.fold.document_versions import given, numbered, own_numbers
from connector.sink.fold.watermarks import ALL, Seen, come, limits, suspects
from connector.sink.fold.winners import NONE, Order
from connector.sink.model.change_rows import Part
from connector.sink.model.event_age import dated, placed, second_of
from connector.sink.model.plan import VALID_FROM, BatchPlan, TablePlan
from connector.sink.model.truncates import CLOCK, before_truncate
from serde.arrays import Ints, Mask, children
from serde.events.changes import Changes
from serde.events.source_positions import unplaced
from serde.faults import Fault

DELETED = "__deleted"
_NO_OP = np.uint8(0)
UNITS_NS = {"__source_ts_ns": 1, "__source_ts_us": 1_000, "__source_ts_ms": 1_000_000}
"""Dedup columns that are Debezium's time of the source, and their units."""


@attrs.frozen(eq=False)
class Run:
    """Consecutive records of one topic-partition: `key` and `value` as bytes, `offset` ascending.

    `old_key` and `new_key` are the headers of these names (`convert.key_change_headers`), where they were asked for, and
    `broken` the places of records whose headers cannot be read then.
    """

    topic: str
    partition: int
    offset: Ints
    key: pa.Array
    value: pa.Array
    old_key: pa.Array | None = None
    new_key: pa.Array | None = None
    broken: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))

    @property
    def at(self) -> TopicPartition:
        """The topic-partition."""
        return self.topic, self.partition

    def only(self, places: Ints) -> Run:
        """Give some of the records, by their places, ascending."""
        rows = pa.array(places)
        old, new = (None if keys is None else keys.take(rows) for keys in (self.old_key, self.new_key))
        return attrs.evolve(
            self,
            offset=self.offset[places],
            key=self.key.take(rows),
            value=self.value.take(rows),
            old_key=old,
            new_key=new,
            broken=np.flatnonzero(np.isin(places, self.broken)),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return int(self.key.nbytes + self.value.nbytes)

    @classmethod
    def of(cls, chunk: Chunk, old_key: str | None = None, new_key: str | None = None) -> Run:
        """Take over what was fetched, and the headers of these names if there are any."""
        found = chunk.records
        run = cls(chunk.topic, chunk.partition, found.offset, found.key, found.value)
        if old_key is None and new_key is None:
            return run
        told = headers(found, [name for name in (old_key, new_key) if name is not None])
        old = None if old_key is None else told.columns[0]
        new = None if new_key is None else told.columns[-1]
        return attrs.evolve(run, old_key=old, new_key=new, broken=np.flatnonzero(told.broken))

    @classmethod
    def of_records(cls, at: TopicPartition, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> Run:
        """Take over a few records, each as (offset, key, value)."""
        offsets, keys, values = zip(*records, strict=True)
        key, value = (pa.array(column, pa.binary()) for column in (keys, values))
        return cls(*at, np.array(offsets, np.int64), key, value)


@attrs.frozen(eq=False)
class Made:
    """What one block's changes are for a table: its rows, those that cannot be, and how many values became null.

    `late` counts changes that are left out: a truncate came after them.
    """

    part: Part
    faults: list[Fault]
    nulled: int
    seen: Seen
    late: int = 0


def part_of(run: Run, change: Changes, keys: RecordKeys | None, table: TablePlan, plan: BatchPlan) -> Made:
    """Make the table's rows of one block's changes."""
    columns, bad, nulled = _columns(change, table, plan)
    faults = [Fault(int(change.rows[i]), "TASK_PUT", reason) for i, reason in bad.items()]
    image = np.asarray(change.row.is_valid())
    if table.keyed and keys is not None:
        faults += put_keys(columns, change.rows, keys, table)
    if table.history:
        faults += _set_time(columns, change)
    if table.mode == "upsert":
        _mark_deleted(columns, change.deleted, table)
    faults += _missing(columns, change, image, table)
    part = _assembled(columns, _order(run, change, plan), change.deleted, image, table)
    dropped = {fault.row for fault in faults}
    if table.mode == "append":
        dropped.update(change.rows[~image].tolist())
    keep = _kept(run, change.rows, dropped, table)
    if not table.dated and not table.numbered:
        return Made(_taken(part, keep), faults, nulled, Seen(table.index, run.at))
    marks = limits(table.watermarks, run.at, change.origin.dictionary.to_pylist())
    suspect = suspects(part.order, change.origin, marks)
    versions = None
    if table.numbered:
        # Of what is no date, or none that proves anything, the own number does not tell what the document has.
        suspect &= (part.order.date != NONE) | (second_of(plan.dedup_column, plan.events.add_fields_prefix) is None)
        versions, gone = _versions(run, change, part.order, suspect, table, plan), _emptied(change, part, table, plan)
        part = attrs.evolve(part, order=attrs.evolve(part.order, dedup=versions), suspect=suspect)
        seen = _seen(run, change, part.order, versions, keep, table)
        return Made(_taken(part, keep & ~gone), faults, nulled, seen, int((keep & gone).sum()))
    part = attrs.evolve(part, suspect=suspect | truncated(part.order, table, plan))
    return Made(_taken(part, keep), faults, nulled, _seen(run, change, part.order, versions, keep, table))


def _versions(run: Run, change: Changes, order: Order, repeats: Mask, table: TablePlan, plan: BatchPlan) -> Ints:
    """Give the versions of documents, as far as other changes of the batch do not matter."""
    column = plan.dedup_column
    own = own_numbers(order.dedup, integers(change.total_order), nanoseconds=column == CLOCK)
    declared = second_of(column, plan.events.add_fields_prefix) is None
    op = np.zeros(len(order), np.uint8) if declared else order.op
    before = given(table.watermarks, run.at, change.origin, table.partitions.get(run.topic, 0))
    return numbered(own, before, op, repeats)


def truncated(order: Order, table: TablePlan, plan: BatchPlan) -> Mask:
    """Mark the changes that are known to have come before a truncate of an earlier batch."""
    if not table.truncated and not table.truncated_at:
        return np.zeros(len(order), np.bool_)
    is_time = second_of(plan.dedup_column, plan.events.add_fields_prefix) is not None
    ts_ns = table.truncated if plan.dedup_column == CLOCK else NONE
    return before_truncate(order, ts_ns, table.truncated_at if is_time else ())


def _emptied(change: Changes, part: Part, table: TablePlan, plan: BatchPlan) -> Mask:
    """Mark the changes of documents that a truncate of an earlier batch took away; of sources known by then."""
    known = {name for marks in table.watermarks.values() for name in marks}
    ours = [name in known or ALL in known for name in change.origin.dictionary.to_pylist()]
    if not any(ours):
        return np.zeros(len(part), np.bool_)
    mask: Mask = truncated(part.order, table, plan) & np.array(ours, np.bool_)[np.asarray(change.origin.indices)]
    return mask


def _seen(run: Run, change: Changes, order: Order, versions: Ints | None, keep: Mask, table: TablePlan) -> Seen:
    """Tell how far the sources came, and whether the run ends with a delete event of the table."""
    origin, rows = change.origin, np.flatnonzero(keep)
    if not keep.all():
        origin, order = origin.filter(pa.array(keep)), order.take(rows)
        versions = None if versions is None else versions[rows]
    ends = len(keep) > 0 and change.rows[-1] == len(run.offset) - 1 and bool(change.deleted[-1] & keep[-1])
    return Seen(table.index, run.at, come(order, origin, versions), int(run.offset[-1]) + 1 if ends else -1)


def _set_time(columns: dict[str, pa.Array], change: Changes) -> list[Fault]:
    """Fill in from when a version is true: the source's time of its change, to the microsecond."""
    since = pc.coalesce(change.ts_ns, dedup(change, "__source_ts_ns").cast(pa.int64()))
    columns[VALID_FROM] = pc.divide(since, pa.scalar(1000, pa.int64())).cast(columns[VALID_FROM].type)
    untold = np.flatnonzero(np.asarray(since.is_null()))
    reason = "the event tells no source time (__source_ts_ns), and the table keeps history"
    return [Fault(int(change.rows[i]), "TASK_PUT", reason) for i in untold]


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
    faults += _missing_inside(columns, change, written, table)
    return faults


def _missing_inside(columns: dict[str, pa.Array], change: Changes, written: Mask, table: TablePlan) -> Iterator[Fault]:
    """Give the rows that lack a key within a struct, or what the table requires of a struct that they have."""
    keys = [path for path in table.layout.key_paths if len(path) > 1] if table.mode == "upsert" else []
    for path in keys if table.keys_from == "value" else ():
        yield from _lacking(change, path, "a key", np.asarray(within(columns[path[0]], path[1:]).is_null()))
    for path in table.layout.required_inside:
        if path not in keys:
            around, inside = (within(columns[path[0]], names) for names in (path[1:-1], path[1:]))
            lacking = written & np.asarray(around.is_valid()) & np.asarray(inside.is_null())
            yield from _lacking(change, path, "required", lacking)


def _lacking(change: Changes, path: Path, what: str, where: Mask) -> Iterator[Fault]:
    reason = f"column {'.'.join(path)} is {what}, and the event has no value for it"
    yield from (Fault(int(change.rows[i]), "TASK_PUT", reason) for i in np.flatnonzero(where))


def _columns(change: Changes, table: TablePlan, plan: BatchPlan) -> tuple[dict[str, pa.Array], dict[int, str], int]:
    """Convert each column of the rows to the table's type; the second result tells why rows (by index) do not fit.

    Where tables follow their events a value that does not fit is a fault; where they do not, the seed's mismatch table
    holds (`types.lenient_conversion`), and the third result counts the values that became null by it.
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
        if field.name in table.layout.variants:
            column, long = _document(column, change)
            bad.update((int(i), f"column {field.name}: a document of more than 16 MiB") for i in np.flatnonzero(long))
        guessed = not change.optional and pa.types.is_decimal(field.type) and pa.types.is_string(column.type)
        if plan.evolve or field.name in table.layout.key_columns or not field.nullable:
            result[field.name], faults = converted_by(column, field.type, lenient=not plan.evolve)
            if guessed:
                result[field.name], faults = _without_base64(column, result[field.name], faults)
        else:
            result[field.name], _, lost = coerced(column, field)
            if guessed:
                kept, _ = _without_base64(column, result[field.name], None)
                lost += kept.null_count - result[field.name].null_count
                result[field.name] = kept
            nulled += lost
        if faults is not None:
            reason = f"column {field.name}: a value of type {column.type} does not fit the table's {field.type}"
            bad.update((int(i), reason) for i in np.flatnonzero(faults))
    return result, bad, nulled


def _document(column: pa.Array, change: Changes) -> tuple[pa.Array, Mask]:
    text = as_text(column, keep_nulls=bool(change.optional))
    return text, np.asarray(pc.greater(pc.binary_length(text), LONGEST_BYTES).fill_null(False))


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
    rank, values = plan.ranks[run.topic, run.partition], integers(dedup(change, plan.dedup_column))
    told = (values, change.op, change.deleted, second_of(plan.dedup_column, plan.events.add_fields_prefix))
    return Order(
        partition=np.full(len(change.rows), rank, np.int64),
        offset=run.offset[change.rows],
        dedup=values,
        date=dated(*told),
        place=placed(change.place, *told),
        op=change.op,
    )


def dedup(change: Changes, name: str) -> pa.Array:
    """Give the dedup value of each change, null where it is not known.

    The source's time is told of deletes too, which may have no row.
    """
    position = change.row.type.get_field_index(name) if name else -1
    told = pc.divide(change.ts_ns, UNITS_NS[name]) if name in UNITS_NS else pa.nulls(len(change.rows), pa.int64())
    if position < 0:
        return told
    column = children(change.row)[position]
    dates = column if pa.types.is_integer(column.type) else converted(column, pa.int64())[0]
    return pc.coalesce(dates.cast(pa.int64()), told) if dates.null_count else dates


def integers(column: pa.Array) -> Ints:
    """Give a column of numbers with `NONE` for nulls."""
    return np.asarray(column.cast(pa.int64()).fill_null(NONE), dtype=np.int64)


def _assembled(columns: Mapping[str, pa.Array], order: Order, deleted: Mask, image: Mask, table: TablePlan) -> Part:
    schema = table.layout.rows
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
    return Part(batch, order, np.asarray(deleted), image)


def _kept(run: Run, rows: Ints, dropped: set[int], table: TablePlan) -> Mask:
    """Mark the rows that are no faults, and that the table does not have from before (a batch that is replayed)."""
    keep = run.offset[rows] >= table.committed.get(run.at, 0)
    if dropped:
        keep &= ~np.isin(rows, np.fromiter(dropped, np.int64))
    return keep


def _taken(part: Part, keep: Mask) -> Part:
    return part if keep.all() else part.take(np.flatnonzero(keep))


def uncommitted(run: Run, part: Part, table: TablePlan) -> Part:
    """Leave out what the table has from before (a batch that is replayed)."""
    return _taken(part, part.order.offset >= table.committed.get(run.at, 0))


def tombstones_of(
    run: Run, rows: Ints, keys: RecordKeys, table: TablePlan, plan: BatchPlan
) -> tuple[Part, list[Fault]]:
    """Make changes without a row: the key is gone; a tombstone without key says nothing (tables without a key).

    Nor does one behind the delete event that the batch before ended with.
    """
    rows = rows[keys.usable[rows] | np.isin(rows, [fault.row for fault in keys.faults])]
    rows = rows[run.offset[rows] != table.after_delete.get(run.at, -1)]
    columns = {field.name: pa.nulls(len(rows), field.type) for field in table.layout.columns}
    faults = put_keys(columns, rows, keys, table)
    unknown = np.full(len(rows), NONE, np.int64)
    rank = np.full(len(rows), plan.ranks[run.topic, run.partition], np.int64)
    op = np.full(len(rows), _NO_OP, np.uint8)
    order = Order(rank, run.offset[rows], unknown, unknown, unplaced(len(rows)), op)
    gone, image = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    part = _assembled(columns, order, gone, image, table)
    return _taken(part, _kept(run, rows, {fault.row for fault in faults}, table)), faults
