"""Schema block -> tree of nodes, with leaves as JSON has them: `connect.type_table` as JsonConverter writes it.

Bytes are base64 text, reals may be words, integers and texts are themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import orjson
import pyarrow as pa
from attrs import evolve

from serde.arrays import Mask
from serde.connect import type_table
from serde.connect.connect_schema import ConnectSchema, LeafTypes, parse_document
from serde.connect.schema_node import Field, Leaf, List, Node, Read, Struct, chain
from serde.connect.type_table import Parameters, TypeMapping
from serde.connect.values.binary_values import base64_to_binary
from serde.connect.values.number_text import bytes_to_number_text
from serde.faults import Unfit
from serde.json import scalars

_CACHED_BLOCKS = 1024
_DOUBLE_BITS = 64


def _decode_variable_scale(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    """The base64 inside of a VariableScaleDecimal -> bytes."""
    scale, value = array.flatten()
    data, bad = base64_to_binary(value)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([scale, data], ["scale", "value"], mask=mask), bad


_INT_BITS: Mapping[str, int] = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def find_leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """The leaf of a schema type, its semantic name and parameters; None for an unknown type.

    ValueError where Arrow and Iceberg have no such type.
    """
    row = type_table.find_type(kind, name, parameters)
    return None if row is None else evolve(_make_leaf(kind, row), unknown=row.unknown)


def _make_leaf(kind: str, row: TypeMapping) -> Leaf:
    label = row.name
    if kind in _INT_BITS:
        return Leaf(row.plain, row.logical, label, scalars.integer_reader(label, _INT_BITS[kind]), row.step)
    if pa.types.is_floating(row.plain):
        bits = row.plain.bit_width
        return Leaf(
            row.plain, row.logical, label, scalars.float_reader(label, bits), row.step, exact=bits < _DOUBLE_BITS
        )
    if kind == "boolean":
        return Leaf(row.plain, row.logical, label, scalars.boolean_reader(label), row.step)
    if kind == "string":
        return Leaf(row.plain, row.logical, label, scalars.text_reader(label), row.step)
    convert = chain(base64_to_binary, row.step)
    if row.scale is not None:
        read = scalars.decimal_reader(label, row.scale)
        words = chain(base64_to_binary, partial(bytes_to_number_text, scale=row.scale))
        return Leaf(pa.string(), row.logical, label, read, convert, exact=True, text=words)
    return Leaf(pa.string(), row.logical, label, scalars.text_reader(label), convert)


def find_struct_leaf(name: str | None) -> Node | None:
    """The leaf of a struct that stands for one value, None for any other struct."""
    row = type_table.STRUCT_TYPES.get(name or "")
    return None if row is None else _variable_scale_leaf(row)


def _variable_scale_leaf(row: TypeMapping) -> Leaf:
    label = row.name
    scale, text = scalars.integer_reader(label, 32), scalars.text_reader(label)
    wire = pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.string())])

    def read(value: object) -> object:
        if not isinstance(value, dict) or value.get("scale") is None or value.get("value") is None:
            raise Unfit(f"neither scale nor value ({label})")
        return {"scale": scale(value["scale"]), "value": text(value["value"])}

    convert = chain(_decode_variable_scale, row.step)
    return Leaf(wire, row.logical, label, read, convert, parts=_decode_variable_scale)


_REJECT: Read = scalars.reject_value
_ANY_TEXT = Leaf(pa.string(), pa.string(), "string", scalars.any_text_reader("string"), exact=True)
_WHOLE = Leaf(pa.int64(), pa.int64(), "int64", scalars.whole_number_reader("int64"), exact=True)


def _inferred_leaf(kind: pa.DataType) -> Leaf:
    """The leaf of a wire type that was found without a schema block."""
    if pa.types.is_null(kind):
        return Leaf(kind, kind, "null", _REJECT)
    if pa.types.is_string(kind):
        return _ANY_TEXT
    if pa.types.is_int64(kind):
        return _WHOLE
    if pa.types.is_decimal(kind):
        return Leaf(kind, kind, "decimal", scalars.number_reader("decimal", kind), exact=True)
    name = {pa.float64(): "double", pa.bool_(): "boolean"}[kind]
    return _make_leaf(name, evolve(type_table.PRIMITIVE_TYPES[name], name=name))


JSON_LEAVES = LeafTypes(find_leaf, find_struct_leaf)


@lru_cache(maxsize=_CACHED_BLOCKS)
def parse_schema_block(text: bytes) -> ConnectSchema:
    """Parse the bytes of a schema block, once per process; never raises: one that cannot be used carries its fault."""
    return parse_document(orjson.loads(text), JSON_LEAVES)


def node_of(kind: pa.DataType) -> Node:
    """Return the tree of a type that was found without a schema block: wire and logical types are the same."""
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(field.name, node_of(field.type), True) for field in kind))
    if pa.types.is_list(kind):
        return List(node_of(kind.value_type))
    return _inferred_leaf(kind)
