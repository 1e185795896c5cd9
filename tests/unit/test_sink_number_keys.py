"""Keys that are numbers of any scale (Oracle's NUMBER, PostgreSQL's numeric) -> one row for each number."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import build_old_key_rows, mark_key_changes
from serde.connect.values.decimal_text import drop_trailing_zeros
from tests.model import avro
from tests.model.schema_server import serve_schemas
from tests.unit.local_sink import local_sink
from tests.unit.sink_plans import plan, run, upsert

AT = ("s.public.t", 0)
HARD = ["topics=s.public.t", "debezium.sink.iceberg.upsert-keep-deletes=false"]
SCALED = "io.debezium.data.VariableScaleDecimal"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_PARTS = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
Number = tuple[int, int]
"""An unscaled number and its scale."""


def _scaled(name: str = "id") -> dict[str, Any]:
    return {"type": "struct", "name": SCALED, "field": name, "fields": _PARTS}


def _fixed(scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": "10"}
    return {"type": "bytes", "name": DECIMAL, "parameters": parameters, "field": "id"}


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _value(number: Number, field: dict[str, Any]) -> Any:
    text = base64.b64encode(_bytes(number[0])).decode()
    return {"scale": number[1], "value": text} if field["type"] == "struct" else text


def _framed(field: dict[str, Any], number: Number) -> bytes:
    schema = {"type": "struct", "name": "s.public.t.Key", "fields": [field]}
    return json.dumps({"schema": schema, "payload": {"id": _value(number, field)}}).encode()


def _event(op: str, field: dict[str, Any], number: Number, n: int = 0, before: Number | None = None) -> bytes:
    """An envelope; deletes have their image in `before`."""
    image = {"type": "struct", "optional": True, "fields": [field, {"type": "int64", "optional": True, "field": "n"}]}
    source = {"type": "struct", "field": "source", "fields": [{"type": "string", "field": "connector"}]}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, source, {"type": "string", "field": "op"}]
    row, old = ({"id": _value(one, field), "n": n} if one else None for one in (number, before))
    images = {"before": row, "after": None} if op == "d" else {"before": old, "after": row}
    payload = {**images, "source": {"connector": "oracle"}, "op": op}
    schema = {"type": "struct", "name": "s.public.t.Envelope", "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}).encode()


ONE: list[Number] = [(1, 0), (10, 1), (100, 2)]


def _rows(folder: Path, lines: list[str], *batches: list[tuple[bytes | None, bytes]]) -> list[tuple[Any, Any]]:
    sink = local_sink(folder, lines)
    for batch in batches:
        assert sink.process(*((AT, key, value) for key, value in batch)).dead_letters == 0, sink.letters
    return [(row["id"], row["n"]) for table in sink.destination.rows for row in sink.rows(table)]


@pytest.mark.parametrize("apart", [False, True])
def test_numbers_that_are_equal_are_one_key(tmp_path: Path, *, apart: bool) -> None:
    """1, 1.0 and 1.00 as record keys are one row, in one batch and in several; 10, 100 and 1.01 are others."""
    others: list[Number] = [(10, 0), (1, -2), (101, 2)]
    records = [(_framed(_scaled(), k), _event("c", _scaled(), k, n)) for n, k in enumerate([*ONE, *others])]
    batches = [[record] for record in records] if apart else [records]
    assert _rows(tmp_path, HARD, *batches) == [("1", 2), ("10", 3), ("100", 4), ("1.01", 5)]


def test_a_delete_finds_the_row_of_another_scale(tmp_path: Path) -> None:
    """A row that came as 2.50 goes with the key 2.5."""
    made = (_framed(_scaled(), (250, 2)), _event("c", _scaled(), (250, 2)))
    gone = (_framed(_scaled(), (25, 1)), _event("d", _scaled(), (25, 1)))
    assert _rows(tmp_path, HARD, [made], [gone]) == []


def test_decimals_as_text_keep_their_key_when_the_scale_changes(tmp_path: Path) -> None:
    """numeric(10,2) that becomes numeric(10,4): the row is the same one."""
    lines = [*HARD, "debezium.sink.iceberg.decimal-as-text=id"]
    events = [(_framed(_fixed(s), k), _event("u", _fixed(s), k, s)) for s, k in ((2, (150, 2)), (4, (15000, 4)))]
    assert _rows(tmp_path, lines, *([event] for event in events)) == [("1.5", 4)]


def test_keys_in_the_value_are_numbers_too(tmp_path: Path) -> None:
    """With `id-columns` too equal numbers are one row, and an update from 1.0 to 1 leaves it."""
    lines = [*HARD, "iceberg.tables.default-id-columns=id"]
    made, moved = _event("c", _scaled(), ONE[1], 1), _event("u", _scaled(), ONE[0], 2, before=ONE[1])
    for update in (moved, _event("u", _scaled(), ONE[0], 2)):
        events = [(None, made), (None, update)]
        assert _rows(tmp_path, lines, *([event] for event in events)) == [("1", 2)]
        assert _rows(tmp_path, lines, events) == [("1", 2)]


def test_columns_that_are_no_keys_keep_their_digits(tmp_path: Path) -> None:
    """What tells no rows apart is as it came: tables in append mode have all digits."""
    lines = ["topics=s.public.t", "debezium.sink.iceberg.upsert=false"]
    assert _rows(tmp_path, lines, [(_framed(_scaled(), k), _event("c", _scaled(), k)) for k in ONE[:2]]) == [
        ("1", 0),
        ("1.0", 0),
    ]


@pytest.fixture
def registry() -> Iterator[str]:
    number = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "connect.name": SCALED}
    number |= {"fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}
    key = {"type": "record", "name": "Key", "namespace": "s.public.t", "fields": [{"name": "id", "type": number}]}
    with serve_schemas({avro.ID: json.dumps(key)}) as url:
        yield url


def test_avro_keys_are_numbers_too(tmp_path: Path, registry: str) -> None:
    """The same struct as Avro's record."""
    lines = [*HARD, "key.converter=io.confluent.connect.avro.AvroConverter"]
    lines.append(f"key.converter.schema.registry.url={registry}")

    def key(number: Number) -> bytes:
        datum = avro.written({"type": "int"}, number[1]) + avro.written({"type": "bytes"}, _bytes(number[0]))
        return avro.framed(datum)

    assert _rows(tmp_path, lines, [(key(k), _event("c", _scaled(), k, n)) for n, k in enumerate(ONE)]) == [("1", 2)]


