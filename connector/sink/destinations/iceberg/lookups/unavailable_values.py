"""Rows with unsent values that no change of their key tells -> those rows whole, and deletes of the old ones.

came    rows with unsent values (`fold.unavailable_values`), each to be looked up under its own key, or, where it goes
        back to a create that a change of key made, under the key before (`convert.key_change_headers`)
before  what the batch knows of such a row from before its key changed, change by change (`lookups.key_changes`)
own     what the table has of the row under its new key, where the change of key came once before
held    what it has of the row under a key that the row got and lost in this batch, for the same reason
live    the table as it was at batch start
struck  rows of its files that deletes hit: what an old key had, where the delete of it came in an earlier batch
One join by Spark, only for batches that have such rows. What none of them tells stays as it came. So does what `own`
lacks too, where nothing tells whether a row was there before the change of key or came later in its transaction: the
change may have come again, and nobody have told the value. Nor is `struck` asked for what a row that is there lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.nested_columns import find_field
from connector.iceberg.types.values.spark_types import from_spark, to_spark
from connector.sink.destinations.iceberg.lookups.filled_values import TableSides, coalesce_unavailable
from connector.sink.destinations.iceberg.lookups.held_rows import (
    ORDER,
    PLACE,
    READ,
    AgeColumns,
    find_place_column,
    find_time_column,
    hold_rows,
    is_before,
    is_since,
    is_unsure,
    tell_age,
)
from connector.sink.destinations.iceberg.lookups.key_changes import (
    CHANGED,
    HELD_UNSURE,
    PLACE_TYPES,
    RECORD,
    SINCE,
    RowsBefore,
    encode_place,
)
from connector.sink.destinations.iceberg.lookups.row_rewrite import rewrite_task
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.join_columns import TableRows, column_aliases, key_column, spark_schema, unpack_changes
from connector.sink.model import task_output
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind
from serde.arrays import Mask, valid_mask

FILE_LABEL = "patch"
_RECORD, _MOVED = "_record", "_moved"
_SIDES = ("own", "before", "held", "live", "struck")
"""Where values are taken from, the first that has them: the closer to the row as it is now, the earlier."""
_UNSURE = {"held": HELD_UNSURE, "live": "_live_unsure", "struck": "_struck_unsure"}
"""Which column tells of each side that its row may be another one."""


@attrs.frozen
class _JoinColumns:
    """Key columns, columns that may be unavailable (`rest`: not readable by Spark), and the types of all."""

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
    outputs: DataFrame,
    table: TablePlan,
    table_rows: TableRows,
    until: ExitStack,
    *,
    moved: bool,
    dedup_column: str,
    op_field: str,
    prefix: str,
) -> DataFrame:
    """Write the rows with stored values in place of unavailable ones; return the outputs of the files.

    Args:
        outputs: outputs of this table, of kinds UNAVAILABLE_ROWS, OLD_KEY_ROWS and LAST_ROWS.
        table: its plan.
        table_rows: what the table held at batch start.
        until: closes what the frame is read from.
        moved: whether there are outputs of kind OLD_KEY_ROWS.
        dedup_column: what tells the later of two rows of a key.
        op_field: the column that tells rows that were read.
        prefix: what the names of added fields begin with.
    """
    layout = file_layout(table)
    keys = layout.keys
    unsent = [f.name for f in layout.columns if f.name not in keys and _may_be_unavailable(f.type)]
    values, rest = (tuple(name for name in unsent if (name in table_rows.names) is read) for read in (True, False))
    sides = _JoinColumns(keys, layout.key_paths, values, rest, layout.columns)
    times = find_time_column(layout, dedup_column, prefix) if moved else None
    order = times or (dedup_column if moved and dedup_column in table_rows.names else None)
    ages = AgeColumns(times, None if times is None else find_place_column(layout, prefix))
    live = tell_age(table_rows.live_rows, table_rows, layout, ages, op_field)
    struck = tell_age(table_rows.deleted_rows, table_rows, layout, attrs.evolve(ages, time=order), op_field)
    joined = _name_own_keys(_read_incoming(outputs, table), sides)
    old_keys = [F.lit(None)] * len(sides.paths)
    if moved:
        before = RowsBefore(table, sides.names, ages)
        held, gone = (None if times is None else hold_rows(table_rows, rows, layout) for rows in (live, struck))
        moves, last_rows = (_filter_kind(outputs, kind) for kind in (OutputKind.OLD_KEY_ROWS, OutputKind.LAST_ROWS))
        known = before.find(moves, last_rows, until, held, gone)
        joined = joined.join(known, (F.col(_RECORD) == F.col(RECORD)) & F.col(_MOVED), "left")
        old_keys = [F.col(name) for name in before.keys]
    joined = joined.select("*", *_choose_keys(sides, old_keys))
    joined = _join_live_rows(joined, table_rows, live, sides, dated=times is not None)
    if order is not None:
        joined = _join_struck(joined, table_rows, struck, sides, dated=times is not None)
    batch_sides = ("before",) if moved else ()
    table_sides = ("own",) * (times is not None) + ("live",) + ("struck",) * (order is not None)
    columns = _list_columns(sides, batch_sides, table_sides)
    doubted = tuple(side for side in _UNSURE if times is not None and (side in table_sides or side == "held"))
    columns += [_UNSURE[side] for side in doubted]
    fill = partial(
        _fill_rows, layout=layout, sides=sides, batch_sides=batch_sides, table_sides=table_sides, doubted=doubted
    )
    return joined.select(*columns).mapInArrow(rewrite_task(table, FILE_LABEL, fill), task_output.OUTPUT_SCHEMA)


def _list_columns(sides: _JoinColumns, batch_sides: Sequence[str], table_sides: Sequence[str]) -> list[str]:
    """Return what `_fill_rows` asks of joined rows: their own columns, and the values and places of each side."""
    columns = [*column_aliases("came", len(sides.columns)), _MOVED]
    for side in batch_sides:
        columns += [*column_aliases(side, len(sides.names)), *_place_names("held")]
    for side in table_sides:
        columns += [*column_aliases(side, len(sides.values)), *_place_names(side)]
    return columns


def _fill_rows(
    batch: pa.RecordBatch,
    *,
    layout: TableLayout,
    sides: _JoinColumns,
    batch_sides: tuple[str, ...],
    table_sides: tuple[str, ...],
    doubted: tuple[str, ...],
) -> pa.RecordBatch:
    """Return joined rows with unavailable values filled from the first side that has them: what the table has of the
    very row, then what the batch has.
    """
    own = column_aliases("came", len(layout.columns))
    columns = {f.name: from_spark(batch.column(a), f.type) for f, a in zip(layout.columns, own, strict=True)}
    told = {name: TableSides() for name in sides.names}
    for side in _SIDES:
        names = sides.names if side in batch_sides else sides.values if side in table_sides else ()
        at_places = sides.rest if side in table_sides else sides.names if side == "held" and batch_sides else ()
        stored = _read_side(batch, side, [layout.columns.field(name) for name in names])
        stored |= _read_side_at(batch, side, [layout.columns.field(name) for name in at_places], layout)
        if side != "before":
            unsure = np.asarray(batch.column(_UNSURE[side]).fill_null(False)) if side in doubted else None
            stored = {name: told[name].take(side, column, unsure) for name, column in stored.items()}
        there = _mark_own_rows(batch) if side == "live" else None
        columns |= {name: coalesce_unavailable(columns[name], column, there) for name, column in stored.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.columns)


def _mark_own_rows(batch: pa.RecordBatch) -> Mask:
    """Mark the rows that the table has under a key that no change of key gave them: no other row had it meanwhile."""
    file, _ = _place_names("live")
    moved = np.asarray(batch.column(_MOVED).fill_null(False))
    return valid_mask(batch.column(file)) & ~moved


def _read_side(batch: pa.RecordBatch, side: str, fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
    aliases = column_aliases(side, len(fields))
    return {f.name: from_spark(batch.column(alias), f.type) for f, alias in zip(fields, aliases, strict=True)}


def _read_side_at(
    batch: pa.RecordBatch, side: str, fields: Sequence[pa.Field], layout: TableLayout
) -> dict[str, pa.Array]:
    """Return what a side has in columns that Spark did not read, from where its rows are."""
    if not fields:
        return {}
    files, positions = (batch.column(name) for name in _place_names(side))
    return dict(zip((f.name for f in fields), read_rows_at(layout, files, positions, fields), strict=True))


def _name_own_keys(incoming: DataFrame, sides: _JoinColumns) -> DataFrame:
    """Add the keys of incoming rows under the names that joins ask for."""
    alias = dict(zip(sides.columns.names, column_aliases("came", len(sides.columns)), strict=True))
    names = column_aliases("self", len(sides.paths))
    keys = (key_column(alias, path).alias(name) for path, name in zip(sides.paths, names, strict=True))
    return incoming.select("*", *keys)


def _choose_keys(sides: _JoinColumns, old: Sequence[Column]) -> list[Column]:
    """Return the keys under which the table has rows: of a row that a change of key made its old one, null where its
    header tells none. Another row had its new key.
    """
    names = (column_aliases(side, len(sides.paths)) for side in ("self", "under"))
    return [
        F.when(F.col(_MOVED), before).otherwise(F.col(own)).alias(name)
        for before, own, name in zip(old, *names, strict=True)
    ]


def _join_live_rows(
    joined: DataFrame, table_rows: TableRows, live: DataFrame, sides: _JoinColumns, *, dated: bool
) -> DataFrame:
    """Add the table's values of each row; where rows tell when they were written (`dated`), those of that time."""
    wanted = {"live": ("under", is_before(CHANGED) if dated else F.lit(True))}
    if dated:
        wanted["own"] = ("self", F.col(_MOVED) & is_since(SINCE))
    for side, (under, condition) in wanted.items():
        rows = _rename_columns(live, side, table_rows, sides, ORDER, PLACE, READ)
        joined = _join_side(joined, side, rows, sides, condition, under)
        if dated and side in _UNSURE:
            joined = joined.withColumn(_UNSURE[side], is_unsure(CHANGED))
        joined = joined.drop(ORDER, PLACE, READ)
    return joined


