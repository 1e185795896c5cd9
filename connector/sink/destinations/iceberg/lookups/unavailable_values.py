"""Rows with unsent values that no change of their key tells -> those rows whole, and deletes of the old ones.

came    rows with unsent values (`fold.unavailable_values`), each to be looked up under its own key, or, where it goes
        back to a create that a change of key made, under the key before (`convert.key_change_headers`)
reused  rows of the batch that were deleted before their key was given to another: a change of key meant them if its
        delete stands where its create does in the source's log
last    the last rows that the batch knows of each key, for the others
live    the table as it was at batch start
struck  rows of its files that deletes hit: what an old key had, where the delete of it came in an earlier batch
One join by Spark, only for batches that have such rows. What none of them tells stays as it came.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.types.nested_columns import Path, find_field, read_columns
from connector.iceberg.types.spark_types import from_spark, to_spark
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.join_columns import TableRows, column_aliases, key_column, spark_schema, unpack_changes
from connector.sink.model import task_output
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind
from serde.arrays import Mask, valid_mask
from serde.events.document_patches import apply_patches, find_patches
from serde.events.source_positions import NO_VALUE
from serde.events.unavailable_value import find_unavailable

FILE_LABEL = "patch"
_PLACE_COLUMNS = ("_partition", "_offset", "_moved")
_PLACE_TYPES = [pa.int64(), pa.int64(), pa.bool_()]
_EVENT, _REUSED = "_event", "_reused_event"
"""Where in the source's log a change of key stands, as create and as delete."""
_CHANGED, _LIVE_ORDER = "_changed", "_live_order"
"""The dedup values of a change of key, and of the row that the table has: a later one is another row's."""


