"""events in Protobuf -> broker, real registry -> sink -> a table; what is broken is a dead letter."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model import protobuf
from tests.model.recordings import Record
from tests.servers.shared import SharedRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

CONVERTER = "io.confluent.connect.protobuf.ProtobufConverter"
TOPIC = "pb.public.items"
MONEY = 'syntax = "proto3"; package m; message Money { string currency = 1; int64 units = 2; }'
KEY = 'syntax = "proto3"; package pb.public.items; message Key { int32 id = 1; }'
ENVELOPE = """
syntax = "proto3";
package pb.public.items;
import "money.proto";
import "google/protobuf/timestamp.proto";
import "confluent/type/decimal.proto";
import "confluent/meta.proto";
message Envelope {
  Value before = 1; Value after = 2; Source source = 3; string op = 4; optional int64 ts_ms = 5;
  message Value {
    int32 id = 1;
    optional string name = 2;
    google.protobuf.Timestamp at = 3;
    confluent.type.Decimal price = 4 [(confluent.field_meta) = {
      params: [{ value: "2", key: "scale" }, { value: "10", key: "precision" }]
    }];
    m.Money money = 5;
  }
  message Source { string connector = 1; string name = 2; string db = 3; string table = 4; int64 ts_ms = 5; }
}
"""


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _sized(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _row(number: int, name: str | None) -> bytes:
    at = _sized(3, _number(1, 1_700_000_000 + number) + _number(2, 5_000))
    price = _sized(4, _sized(1, (number * 100 + 5).to_bytes(2, "big")) + _number(2, 10) + _number(3, 2))
    money = _sized(5, _sized(1, b"EUR") + _number(2, number))
    return _number(1, number) + (b"" if name is None else _sized(2, name.encode())) + at + price + money


def _envelope(op: str, before: bytes | None, after: bytes | None, at_ms: int) -> bytes:
    source = _sized(1, b"postgresql") + _sized(2, b"pb") + _sized(3, b"d") + _sized(4, b"items") + _number(5, at_ms)
    images = b"".join(_sized(field, image) for field, image in ((1, before), (2, after)) if image is not None)
    return images + _sized(3, source) + _sized(4, op.encode()) + _number(5, at_ms)


def test_protobuf_ends_in_the_source_s_state(
    topics: Topics, registry: SharedRegistry, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """Envelopes in Protobuf, their schema with an import in a real registry, end in the rows they tell."""
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("money", Schema(MONEY, "PROTOBUF"))
    imports = [SchemaReference("money.proto", "money", 1)]
    value_id = client.register_schema(f"{TOPIC}-value", Schema(ENVELOPE, "PROTOBUF", imports))
    key_id = client.register_schema(f"{TOPIC}-key", Schema(KEY, "PROTOBUF"))
    events = [
        (1, _envelope("c", None, _row(1, "one"), 1000)),
        (2, _envelope("c", None, _row(2, None), 1001)),
        (1, _envelope("u", _row(1, "one"), _row(1, "eins"), 1002)),
        (3, _envelope("c", None, _row(3, "three"), 1003)),
        (2, _envelope("d", _row(2, None), None, 1004)),
        (2, None),
        (4, _envelope("c", None, _row(4, "four"), 1005)[:-1]),
    ]
    records = [
        Record(
            TOPIC,
            0,
            offset,
            protobuf.framed(_number(1, key), key_id),
            None if value is None else protobuf.framed(value, value_id),
        )
        for offset, (key, value) in enumerate(events)
    ]
    topics.replay(records)
    extra = {f"{side}.converter": CONVERTER for side in ("key", "value")}
    extra |= {f"{side}.converter.schema.registry.url": registry.url for side in ("key", "value")}
    extra |= {"topics": TOPIC, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("protobuf", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    rows = {row["id"]: row for row in lake(space).rows("pb_public_items")}
    assert sorted(rows) == [1, 3]
    assert (rows[1]["name"], rows[3]["name"]) == ("eins", "three")
    assert (rows[3]["price"], rows[3]["money"]) == (Decimal("3.05"), {"currency": "EUR", "units": 3})
    assert rows[3]["at"] == dt.datetime.fromtimestamp(1_700_000_003, dt.UTC).replace(tzinfo=None, microsecond=5)
    (letter,) = topics.read("protobuf-dead-letters")
    assert letter.offset == 0 and dict(letter.headers)