def _may_be_unavailable(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind)


def _filter_kind(outputs: DataFrame, kind: str) -> DataFrame:
    return outputs.where(F.col("kind") == kind)


def _read_incoming(outputs: DataFrame, table: TablePlan) -> DataFrame:
    """Return the rows with unavailable values, and the position of the create that each goes back to."""
    columns = table.layout.columns
    schema = spark_schema([*columns.types, *PLACE_TYPES], [*column_aliases("came", len(columns)), _RECORD, _MOVED])
    return unpack_changes(_filter_kind(outputs, OutputKind.UNAVAILABLE_ROWS), table, schema, _encode_rows)


def _rename_columns(rows: DataFrame, side: str, table_rows: TableRows, sides: _JoinColumns, *also: str) -> DataFrame:
    paths = (*sides.paths, *((name,) for name in sides.values))
    pairs = zip(paths, _side_columns(side, sides), strict=True)
    place = (F.col(name).alias(alias) for name, alias in zip(table_rows.place, _place_names(side), strict=True))
    return rows.select(*(key_column(table_rows.names, path).alias(alias) for path, alias in pairs), *place, *also)


def _place_names(side: str) -> tuple[str, str]:
    return f"_{side}_file", f"_{side}_pos"


def _join_struck(
    joined: DataFrame, table_rows: TableRows, struck: DataFrame, sides: _JoinColumns, *, dated: bool
) -> DataFrame:
    """Add the last deleted row of each old key, among rows from before its change.

    A row that had its key before is in the table: the deleted one was another.
    """
    rows = _rename_columns(struck, "struck", table_rows, sides, ORDER, PLACE, READ)
    keys = column_aliases("struck_key", len(sides.keys))
    under = column_aliases("under", len(sides.keys))
    changed = attrs.astuple(CHANGED) if dated else ()
    keys_to_find = joined.where(F.col(_MOVED)).select(_RECORD, *under, *changed)
    condition = is_before(CHANGED) if dated else F.lit(True)
    for own, key in zip(under, keys, strict=True):
        condition = condition & (F.col(own) == F.col(key))
    values = [name for name in _side_columns("struck", sides) if name not in keys] + [*_place_names("struck")]
    rank = F.struct(~F.col(READ), *(F.coalesce(name, F.lit(-(2**63))) for name in (ORDER, PLACE)))
    unsure = (is_unsure(CHANGED) if dated else F.lit(False)).alias(_UNSURE["struck"])
    last = F.max_by(F.struct(*values, unsure), rank).alias("_row")
    values.append(_UNSURE["struck"])
    last_rows = keys_to_find.join(rows, condition).groupBy(_RECORD).agg(last)
    deleted_rows = last_rows.select(
        F.col(_RECORD).alias("_struck_record"), *(F.col(f"_row.{name}").alias(name) for name in values)
    )
    return joined.join(deleted_rows, F.col(_RECORD) == F.col("_struck_record"), "left").drop("_struck_record")


def _side_columns(side: str, sides: _JoinColumns) -> list[str]:
    return [*column_aliases(f"{side}_key", len(sides.keys)), *column_aliases(side, len(sides.values))]


def _join_side(
    joined: DataFrame, side: str, rows: DataFrame, sides: _JoinColumns, condition: Column, under: str
) -> DataFrame:
    for own, key in zip(*(column_aliases(name, len(sides.keys)) for name in (under, f"{side}_key")), strict=True):
        condition = condition & (F.col(own) == F.col(key))
    return joined.join(rows, condition, "left")


def _encode_rows(part: ChangeBatch) -> list[pa.Array]:
    return [*(to_spark(column) for column in part.rows.columns), *encode_place(part)]
