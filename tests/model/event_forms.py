"""envelopes of `tests.model.events` -> the same events as converters and transforms of Kafka Connect leave them.

    bare, schemas, avro     envelopes, by JsonConverter without and with schemas, and by an Avro converter
    rewrite, rewrite-with-tombstone, tombstone, delete-to-tombstone
                            flattened by ExtractNewRecordState in that `delete.tombstone.handling.mode`

MongoDB's images are texts of documents, Cassandra's and YugabyteDB's have a cell for each value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tests.model import avro

Event = dict[str, Any]
ENVELOPES = ("bare", "schemas", "avro")
FLATTENED = ("rewrite", "rewrite-with-tombstone", "tombstone", "delete-to-tombstone")
IMAGE = {"id": "int64", "name": "string", "n": "int64", "region": "string"}
_WORDS = """ts_ms ts_us ts_ns event_serial_no ssn redo_thread ord wallTime lsn xmin mod_number total_order server_id row
    number_records_in_transaction pos commit_ts transaction_epoch data_collection_order"""
_INTEGERS = frozenset(_WORDS.split())
_AVRO = {"int64": "long", "string": "string"}
_RANK = "transaction_rank"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def write(form: str, event: Event | None, added: str) -> bytes | None:
    """The value of a record; `added` are the terms of add.fields."""
    if event is None:
        return None if form in (*ENVELOPES, "rewrite-with-tombstone", "tombstone", "delete-to-tombstone") else b""
    if form in FLATTENED:
        return _flatten(form, event, added)
    if form == "bare":
        return json.dumps(event).encode()
    schema = {"type": "struct", "name": "s.public.t.Envelope", "fields": _fields(event)}
    if form == "schemas":
        return json.dumps({"schema": schema, "payload": event}).encode()
    return avro.framed(avro.written(avro_schema(event), _with_decimals(event)))


def with_documents(event: Event) -> Event:
    """As the MongoDB connector has it: `before` is unknown, `after` the text of a document."""
    image = event["after"]
    text = None if image is None else json.dumps({"_id": {"$numberLong": str(image["id"])}, **_without_id(image)})
    return {**event, "before": None, "after": text, "updateDescription": None}


def with_cells(event: Event, names: tuple[str, ...] = ("value", "deletion_ts", "set")) -> Event:
    """As Cassandra's connector has it: a cell for each value, the key of a delete in `after`."""
    image, gone = event["after"] or event["before"], event["op"] == "d"
    cells = {
        name: None if gone and name != "id" else dict(zip(names, (value, None, True), strict=True))
        for name, value in image.items()
    }
    op = "i" if event["op"] == "c" else event["op"]
    return {**{name: value for name, value in event.items() if name != "before"}, "after": cells, "op": op}


SHAPES: Mapping[str, Callable[[Event], Event]] = {"mongodb": with_documents, "mongodb_3": with_documents}


def avro_schema(event: Event) -> Event:
    """The schema that an Avro converter registers for such events."""
    image = {"type": "record", "name": "Value", "namespace": "s.public.t", "fields": _avro_fields(IMAGE)}
    documents = "updateDescription" in event
    images = ["null", "string"] if documents else ["null", image]
    update = {"type": "record", "name": "Update", "namespace": "s", "fields": _avro_fields({"updatedFields": "string"})}
    fields = [
        {"name": "before", "type": images, "default": None},
        {"name": "after", "type": images if documents else ["null", "s.public.t.Value"], "default": None},
        *([{"name": "updateDescription", "type": ["null", update], "default": None}] if documents else []),
        {"name": "source", "type": _avro_record("Source", event["source"])},
        {"name": "transaction", "type": ["null", _avro_record("block", event["transaction"])]},
        {"name": "op", "type": "string"},
        *_avro_fields(dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), "int64")),
    ]
    return {"type": "record", "name": "Envelope", "namespace": "s.public.t", "fields": fields}


def _without_id(image: Event) -> Event:
    return {name: value for name, value in image.items() if name != "id"}


def _flatten(form: str, event: Event, added: str) -> bytes | None:
    """An envelope as the transform leaves it, fields found where its page says."""
    gone = event["op"] == "d"
    if gone and form in ("tombstone", "delete-to-tombstone"):
        return b"null" if form == "tombstone" else None
    out = dict(event["before" if gone else "after"])
    if form.startswith("rewrite"):
        out["__deleted"] = str(gone).lower()
    for term in added.split(","):
        struct, _, name = term.rpartition(".")
        if not struct and name not in ("op", "ts_ms"):
            struct = "transaction" if name in ("id", "total_order") else "source"
        told = (event.get(struct) or {}) if struct else event
        out["__" + term.replace(".", "_")] = told.get(name)
    return json.dumps(out).encode()


def _kind(name: str, value: Any) -> str:
    return "int64" if isinstance(value, int) or (name in _INTEGERS and not isinstance(value, str)) else "string"


def _fields(event: Event) -> list[Event]:
    if "updateDescription" in event:
        text = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}
        update = {"type": "struct", "optional": True, "fields": [{**text, "field": "updatedFields"}]}
        images = [{**text, "field": "before"}, {**text, "field": "after"}, {**update, "field": "updateDescription"}]
    else:
        columns = [{"type": kind, "optional": name != "id", "field": name} for name, kind in IMAGE.items()]
        image = {"type": "struct", "optional": True, "fields": columns, "name": "s.public.t.Value"}
        images = [{**image, "field": "before"}, {**image, "field": "after"}]
    around = [
        {"type": "struct", "optional": True, "fields": [_field(*pair) for pair in event[part].items()], "field": part}
        for part in ("source", "transaction")
    ]
    dates = [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    return [*images, *around, {"type": "string", "optional": False, "field": "op"}, *dates]


def _field(name: str, value: Any) -> Event:
    if name == _RANK:
        return {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": "0"}, "optional": True, "field": name}
    return {"type": _kind(name, value), "optional": True, "field": name}


def _avro_fields(kinds: Mapping[str, str]) -> list[Event]:
    return [{"name": name, "type": ["null", _AVRO[kind]], "default": None} for name, kind in kinds.items()]


def _avro_record(name: str, values: Event) -> Event:
    fields = _avro_fields({key: _kind(key, value) for key, value in values.items() if key != _RANK})
    if _RANK in values:
        number = {"type": "bytes", "scale": 0, "precision": 64, "connect.name": _DECIMAL, "logicalType": "decimal"}
        fields.append({"name": _RANK, "type": ["null", number], "default": None})
    return {"type": "record", "name": name, "namespace": "s", "fields": fields}


def _with_decimals(event: Event) -> Event:
    block = event["transaction"]
    if _RANK not in block:
        return event
    rank = block[_RANK]
    number = rank if isinstance(rank, int) else int.from_bytes(base64.b64decode(rank), "big")
    return {**event, "transaction": {**block, _RANK: Decimal(number)}}
