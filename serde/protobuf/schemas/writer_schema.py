"""schema texts, which message -> codec and Connect schema: what Confluent's ProtobufData makes of it.

Connect's own logical types survive, as messages of Google and Confluent; of others (Debezium's) the plain type does.
Source: Confluent's schema registry 8, `ProtobufData`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from attrs import evolve, frozen

from serde.connect.binary_leaves import find_leaf, find_struct_leaf
from serde.connect.connect_schema import ConnectSchema, LeafTypes, narrow_schema, parse_document, unusable_schema
from serde.connect.primitive_keys import wrap_schema
from serde.connect.schema_node import Leaf, Node, Struct
from serde.connect.type_table import STRUCT_TYPES, Parameters
from serde.connect.values.structured_times import STRUCTURED_TYPES
from serde.protobuf.known_values import find_known
from serde.protobuf.message_indexes import Place
from serde.protobuf.schemas.codec import (
    SCALARS,
    Codec,
    LabelNumber,
    MapEntries,
    MessageMember,
    MessageType,
    Oneof,
    Scalar,
    Wrapped,
)
from serde.protobuf.schemas.definitions import (
    Definitions,
    EnumDefinition,
    FieldDefinition,
    Malformed,
    MessageDefinition,
)
from serde.protobuf.schemas.file_descriptor import add_descriptor, parse_descriptor
from serde.protobuf.schemas.known_types import WRAPPERS, known_definitions
from serde.protobuf.schemas.proto_text import add_text
from serde.wire_format import SchemaTexts

Document: TypeAlias = dict[str, Any]
_MAX_DEPTH = 100
_CACHED_SCHEMAS = 1024
_SMALL = frozenset({"int8", "int16"})
_CONNECT_TYPES: Mapping[str, str] = {
    "int32": "int32",
    "sint32": "int32",
    "sfixed32": "int32",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "bytes": "bytes",
}
"""The others are int64."""

_BY_SHORT_NAME = {name.rpartition(".")[2]: name for name in (*STRUCTURED_TYPES, *STRUCT_TYPES)}
_SCALED_FIELDS = [("scale", "int32"), ("value", "bytes")]


@frozen(eq=False)
class MessageSchema:
    """A message: how its bytes are read, and the Connect schema of what they hold; `schema.fault` as there."""

    codec: MessageType
    schema: ConnectSchema


@lru_cache(maxsize=_CACHED_SCHEMAS)
def parse_writer_schema(
    texts: SchemaTexts, place: Place, wanted: frozenset[str] | None = None, alone: str | None = None
) -> MessageSchema:
    """Parse a writer schema, after those it imports; never raises, a schema that cannot be used carries its fault.

    wanted: as for `serde.formats.make_deserializer`; other fields of an envelope are passed over.
    alone: the name of the only field that a message of one value (a wrapper) counts as.
    """
    digest = hashlib.sha256("\n".join((*texts, str(place))).encode(errors="replace")).hexdigest()[:32]
    try:
        definitions = _define(texts)
        message = definitions.find_by_number(place) if isinstance(place, int) else definitions.at(place)
        codec, document = _Builder(definitions).root(message, alone)
    except ValueError as error:  # what is malformed, and numbers of a decimal that are none
        return MessageSchema(MessageType(()), unusable_schema(digest, f"writer schema cannot be read: {error}"))
    except RecursionError:
        return MessageSchema(MessageType(()), unusable_schema(digest, "writer schema cannot be read: nested too deep"))
    schema = parse_document(document, _LEAVES)
    if schema.fault is not None:
        return MessageSchema(codec, schema)
    schema = narrow_schema(schema, wanted)
    shaped = _select_members(codec, schema.node)
    if shaped.wire != schema.node.wire:
        return MessageSchema(codec, unusable_schema(schema.id, "writer schema does not have the fields of its type"))
    return MessageSchema(shaped, schema)


def _define(texts: SchemaTexts) -> Definitions:
    known = known_definitions()
    definitions = Definitions(dict(known.messages), dict(known.enums))
    for text in texts:
        file = parse_descriptor(text)
        if file is None:
            add_text(text, definitions)
        else:
            add_descriptor(file, definitions)
    return definitions


def _select_members(codec: MessageType, node: Struct) -> MessageType:
    """The codec with only those members wanted that the node has."""
    nodes = {child.name: child.node for child in node.fields}
    return MessageType(tuple(_select_member(member, nodes.get(member.name)) for member in codec.members))


def _select_member(member: MessageMember | Oneof, node: Node | None) -> MessageMember | Oneof:
    if isinstance(member, Oneof):
        return (
            member
            if node is not None
            else evolve(member, members=tuple(evolve(one, wanted=False) for one in member.members))
        )
    if node is None:
        return evolve(member, wanted=False)
    if isinstance(member.codec, MessageType) and isinstance(node, Struct) and not member.repeated:
        return evolve(member, codec=_select_members(member.codec, node))
    return member


class _Builder:
    """Makes codecs and Connect schemas of definitions."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def root(self, message: MessageDefinition, alone: str | None) -> tuple[MessageType, Document]:
        """Codec and Connect schema of the message of a record."""
        if message.name in WRAPPERS and alone is not None:
            value = message.fields[0]
            return MessageType((MessageMember(alone, 1, Scalar(value.type)),)), wrap_schema(
                {"type": _connect_type(value)}, alone
            )
        codec, document = self._message(message, ())
        return codec, document

    def _message(self, message: MessageDefinition, above: tuple[str, ...]) -> tuple[MessageType, Document]:
        if len(above) > _MAX_DEPTH:
            raise Malformed("nested too deep")
        members: list[MessageMember | Oneof] = []
        fields: list[Document] = []
        numbers: set[int] = set()
        unions = list(dict.fromkeys(one.oneof for one in message.fields if one.oneof is not None))
        for index, name in enumerate(unions):
            own = [self._field(one, message.name, above) for one in message.fields if one.oneof == name]
            union = f"{name}_{index}"
            members.append(Oneof(union, tuple(member for member, _ in own)))
            parts = [{**document, "optional": True} for _, document in own]
            fields.append({"type": "struct", "fields": parts, "optional": True, "field": union})
        for one in message.fields:
            if one.number in numbers:
                raise Malformed("a field number occurs twice")
            numbers.add(one.number)
            if one.oneof is None:
                member, document = self._field(one, message.name, above)
                members.append(member)
                fields.append(document)
        return MessageType(tuple(members)), {"type": "struct", "name": _struct_name(message), "fields": fields}

    def _field(self, one: FieldDefinition, scope: str, above: tuple[str, ...]) -> tuple[MessageMember, Document]:
        codec, document = self._codec(one, scope, (*above, scope))
        if one.repeated and not isinstance(codec, MapEntries):
            document = {"type": "array", "items": {**document, "optional": True}}
        presence = one.presence or isinstance(codec, MessageType | Wrapped) or one.oneof is not None
        member = MessageMember(one.name, one.number, codec, one.repeated, presence and not one.repeated)
        return member, {**document, "optional": True, "field": one.name}

    def _codec(  # noqa: PLR0911 - one case per kind
        self, one: FieldDefinition, scope: str, above: tuple[str, ...]
    ) -> tuple[Codec, Document]:
        if one.type in SCALARS:
            return Scalar(one.type), {"type": _connect_type(one)}
        definition = self._definitions.find(one.type, scope)
        if isinstance(definition, EnumDefinition):
            return LabelNumber(definition.labels), {"type": "string"}
        if definition.name in WRAPPERS:
            return Wrapped(Scalar(definition.fields[0].type)), {"type": _connect_type(definition.fields[0])}
        if definition.name in above:
            # A message inside of itself has no columns: its bytes are kept.
            return Scalar("bytes"), {"type": "bytes"}
        if one.repeated and _is_map(definition):
            codec, document = self._message(definition, above)
            key, value = ({k: v for k, v in each.items() if k != "field"} for each in document["fields"])
            return MapEntries(_with_keys(codec)), {"type": "map", "keys": {**key, "optional": False}, "values": value}
        codec, document = self._message(definition, above)
        if find_known(definition.name, one.params) is not None:
            return codec, {"type": definition.name, "parameters": dict(one.params)}
        return codec, document


