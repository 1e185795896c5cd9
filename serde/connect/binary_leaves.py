"""Connect type -> leaf in a binary format: numbers lie there as they are, decimals as bytes, int16 as int32."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from attrs import evolve

from serde.arrays import Mask, valid_mask
from serde.connect import type_table
from serde.connect.schema_node import Convert, Leaf, Node, chain
from serde.connect.type_table import Parameters, TypeMapping
from serde.connect.values.number_text import bytes_to_number_text


def find_leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """Return the leaf of a Connect type, its schema name and parameters; None for an unknown type.

    Raises ValueError where Arrow and Iceberg have no such type.
    """
    row = type_table.find_type(kind, name, parameters)
    return None if row is None else evolve(_make_leaf(row), unknown=row.unknown)


def find_struct_leaf(name: str | None) -> Node | None:
    """Return the leaf of a struct that stands for one value, None for any other struct."""
    row = type_table.STRUCT_TYPES.get(name or "")
    return None if row is None else evolve(_make_leaf(row), parts=lambda array: (array, None))


def _make_leaf(row: TypeMapping) -> Leaf:
    if pa.types.is_int8(row.plain) or pa.types.is_int16(row.plain):
        return Leaf(pa.int32(), row.logical, row.name, _identity, chain(_narrow_to(row.plain), row.step))
    words = None if row.scale is None else partial(bytes_to_number_text, scale=row.scale)
    return Leaf(row.plain, row.logical, row.name, _identity, row.step, text=words)


def _identity(value: object) -> object:
    return value


def _narrow_to(kind: pa.DataType) -> Convert:
    """int32 -> a smaller integer: these formats have none, Connect says what it was."""
    bound = 1 << kind.bit_width - 1

    def step(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        bad = valid_mask(array) & ((numbers < -bound) | (numbers >= bound))
        narrowed = pa.array(np.where(bad, 0, numbers).astype(kind.to_pandas_dtype()), mask=bad | ~valid_mask(array))
        return narrowed, bad if bad.any() else None

    return step
