"""Decoded changes -> rows of one table with their order: converted, keyed, checked. Runs on executors; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.commit.kafka_offsets import LastTruncate
from connector.iceberg.types.values.lenient_conversion import convert_required
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.change_order import build_order, order_by_offset, read_dedup_values, to_int64
from connector.sink.convert.columns.field_matching import find_case_renames
from connector.sink.convert.columns.required_columns import check_required
from connector.sink.convert.columns.value_conversion import convert_columns
from connector.sink.convert.events.truncate_events import NOTHING_BEFORE, RowsBeforeTruncate
from connector.sink.convert.record_keys import RecordKeys, set_key_columns
from connector.sink.fold.document_versions import assign_versions, derive_versions, find_last_versions
from connector.sink.fold.watermarks import find_latest_by_source, find_limits, mark_late_candidates
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.plan import VALID_FROM, BatchPlan, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import SOURCE_TS_NS, mark_before_truncate
from serde.arrays import Ints, Mask, children
from serde.events.changes import DELETED_COLUMN, Changes
from serde.events.images.document_patches import PATCH_COLUMN, find_members, rename_members
from serde.events.kinds.operations import TOMBSTONE
from serde.events.positions.log_positions import NO_VALUE, strip_log_name
from serde.faults import RecordError

_NO_COUNTS = TaskMetrics()


@attrs.frozen(eq=False)
class BuiltRows:
    """Rows of a table, and the changes that cannot be any; `progress` tells how far the sources came."""

    part: ChangeBatch
    faults: list[RecordError]
    progress: SourceProgress
    metrics: TaskMetrics

    @property
    def is_uncounted(self) -> bool:
        """Whether there is nothing to add to the counts, as usual."""
        return self.metrics is _NO_COUNTS


@attrs.frozen(eq=False)
class ConvertedRows:
    """Rows of changes, the records that cannot be any, and how many values became null instead."""

    part: ChangeBatch
    faults: list[RecordError]
    nulled: int = 0


def build_rows(
    run: ConsumerRecords,
    change: Changes,
    keys: RecordKeys | None,
    table: TablePlan,
    plan: BatchPlan,
    before: RowsBeforeTruncate = NOTHING_BEFORE,
) -> BuiltRows:
    """Make the table's rows of one block's changes."""
    return complete_rows(run, change, convert_rows(run, change, keys, table, plan), table, plan, before)


def complete_rows(
    run: ConsumerRecords,
    change: Changes,
    converted: ConvertedRows,
    table: TablePlan,
    plan: BatchPlan,
    before: RowsBeforeTruncate = NOTHING_BEFORE,
) -> BuiltRows:
    """Leave out converted rows that the table has, or cannot have, and mark those that may be older than its own."""
    part, faults, nulled = converted.part, converted.faults, converted.nulled
    dropped = {fault.row for fault in faults}
    if not table.upsert:
        dropped.update(change.rows[~part.image].tolist())
    keep = _mark_rows_to_write(run, change.rows, dropped, table)
    truncated = mark_truncated(run, change, part.order, table, plan)
    if len(before.deletes):
        truncated |= np.isin(change.rows, before.deletes)
    # A delete from before it stays until the fold is through: it tells what its tombstone is about.
    gone, part = truncated & ~part.deleted, attrs.evolve(part, truncated=truncated)
    if len(before.ended):
        part = attrs.evolve(part, deleted=part.deleted | np.isin(change.rows, before.ended))
    late = int((keep & gone).sum())
    metrics = TaskMetrics(nulled=nulled, late=late) if nulled or late else _NO_COUNTS
    if not table.tells_order:
        return BuiltRows(_filter_rows(part, keep & ~gone), faults, SourceProgress(table.index, run.at), metrics)
    names, any_partition = change.origin.dictionary.to_pylist(), _may_be_anywhere(run.topic, table, plan)
    marks = find_limits(table.watermarks, run.at, names, any_partition=any_partition)
    suspect = mark_late_candidates(part.order, change.origin, marks)
    versions = None
    if table.numbered:
        # Of what is no date, or none that proves anything, the own number does not tell what the document has.
        suspect &= (part.order.date != NO_VALUE) | (plan.dedup_units_per_second is None)
        numbers, versions = _build_versions(run, change, part.order, suspect, table, plan)
        part = attrs.evolve(part, order=attrs.evolve(part.order, dedup=versions), numbers=numbers)
    part = attrs.evolve(part, suspect=suspect | truncated)
    progress = _measure_progress(run, change, part.order, versions, keep, table)
    return BuiltRows(_filter_rows(part, keep & ~gone), faults, progress, metrics)


def _may_be_anywhere(topic: str, table: TablePlan, plan: BatchPlan) -> bool:
    """Tell whether changes of a key may be in several partitions: the topic has grown, or those of records go by other
    keys.
    """
    return plan.has_grown(topic, table) or (table.dated and table.upsert and not table.keyed)


def convert_rows(
    run: ConsumerRecords, change: Changes, keys: RecordKeys | None, table: TablePlan, plan: BatchPlan
) -> ConvertedRows:
    """Return the rows of all changes.

    Of the table only what `TablePlan.conversion` tells matters.
    """
    columns, bad, nulled = convert_columns(change, table, plan)
    faults = [RecordError(int(change.rows[i]), "TASK_PUT", reason) for i, reason in bad.items()]
    image = np.asarray(change.row.is_valid())
    if table.keyed and keys is not None:
        faults += set_key_columns(columns, change.rows, keys, table)
    if table.history:
        faults += _set_valid_from(columns, change)
    if table.upsert:
        _fill_deleted_column(columns, change.deleted, table)
    if table.dated and change.added:
        _fill_added_columns(columns, change, image, table)
    patches = _read_patches(change, table, plan)
    whole = image if patches is None else image & np.asarray(patches.is_null())
    faults += check_required(columns, change, whole, table)
    part = _assemble_rows(columns, build_order(run, change, table, plan), change.deleted, image, table, patches)
    return ConvertedRows(part, faults, nulled)


def _build_versions(
    run: ConsumerRecords, change: Changes, order: ChangeOrder, repeats: Mask, table: TablePlan, plan: BatchPlan
) -> tuple[Ints, Ints]:
    """Return the changes' own numbers, and the versions of documents as far as other changes of the batch do not
    matter.
    """
    is_ns = plan.dedup_column == SOURCE_TS_NS
    own = derive_versions(order.dedup, to_int64(change.total_order), nanoseconds=is_ns)
    op = np.zeros(len(order), np.uint8) if plan.dedup_is_declared else order.op
    has_grown = plan.has_grown(run.topic, table)
    before = find_last_versions(table.watermarks, run.at, change.origin, has_grown=has_grown)
    return own, assign_versions(own, before, op, repeats)


def mark_truncated(
    run: ConsumerRecords, change: Changes, order: ChangeOrder, table: TablePlan, plan: BatchPlan
) -> Mask:
    """Mark the changes that are known to have come before a truncate of their source in an earlier batch: by the
    source's own time and place, whatever the dedup column is.
    """
    result = np.zeros(len(order), np.bool_)
    if not table.truncates or not table.upsert or table.history:
        return result
    names = change.origin.dictionary.to_pylist()
    every = ((code, table.find_last_truncate(strip_log_name(name))) for code, name in enumerate(names))
    known = [(code, last) for code, last in every if last != LastTruncate()]
    if known and plan.dedup_column != SOURCE_TS_NS:
        order = build_order(run, change, table, plan, SOURCE_TS_NS)
    for code, last in known:
        own = np.asarray(change.origin.indices) == code
        result |= own & mark_before_truncate(order, last.ts_ns, last.place)
    return result


def _measure_progress(
    run: ConsumerRecords, change: Changes, order: ChangeOrder, versions: Ints | None, keep: Mask, table: TablePlan
) -> SourceProgress:
    """Tell how far the sources came, and whether the run ends with a delete event of the table."""
    origin, rows = change.origin, np.flatnonzero(keep)
    if not keep.all():
        origin, order = origin.filter(pa.array(keep)), order.take(rows)
        versions = None if versions is None else versions[rows]
    ends = len(keep) > 0 and change.rows[-1] == len(run.offset) - 1 and bool(change.deleted[-1] & keep[-1])
    return SourceProgress(
        table.index, run.at, find_latest_by_source(order, origin, versions), int(run.offset[-1]) + 1 if ends else -1
    )


def _set_valid_from(columns: dict[str, pa.Array], change: Changes) -> list[RecordError]:
    """Fill in from when a version is true: the source's time of its change, to the microsecond."""
    since = pc.coalesce(change.ts_ns, read_dedup_values(change, SOURCE_TS_NS).cast(pa.int64()))
    columns[VALID_FROM] = pc.divide(since, pa.scalar(1000, pa.int64())).cast(columns[VALID_FROM].type)
    untold = np.flatnonzero(np.asarray(since.is_null()))
    reason = "the event tells no source time (__source_ts_ns), and the table keeps history"
    return [RecordError(int(change.rows[i]), "TASK_PUT", reason) for i in untold]