def _is_map(message: MessageDefinition) -> bool:
    """Told by its option, or as Connect's converter does by its name and fields."""
    named = message.name.endswith("Entry") and [one.name for one in message.fields] == ["key", "value"]
    return message.is_map or (named and not any(one.repeated for one in message.fields))


def _with_keys(pair: MessageType) -> MessageType:
    """The pairs of a map: a key that is absent is its type's zero, whatever the syntax."""
    key, *others = pair.members
    return MessageType((evolve(key, presence=False) if isinstance(key, MessageMember) else key, *others))


def _connect_type(one: FieldDefinition) -> str:
    kind = _CONNECT_TYPES.get(one.type, "int64")
    connect_type = one.params.get("connect.type", "")
    return connect_type if kind == "int32" and connect_type in _SMALL else kind


def _struct_name(message: MessageDefinition) -> str:
    """The full name; that of Debezium's structs which stand for a value, whose package the converter drops."""
    known = _BY_SHORT_NAME.get(message.name.rpartition(".")[2])
    if known is None:
        return message.name
    if known in STRUCTURED_TYPES:
        return known
    return known if [(one.name, one.type) for one in message.fields] == _SCALED_FIELDS else message.name


def _find_leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """The leaf of a Connect type, or of a message that stands for a value; None for an unknown type."""
    return find_known(kind, parameters) or find_leaf(kind, name, parameters)


_LEAVES = LeafTypes(_find_leaf, find_struct_leaf)
