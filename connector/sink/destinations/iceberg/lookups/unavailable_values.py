"""Rows with unsent values that no change of their key tells -> those rows whole, and deletes of the old ones.

came    rows with unsent values (`fold.unavailable_values`), each to be looked up under its own key, or, where it goes
        back to a create that a change of key made, under the key before (`convert.key_change_headers`)
last    the last rows that the batch knows of each key
live    the table as it was at batch start
struck  rows of its files that deletes hit: what an old key had, where the delete of it came in an earlier batch
One join by Spark, only for batches that have such rows. What none of them tells stays as it came.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.read.positional_reader import picked
from connector.iceberg.types.nested_columns import Path, columns_of, field_of
from connector.iceberg.types.spark_types import from_spark, to_spark
from connector.sink.convert.key_change_headers import MOVED
from connector.sink.destinations.iceberg.lookups.snapshot_rows import Held, aliases, key_at, rewritten, shape, unpacked
from connector.sink.model import task_output
from connector.sink.model.change_rows import Part
from connector.sink.model.plan import TablePlan
from serde.arrays import valid_of
from serde.events.unavailable_value import unavailable

LABEL = "patch"
_PLACE = ("_partition", "_offset", "_moved")
_PLACE_TYPES = [pa.int64(), pa.int64(), pa.bool_()]


@attrs.frozen
class _Sides:
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
        return [field_of(self.columns, name).type for name in names]


def patched(parcelled: DataFrame, table: TablePlan, held: Held, *, moved: bool, dedup_column: str) -> DataFrame:
    """Write the rows with known values in place of unsent ones; give the parcels of the files.

    Args:
        parcelled: parcels of this table, of kinds PATCH, MOVED and LAST.
        table: its plan.
        held: what the table held at batch start.
        moved: whether there are parcels of kind MOVED.
        dedup_column: what tells the later of two rows of a key that are both gone.
    """
    layout = table.layout
    keys = layout.keys
    unsent = [f.name for f in layout.columns if f.name not in keys and _may_be_unsent(f.type)]
    values, rest = (tuple(name for name in unsent if (name in held.names) is read) for read in (True, False))
    sides = _Sides(keys, layout.key_paths, values, rest, layout.columns)
    joined = _came(parcelled, table, sides, moved=moved)
    joined = _joined(joined, "last", _last(parcelled, table, sides), sides)
    joined = _joined(joined, "live", _named(held.live, "live", held, sides), sides)
    looked_in = ["last", "live"]
    if moved and dedup_column in held.names:
        joined = _joined(joined, "struck", _latest(held, sides, held.names[dedup_column]), sides)
        looked_in.append("struck")
    own = aliases("came", len(layout.columns))
    found = [*aliases("last", len(unsent))]
    found += [name for side in looked_in[1:] for name in (*aliases(side, len(values)), *_place_names(side))]
    fields = [layout.columns.field(name) for name in rest]

    def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {f.name: from_spark(batch.column(a), f.type) for f, a in zip(layout.columns, own, strict=True)}
        for side in looked_in:
            own_names = sides.names if side == "last" else values
            for name, alias in zip(own_names, aliases(side, len(own_names)), strict=True):
                columns[name] = kept(columns[name], from_spark(batch.column(alias), columns[name].type))
            if rest and side != "last":
                files, positions = (batch.column(name) for name in _place_names(side))
                for field, column in zip(fields, picked(layout, files, positions, fields), strict=True):
                    columns[field.name] = kept(columns[field.name], column)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=layout.columns)

    return joined.select(*own, *found).mapInArrow(rewritten(table, LABEL, filled), task_output.SCHEMA)


def _may_be_unsent(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind)


def _of_kind(parcelled: DataFrame, kind: str) -> DataFrame:
    return parcelled.where(F.col("kind") == kind)


def _came(parcelled: DataFrame, table: TablePlan, sides: _Sides, *, moved: bool) -> DataFrame:
    """Give the rows with unsent values, and in `_under_0`, ... the key to look each of them up under."""
    columns, keys = table.layout.columns, sides.keys
    own = aliases("came", len(columns))
    made = shape([*columns.types, *_PLACE_TYPES], [*own, *_PLACE])
    came = unpacked(_of_kind(parcelled, task_output.PATCH), table, made, _row_and_place)
    alias = dict(zip(columns.names, own, strict=True))
    under = aliases("under", len(keys))
    if not moved:
        return came.select(
            "*", *(key_at(alias, path).alias(name) for path, name in zip(sides.paths, under, strict=True))
        )
    old, at = aliases("old", len(keys)), ("_at_partition", "_at_offset", "_at_moved")
    made = shape([*sides.types(keys), *_PLACE_TYPES], [*old, *at])
    before = unpacked(_of_kind(parcelled, task_output.MOVED), table, made, lambda part: _keys_and_place(part, keys))
    same = (F.col("_partition") == F.col(at[0])) & (F.col("_offset") == F.col(at[1])) & F.col("_moved")
    joined = came.join(before, same, "left")
    chosen = zip(sides.paths, old, under, strict=True)
    return joined.select("*", *(F.coalesce(F.col(o), key_at(alias, path)).alias(name) for path, o, name in chosen))


def _last(parcelled: DataFrame, table: TablePlan, sides: _Sides) -> DataFrame:
    names = (*sides.keys, *sides.names)
    keys, values = aliases("last_key", len(sides.keys)), aliases("last", len(sides.names))
    made = shape(sides.types(names), [*keys, *values])

    def columns(part: Part) -> list[pa.Array]:
        return [to_spark(column) for column in columns_of(part.rows, names)]

    return unpacked(_of_kind(parcelled, task_output.LAST), table, made, columns)


def _named(rows: DataFrame, side: str, held: Held, sides: _Sides, *also: str) -> DataFrame:
    paths = (*sides.paths, *((name,) for name in sides.values))
    pairs = zip(paths, _side(side, sides), strict=True)
    place = (F.col(name).alias(alias) for name, alias in zip(held.place, _place_names(side), strict=True))
    return rows.select(*(key_at(held.names, path).alias(alias) for path, alias in pairs), *place, *also)


def _place_names(side: str) -> tuple[str, str]:
    return f"_{side}_file", f"_{side}_pos"


def _latest(held: Held, sides: _Sides, order: str) -> DataFrame:
    """Give the last row of each key among those that are gone."""
    rows = _named(held.struck.withColumn("_order", F.col(order).cast("bigint")), "struck", held, sides, "_order")
    keys = aliases("struck_key", len(sides.keys))
    values = [name for name in rows.columns if name not in (*keys, "_order")]
    last = F.max_by(F.struct(*values), F.coalesce("_order", F.lit(-(2**63)))).alias("_row")
    grouped = rows.groupBy(*keys).agg(last)
    return grouped.select(*keys, *(F.col(f"_row.{name}").alias(name) for name in values))


def _side(side: str, sides: _Sides) -> list[str]:
    return [*aliases(f"{side}_key", len(sides.keys)), *aliases(side, len(sides.values))]


def _joined(joined: DataFrame, side: str, rows: DataFrame, sides: _Sides) -> DataFrame:
    condition = F.lit(True)
    for under, key in zip(*(aliases(name, len(sides.keys)) for name in ("under", f"{side}_key")), strict=True):
        condition = condition & (F.col(under) == F.col(key))
    return joined.join(rows, condition, "left")


def _row_and_place(part: Part) -> list[pa.Array]:
    return [*(to_spark(column) for column in part.rows.columns), *_place(part)]


def _keys_and_place(part: Part, keys: Sequence[str]) -> list[pa.Array]:
    return [*(to_spark(column) for column in columns_of(part.rows, keys)), *_place(part)]


def _place(part: Part) -> list[pa.Array]:
    order = part.order
    return [pa.array(order.partition), pa.array(order.offset), pa.array(np.asarray(order.op == MOVED))]


def kept(came: pa.Array, held: pa.Array) -> pa.Array:
    """Give the column that came, with what is held elsewhere where a value was not sent."""
    unsent = unavailable(came)
    if unsent is None:
        return came
    place = np.arange(len(came)) + np.where(unsent & valid_of(held), len(came), 0)
    return pa.concat_arrays([came, held]).take(pa.array(place))
