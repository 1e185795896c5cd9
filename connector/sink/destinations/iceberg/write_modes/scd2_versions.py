"""Changes of a key and the versions that its table has -> versions that are new, or end otherwise. On executors.

A version is a row with the time from which it was true (`valid_from`, the source's time of the change) and the one from
which it was not (`valid_to`, null while it is the current one). Key and `valid_from` identify it. The versions follow
from the set of changes alone: whatever comes again, or in another batch, changes nothing that is right already. Only a
delete that comes before the version that it ends leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.keys.key_codes import key_codes
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import batch_of, columns_of
from connector.iceberg.types.spark_types import to_spark
from connector.sink.fold.unavailable_values import filled
from connector.sink.fold.winners import NONE, Order, first_of_runs
from connector.sink.model import task_output
from connector.sink.model.change_rows import Folded, Part, by_bucket, gather, pack
from connector.sink.model.plan import IS_CURRENT, VALID_FROM, VALID_TO, TablePlan
from connector.sink.model.task_output import Parcel
from serde.arrays import Ints, Mask
from serde.events.source_positions import unplaced

_CHANGED, _NS_PER_US = ord("u"), 1000


def handed_on(folded: Folded, table: TablePlan) -> Iterator[Parcel]:
    """Give changes by bucket, and their keys to look up."""
    keys_of = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
    for part in gather(folded.parts, folded.winners):
        for bucket, piece in by_bucket(part, keys_of, table.buckets):
            yield Parcel(task_output.VERSIONS, pack(piece), table.index, bucket)
        keys = batch_of(part.rows, table.layout.keys)
        spans = KeyRanges.of(batch_of(part.rows, (*table.layout.keys, VALID_FROM)))
        yield Parcel.of(task_output.SPANS, spans, table.index)
        yield attrs.evolve(Parcel.of_keys(_carried(keys), table.index), kind=task_output.LOOKUP)


def _carried(keys: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([to_spark(column) for column in keys.columns], keys.schema.names)


def as_part(rows: pa.RecordBatch) -> Part:
    """Take versions of the table for changes that came at their time."""
    count = rows.num_rows
    unknown, none = np.full(count, NONE, np.int64), np.zeros(count, np.bool_)
    since = _micros(rows.column(VALID_FROM)) * _NS_PER_US
    place = np.full(count, -1, np.int64)
    order = Order(place, place, since, unknown, unplaced(count), np.full(count, _CHANGED, np.uint8))
    return Part(rows, order, none, ~none)


def brought_up(
    came: Sequence[Part], held: Sequence[Part], keys: Sequence[str], columns: pa.Schema
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Give the versions that are new or end otherwise than the table says, and those that they stand for.

    Args:
        came: the changes of some keys, each key and time once.
        held: what the table has under these keys.
        keys: what tells keys apart, without times.
        columns: the table's columns.

    Returns:
        Rows to be replaced by key and `valid_from`, whether the table has them or not; rows to write.
    """
    count = sum(map(len, came))
    every = np.arange(count + sum(map(len, held)))
    folded = filled(Folded((*came, *held), every, every), keys, by_date=True)
    rows = pa.Table.from_batches([part.rows for part in folded.parts]).combine_chunks().to_batches()[0]
    gone = np.concatenate([part.deleted for part in folded.parts])
    since, until = _micros(rows.column(VALID_FROM)), _micros(rows.column(VALID_TO))
    new = every < count
    until = np.where(new, NONE, until)
    codes = key_codes(columns_of(rows, keys))
    ends = ended(codes, since, until)
    stale = ~new & ~_again(codes, since, new) & (ends != until)
    replaced, wanted = np.flatnonzero(new | stale), np.flatnonzero((new & ~gone) | stale)
    return rows.take(pa.array(replaced)), _with_times(rows.take(pa.array(wanted)), ends[wanted], columns)


def ended(codes: Ints, since: Ints, until: Ints) -> Ints:
    """Give for each version when the next thing happened to its key; `NONE` for those that nothing has followed.

    Args:
        codes: which key each version or delete is of.
        since: when it came.
        until: when it ended as far as the table knows, else `NONE`: a delete leaves no other trace.
    """
    known = until != NONE
    every_code, every_time = np.concatenate([codes, codes[known]]), np.concatenate([since, until[known]])
    sequence = np.lexsort((every_time, every_code))
    code, time = every_code[sequence], every_time[sequence]
    first = first_of_runs(code, time)
    place = np.empty(len(sequence), np.int64)
    place[sequence] = np.cumsum(first) - 1
    code, time = code[first], time[first]
    following = np.append(np.where(code[1:] == code[:-1], time[1:], NONE), NONE)
    result: Ints = following[place[: len(codes)]]
    return result


def _again(codes: Ints, since: Ints, new: Mask) -> Mask:
    """Mark versions of the table that came again: of equal ones the new one is sorted first."""
    sequence = np.lexsort((~new, since, codes))
    result: Mask = np.zeros(len(codes), np.bool_)
    result[sequence] = ~first_of_runs(codes[sequence], since[sequence])
    return result & ~new


def _micros(times: pa.Array) -> Ints:
    return np.asarray(times.cast(pa.int64()).fill_null(NONE), np.int64)


def _with_times(rows: pa.RecordBatch, until: Ints, columns: pa.Schema) -> pa.RecordBatch:
    arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
    last = until == NONE
    arrays[VALID_TO] = pa.array(until, mask=last).cast(columns.field(VALID_TO).type)
    arrays[IS_CURRENT] = pa.array(last)
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns)
