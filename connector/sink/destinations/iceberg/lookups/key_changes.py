"""Rows that a change of key made -> what the batch knows of them from before, change by change.

A change of key is a delete of the old key and a create of the new one, at one place of the source's log. So the row
before is, of all rows that the batch knows of the old key, the last one that is no later than the create: one that
ended by then, or the one that the key has. That row may have been made by a change of key itself (1 -> 2 -> 3, or two
keys that are swapped by way of a third), and is then followed to the key before, as far as the batch tells.

One task follows them all: it gets the changes of key, and the rows of the keys before, which are few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.spark_types import from_spark, to_spark
from connector.sink.destinations.iceberg.lookups.filled_values import coalesce_unavailable
from connector.sink.destinations.join_columns import column_aliases, spark_schema, unpack_changes
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.events.source_positions import NO_VALUE

PLACE_TYPES = [pa.int64(), pa.int64(), pa.bool_()]
"""Of the record that made a row: rank of its topic-partition, offset, and whether it is a change of key."""

CHANGED = "_changed"
_PLACE, _AGE = ("_at_partition", "_at_offset", "_at_moved"), ("_dedup", "_source", "_first", "_second", "_third")
_ENDED, _IS_ROW = "_ended", "_is_row"
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def encode_place(part: ChangeBatch) -> list[pa.Array]:
    """Return the columns of `PLACE_TYPES`."""
    order = part.order
    return [pa.array(order.partition), pa.array(order.offset), pa.array(np.asarray(order.op == OP_KEY_CHANGE))]


def find_rows_before(old_keys: DataFrame, last_rows: DataFrame, table: TablePlan, names: Sequence[str]) -> DataFrame:
    """Return what the batch knows of each row that a change of key made.

    Args:
        old_keys: outputs of kind OLD_KEY_ROWS of the table.
        last_rows: its outputs of kind LAST_ROWS.
        table: its plan.
        names: the columns that are asked for.

    Returns:
        A row for each change of key: where its create stands (`_at_partition`, `_at_offset`), the values before it
        (`_before_0`, ..; null where nothing is known), the key before the batch (`_old_0`, ..), and the dedup value of
        the change that took that key away.
    """
    layout = table.layout
    keys = column_aliases("old", len(layout.keys))
    key_types = [field.type for field in layout.key_fields]
    types = [layout.columns.field(name).type for name in names]
    values = column_aliases("row", len(names))
    schema = spark_schema(
        [*key_types, *types, *PLACE_TYPES, *[pa.int64()] * len(_AGE), pa.bool_(), pa.bool_()],
        [*keys, *values, *_PLACE, *_AGE, _ENDED, _IS_ROW],
    )

    def encode(part: ChangeBatch, *, is_row: bool) -> list[pa.Array]:
        order, count = part.order, len(part)
        known = [to_spark(column) for column in read_columns(part.rows, [*layout.keys, *names])]
        dedup = pa.array(order.dedup, mask=order.dedup == NO_VALUE)
        place = (pa.array(np.ascontiguousarray(column)) for column in order.place.T)
        return [
            *known,
            *encode_place(part),
            dedup,
            *place,
            pa.array(part.deleted),
            pa.array([is_row] * count, pa.bool_()),
        ]

    creates = unpack_changes(old_keys, table, schema, lambda part: encode(part, is_row=False))
    rows = unpack_changes(last_rows, table, schema, lambda part: encode(part, is_row=True))
    wanted = creates.select(*(F.col(name).alias(f"_of{name}") for name in keys)).distinct()
    same = F.lit(True)
    for name in keys:
        same = same & (F.col(name) == F.col(f"_of{name}"))
    asked = creates.unionAll(rows.join(F.broadcast(wanted), same, "left_semi")).coalesce(1)
    made = spark_schema(
        [*key_types, *types, pa.int64(), pa.int64(), pa.int64()],
        [*keys, *column_aliases("before", len(names)), *_PLACE[:2], CHANGED],
    )
    return asked.mapInArrow(_follow_task(keys, values, types, made.names), made)


def _follow_task(keys: Sequence[str], values: Sequence[str], types: Sequence[pa.DataType], made: Sequence[str]) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told = list(batches)
        if told:
            yield from follow(pa.Table.from_batches(told), keys, values, types, made).to_batches()

    return task


@attrs.frozen
class _Event:
    """A change of key, or a row: its key, where the create stands that made it, and its age."""

    index: int
    key: tuple[Any, ...]
    place: tuple[int, int]
    moved: bool
    dedup: int | None
    source: int
    position: tuple[int, int, int]
    ended: bool

    def is_no_later(self, other: _Event) -> bool:
        """Tell whether it stands before another in its source's log, or at its place; by dates where none is told."""
        if self.source == other.source and NO_VALUE not in (self.position[0], other.position[0]):
            return self.position <= other.position
        return self.dedup is None or other.dedup is None or self.dedup <= other.dedup

    @property
    def rank(self) -> tuple[tuple[int, int, int], int, bool]:
        """The later of two is greater; of one date the one that ended by it."""
        return self.position, NO_VALUE if self.dedup is None else self.dedup, self.ended


