"""writer schema -> codec and Connect schema: what Confluent's AvroData makes of an Avro schema, parsed once per text.

`connect.name`, `connect.parameters` and `connect.type` say what a value was in Connect; without them Avro's own logical
types count as their counterparts there. Defaults are of no use here: datums are read by the schema they were written
with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
from attrs import define, evolve, field, frozen

from serde.avro.codec import (
    Array,
    Boolean,
    Codec,
    Enum,
    Fixed,
    Float,
    Integer,
    LengthPrefixed,
    MapBlocks,
    Null,
    Optional,
    Record,
    RecordField,
    Union,
    min_bytes,
)
from serde.avro.type_names import NamedTypes, resolve_names
from serde.connect.binary_leaves import find_leaf, find_struct_leaf
from serde.connect.connect_schema import (
    UNION_NAME,
    ConnectSchema,
    LeafTypes,
    narrow_schema,
    parse_document,
    unusable_schema,
)
from serde.connect.primitive_keys import is_primitive, wrap_schema
from serde.connect.schema_node import Node, Struct
from serde.connect.type_table import CONNECT_PREFIX, DATA_PREFIX, TIME_PREFIX
from serde.wire_format import SchemaTexts

Document: TypeAlias = dict[str, Any]
_MAX_DEPTH = 100
_CACHED_SCHEMAS = 1024
AVRO_PRIMITIVES: Mapping[str, tuple[Codec, str]] = {
    "boolean": (Boolean(), "boolean"),
    "int": (Integer(32), "int32"),
    "long": (Integer(64), "int64"),
    "float": (Float(4), "float"),
    "double": (Float(8), "double"),
    "bytes": (LengthPrefixed(text=False), "bytes"),
    "string": (LengthPrefixed(text=True), "string"),
}
AVRO_LOGICAL_TYPES: Mapping[tuple[str, object], str] = {
    ("int32", "date"): CONNECT_PREFIX + "Date",
    ("int32", "time-millis"): CONNECT_PREFIX + "Time",
    ("int64", "time-micros"): TIME_PREFIX + "MicroTime",
    ("int64", "timestamp-millis"): CONNECT_PREFIX + "Timestamp",
    ("int64", "timestamp-micros"): TIME_PREFIX + "MicroTimestamp",
    ("int64", "timestamp-nanos"): TIME_PREFIX + "NanoTimestamp",
    ("int64", "local-timestamp-millis"): CONNECT_PREFIX + "Timestamp",
    ("int64", "local-timestamp-micros"): TIME_PREFIX + "MicroTimestamp",
    ("int64", "local-timestamp-nanos"): TIME_PREFIX + "NanoTimestamp",
    ("string", "uuid"): DATA_PREFIX + "Uuid",
}
_TYPES = frozenset({"int8", "int16"})


@frozen(eq=False)
class WriterSchema:
    """A writer schema: how datums are read, and the Connect schema of what they hold; `schema.fault` as there."""

    codec: Codec
    schema: ConnectSchema


@lru_cache(maxsize=_CACHED_SCHEMAS)
def parse_writer_schema(
    texts: SchemaTexts, wanted: frozenset[str] | None = None, alone: str | None = None
) -> WriterSchema:
    """Parses a writer schema, after those it refers to; never raises, a schema that cannot be used carries its fault.

    wanted: as for `serde.formats.make_deserializer`; other fields of an envelope are passed over.
    alone: a schema of one value counts as a record of one field of this name, which is written the same way.
    """
    digest = hashlib.sha256("\n".join(texts).encode(errors="replace")).hexdigest()[:32]
    try:
        parser, named = _CodecBuilder(), NamedTypes()
        codec, document = [parser.build(resolve_names(orjson.loads(text), named), 0) for text in texts][-1]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "malformed"
        return WriterSchema(Null(), unusable_schema(digest, f"writer schema cannot be read: {reason}"))
    if document is None:
        return WriterSchema(Null(), unusable_schema(digest, "writer schema is not a record"))
    if alone is not None and is_primitive(document):
        codec, document = Record((RecordField(alone, codec),)), wrap_schema(document, alone)
    schema = parse_document(document, _LEAVES)
    if schema.fault is not None:
        return WriterSchema(codec, schema)
    schema = narrow_schema(schema, wanted)
    shaped = _select_fields(codec, schema.node)
    if shaped.wire != schema.node.wire:
        return WriterSchema(
            codec, unusable_schema(schema.id, "writer schema does not have the fields of its Connect type")
        )
    return WriterSchema(shaped, schema)


def _select_fields(codec: Codec, node: Node) -> Codec:
    """The codec with only those members wanted that the node has."""
    if isinstance(codec, Optional):
        return Optional(_select_fields(codec.codec, node), codec.null, codec.count)
    if not isinstance(codec, Record) or not isinstance(node, Struct):
        return codec
    nodes = {child.name: child.node for child in node.fields}
    return Record(
        tuple(
            evolve(member, codec=_select_fields(member.codec, nodes[member.name]))
            if member.wanted and member.name in nodes
            else evolve(member, wanted=False)
            for member in codec.members
        )
    )


CodecAndSchema: TypeAlias = tuple[Codec, Document | None]


@define(eq=False)
class _CodecBuilder:
    """Makes codecs of schemas that were checked; a name inside of its own definition has no end."""

    named: dict[str, CodecAndSchema | None] = field(factory=dict)

    def build(self, schema: Any, depth: int) -> CodecAndSchema:
        """Codec and Connect schema of a schema; the latter is None for null."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        if isinstance(schema, list):
            return self._build_union(schema, depth)
        if isinstance(schema, str):
            return self._build_named(schema)
        match kind := schema["type"]:
            case "record" | "error" | "enum" | "fixed":
                return self._build_definition(schema, kind, depth)
            case "array":
                return self._build_array(schema, depth)
            case "map":
                codec, document = self._build_non_null(schema["values"], depth)
                map_schema = {"type": "map", "keys": {"type": "string"}, "values": document}
                return MapBlocks(LengthPrefixed(text=True), codec), {**map_schema, **_connect_properties(schema, "map")}
            case _:
                codec, found = self._build_named(kind)
                return codec, None if found is None else {**found, **_connect_properties(schema, found["type"])}

    def _build_named(self, name: str) -> CodecAndSchema:
        if name == "null":
            return Null(), None
        if name in AVRO_PRIMITIVES:
            codec, kind = AVRO_PRIMITIVES[name]
            return codec, {"type": kind}
        built = self.named[name]
        if built is None:
            raise ValueError("a type contains itself")
        return built

    def _build_definition(self, schema: Document, kind: str, depth: int) -> CodecAndSchema:
        name = schema["name"]
        self.named[name] = None
        built = self._build_record(schema, name, depth) if kind in ("record", "error") else _build_plain(schema, kind)
        self.named[name] = built
        return built

    def _build_record(self, schema: Document, full: str, depth: int) -> CodecAndSchema:
        members, fields = [], []
        for item in schema["fields"]:
            codec, document = self.build(item["type"], depth + 1)
            members.append(RecordField(item["name"], codec, document is not None))
            if document is not None:
                fields.append({**document, "field": item["name"]})
        struct = {"type": "struct", "name": full, "fields": fields, **_connect_properties(schema, "struct")}
        return Record(tuple(members)), struct

    def _build_array(self, schema: Document, depth: int) -> CodecAndSchema:
        item = schema["items"]
        codec, document = self._build_non_null(item, depth)
        if _is_entry(codec, document, item):
            pair = {each["field"]: {k: v for k, v in each.items() if k != "field"} for each in document["fields"]}
            assert isinstance(codec, Record)
            map_type = {"type": "map", "keys": pair["key"], "values": pair["value"]}
            return MapBlocks(codec.members[0].codec, codec.members[1].codec), {
                **map_type,
                **_connect_properties(schema, "map"),
            }
        if not min_bytes(codec):
            raise ValueError("an array of items without bytes")
        return Array(codec), {"type": "array", "items": document, **_connect_properties(schema, "array")}

    def _build_non_null(self, schema: Any, depth: int) -> tuple[Codec, Document]:
        codec, document = self.build(schema, depth + 1)
        if document is None:
            raise ValueError("an array or map of nulls")
        return codec, document

    def _build_union(self, schemas: list[Any], depth: int) -> CodecAndSchema:
        built = [self.build(schema, depth + 1) for schema in schemas]
        null = next((at for at, (_, document) in enumerate(built) if document is None), -1)
        others = [(codec, document) for codec, document in built if document is not None]
        if not others:
            if null < 0:
                raise ValueError("a union of no types")
            return Optional(Null(), null, len(built)), None
        if len(others) == 1:
            codec, document = others[0]
            return Optional(codec, null, len(built)), {**document, **({"optional": True} if null >= 0 else {})}
        full = [
            _branch_name(schema, document) for schema, (_, document) in zip(schemas, built, strict=True) if document
        ]
        names = _shorten_names(full)
        branches = tuple(RecordField(name, codec) for name, (codec, _) in zip(names, others, strict=True))
        fields = [
            {**document, "optional": True, "field": name} for name, (_, document) in zip(names, others, strict=True)
        ]
        struct = {"type": "struct", "name": UNION_NAME, "fields": fields, "optional": null >= 0}
        return Union(branches, null), struct


