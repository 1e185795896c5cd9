"""Row descriptions -> Connect schemas, as the documents that JsonConverter puts in its schema blocks.

The order of keys is JsonConverter's: type and children, optional, name, version, parameters, default, field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serde.emit.name_adjustment import adjust_field_name, adjust_schema_name
from serde.emit.row_schema import Primitive, RowList, RowMap, RowStruct, RowType
from serde.emit.type_mapping import HandlingModes, wire_type

Document = dict[str, Any]


def primitive(
    kind: str,
    *,
    optional: bool,
    name: str | None = None,
    version: int | None = None,
    parameters: Mapping[str, str] | None = None,
    default: object = None,
) -> Document:
    """The document of a schema without children."""
    document: Document = {"type": kind, "optional": optional}
    return document | _optional_parts(name, version, parameters, default)


def struct(fields: Mapping[str, Document], *, optional: bool, name: str | None, version: int | None = None) -> Document:
    """The document of a struct; `fields` by name, in order."""
    children = [{**document, "field": field} for field, document in fields.items()]
    return {"type": "struct", "fields": children, "optional": optional} | _optional_parts(name, version, None, None)


def array(items: Document, *, optional: bool) -> Document:
    """The document of an array."""
    return {"type": "array", "items": items, "optional": optional}


def _optional_parts(
    name: str | None, version: int | None, parameters: Mapping[str, str] | None, default: object
) -> Document:
    rest = {"name": name, "version": version, "parameters": dict(parameters or {}) or None, "default": default}
    return {key: value for key, value in rest.items() if value is not None}


def schema(kind: RowType, modes: HandlingModes, name: str, *, optional: bool) -> Document:
    """The schema of a type; `name` is what a struct is called, structs below it by their path.

    Raises:
        ValueError: a type has no form on the wire.
    """
    match kind:
        case Primitive():
            wire = wire_type(kind, modes)
            version = 1 if wire.name else None
            if wire.members:
                parts = {member: primitive(part, optional=True) for member, part in wire.members.items()}
                return struct(parts, optional=optional, name=wire.name, version=version)
            return primitive(wire.type, optional=optional, name=wire.name, version=version, parameters=wire.parameters)
        case RowStruct():
            fields = {
                adjust_field_name(m.name, modes.fields): schema(m.kind, modes, f"{name}.{m.name}", optional=m.optional)
                for m in kind.members
            }
            return struct(fields, optional=optional, name=adjust_schema_name(name, modes.names))
        case RowList():
            return array(schema(kind.item, modes, f"{name}.item", optional=kind.optional), optional=optional)
        case RowMap():
            keys = schema(kind.key, modes, f"{name}.key", optional=False)
            values = schema(kind.value, modes, f"{name}.value", optional=kind.optional)
            return {"type": "map", "keys": keys, "values": values, "optional": optional}
