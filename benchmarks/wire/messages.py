"""rows -> the same events in each format: JSON without and with schema block, Avro by fastavro."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import fastavro

from benchmarks.generate import append_events
from benchmarks.messages import flattened

SCHEMA_ID = 1
_CONNECT = {"long": "int64", "double": "double", "string": "string", "boolean": "boolean"}
_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string"}
_MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"


@attrs.frozen
class Events:
    """Flattened events of 13 fields: `values` as JSON without schema; `block` and `schema` describe them."""

    values: tuple[bytes, ...]
    block: bytes
    schema: str


def events(count: int) -> Events:
    """Make events, the same ones for the same count."""
    values = tuple(value for chunk in flattened(append_events(count, "wire")) for _, value in chunk)
    types = {name: _TYPES[type(value)] for name, value in json.loads(values[0]).items()}
    return Events(values, json.dumps(_connect(types), separators=(",", ":")).encode(), json.dumps(_avro(types)))


def messages(name: str, some: Events) -> Iterable[bytes]:
    """Give the events in a format."""
    if name == "json":
        return some.values
    if name == "json-schema":
        return (b'{"schema":' + some.block + b',"payload":' + value + b"}" for value in some.values)
    return _written(some)


def _connect(types: dict[str, str]) -> Any:
    fields = [{"type": _CONNECT[kind], "optional": True, **_name(name), "field": name} for name, kind in types.items()]
    return {"type": "struct", "fields": fields, "optional": False, "name": "bench.Value"}


def _avro(types: dict[str, str]) -> Any:
    more = {name: {f"connect.{key}": value for key, value in _name(name).items()} for name in types}
    fields = [{"name": name, "type": ["null", {"type": kind, **more[name]}]} for name, kind in types.items()]
    return {"type": "record", "name": "bench.Value", "fields": fields}


def _name(field: str) -> dict[str, Any]:
    return {"name": _MICRO_TIMESTAMP, "version": 1} if field == "updated_at" else {}


def _written(some: Events) -> Iterator[bytes]:
    parsed, head = fastavro.parse_schema(json.loads(some.schema)), b"\x00" + struct.pack(">I", SCHEMA_ID)
    for value in some.values:
        out = io.BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, parsed, json.loads(value))
        yield out.getvalue()