def _fill_deleted_column(columns: dict[str, pa.Array], deleted: Mask, table: TablePlan) -> None:
    """Fill `__deleted` where the event did not bring it (soft delete of topics without the rewrite mode)."""
    column = columns.get(DELETED_COLUMN)
    if not table.keep_deletes or column is None or not column.null_count:
        return
    marks = pa.array(deleted) if pa.types.is_boolean(column.type) else pc.if_else(pa.array(deleted), "true", "false")
    columns[DELETED_COLUMN] = column.fill_null(marks.cast(column.type))


def _fill_added_columns(columns: dict[str, pa.Array], change: Changes, image: Mask, table: TablePlan) -> None:
    """Give deletes without an image what tells their age, as the table's rows tell it: the two are compared by that."""
    bare = pa.array(change.deleted & ~image)
    for field in table.layout.columns:
        simple = pa.types.is_integer(field.type) or pa.types.is_string(field.type)
        if simple and field.name in change.added and field.name not in table.layout.key_columns:
            values, _ = convert_required(change.added[field.name], field.type, lenient=True)
            columns[field.name] = pc.if_else(bare, values, columns[field.name])


def _read_patches(change: Changes, table: TablePlan, plan: BatchPlan) -> pa.StringArray | None:
    """Return what changes tell of documents of which they have no more than that, null for others."""
    at = change.row.type.get_field_index(PATCH_COLUMN)
    if at < 0 or not pa.types.is_string(change.row.type.field(at).type):
        return None
    patches = children(change.row)[at]
    return _match_members(patches, table.layout.columns.names) if plan.case_insensitive else patches