def _is_entry(codec: Codec, document: Document, item: Any) -> bool:
    """True for the pairs that Connect writes maps as whose keys are no plain text."""
    if not isinstance(codec, Record) or [member.name for member in codec.members] != ["key", "value"]:
        return False
    internal_type = item.get("connect.internal.type") if isinstance(item, dict) else None
    return internal_type == "MapEntry" or str(document.get("name", "")).endswith("connect.avro.MapEntry")


def _build_plain(schema: Document, kind: str) -> CodecAndSchema:
    if kind == "enum":
        symbols = tuple(str(symbol) for symbol in schema["symbols"])
        if not symbols:
            raise ValueError("an enum without symbols")
        return Enum(symbols), {"type": "string", **_connect_properties(schema, "string")}
    size = schema["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError("a fixed type without size")
    return Fixed(size), {"type": "bytes", **_connect_properties(schema, "bytes")}


def _connect_properties(schema: Document, kind: str) -> Document:
    """Name, parameters and type that the properties of an Avro schema stand for."""
    properties: Document = {}
    if schema.get("connect.type") in _TYPES and kind == "int32":
        properties["type"] = schema["connect.type"]
    name, parameters = schema.get("connect.name"), schema.get("connect.parameters")
    logical = schema.get("logicalType")
    if name is not None:
        properties["name"] = name
    elif (kind, logical) in AVRO_LOGICAL_TYPES:
        properties["name"] = AVRO_LOGICAL_TYPES[kind, logical]
    elif (kind, logical) == ("bytes", "decimal"):
        properties["name"] = CONNECT_PREFIX + "Decimal"
        parameters = {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
    if parameters:
        properties["parameters"] = parameters
    return properties


def _branch_name(schema: Any, document: Document) -> str:
    """What the column of a union's branch is called: the full name of what has one, else the type."""
    match document["type"]:
        case "struct":
            return str(document["name"])
        case "map":
            return "map"
        case _:
            kind: str = schema if isinstance(schema, str) else schema["type"]
            return str(schema["name"]) if kind in ("enum", "fixed") else kind


def _shorten_names(full: list[str]) -> list[str]:
    """The names without their namespaces; the full one where that is taken."""
    short = [name.rpartition(".")[2] for name in full]
    return [name if short.count(name) == 1 else whole for name, whole in zip(short, full, strict=True)]


_LEAVES = LeafTypes(find_leaf, find_struct_leaf)
