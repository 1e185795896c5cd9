"""Rows that a change of key made -> what the batch knows of them from before, change by change.

A change of key is a delete of the old key and a create of the new one, at one place of the source's log.

last rows, changes of key  by the old key  -> the row that each change took along (`lookups.preceding_rows`)
changes whose row was made by another one  -> the changes that know its values (`lookups.key_chains`), among them those
                                              whose row the table has under the key that it had between the two

The first is done by many tasks, each sorted by key, of which a task holds one key and one Arrow batch. Only changes of
rows that got several keys in the batch, and whose row leaves values out, come together in one task: as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import attrs
import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom
from pyspark.sql.types import StructType

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.values.spark_types import to_spark
from connector.sink.convert.columns.found_columns import count_milliseconds
from connector.sink.destinations.iceberg.lookups.held_rows import ORDER, AgeColumns, HeldRows, MomentColumns, is_unsure
from connector.sink.destinations.iceberg.lookups.key_chains import Marks, follow_chains
from connector.sink.destinations.iceberg.lookups.key_filter import collect_key_filter
from connector.sink.destinations.iceberg.lookups.preceding_rows import KeyEvents, find_preceding_rows
from connector.sink.destinations.join_columns import column_aliases, spark_schema, unpack_changes
from connector.sink.model.change_rows import OP_KEY_CHANGE, RECORD_BITS, ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import Task
from serde.arrays import Ints, unify_floats, valid_mask
from serde.events.images.unavailable_value import find_unavailable
from serde.events.positions.log_positions import NO_VALUE

PLACE_TYPES = [pa.int64(), pa.bool_()]
"""Of the record that made a row: its number (`ChangeOrder.records`), and whether it is a change of key."""

RECORD = "_at"
CHANGED, SINCE = MomentColumns("_changed", "_changed_place"), MomentColumns("_since", "_since_place")
"""When a row's key from before the batch was taken away, and when it got the one that it has."""
TOOK = MomentColumns("_took", "_took_place")
"""When the row was written that a change of key took along, where it may be older than the table's (`suspect`)."""
HELD_FILE, HELD_POSITION, HELD_UNSURE = "_held_file", "_held_pos", "_held_unsure"
"""Where the table has a row under a key that it had between two changes of key of the batch, and whether that may be
another one (`held_rows.is_unsure`)."""

_MOVED, _BEFORE, _KNOWN, _ENDED, _IS_ROW = "_at_moved", "_before_record", "_known", "_ended", "_is_row"
_AGE = ("_dedup", "_source", "_first", "_second", "_third")
_OF, _FROM, _DEPTH = "_of", "_from", "_depth"
_TOLD, _HELD, _TIME, _PLACE, _SUSPECT = "_told", "_held", "_time", "_place", "_suspect"
_HELD_TYPES = ((HELD_FILE, "string"), (HELD_POSITION, "bigint"), (HELD_UNSURE, "boolean"))
_HELD_TYPE = f"struct<{', '.join(f'{name}: {kind}' for name, kind in _HELD_TYPES)}>"
_CHAIN_SCHEMA = f"{_OF} bigint, {_FROM} bigint, {_KNOWN} array<boolean>, {_DEPTH} int"


def encode_place(part: ChangeBatch) -> list[pa.Array]:
    """Return the columns of `PLACE_TYPES`."""
    return [pa.array(part.order.records), pa.array(np.asarray(part.order.op == OP_KEY_CHANGE))]