def follow(
    told: pa.Table, keys: Sequence[str], values: Sequence[str], types: Sequence[pa.DataType], made: Sequence[str]
) -> pa.Table:
    """Follow changes of key; the columns are those of `find_rows_before`.

    Cost: Python per change of key, and per row of a key that one took away.
    """
    is_row = np.asarray(told[_IS_ROW])
    events = list(_read_events(told, keys))
    creates = {event.place: event for event in events if not is_row[event.index]}
    rows: dict[tuple[Any, ...], list[_Event]] = defaultdict(list)
    for event in events:
        if is_row[event.index]:
            rows[event.key].append(event)
    chains = [_follow_one(create, creates, rows) for create in creates.values()]
    columns = [told[name].combine_chunks() for name in keys]
    last = pa.array([links[-1].index for links, _ in chains], pa.int64())
    known = [rows_before for _, rows_before in chains]
    pairs = zip(values, types, strict=True)
    found = [_collect(told[name].combine_chunks(), kind, known) for name, kind in pairs]
    places = [pa.array([event.place[side] for event in creates.values()], pa.int64()) for side in (0, 1)]
    changed = pa.array([links[-1].dedup for links, _ in chains], pa.int64())
    return pa.table([*(column.take(last) for column in columns), *found, *places, changed], list(made))


def _read_events(told: pa.Table, keys: Sequence[str]) -> Iterator[_Event]:
    names = (*_PLACE, *_AGE, _ENDED)
    key_values = list(zip(*(told[name].to_pylist() for name in keys), strict=True))
    columns = zip(*(told[name].to_pylist() for name in names), strict=True)
    for index, (partition, offset, moved, dedup, source, first, second, third, ended) in enumerate(columns):
        yield _Event(index, key_values[index], (partition, offset), moved, dedup, source, (first, second, third), ended)


def _follow_one(
    create: _Event, creates: dict[tuple[int, int], _Event], rows: dict[tuple[Any, ...], list[_Event]]
) -> tuple[list[_Event], list[int]]:
    """Return the changes of key of one row, the last first, and the indices of the rows before each, where known."""
    links, known = [create], list[int]()
    while True:
        before = [row for row in rows.get(links[-1].key, ()) if row.is_no_later(links[-1])]
        if not before:
            return links, known
        row = max(before, key=lambda one: one.rank)
        known.append(row.index)
        other = creates.get(row.place) if row.moved else None
        # Rows that tell no place could go round in circles.
        if other is None or other in links:
            return links, known
        links.append(other)


def _collect(column: pa.Array, kind: pa.DataType, chains: Sequence[Sequence[int]]) -> pa.Array:
    """Return for each chain of rows the value of the first that has one; in the types that Spark carries."""
    column, result = from_spark(column, kind), None
    for depth in range(max(map(len, chains), default=0) or 1):
        at = [chain[depth] if depth < len(chain) else None for chain in chains]
        own = column.take(pa.array(at, pa.int64()))
        result = own if result is None else coalesce_unavailable(result, own)
    return to_spark(result)
