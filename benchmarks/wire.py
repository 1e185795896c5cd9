"""messages of 13 fields in each format -> how many a decoder turns into logical columns per CPU second, no JVM.

`python -m benchmarks.wire` prints a line per format; the goal is Avro at least as fast as JSON without schema, and JSON
with schema at 0.7 times that rate. The last line is the way back, Arrow columns to Avro. `python -m benchmarks.wire
producer` starts Spark and measures what the source does, rows of a Parquet file to envelopes (`benchmarks.produce`).
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from typing import Any

import fastavro
import pyarrow as pa

from benchmarks.generate import append_events
from benchmarks.messages import flattened
from benchmarks.produce import produce
from serde.avro.encode import datums
from serde.avro.schema import parse
from serde.converter import Converter, converter

COUNT, PIECE, ROUNDS = 200_000, 50_000, 5
_CONNECT = {"long": "int64", "double": "double", "string": "string", "boolean": "boolean"}
_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string"}
_MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"


def main() -> None:
    """Measure every format."""
    bare = [value for chunk in flattened(append_events(COUNT, "bench")) for _, value in chunk]
    rows = [json.loads(message) for message in bare]
    types = {name: _TYPES[type(value)] for name, value in rows[0].items()}
    block = json.dumps(_connect(types), separators=(",", ":")).encode()
    schema = _avro(types)
    fetch = {1: (json.dumps(schema),)}.__getitem__
    rates = {
        "json": _rate(converter("json"), bare),
        "json-schema": _rate(converter("json-schema"), [_framed(block, message) for message in bare]),
        "avro": _rate(converter("avro", None, fetch), _written(schema, rows)),
    }
    for name, rate in rates.items():
        print(f"{name:12} {rate:12,.0f} events per CPU s   {rate / rates['json']:.2f} of json")
    print(f"{'avro out':12} {_encoded(schema, rows):12,.0f} rows per CPU s")


def _encoded(schema: Any, rows: list[dict[str, Any]]) -> float:
    """Rows per CPU second from Arrow columns to Avro, the best of some rounds."""
    codec = parse((json.dumps(schema),)).codec
    columns = pa.array(rows, codec.wire)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for start in range(0, len(columns), PIECE):
            datums(codec, columns.slice(start, PIECE))
        best = min(best, time.process_time() - began)
    return len(columns) / best


def _framed(block: bytes, payload: bytes) -> bytes:
    return b'{"schema":' + block + b',"payload":' + payload + b"}"


def _connect(types: dict[str, str]) -> Any:
    fields = [{"type": _CONNECT[kind], "optional": True, **_name(name), "field": name} for name, kind in types.items()]
    return {"type": "struct", "fields": fields, "optional": False, "name": "bench.Value"}


def _avro(types: dict[str, str]) -> Any:
    more = {name: {f"connect.{key}": value for key, value in _name(name).items()} for name in types}
    fields = [{"name": name, "type": ["null", {"type": kind, **more[name]}]} for name, kind in types.items()]
    return {"type": "record", "name": "bench.Value", "fields": fields}


def _name(field: str) -> dict[str, Any]:
    return {"name": _MICRO_TIMESTAMP, "version": 1} if field == "updated_at" else {}


def _written(schema: Any, rows: list[dict[str, Any]]) -> list[bytes]:
    parsed, head = fastavro.parse_schema(schema), b"\x00" + struct.pack(">I", 1)
    messages = []
    for row in rows:
        out = io.BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, parsed, row)
        messages.append(out.getvalue())
    return messages


def _rate(decoder: Converter, messages: list[bytes]) -> float:
    """Events per CPU second, the best of some rounds."""
    pieces = [pa.array(messages[start : start + PIECE], pa.binary()) for start in range(0, len(messages), PIECE)]
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for piece in pieces:
            assert not decoder.decode(piece, "VALUE_CONVERTER").faults
        best = min(best, time.process_time() - began)
    return len(messages) / best


if __name__ == "__main__":
    produce() if sys.argv[1:] == ["producer"] else main()
