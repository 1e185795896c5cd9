"""Connect schema (its JSON document) -> tree of nodes.

The walk over a schema is one for all formats; `LeafTypes` says what the values at its ends are in a format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import orjson
import pyarrow as pa
from attrs import evolve, frozen

from serde.connect.schema_node import (
    ELEMENT,
    MAX_DEPTH,
    VALUE,
    Field,
    Leaf,
    List,
    Map,
    Node,
    Struct,
    StructValue,
    is_columnar,
)
from serde.connect.type_table import CONNECT_PREFIX, JSON_TEXT, STRUCT_TYPES, Parameters
from serde.connect.values.structured_times import STRUCTURED_TYPES
from serde.messages import MessageBlock, Rows

_CACHED_SCHEMAS = 1024
_IMAGES = frozenset({"before", "after"})
UNION_NAME = "io.confluent.connect.avro.Union"
"""What Confluent's converter calls the struct that a union of several types becomes, with a field for each."""
_DECIMALS = frozenset({CONNECT_PREFIX + "Decimal", *STRUCT_TYPES})


@frozen(eq=False)
class ConnectSchema:
    """A schema block; `fault` says why nothing can be read by it (then `node` is empty).

    `documents` are the dotted paths of texts that are JSON documents, `numbers` those of texts that are numbers,
    `unknown` the names of types that newer versions of Debezium have: their values are read as the plain type behind
    the name.
    """

    id: str
    name: str | None
    node: Struct
    optional: Mapping[str, bool]
    columnar: bool
    fault: str | None = None
    documents: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


@frozen(eq=False)
class LeafTypes:
    """The ends of a schema in one format: values by Connect type, schema name and parameters, and structs that stand
    for a value.
    """

    leaf: Callable[[str, str | None, Parameters], Leaf | None]
    structure: Callable[[str | None], Node | None]


