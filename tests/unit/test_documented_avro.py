"""The documented types of databases that cannot be run here, and Debezium's newer ones, by Avro -> the columns of JSON.

An Avro converter keeps Connect's names, versions and parameters beside each type (`connect.name`, ...).
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from serde.formats import make_deserializer
from tests.model import avro
from tests.unit.json_messages import framed
from tests.unit.test_documented_types import CONNECT, DATA, ORACLE, OTHERS, TIME, Case

_WIRE = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_FLOATS: dict[str, Any] = {"items": {"type": "float", "optional": False}}
_DOUBLES: dict[str, Any] = {"items": {"type": "double", "optional": False}}
_WORD = "__debezium_unavailable_value"
_PLACE = [{"type": "bytes", "field": "wkb", "optional": False}, {"type": "int32", "field": "srid", "optional": True}]
NEWER: dict[str, tuple[str, str | None, dict[str, Any], Any]] = {
    "vector": ("array", DATA + "DoubleVector", _DOUBLES, [0.5, -1.5]),
    "halfvec": ("array", DATA + "FloatVector", _FLOATS, [0.5, -1.5]),
    "vector of PostgreSQL's pgvector": ("array", DATA + "vector.DoubleVector", _DOUBLES, [0.5]),
    "geometry": ("struct", DATA + "geometry.Geometry", {"fields": _PLACE}, {"wkb": "AQE=", "srid": 4326}),
    "polygon of 3.7": ("string", None, {}, "((0,0),(1,1))"),
    "time of structured mode": (
        "struct",
        TIME + "StructuredDate",
        {"fields": [{"type": "int32", "field": part, "optional": True} for part in ("year", "month", "day")]},
        {"year": 2024, "month": 2, "day": 29},
    ),
    "money of SQL Server": (
        "bytes",
        CONNECT + "Decimal",
        {"parameters": {"scale": "4", "connect.decimal.precision": "19"}},
        base64.b64encode((-(2**63)).to_bytes(8, "big", signed=True)).decode(),
    ),
    "NUMBER(2, 5) of Oracle": (
        "bytes",
        CONNECT + "Decimal",
        {"parameters": {"scale": "5", "connect.decimal.precision": "2"}},
        "AeI=",
    ),
    "unavailable XML": ("string", DATA + "Xml", {}, _WORD),
    "unavailable BLOB": ("bytes", None, {}, base64.b64encode(_WORD.encode()).decode()),
}


def _type(schema: dict[str, Any], counter: list[int]) -> Any:
    """A Connect schema as the Avro converter registers it, nullable."""
    counter[0] += 1
    kind, more = schema["type"], {}
    if "name" in schema:
        more["connect.name"] = schema["name"]
    if "parameters" in schema:
        more["connect.parameters"] = schema["parameters"]
    match kind:
        case "struct":
            fields = [{"name": field["field"], "type": _type(field, counter)} for field in schema["fields"]]
            made: Any = {"type": "record", "name": f"R{counter[0]}", "fields": fields}
        case "array":
            made = {"type": "array", "items": _type(schema["items"], counter)}
        case "map":
            made = {"type": "map", "values": _type(schema["values"], counter)}
        case _:
            made = {"type": _WIRE.get(kind, kind)}
            if kind in ("int8", "int16"):
                more["connect.type"] = kind
            if schema.get("name") == CONNECT + "Decimal":
                precision = int(schema["parameters"].get("connect.decimal.precision", 64))
                scale = int(schema["parameters"]["scale"])
                more |= {"scale": scale, "precision": precision, "logicalType": "decimal"}
    return ["null", {**made, **more}]


def _raw(schema: dict[str, Any], value: Any) -> Any:
    """The value as it is written: bytes for base64."""
    if value is None:
        return None
    match schema["type"]:
        case "bytes":
            return base64.b64decode(value)
        case "struct":
            return {field["field"]: _raw(field, value.get(field["field"])) for field in schema["fields"]}
        case "array":
            return [_raw(schema["items"], item) for item in value]
        case _:
            return value


def _plain(kind: Any) -> Any:
    """The schema that raw values are written by."""
    if isinstance(kind, list):
        return [_plain(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    made = {name: value for name, value in kind.items() if name != "logicalType"}
    made |= {name: _plain(made[name]) for name in ("items", "values") if name in made}
    if "fields" in made:
        made["fields"] = [{**field, "type": _plain(field["type"])} for field in made["fields"]]
    return made


def _case(case: Case) -> tuple[str, str | None, dict[str, Any], Any]:
    return case[:4]


CASES = {**{name: _case(case) for name, case in {**ORACLE, **OTHERS}.items()}, **NEWER}


@pytest.mark.parametrize("name", CASES)
def test_avro_gives_what_json_gives(name: str) -> None:
    """Type and value of the column are those of the same event in JSON with its schema, and no type is unknown."""
    kind, schema_name, more, value = CASES[name]
    field = {"type": kind, "optional": True, "field": "f", **({"name": schema_name} if schema_name else {}), **more}
    raw = pa.array([framed([field], {"f": value})], pa.binary())
    (told,) = make_deserializer("auto").decode(raw, "VALUE_CONVERTER").blocks
    registered = _type(field, [0])
    schema = {"type": "record", "name": "Value", "namespace": "t", "fields": [{"name": "f", "type": registered}]}
    plain = {**schema, "fields": [{"name": "f", "type": _plain(registered)}]}
    message = avro.framed(avro.written(plain, {"f": _raw(field, value)}))
    decoded = make_deserializer("avro", fetch=avro.fetch(schema)).decode(
        pa.array([message], pa.binary()), "VALUE_CONVERTER"
    )
    assert not decoded.faults
    (block,) = decoded.blocks
    assert block.fields.field("f").to_pylist() == told.fields.field("f").to_pylist() and block.unknown == told.unknown
    assert block.fields.field("f").type == told.fields.field("f").type
