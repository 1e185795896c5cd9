"""Avro schemas and values for tests: written by fastavro, framed as Confluent does, and what Arrow makes of them."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
from hypothesis import strategies as st

Schema = Any
ID = 7
_BOUNDS = {"int": 2**31, "long": 2**63}


def written(schema: Schema, value: Any) -> bytes:
    """One datum."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value, strict=False)
    return out.getvalue()


def framed(datum: bytes, number: int = ID) -> bytes:
    """A datum behind magic byte and schema id."""
    return b"\x00" + struct.pack(">I", number) + datum


def fetch(*schemas: Schema) -> Any:
    """A registry that has these schemas, the first with ID, the next with ID + 1 ..."""
    texts = {ID + index: (json.dumps(schema),) for index, schema in enumerate(schemas)}
    return texts.__getitem__


def read(schema: Schema, datum: bytes) -> tuple[Any, int]:
    """The value of a datum and how many bytes it took; raises whatever fastavro raises."""
    source = io.BytesIO(datum)
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None, return_record_name=True)
    return value, source.tell()


@st.composite
def schemas(draw: st.DrawFn, *, depth: int = 2) -> Schema:
    """A record schema; names are unique over all."""
    counter = iter(range(10_000))
    return _record(draw, counter, depth)


def _record(draw: st.DrawFn, counter: Any, depth: int) -> Schema:
    fields = [
        {"name": f"f{next(counter)}", "type": _type(draw, counter, depth)}
        for _ in range(draw(st.integers(1, 4 if depth else 2)))
    ]
    return {"type": "record", "name": f"R{next(counter)}", "namespace": "t", "fields": fields}


def _type(draw: st.DrawFn, counter: Any, depth: int) -> Schema:  # noqa: PLR0911 - one case per type
    plain = ["boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed", "optional"]
    nested = ["record", "array", "map", "union", "backwards"] if depth else []
    match draw(st.sampled_from([*plain, *nested])):
        case "enum":
            return {"type": "enum", "name": f"E{next(counter)}", "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": f"F{next(counter)}", "size": draw(st.integers(1, 20))}
        case "optional":
            return ["null", draw(st.sampled_from(["boolean", "int", "long", "double", "string", "bytes"]))]
        case "backwards":
            return [_type_of_record(draw, counter, depth), "null"]
        case "record":
            return _type_of_record(draw, counter, depth)
        case "array":
            return {"type": "array", "items": _type(draw, counter, depth - 1)}
        case "map":
            return {"type": "map", "values": _type(draw, counter, depth - 1)}
        case "union":
            return [*draw(st.sampled_from([["null"], []])), "long", "string", _type_of_record(draw, counter, depth)]
        case kind:
            return kind


def _type_of_record(draw: st.DrawFn, counter: Any, depth: int) -> Schema:
    return _record(draw, counter, depth - 1)


def values(schema: Schema) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one case per type
    """Values of a schema, as fastavro takes them."""
    if isinstance(schema, list):
        return st.one_of(*(st.none() if branch == "null" else _branch(branch) for branch in schema))
    if isinstance(schema, dict):
        return _of_definition(schema)
    match schema:
        case "boolean":
            return st.booleans()
        case "int" | "long":
            bound = _BOUNDS[schema]
            edges = [
                edge
                for bits in range(6, 64)
                for edge in (1 << bits, (1 << bits) - 1, -(1 << bits))
                if -bound <= edge < bound
            ]
            return st.integers(-bound, bound - 1) | st.integers(-70, 70) | st.sampled_from(edges)
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "double":
            return st.floats(allow_nan=False)
        case "string":
            return st.text(st.characters(codec="utf-8"), max_size=70)
        case _:
            return st.binary(max_size=70)


def _branch(schema: Schema) -> st.SearchStrategy[Any]:
    """A value with its branch told, so that the writer takes that one."""
    name = f"{schema['namespace']}.{schema['name']}" if isinstance(schema, dict) else schema
    return values(schema).map(lambda value: (name, value))


def _of_definition(schema: Schema) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "array":
            return st.lists(values(schema["items"]), max_size=20)
        case _:
            return st.dictionaries(
                st.text(st.characters(codec="utf-8"), max_size=5), values(schema["values"]), max_size=4
            )


def expected(schema: Schema, value: Any) -> Any:
    """The value as Arrow's `to_pylist` gives it: unions of several types are structs, maps are pairs."""
    if isinstance(schema, list):
        return _expected_union(schema, value)
    if not isinstance(schema, dict):
        return value
    match schema["type"]:
        case "record":
            return {field["name"]: expected(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "array":
            return [expected(schema["items"], item) for item in value]
        case "map":
            return [(key, expected(schema["values"], item)) for key, item in value.items()]
        case _:
            return value


def _expected_union(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    others = [branch for branch in schema if branch != "null"]
    if len(others) == 1:
        return expected(others[0], value[1])
    out = {}
    for branch in others:
        full = f"{branch['namespace']}.{branch['name']}" if isinstance(branch, dict) else branch
        out[full.rpartition(".")[2]] = expected(branch, value[1]) if value[0] == full else None
    return out