def _match_members(patches: pa.StringArray, columns: Sequence[str]) -> pa.StringArray:
    """Return patches that name members of documents as the columns are called, whatever their case."""
    texts = [
        text if text is None else rename_members(text, find_case_renames(find_members(text), columns))
        for text in patches.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _assemble_rows(
    columns: Mapping[str, pa.Array],
    order: ChangeOrder,
    deleted: Mask,
    image: Mask,
    table: TablePlan,
    patches: pa.StringArray | None = None,
) -> ChangeBatch:
    schema = table.layout.rows
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
    return ChangeBatch(batch, order, np.asarray(deleted), image, patches=patches)


def _mark_rows_to_write(run: ConsumerRecords, rows: Ints, dropped: set[int], table: TablePlan) -> Mask:
    """Mark the rows that are no faults, and that the table does not have from before (a batch that is replayed)."""
    keep = run.offset[rows] >= table.committed.get(run.at, 0)
    if dropped:
        keep &= ~np.isin(rows, np.fromiter(dropped, np.int64))
    return keep


def _filter_rows(part: ChangeBatch, keep: Mask) -> ChangeBatch:
    return part if keep.all() else part.take(np.flatnonzero(keep))


def drop_committed(run: ConsumerRecords, part: ChangeBatch, table: TablePlan) -> ChangeBatch:
    """Leave out what the table has from before (a batch that is replayed)."""
    return _filter_rows(part, part.order.offset >= table.committed.get(run.at, 0))


def build_tombstones(
    run: ConsumerRecords, rows: Ints, keys: RecordKeys, table: TablePlan, plan: BatchPlan
) -> tuple[ChangeBatch, list[RecordError]]:
    """Make changes without a row: the key is gone; a tombstone without key says nothing (tables without a key).

    Nor does one behind the delete event that the batch before ended with.
    """
    rows = rows[keys.usable[rows] | np.isin(rows, [fault.row for fault in keys.faults])]
    rows = rows[run.offset[rows] != table.after_delete.get(run.at, -1)]
    columns = {field.name: pa.nulls(len(rows), field.type) for field in table.layout.columns}
    faults = set_key_columns(columns, rows, keys, table)
    order = order_by_offset(run.offset[rows], plan.ranks[run.at], TOMBSTONE)
    gone, image = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    part = _assemble_rows(columns, order, gone, image, table)
    return _filter_rows(part, _mark_rows_to_write(run, rows, {fault.row for fault in faults}, table)), faults