@attrs.frozen(eq=False)
class RowsBefore:
    """Finds what the batch knows of each row that a change of key made; `names` are the columns that are asked for.

    `ages` has the column that tells when a change was written; dedup values do where there is none.
    Frames have the key that the change took away (`keys`), and the values of the row that it took along (`values`).
    """

    table: TablePlan
    names: Sequence[str]
    ages: AgeColumns = AgeColumns()

    @property
    def keys(self) -> list[str]:
        """The columns of keys."""
        return column_aliases("old", len(self.table.layout.keys))

    @property
    def values(self) -> list[str]:
        """The columns of values, null where nothing is known."""
        return column_aliases("before", len(self.names))

    def find(
        self,
        old_keys: DataFrame,
        last_rows: DataFrame,
        until: ExitStack,
        held: HeldRows | None = None,
        gone: HeldRows | None = None,
    ) -> DataFrame:
        """Return a row for each key change.

        Args:
            old_keys: outputs of kind OLD_KEY_ROWS of the table.
            last_rows: its outputs of kind LAST_ROWS.
            until: closes what the frame is read from.
            held: the rows of the table at batch start, where they tell when they were written.
            gone: rows that it had before, and that deletes hit.

        Returns:
            The number of its create's record (`RECORD`), `values`, the key before the batch as `keys`, the date of the
            change that took that key away (`CHANGED`), its own (`SINCE`), and where the table has the row under a key
            that it got and lost in this batch (`HELD_FILE`, `HELD_POSITION`, `HELD_UNSURE`).

        Cost: two jobs: one over the old keys, one over them and the rows that have them. Where a row got several keys
        a join of these with the table's rows too; so where rows that were taken along may be older than the table's.
        """
        linked = _persist(self._link_rows(self._read_events(old_keys, last_rows)), until)
        doubted, made_by_changes = linked.agg(F.count(TOOK.time), F.count(_BEFORE)).collect()[0]
        if held is not None and doubted:
            linked = _persist(self._forget_older_rows(linked, held if gone is None else held.union(gone)), until)
        nowhere = [F.lit(None).cast(kind).alias(name) for name, kind in _HELD_TYPES]
        columns = (RECORD, *self.keys, *self.values, *attrs.astuple(CHANGED), *_since(), *nowhere)
        if not made_by_changes:
            return linked.select(*columns)
        followed = self._join_held_rows(linked.where(F.col(_BEFORE).isNotNull()), linked, held)
        return linked.where(F.col(_BEFORE).isNull()).select(*columns).unionAll(self._follow(followed, linked))

    def _read_events(self, old_keys: DataFrame, last_rows: DataFrame) -> DataFrame:
        """Return changes of key beside the rows of all keys that they may have taken away."""
        wanted, layout = collect_key_filter(old_keys, self.table), self.table.layout
        kinds = [
            *(field.type for field in layout.key_fields),
            *PLACE_TYPES,
            *[pa.int64()] * len(_AGE),
            *[pa.bool_()] * 2,
            *[pa.int64()] * 2,
        ]
        aliases = [*self.keys, RECORD, _MOVED, *_AGE, _ENDED, _SUSPECT, _TIME, _PLACE]
        types = [layout.columns.field(name).type for name in self.names]

        def encode(part: ChangeBatch) -> list[pa.Array]:
            keys = (unify_floats(to_spark(column)) for column in read_columns(part.rows, layout.keys))
            place = (pa.array(np.ascontiguousarray(column)) for column in part.order.place.T)
            marks = [pa.array(part.deleted), pa.array(part.suspect)]
            age = [pa.array(part.order.dedup), *place, *marks, *read_moments(part, self.ages)]
            return [*keys, *encode_place(part), *age]

        def encode_rows(part: ChangeBatch) -> list[pa.Array]:
            own = wanted.select(part)
            return [*encode(own), *(to_spark(_forget_unsent(own.rows.column(name))) for name in self.names)]

        changes = unpack_changes(old_keys, self.table, spark_schema(kinds, aliases), encode)
        schema = spark_schema([*kinds, *types], [*aliases, *self.values])
        rows = unpack_changes(last_rows, self.table, schema, encode_rows).withColumn(_IS_ROW, F.lit(True))
        return rows.unionByName(changes.withColumn(_IS_ROW, F.lit(False)), allowMissingColumns=True)

    def _link_rows(self, events: DataFrame) -> DataFrame:
        """Return the changes of key with what the batch knows of the row that each took along.

        `_BEFORE` is the change which made that row, where it leaves values out.
        """
        keys, values = self.keys, self.values
        own = [field for name in (RECORD, *keys, *values) for field in events.schema if field.name == name]
        kinds = [*[pa.int64()] * 3, pa.list_(pa.bool_()), *[pa.int64()] * 2]
        schema = StructType(
            [*own, *spark_schema(kinds, [*attrs.astuple(CHANGED), _BEFORE, _KNOWN, *attrs.astuple(TOOK)])]
        )

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from (link_rows(some, keys, values, schema.names) for some in gather_keys(batches, keys))

        return events.repartition(*keys).sortWithinPartitions(*keys).mapInArrow(task, schema)

    def _forget_older_rows(self, linked: DataFrame, stood: HeldRows) -> DataFrame:
        """Return the changes of key without the rows that they took along where the table had a later one by then.

        What a connector sends again may begin the batch's history of a key, and end before what the table has of it.
        """
        own = (*attrs.astuple(CHANGED), *attrs.astuple(TOOK))
        doubted = linked.where(F.col(TOOK.time).isNotNull()).select(F.col(RECORD).alias(_TOLD), *self.keys, *own)
        later = doubted.join(stood.rows, stood.is_between(self.keys, TOOK, CHANGED)).select(_TOLD).distinct()
        is_last = F.col(_TOLD).isNull()
        unknown = F.transform(_KNOWN, lambda _: F.lit(False))
        kept = [F.when(is_last, F.col(name)).alias(name) for name in (*self.values, _BEFORE)]
        kept.append(F.when(is_last, F.col(_KNOWN)).otherwise(unknown).alias(_KNOWN))
        joined = linked.join(later, F.col(RECORD) == F.col(_TOLD), "left")
        return joined.select(RECORD, *self.keys, *attrs.astuple(CHANGED), *kept)

    def _join_held_rows(self, followed: DataFrame, linked: DataFrame, held: HeldRows | None) -> DataFrame:
        """Add where the table has each row that a change took along, under the key that the change before gave it."""
        if held is None:
            return followed.withColumn(_HELD, F.lit(None).cast(_HELD_TYPE))
        since, own = linked.select(F.col(RECORD).alias(_TOLD), *_since()), attrs.astuple(CHANGED)
        lives = followed.select(RECORD, _BEFORE, *self.keys, *own).join(since, F.col(_BEFORE) == F.col(_TOLD))
        found = lives.drop(_TOLD).join(held.rows, held.is_within(self.keys, SINCE, CHANGED))
        where = zip(held.place, (HELD_FILE, HELD_POSITION), strict=True)
        columns = [*(F.col(own).alias(name) for own, name in where), is_unsure(CHANGED).alias(HELD_UNSURE)]
        found = found.groupBy(F.col(RECORD).alias(_TOLD)).agg(
            F.max_by(F.struct(*columns), ORDER).cast(_HELD_TYPE).alias(_HELD)
        )
        return followed.join(found, F.col(RECORD) == F.col(_TOLD), "left").drop(_TOLD)

    def _follow(self, followed: DataFrame, linked: DataFrame) -> DataFrame:
        """Return the changes whose row was made by another key change, with the values of the earlier changes."""
        marks = F.concat(F.col(_KNOWN), F.array(F.col(_HELD).isNotNull())).alias(_KNOWN)
        narrow = followed.select(RECORD, _BEFORE, marks).coalesce(1)
        pairs = narrow.mapInArrow(chain_task(len(self.names) + 1), _CHAIN_SCHEMA)
        held = followed.select(F.col(RECORD).alias(_TOLD), _HELD)
        root_columns = (*self.keys, *attrs.astuple(CHANGED))
        rows = linked.select(F.col(RECORD).alias(_TOLD), F.struct(*root_columns).alias("_root"), *self.values)
        joined = pairs.join(rows.join(held, _TOLD, "left"), F.col(_FROM) == F.col(_TOLD))
        known = (
            F.first(F.when(F.col(_KNOWN)[place], F.col(name)), ignorenulls=True).alias(name)
            for place, name in enumerate((*self.values, _HELD))
        )
        rows_before = joined.groupBy(_OF).agg(F.max_by("_root", _DEPTH).alias("_root"), *known)
        root = {name: F.col(f"_root.{name}").alias(name) for name in root_columns}
        rows_before = rows_before.join(followed.select(F.col(RECORD).alias(_OF), *_since()), _OF)
        return rows_before.select(
            F.col(_OF).alias(RECORD),
            *(root[name] for name in self.keys),
            *self.values,
            *(root[name] for name in attrs.astuple(CHANGED)),
            *attrs.astuple(SINCE),
            *(F.col(f"{_HELD}.{name}").alias(name) for name, _ in _HELD_TYPES),
        )