def test_numbers_lose_zeros_behind_the_point_only() -> None:
    """Whole numbers keep theirs, and zero stays one."""
    texts = ["100", "1.0", "-1.50", "0.00", "0.10", None, "1.01", "12345678901234567890123456789012345678901.0"]
    expected = ["100", "1", "-1.5", "0", "0.1", None, "1.01", "12345678901234567890123456789012345678901"]
    assert drop_trailing_zeros(pa.array(texts)).to_pylist() == expected


@pytest.mark.parametrize("schemas", [False, True])
def test_headers_name_the_key_that_a_row_had(*, schemas: bool) -> None:
    """Kafka Connect writes such a key into `__debezium.oldkey` as the struct it is, with its scale of then."""
    bare = {"name": "a", "id": {"scale": 2, "value": base64.b64encode(_bytes(150)).decode()}}
    schema = {"type": "struct", "fields": [{"type": "string", "field": "name"}, _scaled()]}
    header = json.dumps({"schema": schema, "payload": bare} if schemas else bare).encode()
    table = upsert(0, {"id": pa.string(), "name": pa.string(), "__deleted": pa.string()}, ("id", "name"))
    event = {"before": None, "after": {"id": "2", "name": "a"}, "source": {"connector": "oracle"}, "op": "c"}
    (part,) = decode(run(event, keys=[event["after"]]), plan(table)).parts
    headers, offsets = pa.array([header]), part.order.offset
    before = build_old_key_rows(mark_key_changes(part, offsets, headers), offsets, headers, table)
    assert before is not None
    assert before.rows.select(["id", "name"]).to_pylist() == [{"id": "1.5", "name": "a"}]


def test_avro_decimals_as_text_keep_their_key_when_the_scale_changes(tmp_path: Path) -> None:
    """The same of keys by a registry."""
    keys = []
    for scale in (2, 4):
        kind = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale}
        keys.append(
            {"type": "record", "name": "Key", "namespace": f"s{scale}", "fields": [{"name": "id", "type": kind}]}
        )
    with serve_schemas({avro.ID + at: json.dumps(key) for at, key in enumerate(keys)}) as url:
        lines = [*HARD, "debezium.sink.iceberg.decimal-as-text=id"]
        lines += ["key.converter=io.confluent.connect.avro.AvroConverter", f"key.converter.schema.registry.url={url}"]
        events = [
            (avro.framed(avro.written("bytes", _bytes(k[0])), avro.ID + at), _event("u", _fixed(k[1]), k, k[1]))
            for at, k in enumerate([(150, 2), (15000, 4)])
        ]
        assert _rows(tmp_path, lines, *([event] for event in events)) == [("1.5", 4)]
