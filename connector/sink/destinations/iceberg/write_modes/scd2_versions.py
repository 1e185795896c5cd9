"""Changes of a key and the versions that its table has -> versions that are new, or end otherwise. On executors.

A version is a row with the time from which it was true (`valid_from`, the source's time of the change) and the time
until which it was (`valid_to`, null for the current one). Key and `valid_from` identify it. The versions follow from
the set of changes alone, so reprocessing is idempotent. Only a delete that arrives before the version that it ends is
lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch, read_columns
from connector.iceberg.types.values.spark_types import to_spark
from connector.sink.destinations.iceberg.write_modes.scd2_reads import VersionTimes, date_reads, mark_superfluous
from connector.sink.fold.order.key_runs import find_first, mark_run_starts
from connector.sink.fold.order.repeated_changes import mark_repeated
from connector.sink.fold.values.key_histories import KeyHistories
from connector.sink.fold.values.unavailable_values import fill_in_batch
from connector.sink.job.shuffle import pack, split_by_bucket
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, compute_key_codes, gather
from connector.sink.model.driver_output import VersionsWritten
from connector.sink.model.plan import IS_CURRENT, VALID_FROM, VALID_TO, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_READ, OP_UPDATE
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

_NS_PER_US = 1000


def emit_for_lookup(folded: FoldedChanges, table: TablePlan) -> Iterator[TaskOutput]:
    """Return changes by bucket, and their keys to look up."""
    keys_of = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
    for part in choose_versions(folded, table.identity):
        for bucket, piece in split_by_bucket(part, keys_of, table.buckets):
            yield TaskOutput(OutputKind.NEW_VERSIONS, pack(piece), table.index, bucket)
        keys = read_batch(part.rows, table.layout.keys)
        spans = KeyRanges.of(read_batch(part.rows, (*table.layout.keys, VALID_FROM)))
        yield TaskOutput.of(VersionsWritten(table.index, spans))
        yield attrs.evolve(TaskOutput.of_keys(_to_spark_batch(keys), table.index), kind=OutputKind.VERSION_KEYS)


def choose_versions(folded: FoldedChanges, identity: Sequence[str]) -> list[ChangeBatch]:
    """Return the last changes of versions at the offsets of their first ones: where that is behind a later version,
    all of them come again.
    """
    order = ChangeOrder.concat([part.order for part in folded.parts])
    first = find_first(compute_key_codes(folded.parts, identity), order)
    chosen = gather(folded.parts, folded.winners)
    offsets = np.split(order.offset[first[folded.winners]], np.cumsum([len(part) for part in chosen])[:-1])
    orders = (attrs.evolve(part.order, offset=own) for part, own in zip(chosen, offsets, strict=True))
    return [attrs.evolve(part, order=own) for part, own in zip(chosen, orders, strict=True)]


def _to_spark_batch(keys: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([to_spark(column) for column in keys.columns], keys.schema.names)


def to_changes(rows: pa.RecordBatch, op_field: str = "") -> ChangeBatch:
    """Turn versions of the table into changes at their time; `op_field` is the column that tells reads, if any."""
    count = rows.num_rows
    unknown, none = np.full(count, NO_VALUE, np.int64), np.zeros(count, np.bool_)
    since = _to_micros(rows.column(VALID_FROM)) * _NS_PER_US
    place = np.full(count, -1, np.int64)
    op = np.full(count, OP_UPDATE, np.uint8)
    if op_field in rows.schema.names and pa.types.is_string(rows.schema.field(op_field).type):
        op[np.asarray(pc.equal(rows.column(op_field), "r").fill_null(False))] = OP_READ
    order = ChangeOrder(place, place, since, unknown, unknown_positions(count), op)
    return ChangeBatch(rows, order, none, ~none)


def update_versions(
    changes: Sequence[ChangeBatch], versions: Sequence[ChangeBatch], keys: Sequence[str], columns: pa.Schema
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the versions that are new or have another end than in the table, and those that they replace.

    Args:
        changes: the changes of some keys, each key and time once.
        versions: what the table has under these keys.
        keys: what tells keys apart, without times.
        columns: the table's columns.

    Returns:
        Rows to be replaced by key and `valid_from`, whether the table has them or not; rows to write.
    """
    changes = _drop_repeated(changes, versions, keys) if versions else changes
    count = sum(map(len, changes))
    parts = (*changes, *versions)
    every = np.arange(sum(map(len, parts)))
    rows = _join_rows(parts)
    is_delete = np.concatenate([part.deleted for part in parts])
    since, ended = _to_micros(rows.column(VALID_FROM)), _to_micros(rows.column(VALID_TO))
    new = every < count
    until = np.where(new, NO_VALUE, ended)
    codes = encode_keys(read_columns(rows, keys))
    order = ChangeOrder.concat([part.order for part in parts])
    times = VersionTimes(codes, since, until, order.partition, order.offset, new, order.op == OP_READ)
    moved_to = date_reads(times)
    moved, superfluous = moved_to != NO_VALUE, mark_superfluous(times, moved_to)
    since = np.where(moved, moved_to, since)
    # No delete: the read that ended a version was moved.
    until = np.where(times.mark_starts(codes, until, moved), NO_VALUE, until)
    ends = find_valid_to(codes, since, until)
    histories = _sort_versions(order, codes, since, ends)
    filled = _join_rows(fill_in_batch(FoldedChanges(parts, every, every), keys, histories=histories).parts)
    stale = ~new & (moved | ~_mark_duplicates(codes, since, new) & (ends != ended))
    replaced = np.flatnonzero(new | stale)
    wanted = np.flatnonzero(((new & ~is_delete) | stale) & ~superfluous)
    written = _set_validity(filled.take(pa.array(wanted)), since[wanted], ends[wanted], columns)
    return rows.take(pa.array(replaced)), written


