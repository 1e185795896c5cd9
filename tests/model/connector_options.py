"""Recorded records with schemas -> the records that other options of the connector, its transforms and converters give.

What each option does: Debezium's pages of the connectors ("Data type mappings"), "New Record State Extraction",
"Topic routing", "Emitting change event records in CloudEvents format".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from tests.model.connect_json import EPOCH, decimal, unscaled
from tests.model.recordings import Record

Document = dict[str, Any]
Column = Callable[[Document, Any], Any]
"""The field of a column, which it changes, and a value: what becomes of the value; None for a null stays one."""
Change = Callable[[Iterable[Record]], Iterator[Record]]

_DAY_US = 86_400_000_000
_DATA, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."


def of_columns(change: Column) -> Change:
    """Change each column of the images, and of keys."""

    def made(records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            sides = {name: _change_sides(data, change) for name, data in (("key", record.key), ("value", record.value))}
            yield attrs.evolve(record, **sides)

    return made


def _change_sides(data: bytes | None, change: Column) -> bytes | None:
    if data is None:
        return None
    document = json.loads(data)
    rows = [(field, document["payload"].get(field["field"])) for field in document["schema"]["fields"]]
    images = [(field, row) for field, row in rows if field["field"] in ("before", "after")]
    for schema, row in images or [(document["schema"], document["payload"])]:
        for column in schema["fields"]:
            value = None if row is None else row[column["field"]]
            told = change(column, value)
            if row is not None:
                row[column["field"]] = None if value is None else told
    return json.dumps(document).encode()


def _retype(column: Document, kind: str, name: str | None = None) -> None:
    column.update(type=kind)
    column.pop("parameters", None)
    column.pop("name", None)
    column.pop("default", None)
    if name is not None:
        column["name"] = name


def decimals_as(kind: str) -> Column:
    """`decimal.handling.mode`: string or double."""

    def change(column: Document, value: Any) -> Any:
        if column.get("name") != f"{_DATA}Decimal":
            return value
        scale = int(column["parameters"]["scale"])
        _retype(column, kind)
        number = None if value is None else decimal(unscaled(value), scale)
        return None if number is None else f"{number:f}" if kind == "string" else float(number)

    return change


def binaries_as(mode: str) -> Column:
    """`binary.handling.mode`: hex, base64 or base64-url-safe."""

    def change(column: Document, value: Any) -> Any:
        if column["type"] != "bytes" or "name" in column:
            return value
        _retype(column, "string")
        data = b"" if value is None else base64.b64decode(value)
        if mode == "hex":
            return data.hex()
        return (base64.urlsafe_b64encode if "url" in mode else base64.b64encode)(data).decode()

    return change


def times_as(mode: str) -> Column:
    """`time.precision.mode`: connect, microseconds or isostring."""
    return {"connect": _as_connect, "microseconds": _as_microseconds, "isostring": _as_text}[mode]


def _as_connect(column: Document, value: Any) -> Any:
    name = str(column.get("name", "")).removeprefix(_TIME)
    if name == "Date":
        _retype(column, "int32", f"{_DATA}Date")
    elif name == "MicroTime":
        _retype(column, "int32", f"{_DATA}Time")
        return None if value is None or not 0 <= value < _DAY_US else value // 1000
    elif name in ("Timestamp", "MicroTimestamp"):
        _retype(column, "int64", f"{_DATA}Timestamp")
        return value if name == "Timestamp" or value is None else value // 1000
    return value


def _as_microseconds(column: Document, value: Any) -> Any:
    if column.get("name") != f"{_TIME}Timestamp":
        return value
    _retype(column, "int64", f"{_TIME}MicroTimestamp")
    return None if value is None else value * 1000


def _as_text(column: Document, value: Any) -> Any:
    name = str(column.get("name", "")).removeprefix(_TIME)
    if name == "Date":
        _retype(column, "string", f"{_TIME}IsoDate")
        return None if value is None else f"{(EPOCH + timedelta(days=value)).date()}Z"
    if name in ("Timestamp", "MicroTimestamp"):
        _retype(column, "string", f"{_TIME}IsoTimestamp")
        micros = 0 if value is None else value * (1000 if name == "Timestamp" else 1)
        return f"{(EPOCH + timedelta(microseconds=micros)).isoformat()}Z"
    return value


def without_tombstones(records: Iterable[Record]) -> Iterator[Record]:
    """`tombstones.on.delete=false`."""
    return (record for record in records if record.value is not None)


def without_transactions(records: Iterable[Record]) -> Iterator[Record]:
    """`provide.transaction.metadata=false`."""
    return _change_values(records, lambda document: document["payload"].update(transaction=None))


def of_an_earlier_version(records: Iterable[Record]) -> Iterator[Record]:
    """Before 2.6 nothing told micro- and nanoseconds of the source, before 3.5 no header the connector."""

    def change(document: Document) -> None:
        for fields, values in _envelope_parts(document):
            fields[:] = [field for field in fields if field["field"] not in ("ts_us", "ts_ns")]
            for name in ("ts_us", "ts_ns"):
                values.pop(name, None)

    for record in _change_values(records, change):
        yield attrs.evolve(record, headers=tuple(pair for pair in record.headers if "context" not in pair[0]))


def _envelope_parts(document: Document) -> Iterator[tuple[list[Document], Document]]:
    yield document["schema"]["fields"], document["payload"]
    source = next(field for field in document["schema"]["fields"] if field["field"] == "source")
    yield source["fields"], document["payload"]["source"]


def _change_values(records: Iterable[Record], change: Callable[[Document], None]) -> Iterator[Record]:
    for record in records:
        if record.value is None:
            yield record
            continue
        document = json.loads(record.value)
        change(document)
        yield attrs.evolve(record, value=json.dumps(document).encode())


def without_schemas(*sides: str) -> Change:
    """`schemas.enable=false` of the converter of keys, of values, or of both."""

    def made(records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            data = {side: getattr(record, side) for side in sides}
            yield attrs.evolve(record, **{side: _payload(one) for side, one in data.items()})

    return made


def _payload(data: bytes | None) -> bytes | None:
    document = None if data is None else json.loads(data)
    bare = document is None or document.keys() != {"schema", "payload"}
    return data if bare else json.dumps(document["payload"]).encode()


def in_cloud_events(*, schemas: bool) -> Change:
    """`CloudEventsConverter`, with schemas in `data` or without: what tells of the source are attributes, as texts."""

    def made(records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if record.value is None:
                yield record
                continue
            yield attrs.evolve(record, value=json.dumps(_to_cloud_event(json.loads(record.value), schemas)).encode())

    return made


def _to_cloud_event(document: Document, schemas: bool) -> Document:
    payload, source = document["payload"], document["payload"]["source"]
    moment = (
        datetime.fromtimestamp(source["ts_ms"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    event: Document = {"id": f"lsn:{source.get('lsn')};pos:{source.get('pos')}", "specversion": "1.0", "time": moment}
    event |= {"source": f"/debezium/{source['connector']}/{source['name']}", "datacontenttype": "application/json"}
    event |= {"type": f"io.debezium.connector.{source['connector']}.DataChangeEvent", "iodebeziumop": payload["op"]}
    for name, value in source.items():
        event[f"iodebezium{name.replace('_', '').lower()}"] = None if value is None else str(value)
    for name, value in (payload.get("transaction") or {}).items():
        event[f"iodebeziumtx{name.replace('_', '').lower()}"] = str(value)
    data = {image: payload[image] for image in ("before", "after")}
    fields = [field for field in document["schema"]["fields"] if field["field"] in data]
    schema = {"type": "struct", "fields": fields, "optional": False}
    schema["name"] = f"io.debezium.connector.{source['connector']}.Data"
    with_schema = {"schema": schema, "payload": data}
    return {**event, "data": with_schema if schemas else data}


def with_source_in_keys(records: Iterable[Record]) -> Iterator[Record]:
    """`ByLogicalTableRouter` with `key.enforce.uniqueness`: keys say which topic they were for; headers do not."""
    for record in records:
        if record.key is None:
            yield record
            continue
        key = json.loads(record.key)
        key["schema"]["fields"].append({"type": "string", "optional": False, "field": "__dbz__physicalTableIdentifier"})
        key["payload"]["__dbz__physicalTableIdentifier"] = record.topic
        yield attrs.evolve(record, key=json.dumps(key).encode())


@attrs.frozen
class Flattening:
    """`ExtractNewRecordState`: its `delete.tombstone.handling.mode`, `add.fields`, and `add.fields.prefix`."""

    mode: str
    fields: tuple[str, ...] = ()
    prefix: str = "__"

    def __call__(self, records: Iterable[Record]) -> Iterator[Record]:
        """Change what these records are."""
        for record in records:
            document = None if record.value is None else json.loads(record.value)
            op = None if document is None else document["payload"]["op"]
            if op == "t" or (op is None and self.mode not in ("tombstone", "rewrite-with-tombstone")):
                continue
            if document is None and self.mode == "tombstone":
                yield attrs.evolve(record, value=b'{"schema":null,"payload":null}')
            elif document is None or (op == "d" and self.mode == "delete-to-tombstone"):
                yield attrs.evolve(record, value=None)
            elif op != "d" or "rewrite" in self.mode:
                yield attrs.evolve(record, value=json.dumps(self._flatten(document)).encode())

    def _flatten(self, document: Document) -> Document:
        payload = document["payload"]
        image = "before" if payload["op"] == "d" else "after"
        schema = next(field for field in document["schema"]["fields"] if field["field"] == image)
        row, fields = dict(payload[image]), list(schema["fields"])
        if "rewrite" in self.mode:
            row["__deleted"] = str(payload["op"] == "d").lower()
            fields.append({"type": "string", "optional": True, "field": "__deleted"})
        for path in self.fields:
            name = self.prefix + path.replace(".", "_")
            row[name] = _find(payload, path)
            kind = "int64" if isinstance(row[name], int) or path.endswith(_NUMBERS) else "string"
            fields.append({"type": kind, "optional": True, "field": name})
        flat = {"type": "struct", "fields": fields, "optional": False, "name": schema["name"]}
        return {"schema": flat, "payload": row}


_NUMBERS = ("ts_ms", "ts_us", "ts_ns", "lsn", "pos", "server_id", "total_order")


def _find(payload: Mapping[str, Any], path: str) -> Any:
    at: Any = payload
    for part in path.split("."):
        at = None if at is None else at.get(part)
    return at
