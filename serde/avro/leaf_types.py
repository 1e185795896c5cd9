"""Connect schema -> leaf of Avro: the table of types seen through what the Avro reader gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, valid_mask
from serde.connect import type_table
from serde.connect.connect_schema import LeafTypes
from serde.connect.schema_node import Convert, Leaf, Node
from serde.connect.type_table import Parameters, TypeMapping
from serde.json.json_types import chain


def _identity(value: object) -> object:
    return value


def _narrow_to(kind: pa.DataType) -> Convert:
    """int32 -> a smaller integer: Avro has none, Connect says what it was."""
    bound = 1 << kind.bit_width - 1

    def step(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        bad = valid_mask(array) & ((numbers < -bound) | (numbers >= bound))
        made = pa.array(np.where(bad, 0, numbers).astype(kind.to_pandas_dtype()), mask=bad | ~valid_mask(array))
        return made, bad if bad.any() else None

    return step


def find_leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """The leaf of a Connect type, its schema name and parameters; None for an unknown type.

    ValueError where Arrow and Iceberg have no such type.
    """
    row = type_table.find_type(kind, name, parameters)
    return None if row is None else _make_leaf(row)


def _make_leaf(row: TypeMapping) -> Leaf:
    if pa.types.is_int8(row.plain) or pa.types.is_int16(row.plain):
        return Leaf(pa.int32(), row.logical, row.name, _identity, chain(_narrow_to(row.plain), row.step))
    return Leaf(row.plain, row.logical, row.name, _identity, row.step)


def find_struct_leaf(name: str | None) -> Node | None:
    """The leaf of a struct that stands for one value, None for any other struct."""
    row = type_table.STRUCT_TYPES.get(name or "")
    return None if row is None else _make_leaf(row)


AVRO_LEAVES = LeafTypes(find_leaf, find_struct_leaf)