def _persist(frame: DataFrame, until: ExitStack) -> DataFrame:
    until.callback(frame.unpersist)
    return frame.persist(StorageLevel.MEMORY_AND_DISK)


def _since() -> list[Column]:
    """Return a change's own moment, under the names that it has for the row that it made."""
    pairs = zip(attrs.astuple(CHANGED), attrs.astuple(SINCE), strict=True)
    return [F.col(own).alias(name) for own, name in pairs]


def read_moments(part: ChangeBatch, ages: AgeColumns) -> tuple[pa.Array, pa.Array]:
    """Return when changes were written, as the column of their rows has it, else their dedup values, and where that
    stands in the source's log, null where rows do not tell it.
    """
    place = pa.nulls(len(part), pa.int64())
    if ages.place is not None:
        place = part.rows.column(ages.place).cast(pa.int64())
    if ages.time is not None:
        return count_milliseconds(part.rows.column(ages.time), ages.time).cast(pa.int64()), place
    return pa.array(part.order.dedup, mask=part.order.dedup == NO_VALUE), place


def _forget_unsent(column: pa.Array) -> pa.Array:
    """Return null in place of what an event did not send."""
    unsent = find_unavailable(column)
    return column if unsent is None else column.take(pa.array(np.arange(len(column)), mask=unsent))