def parse_document(document: object, leaves: LeafTypes) -> ConnectSchema:
    """Parse a Connect schema; equal ones written differently get one id. Never raises, see `ConnectSchema.fault`."""
    digest = hashlib.sha256(_to_text(document)).hexdigest()[:32]
    try:
        node = _parse_node(document, leaves, 0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else "malformed"
        return unusable_schema(digest, f"schema block cannot be read: {reason}")
    if not isinstance(node, Struct):
        return unusable_schema(digest, "schema is not a struct")
    if is_envelope_node(node) and any(_is_union(field.node) for field in node.fields if field.name in _IMAGES):
        return unusable_schema(digest, "its images are of several record types (a union), which no one table has")
    return schema_of(node, digest)


def _to_text(document: object) -> bytes:
    """A document as JSON; a default may be a number of any length."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document, default=str).encode()


@lru_cache(maxsize=_CACHED_SCHEMAS)
def branch_schemas(schema: ConnectSchema) -> Mapping[str, ConnectSchema | None] | None:
    """Return the schemas of messages of several types, by the branch of the union; None for one that is no record.

    None for a schema of one type.
    """
    if not _is_union(schema.node):
        return None
    return {
        field.name: schema_of(field.node, f"{schema.id}/{field.name}") if isinstance(field.node, Struct) else None
        for field in schema.node.fields
    }


def _is_union(node: Node) -> bool:
    return isinstance(node, Struct) and node.name == UNION_NAME


def schema_of(node: Struct, digest: str) -> ConnectSchema:
    """Return the schema of a tree, with what its fields say."""
    fields = list(_walk_fields(node, ""))
    flags = {path: field.optional for path, field in fields}
    documents = frozenset(path for path, field in fields if _is_document(field.node))
    unknown = frozenset(leaf.unknown for _, field in fields if isinstance(leaf := field.node, Leaf) and leaf.unknown)
    numbers = find_number_texts(node)
    return ConnectSchema(digest, node.name, node, flags, is_columnar(node), None, documents, numbers, unknown)


def find_number_texts(node: Struct) -> frozenset[str]:
    """Return the dotted paths of decimals that are read as text."""
    return frozenset(path for path, field in _walk_fields(node, "") if _is_number_text(field.node))


def is_envelope_node(node: Struct) -> bool:
    """True for the schema of an envelope; a row may have columns of these names, but `source` is a struct here only."""
    nodes = {field.name: field.node for field in node.fields}
    return "op" in nodes and isinstance(nodes.get("source"), Struct) and not nodes.keys().isdisjoint(_IMAGES)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def narrow_schema(schema: ConnectSchema, wanted: frozenset[str] | None) -> ConnectSchema:
    """The schema of an envelope with its images and the wanted paths only; any other schema as it is."""
    if wanted is None or not is_envelope_node(schema.node):
        return schema
    fields = [_narrow_field(field, wanted) for field in schema.node.fields]
    return evolve(schema, node=Struct(tuple(field for field in fields if field is not None), schema.node.name))


def _narrow_field(field: Field, wanted: frozenset[str]) -> Field | None:
    """A top-level field of an envelope, as much of it as is wanted."""
    if field.name in _IMAGES or field.name in wanted:
        return field
    if not isinstance(field.node, Struct):
        return None
    kept = tuple(child for child in field.node.fields if f"{field.name}.{child.name}" in wanted)
    return evolve(field, node=Struct(kept, field.node.name)) if kept else None


def make_block(rows: Rows, fields: pa.StructArray, schema: ConnectSchema) -> MessageBlock:
    """Return messages that were read by a schema, with what it says of them."""
    told = (schema.optional, schema.documents, schema.numbers, schema.unknown)
    return MessageBlock(rows, fields, schema.id, schema.name, *told)


def unusable_schema(digest: str, fault: str) -> ConnectSchema:
    """A schema that nothing can be read by, and why."""
    return ConnectSchema(digest, None, Struct(()), {}, False, fault)


def _parse_node(document: object, leaves: LeafTypes, depth: int) -> Node:
    """One schema of the block; ValueError, KeyError or TypeError where it is none."""
    if not isinstance(document, dict) or depth > MAX_DEPTH:
        raise ValueError("nested too deep" if depth > MAX_DEPTH else "not an object")
    kind, name = document["type"], document.get("name")
    if name is not None and not isinstance(name, str):
        raise TypeError("name")
    if kind == "struct":
        return leaves.structure(name) or _parse_struct(document, name, leaves, depth)
    if kind == "array":
        items = document["items"]
        return List(_parse_node(items, leaves, depth + 1), _is_optional(items))
    if kind == "map":
        return _parse_map(document, leaves, depth)
    leaf = leaves.leaf(kind, name, document.get("parameters") or {})
    if leaf is None:
        raise ValueError("unknown type")
    return leaf


def _parse_map(document: Mapping[str, object], leaves: LeafTypes, depth: int) -> Map:
    keys = document["keys"]
    text_key = isinstance(keys, dict) and keys.get("type") == "string" and not keys.get("optional")
    values = document["values"]
    pair = (_parse_node(keys, leaves, depth + 1), _parse_node(values, leaves, depth + 1))
    return Map(*pair, text_key, _is_optional(values))


def _is_optional(document: object) -> bool:
    return isinstance(document, dict) and bool(document.get("optional"))


def _parse_struct(document: Mapping[str, object], name: str | None, leaves: LeafTypes, depth: int) -> Struct:
    fields = document["fields"]
    if not isinstance(fields, list):
        raise TypeError("fields")
    if not all(isinstance(field["field"], str) for field in fields):
        raise TypeError("field")
    members = tuple(
        Field(field["field"], _parse_node(field, leaves, depth + 1), bool(field.get("optional"))) for field in fields
    )
    if len({field.name for field in members}) != len(members):
        raise ValueError("a field name occurs twice")
    structured = STRUCTURED_TYPES.get(name or "")
    return Struct(members, name, None if structured is None else StructValue(structured.logical, structured.step))


def _walk_fields(node: Struct, prefix: str) -> Iterator[tuple[str, Field]]:
    """Dotted path -> field, through structs, the items of lists and the values of maps."""
    for field in node.fields:
        yield from _walk_field(field, prefix)


def _walk_field(field: Field, prefix: str) -> Iterator[tuple[str, Field]]:
    path = prefix + field.name
    yield path, field
    match field.node:
        case Struct(value=None):
            yield from _walk_fields(field.node, f"{path}.")
        case List():
            yield from _walk_field(Field(ELEMENT, field.node.item, field.node.optional), f"{path}.")
        case Map():
            yield from _walk_field(Field(VALUE, field.node.value, field.node.optional), f"{path}.")


def _is_document(node: Node) -> bool:
    return isinstance(node, Leaf) and node.label == JSON_TEXT


def _is_number_text(node: Node) -> bool:
    return isinstance(node, Leaf) and node.label in _DECIMALS and pa.types.is_string(node.logical)