@attrs.frozen
class _JoinColumns:
    """The table's keys, its columns that may be unsent (`rest`: those that Spark does not read), all columns' types."""

    keys: tuple[str, ...]
    paths: tuple[Path, ...]
    values: tuple[str, ...]
    rest: tuple[str, ...]
    columns: pa.Schema

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are looked up."""
        return (*self.values, *self.rest)

    def types(self, names: Sequence[str]) -> list[pa.DataType]:
        return [find_field(self.columns, name).type for name in names]


def fill_from_table(
    outputs: DataFrame, table: TablePlan, held: TableRows, *, moved: bool, dedup_column: str
) -> DataFrame:
    """Write the rows with known values in place of unsent ones; return the outputs of the files.

    Args:
        outputs: outputs of this table, of kinds UNAVAILABLE_ROWS, OLD_KEY_ROWS, LAST_ROWS and REUSED_KEY_ROWS.
        table: its plan.
        held: what the table held at batch start.
        moved: whether there are outputs of kind OLD_KEY_ROWS.
        dedup_column: what tells the later of two rows of a key that are both gone.
    """
    layout = file_layout(table)
    keys = layout.keys
    unsent = [f.name for f in layout.columns if f.name not in keys and _may_be_unavailable(f.type)]
    values, rest = (tuple(name for name in unsent if (name in held.names) is read) for read in (True, False))
    sides = _JoinColumns(keys, layout.key_paths, values, rest, layout.columns)
    batch_sides = ("reused", "last") if moved else ("last",)
    order = dedup_column if moved and dedup_column in held.names else None
    table_sides = ("live",) if order is None else ("live", "struck")
    joined = _join_batch_rows(_read_incoming(outputs, table, sides, moved=moved), outputs, table, sides, moved=moved)
    joined = _join_table_rows(joined, table, held, sides, order)
    own = column_aliases("came", len(layout.columns))
    found = [name for side in batch_sides for name in column_aliases(side, len(unsent))]
    for side in table_sides:
        found += [*column_aliases(side, len(values)), *_place_names(side)]
    fields = [layout.columns.field(name) for name in rest]

    def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {f.name: from_spark(batch.column(a), f.type) for f, a in zip(layout.columns, own, strict=True)}
        for side in (*batch_sides, *table_sides):
            own_names = sides.names if side in batch_sides else values
            for name, alias in zip(own_names, column_aliases(side, len(own_names)), strict=True):
                columns[name] = coalesce_unavailable(columns[name], from_spark(batch.column(alias), columns[name].type))
            if rest and side not in batch_sides:
                files, positions = (batch.column(name) for name in _place_names(side))
                for field, column in zip(fields, read_rows_at(layout, files, positions, fields), strict=True):
                    columns[field.name] = coalesce_unavailable(columns[field.name], column)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.columns)

    return joined.select(*own, *found).mapInArrow(rewrite_task(table, FILE_LABEL, filled), task_output.OUTPUT_SCHEMA)


def _join_batch_rows(
    joined: DataFrame, outputs: DataFrame, table: TablePlan, sides: _JoinColumns, *, moved: bool
) -> DataFrame:
    """Add what the batch knows of each row: where its key was given to another, only what the delete of it says."""
    last = _read_batch_rows(_filter_kind(outputs, OutputKind.LAST_ROWS), table, sides, "last")
    if not moved:
        return _join_side(joined, "last", last, sides)
    reused = _read_batch_rows(_filter_kind(outputs, OutputKind.REUSED_KEY_ROWS), table, sides, "reused", _REUSED)
    joined = _join_side(joined, "reused", reused, sides, F.col(_EVENT) == F.col(_REUSED))
    return _join_side(joined, "last", last, sides, F.col(_REUSED).isNull())


def _join_table_rows(
    joined: DataFrame, table: TablePlan, held: TableRows, sides: _JoinColumns, order: str | None
) -> DataFrame:
    """Add what the table has of each row; with the column `order` what was deleted too, and no row that is later.

    Only numbers are dedup values as they came, and can tell what is later than a change of key.
    """
    if order is None:
        return _join_side(joined, "live", _rename_columns(held.live_rows, "live", held, sides), sides)
    exact, name = pa.types.is_integer(table.layout.columns.field(order).type), held.names[order]
    live = held.live_rows.withColumn(_LIVE_ORDER, F.col(name).cast("bigint") if exact else F.lit(None).cast("bigint"))
    earlier = F.coalesce(F.col(_LIVE_ORDER) <= F.col(_CHANGED), F.lit(True))
    joined = _join_side(joined, "live", _rename_columns(live, "live", held, sides, _LIVE_ORDER), sides, earlier)
    return _join_side(joined, "struck", _find_latest_deleted(held, sides, name), sides)


def _may_be_unavailable(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind)


def _filter_kind(outputs: DataFrame, kind: str) -> DataFrame:
    return outputs.where(F.col("kind") == kind)


def _read_incoming(outputs: DataFrame, table: TablePlan, sides: _JoinColumns, *, moved: bool) -> DataFrame:
    """Return the rows with unsent values, and in `_under_0`, ... the key to look each of them up under; with `moved`
    also where in the source's log the change of key stands.
    """
    columns, keys = table.layout.columns, sides.keys
    own = column_aliases("came", len(columns))
    made = spark_schema([*columns.types, *_PLACE_TYPES], [*own, *_PLACE_COLUMNS])
    came = unpack_changes(_filter_kind(outputs, OutputKind.UNAVAILABLE_ROWS), table, made, _encode_rows)
    alias = dict(zip(columns.names, own, strict=True))
    under = column_aliases("under", len(keys))
    if not moved:
        return came.select(
            "*", *(key_column(alias, path).alias(name) for path, name in zip(sides.paths, under, strict=True))
        )
    old, at = column_aliases("old", len(keys)), ("_at_partition", "_at_offset", "_at_moved")
    made = spark_schema([*sides.types(keys), *_PLACE_TYPES, pa.binary(), pa.int64()], [*old, *at, _EVENT, _CHANGED])
    before = unpack_changes(
        _filter_kind(outputs, OutputKind.OLD_KEY_ROWS),
        table,
        made,
        lambda part: [*_encode_keys(part, keys), _encode_event(part), _encode_dedup(part)],
    )
    same = (F.col("_partition") == F.col(at[0])) & (F.col("_offset") == F.col(at[1])) & F.col("_moved")
    joined = came.join(before, same, "left")
    chosen = zip(sides.paths, old, under, strict=True)
    return joined.select("*", *(F.coalesce(F.col(o), key_column(alias, path)).alias(name) for path, o, name in chosen))


def _read_batch_rows(
    rows: DataFrame, table: TablePlan, sides: _JoinColumns, side: str, event: str | None = None
) -> DataFrame:
    """Return rows of the batch by key; in the column `event`, if it is named, where in the source's log they stand."""
    names = (*sides.keys, *sides.names)
    keys, values = column_aliases(f"{side}_key", len(sides.keys)), column_aliases(side, len(sides.names))
    also = {} if event is None else {event: pa.binary()}
    made = spark_schema([*sides.types(names), *also.values()], [*keys, *values, *also])

    def columns(part: ChangeBatch) -> list[pa.Array]:
        told = [to_spark(column) for column in read_columns(part.rows, names)]
        return told if event is None else [*told, _encode_event(part)]

    return unpack_changes(rows, table, made, columns)