def gather_keys(batches: Iterator[pa.RecordBatch], keys: list[str]) -> Iterator[pa.RecordBatch]:
    """Cut batches, sorted by key, again: all rows of a key come in one. It holds those of one key, and one batch."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        last = [waiting[-1].slice(waiting[-1].num_rows - 1)] if waiting else []
        codes = encode_keys(pa.concat_batches([one.select(keys) for one in (*last, batch)]).columns)
        ends = np.flatnonzero(codes != codes[-1])
        start = int(ends[-1]) + 1 - len(last) if len(ends) else -1
        if start >= 0:
            yield pa.concat_batches([*waiting, batch.slice(0, start)])
            waiting = []
        waiting.append(batch.slice(max(start, 0)))
    if waiting:
        yield pa.concat_batches(waiting)


def link_rows(
    events: pa.RecordBatch, keys: Sequence[str], values: Sequence[str], names: Sequence[str]
) -> pa.RecordBatch:
    """Return the changes among some events, with the row that each took along, and when that was written where it may
    be older than the table's; columns as `RowsBefore` has them.
    """
    codes = encode_keys([events.column(name) for name in keys])
    is_row = np.asarray(events.column(_IS_ROW))
    at, row_at = np.flatnonzero(~is_row), np.flatnonzero(is_row)
    changes, rows = (_read_key_events(events, codes, which) for which in (at, row_at))
    preceding = find_preceding_rows(changes, rows)
    has_row = preceding >= 0
    rows_taken = np.append(row_at, 0)[preceding]
    source = pa.array(rows_taken, mask=~has_row)
    columns = [events.column(name).take(source) for name in values]
    known = np.column_stack([valid_mask(column) for column in columns])
    moved = has_row & np.asarray(events.column(_MOVED))[rows_taken] & ~known.all(axis=1)
    record = pa.array(np.asarray(events.column(RECORD))[rows_taken], mask=~moved)
    own = [events.column(name).take(pa.array(at)) for name in (RECORD, *keys)]
    changed = [events.column(name).take(pa.array(at)) for name in (_TIME, _PLACE)]
    doubted = has_row & np.asarray(events.column(_SUSPECT))[rows_taken]
    took = [events.column(name).take(pa.array(rows_taken, mask=~doubted)) for name in (_TIME, _PLACE)]
    return pa.RecordBatch.from_arrays([*own, *columns, *changed, record, _pack_marks(known), *took], list(names))


def _read_key_events(events: pa.RecordBatch, codes: Ints, which: Ints) -> KeyEvents:
    def read(name: str) -> Ints:
        numbers: Ints = np.asarray(events.column(name))[which]
        return numbers

    record, age = read(RECORD), [read(name) for name in _AGE]
    return KeyEvents(
        codes=codes[which],
        partition=record >> RECORD_BITS,
        offset=record & ((1 << RECORD_BITS) - 1),
        dedup=age[0],
        place=np.column_stack(age[1:]),
        ended=read(_ENDED).view(np.bool_),
    )


def chain_task(width: int) -> Task:
    """Return the task that follows changes of key; `width` is the number of columns. It holds them all, as numbers."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        links = [(np.array(b.column(0)), np.array(b.column(1)), _unpack_marks(b.column(2), width)) for b in batches]
        if links:
            at, before = (np.concatenate([one[place] for one in links]) for place in (0, 1))
            for some in follow_chains(at, before, np.concatenate([known for *_, known in links])):
                columns = [pa.array(some.of), pa.array(some.source), _pack_marks(some.columns)]
                depth = pa.array(some.depth.astype(np.int32))
                yield pa.RecordBatch.from_arrays([*columns, depth], [_OF, _FROM, _KNOWN, _DEPTH])

    return task


def _pack_marks(marks: Marks) -> pa.Array:
    """Return a list for each row of marks."""
    rows, width = marks.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(marks).ravel()))


def _unpack_marks(column: pa.Array, width: int) -> Marks:
    marks: Marks = np.asarray(column.flatten()).reshape(-1, width)
    return marks
