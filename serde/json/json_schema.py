"""JSON Schema of a registry -> Connect schema: what the converters of Confluent and AWS Glue make of one.

They note Connect's own types in it (`connect.type`, `connect.parameters`, `connect.index`; the name as `title` or
`connect.name`). Without those JSON's types count.
Sources: Confluent's schema registry 8, `JsonSchemaData`; AWS Glue Schema Registry library 1.1.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
from attrs import define

from serde.connect.connect_schema import ConnectSchema, parse_document, unusable_schema
from serde.connect.primitive_keys import is_primitive, wrap_schema
from serde.json.json_types import JSON_LEAVES
from serde.wire_format import SchemaTexts

Document: TypeAlias = dict[str, Any]
_CACHED_SCHEMAS = 1024
_MAX_DEPTH = 100
_TYPES = {"integer": "int64", "number": "double", "string": "string", "boolean": "boolean"}
_CONNECT_TYPES = frozenset({"int8", "int16", "int32", "int64", "float32", "float64", "bytes"})
_UNORDERED = 1 << 30


@lru_cache(maxsize=_CACHED_SCHEMAS)
def parse_json_schema(texts: SchemaTexts, alone: str | None = None) -> ConnectSchema:
    """Parse a schema; never raises, one that cannot be used carries its fault.

    alone: the name of the only field that a schema of one value counts as.
    """
    digest = hashlib.sha256("\n".join(texts).encode(errors="replace")).hexdigest()[:32]
    try:
        root = orjson.loads(texts[-1])
        document = _Walk(root).convert(root, 0)
        if alone is not None and is_primitive(document):
            document = wrap_schema(document, alone)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else "malformed"
        return unusable_schema(digest, f"JSON schema cannot be read: {reason}")
    return parse_document(document, JSON_LEAVES)


@define(eq=False)
class _Walk:
    """One schema on its way; its definitions are found from the root."""

    root: Document

    def convert(self, schema: Document, depth: int) -> Document:
        """The Connect schema of a schema; ValueError where Connect has none."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        schema, optional = self._resolve(schema, depth)
        connect_schema = self._convert_type(schema, depth)
        name = schema.get("connect.name", schema.get("title"))
        if isinstance(name, str):
            connect_schema["name"] = name
        if schema.get("connect.parameters"):
            connect_schema["parameters"] = {key: str(value) for key, value in schema["connect.parameters"].items()}
        return {**connect_schema, "optional": optional}

    def _resolve(self, schema: Document, depth: int) -> tuple[Document, bool]:
        """The schema itself behind references and beside null, and whether null is allowed."""
        optional = False
        for _ in range(_MAX_DEPTH - depth):
            if "$ref" in schema:
                schema = self._find(schema["$ref"])
                continue
            # Some generators put a reference into an `allOf` of its own, to have a description beside it.
            choices = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
            kind = schema.get("type")
            if isinstance(kind, list):
                others = [one for one in kind if one != "null"]
                optional |= len(others) < len(kind)
                if len(others) != 1:
                    raise ValueError("a value of several types")
                schema = {**schema, "type": others[0]}
            if not choices:
                return schema, optional
            rest = [one for one in choices if one.get("type") != "null"]
            optional |= len(rest) < len(choices)
            if len(rest) != 1:
                raise ValueError("a value of several types")
            schema = rest[0]
        raise ValueError("references have no end")

    def _find(self, reference: str) -> Document:
        if not reference.startswith("#/"):
            raise ValueError("a reference to another schema")
        node: Any = self.root
        for part in reference[2:].split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]
        return dict(node)

    def _convert_type(self, schema: Document, depth: int) -> Document:
        connect_type, kind = schema.get("connect.type"), schema.get("type")
        if connect_type in _CONNECT_TYPES:
            return {"type": connect_type}
        if "enum" in schema and kind in (None, "string"):
            return {"type": "string"}
        if kind in _TYPES:
            return {"type": _TYPES[kind]}
        if kind == "array":
            return {"type": "array", "items": self.convert(schema["items"], depth + 1)}
        if kind == "object":
            return self._convert_object(schema, depth, as_map=connect_type == "map")
        raise ValueError("a value of no type that Connect has")

    def _convert_object(self, schema: Document, depth: int, *, as_map: bool) -> Document:
        properties = schema.get("properties")
        if as_map or (not properties and isinstance(schema.get("additionalProperties"), dict)):
            values = self.convert(schema["additionalProperties"], depth + 1)
            return {"type": "map", "keys": {"type": "string"}, "values": values}
        required = frozenset(schema.get("required") or ())
        fields = []
        for name, inner in sorted(
            (properties or {}).items(), key=lambda pair: pair[1].get("connect.index", _UNORDERED)
        ):
            member = self.convert(inner, depth + 1)
            # Connect's converters tell optional fields by null alone.
            needed = name in required or "connect.index" in inner
            fields.append({**member, "optional": member["optional"] or not needed, "field": name})
        return {"type": "struct", "fields": fields}