def _rename_columns(rows: DataFrame, side: str, held: TableRows, sides: _JoinColumns, *also: str) -> DataFrame:
    paths = (*sides.paths, *((name,) for name in sides.values))
    pairs = zip(paths, _side_columns(side, sides), strict=True)
    place = (F.col(name).alias(alias) for name, alias in zip(held.place, _place_names(side), strict=True))
    return rows.select(*(key_column(held.names, path).alias(alias) for path, alias in pairs), *place, *also)


def _place_names(side: str) -> tuple[str, str]:
    return f"_{side}_file", f"_{side}_pos"


def _find_latest_deleted(held: TableRows, sides: _JoinColumns, order: str) -> DataFrame:
    """Return the last row of each key among those that are gone."""
    rows = _rename_columns(
        held.deleted_rows.withColumn("_order", F.col(order).cast("bigint")), "struck", held, sides, "_order"
    )
    keys = column_aliases("struck_key", len(sides.keys))
    values = [name for name in rows.columns if name not in (*keys, "_order")]
    last = F.max_by(F.struct(*values), F.coalesce("_order", F.lit(-(2**63)))).alias("_row")
    grouped = rows.groupBy(*keys).agg(last)
    return grouped.select(*keys, *(F.col(f"_row.{name}").alias(name) for name in values))


def _side_columns(side: str, sides: _JoinColumns) -> list[str]:
    return [*column_aliases(f"{side}_key", len(sides.keys)), *column_aliases(side, len(sides.values))]


def _join_side(
    joined: DataFrame, side: str, rows: DataFrame, sides: _JoinColumns, condition: Column | None = None
) -> DataFrame:
    condition = F.lit(True) if condition is None else condition
    for under, key in zip(*(column_aliases(name, len(sides.keys)) for name in ("under", f"{side}_key")), strict=True):
        condition = condition & (F.col(under) == F.col(key))
    return joined.join(rows, condition, "left")


def _encode_rows(part: ChangeBatch) -> list[pa.Array]:
    return [*(to_spark(column) for column in part.rows.columns), *_encode_place(part)]


def _encode_keys(part: ChangeBatch, keys: Sequence[str]) -> list[pa.Array]:
    return [*(to_spark(column) for column in read_columns(part.rows, keys)), *_encode_place(part)]


def _encode_place(part: ChangeBatch) -> list[pa.Array]:
    order = part.order
    return [pa.array(order.partition), pa.array(order.offset), pa.array(np.asarray(order.op == OP_KEY_CHANGE))]


def _encode_event(part: ChangeBatch) -> pa.Array:
    """Return where each change stands in its source's log, and its dedup value: those of a delete and a create that
    are one change of key are the same.
    """
    told = np.ascontiguousarray(np.column_stack([part.order.dedup, part.order.place]).astype(np.int64))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(told.shape[1] * told.itemsize), len(part), [None, pa.py_buffer(told)]
    ).cast(pa.binary())


def _encode_dedup(part: ChangeBatch) -> pa.Array:
    return pa.array(part.order.dedup, mask=part.order.dedup == NO_VALUE)


def coalesce_unavailable(came: pa.Array, held: pa.Array) -> pa.Array:
    """Return the column that came, with what is held elsewhere where a value was not sent."""
    unsent = find_unavailable(came)
    if unsent is None:
        return came
    patches = find_patches(came)
    if patches is not None:
        return fill_patches(came, held, patches)
    place = np.arange(len(came)) + np.where(unsent & valid_mask(held), len(came), 0)
    return pa.concat_arrays([came, held]).take(pa.array(place))


def fill_patches(came: pa.Array, held: pa.Array, patches: Mask) -> pa.Array:
    """Return a column of documents with patches applied to what is held; a patch without document stays one."""
    places = np.flatnonzero(patches & valid_mask(held))
    made = apply_patches(held.take(pa.array(places)), came.take(pa.array(places)))
    where = np.arange(len(came))
    where[places] = len(came) + np.arange(len(places))
    return pa.concat_arrays([came, made]).take(pa.array(where))
