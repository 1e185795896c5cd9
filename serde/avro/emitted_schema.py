"""Connect schema -> the Avro schema that Connect's Avro converters register for it (Confluent's, Apicurio's).

Optional is a union with null; semantic names, versions, parameters and defaults ride along as `connect.*`. Names that
Avro does not allow, and that no adjustment mode (`names`) has changed before, become `_` here as with mode `avro`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

from serde.emit.connect_schema import Document

_TYPES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_SMALL = frozenset({"int8", "int16"})
_LOGICAL = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_ANY_PRECISION = 64
_ENTRY = "io.confluent.connect.avro.MapEntry"


def avro_schema(document: Document) -> Any:
    """The Avro schema of a Connect schema; a record that occurs again is named the second time.

    Raises ValueError: two fields would have one name.
    """
    return _non_null_type(document, {}, "")


def adjust_name(name: str) -> str:
    """A name as Avro allows it: letters, digits and underscores, no digit first, part by part."""
    return ".".join(_adjust_part(part) for part in name.split("."))


def _adjust_part(part: str) -> str:
    adjusted = re.sub(r"[^A-Za-z0-9_]", "_", part)
    return f"_{adjusted}" if adjusted[:1].isdigit() else adjusted


def _nullable_type(document: Document, records: dict[str, Document], namespace: str) -> Any:
    """The schema with null, where it is optional; null comes second after a default of another kind."""
    avro_type = _non_null_type(document, records, namespace)
    if not document["optional"]:
        return avro_type
    return [avro_type, "null"] if document.get("default") is not None else ["null", avro_type]


def _non_null_type(document: Document, records: dict[str, Document], namespace: str) -> Any:
    match document["type"]:
        case "struct":
            return _record(document, records, namespace)
        case "array":
            return {"type": "array", "items": _nullable_type(document["items"], records, namespace)}
        case "map":
            return _map(document, records, namespace)
        case _:
            return _primitive(document)


def _primitive(document: Document) -> Any:
    kind, name = document["type"], document.get("name", "")
    avro_type: dict[str, Any] = {"type": _TYPES[kind]}
    parameters = document.get("parameters", {})
    if _LOGICAL.get(name) == "decimal":
        avro_type["scale"] = int(parameters["scale"])
        avro_type["precision"] = int(parameters.get("connect.decimal.precision", _ANY_PRECISION))
    if kind in _SMALL:
        avro_type["connect.type"] = kind
    avro_type |= _connect_properties(document)
    if name in _LOGICAL:
        avro_type["logicalType"] = _LOGICAL[name]
    return avro_type if len(avro_type) > 1 else avro_type["type"]


def _connect_properties(document: Document) -> dict[str, Any]:
    properties = {
        "connect.doc": document.get("doc"),
        "connect.version": document.get("version"),
        "connect.parameters": document.get("parameters"),
        "connect.default": _default(document),
        "connect.name": document.get("name"),
    }
    return {key: value for key, value in properties.items() if value is not None}


def _default(document: Document) -> Any:
    """A default as Avro writes it: of bytes, the text whose characters are the bytes."""
    default = document.get("default")
    return b64decode(default).decode("latin-1") if document["type"] == "bytes" and default is not None else default


def _record(document: Document, records: dict[str, Document], outer: str) -> Any:
    full = adjust_name(document.get("name") or "ConnectDefault")
    namespace, _, name = full.rpartition(".")
    if records.get(full) == document["fields"]:
        return name if namespace == outer else full
    records[full] = document["fields"]
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace != outer:
        record["namespace"] = namespace
    record["fields"] = [_field(field, records, namespace) for field in document["fields"]]
    names = [field["name"] for field in record["fields"]]
    twice = sorted({field["field"] for field in document["fields"] if names.count(_adjust_part(field["field"])) > 1})
    if twice:
        raise ValueError(f"fields {', '.join(twice)} have one name in Avro")
    return record | _connect_properties({**document, "name": full})


def _field(document: Document, records: dict[str, Document], namespace: str) -> dict[str, Any]:
    field = {"name": _adjust_part(document["field"]), "type": _nullable_type(document, records, namespace)}
    if document.get("default") is not None or document["optional"]:
        field["default"] = _default(document)
    return field


def _map(document: Document, records: dict[str, Document], namespace: str) -> dict[str, Any]:
    keys, values = document["keys"], document["values"]
    if keys["type"] == "string" and not keys["optional"]:
        return {"type": "map", "values": _nullable_type(values, records, namespace)}
    package, _, name = _entry(records).rpartition(".")
    fields = [
        _field({**keys, "field": "key"}, records, package),
        _field({**values, "field": "value"}, records, package),
    ]
    entry = {"type": "record", "name": name, "namespace": package, "fields": fields}
    return {"type": "array", "items": entry | {"connect.internal.type": "MapEntry"}}


def _entry(records: dict[str, Document]) -> str:
    """A name for the entries of a map: the converters' own, and numbered ones where that is taken, as Avro asks."""
    number, name = 1, _ENTRY
    while name in records:
        number += 1
        name = f"{_ENTRY}{number}"
    records[name] = {}
    return name
