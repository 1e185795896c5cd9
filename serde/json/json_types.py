"""Connect schema -> leaf of JSON: the table of types (`connect.type_table`) seen through what Kafka's JsonConverter writes.

Bytes are base64 text, reals may be words, integers and texts are themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from attrs import evolve

from serde import arrays
from serde.arrays import Mask
from serde.connect import type_table
from serde.connect.schema_node import Convert, Leaf, Node, Read
from serde.connect.type_table import Kind, Parameters
from serde.faults import Unfit
from serde.json import scalars


def _variable(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    """The base64 inside of a VariableScaleDecimal -> bytes."""
    scale, value = array.flatten()
    data, bad = arrays.binary(value)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([scale, data], ["scale", "value"], mask=mask), bad


def after(first: Convert | None, second: Convert | None) -> Convert | None:
    """Both steps, one after the other; what is bad in either is bad."""
    if first is None or second is None:
        return first or second

    def both(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        between, one = first(array)
        made, other = second(between)
        if one is None or other is None:
            return made, other if one is None else one
        return made, one | other

    return both


_SIZES: Mapping[str, int] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """The leaf of a schema type, its semantic name and parameters; None for an unknown type.

    ValueError where Arrow and Iceberg have no such type.
    """
    found = type_table.find(kind, name, parameters)
    return None if found is None else _leaf(kind, found)


def _leaf(kind: str, row: Kind) -> Leaf:
    label = row.name
    if kind in _SIZES:
        return Leaf(row.plain, row.logical, label, scalars.integer(label, _SIZES[kind]), row.step)
    if pa.types.is_floating(row.plain):
        return Leaf(row.plain, row.logical, label, scalars.real(label, row.plain.bit_width), row.step)
    if kind == "boolean":
        return Leaf(row.plain, row.logical, label, scalars.boolean(label), row.step)
    if kind == "string":
        return Leaf(row.plain, row.logical, label, scalars.string(label), row.step)
    convert = after(arrays.binary, row.step)
    if pa.types.is_decimal(row.logical):
        read = scalars.decimal(label, row.logical.scale)
        return Leaf(pa.string(), row.logical, label, read, convert, exact=True)
    return Leaf(pa.string(), row.logical, label, scalars.string(label), convert)


def structure(name: str | None) -> Node | None:
    """The leaf of a struct that stands for one value, None for any other struct."""
    row = type_table.STRUCTURES.get(name or "")
    return None if row is None else _scaled(row)


def _scaled(row: Kind) -> Leaf:
    label = row.name
    scale, text = scalars.integer(label, 32), scalars.string(label)
    wire = pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.string())])

    def read(value: object) -> object:
        if not isinstance(value, dict) or value.get("scale") is None or value.get("value") is None:
            raise Unfit(f"neither scale nor value ({label})")
        return {"scale": scale(value["scale"]), "value": text(value["value"])}

    return Leaf(wire, row.logical, label, read, after(_variable, row.step))


_READ: Read = scalars.nothing
_ANY_TEXT = Leaf(pa.string(), pa.string(), "string", scalars.any_text("string"), exact=True)
_WHOLE = Leaf(pa.int64(), pa.int64(), "int64", scalars.whole("int64"), exact=True)


def plain(kind: pa.DataType) -> Leaf:
    """The leaf of a wire type that was found without a schema block."""
    if pa.types.is_null(kind):
        return Leaf(kind, kind, "null", _READ)
    if pa.types.is_string(kind):
        return _ANY_TEXT
    if pa.types.is_int64(kind):
        return _WHOLE
    if pa.types.is_decimal(kind):
        return Leaf(kind, kind, "decimal", scalars.number("decimal", kind), exact=True)
    name = {pa.float64(): "double", pa.bool_(): "boolean"}[kind]
    return _leaf(name, evolve(type_table.PRIMITIVES[name], name=name))