def _join_rows(parts: Sequence[ChangeBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches([part.rows for part in parts]).combine_chunks().to_batches()[0]


def _drop_repeated(
    changes: Sequence[ChangeBatch], versions: Sequence[ChangeBatch], keys: Sequence[str]
) -> Sequence[ChangeBatch]:
    """Leave out versions that come again behind later ones of their key, and that the table has: these are of all their
    transaction, of which the batch may have a part.
    """
    order = ChangeOrder.concat([part.order for part in changes])
    codes = compute_key_codes(changes, keys)
    sequence = np.lexsort((order.offset, order.partition, codes))
    group = np.cumsum(mark_run_starts(codes[sequence], order.partition[sequence])) - 1
    repeated = np.zeros(len(codes), np.bool_)
    repeated[sequence] = mark_repeated(group, order.take(sequence))
    if not repeated.any():
        return changes
    identities = compute_key_codes((*changes, *versions), (*keys, VALID_FROM))
    repeated &= np.isin(identities[: len(codes)], identities[len(codes) :])
    return gather(changes, np.flatnonzero(~repeated))


def _sort_versions(order: ChangeOrder, codes: Ints, since: Ints, ends: Ints) -> KeyHistories:
    """Return versions and deletes by key and time, what the table has before what came now; behind a delete that only
    the end of a version tells, nothing of the row before is known.
    """
    sequence = np.lexsort((order.offset, order.partition, since, codes))
    begins = mark_run_starts(codes[sequence])
    end = ends[sequence[:-1]]
    behind = begins | np.append(True, (end != NO_VALUE) & (end < since[sequence[1:]]))
    places = np.arange(len(sequence))
    keys_from, known_from = (np.maximum.accumulate(np.where(marks, places, 0)) for marks in (begins, behind))
    return KeyHistories(sequence, keys_from, known_from)


def find_valid_to(codes: Ints, since: Ints, until: Ints) -> Ints:
    """Return for each version the time of the next change or delete of its key; `NO_VALUE` if nothing followed.

    Args:
        codes: which key each version or delete is of.
        since: when it came.
        until: when it ended as far as the table knows, else `NO_VALUE`: a delete leaves no other trace.
    """
    known = until != NO_VALUE
    every_code, every_time = np.concatenate([codes, codes[known]]), np.concatenate([since, until[known]])
    sequence = np.lexsort((every_time, every_code))
    code, time = every_code[sequence], every_time[sequence]
    first = mark_run_starts(code, time)
    place = np.empty(len(sequence), np.int64)
    place[sequence] = np.cumsum(first) - 1
    code, time = code[first], time[first]
    following = np.append(np.where(code[1:] == code[:-1], time[1:], NO_VALUE), NO_VALUE)
    result: Ints = following[place[: len(codes)]]
    return result


def _mark_duplicates(codes: Ints, since: Ints, new: Mask) -> Mask:
    """Mark versions of the table that were sent again: among equal ones the new one is sorted first."""
    sequence = np.lexsort((~new, since, codes))
    result: Mask = np.zeros(len(codes), np.bool_)
    result[sequence] = ~mark_run_starts(codes[sequence], since[sequence])
    return result & ~new


def _to_micros(times: pa.Array) -> Ints:
    return np.asarray(times.cast(pa.int64()).fill_null(NO_VALUE), np.int64)


def _set_validity(rows: pa.RecordBatch, since: Ints, until: Ints, columns: pa.Schema) -> pa.RecordBatch:
    arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
    last = until == NO_VALUE
    arrays[VALID_FROM] = pa.array(since).cast(columns.field(VALID_FROM).type)
    arrays[VALID_TO] = pa.array(until, mask=last).cast(columns.field(VALID_TO).type)
    arrays[IS_CURRENT] = pa.array(last)
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)
