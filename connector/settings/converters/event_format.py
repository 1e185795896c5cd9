"""properties -> EventSettings: how the bytes of keys and values are read.

Formats come from Kafka Connect's converters or from Debezium Server's `debezium.format.*`; nothing given: each message
is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    LIST,
    PATTERN,
    TEXT,
    InvalidValue,
    ValueType,
    one_of,
)
from connector.settings.converters import apicurio, glue, schema_registry
from connector.settings.converters.apicurio import ApicurioSettings
from connector.settings.converters.converter_classes import (
    DEFAULT_CONVERTER,
    FORMATS_BY_CLASS,
    choose_schemas,
    format_of,
    registry_of,
    short_names,
)
from connector.settings.converters.glue import GlueSettings
from connector.settings.converters.schema_registry import RegistrySettings
from serde.connect.text_columns import DECIMAL_OPTION, TEMPORAL_OPTION, WITH_NANOSECONDS
from serde.events.images.unavailable_value import PLACEHOLDER, parse_placeholder
from serde.formats import CLOUD_EVENTS_CLASS, CLOUD_EVENTS_OF_AVRO, FORMATS
from serde.wire_format import WireFormat

_UNWRAP = re.compile(r"((?:debezium\.)?transforms)\.([^.]+)\.type")

_CLASSES = [name for name in FORMATS_BY_CLASS if not name.startswith(glue.PACKAGE)]
_CONVERTERS = ", ".join(name.removesuffix("Converter") for name in short_names(_CLASSES))


def _parse_placeholder(text: str) -> str:
    try:
        word = parse_placeholder(text)
    except ValueError:
        raise InvalidValue("{} has no UTF-8 text behind hex:", "write two hexadecimal digits per byte") from None
    if not word:
        raise InvalidValue("{} is empty", "write the word, or leave the option out")
    return word


def _converter_option(side: str) -> Option[str | None]:
    return Option(
        name=f"{side}.converter",
        kind=TEXT,
        default=None,
        importance="medium",
        doc=f"{side.capitalize()}s: {_CONVERTERS}; default: by message.",
    )


def _converter_schemas_option(side: str) -> Option[bool]:
    return Option(
        name=f"{side}.converter.schemas.enable",
        kind=BOOLEAN,
        default=True,
        importance="medium",
        doc=f"With the JsonConverter: whether every record {side} carries its schema; not given: found per message.",
        aliases=(f"{side}.converter.json.schemas.enable",) if side == "value" else (),
        shown=f"<true with {side}.converter>",
    )


_SERVER_FORMATS = one_of("json", "jsonbytearray", "connect")
_CONVERTERS_INSTEAD = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "cloudevents": CLOUD_EVENTS_CLASS,
    "simplestring": "org.apache.kafka.connect.storage.StringConverter",
    "binary": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
"""Debezium Server's other formats -> the converter that reads them."""
_APICURIO_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
_WITH_REGISTRY = frozenset({"avro", "protobuf"})


def _server_format(side: str) -> ValueType[str]:
    def read(text: str) -> str:
        converter = _CONVERTERS_INSTEAD.get(text)
        if converter is not None:
            todo = f"write {side}.converter={converter} instead"
            if text in _WITH_REGISTRY:
                todo += f", with {side}.converter.schema.registry.url"
            if text == "avro":
                url = f"{side}.converter.apicurio.registry.url"
                todo += f"; for Apicurio's own API, {_APICURIO_AVRO} with {url}"
            raise InvalidValue("{} is read by a converter here", todo)
        return _SERVER_FORMATS.read(text)

    return ValueType("string", read)


def _format_option(side: str) -> Option[str]:
    return Option(
        name=f"debezium.format.{side}",
        kind=_server_format(side),
        default="json",
        importance="low",
        doc=f"Debezium Server's format of record {side}s: json or connect; for others set {side}.converter.",
    )


def _format_schemas_option(side: str) -> Option[bool]:
    return Option(
        name=f"debezium.format.{side}.schemas.enable",
        kind=BOOLEAN,
        default=True,
        importance="low",
        doc=f"Debezium Server's name of the same option for record {side}s; not given: found per message.",
        shown="<found per message>",
    )


KEY_CONVERTER, VALUE_CONVERTER = _converter_option("key"), _converter_option("value")
KEY_SCHEMAS, VALUE_SCHEMAS = _converter_schemas_option("key"), _converter_schemas_option("value")
KEY_APICURIO, VALUE_APICURIO = apicurio.declare_options("key"), apicurio.declare_options("value")
KEY_GLUE, VALUE_GLUE = glue.declare_options("key"), glue.declare_options("value")
KEY_REGISTRY, VALUE_REGISTRY = schema_registry.declare_options("key"), schema_registry.declare_options("value")
KEY_FORMAT, VALUE_FORMAT = _format_option("key"), _format_option("value")
KEY_FORMAT_SCHEMAS, VALUE_FORMAT_SCHEMAS = _format_schemas_option("key"), _format_schemas_option("value")
_SERIALIZERS = one_of("json", "avro")
CLOUD_SERIALIZER = Option(
    name="value.converter.serializer.type",
    kind=_SERIALIZERS,
    default="json",
    importance="low",
    doc="With the CloudEventsConverter: how the events are written; avro needs a registry.",
)
CLOUD_DATA_SERIALIZER = Option(
    name="value.converter.data.serializer.type",
    kind=_SERIALIZERS,
    default="json",
    importance="low",
    doc="With the CloudEventsConverter: how their data is written; avro needs a registry.",
)
ADD_FIELDS = Option(
    name="debezium.transforms.unwrap.add.fields",
    kind=LIST,
    default=("op", "table", "source.ts_ns", "db", "ts_ms"),
    importance="medium",
    doc="Envelope fields to add as columns to those of the row.",
    aliases=("transforms.unwrap.add.fields",),
    empty=True,
)
ADD_FIELDS_PREFIX = Option(
    name="debezium.transforms.unwrap.add.fields.prefix",
    kind=TEXT,
    default="__",
    importance="low",
    doc="Prefix of the column names of add.fields.",
    aliases=("transforms.unwrap.add.fields.prefix",),
    empty=True,
)
TEMPORAL_AS_TEXT = Option(
    name=TEMPORAL_OPTION,
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns, or schema names of types, whose dates and times are stored as ISO 8601 text (infinity); * for all.",
)
DECIMAL_AS_TEXT = Option(
    name=DECIMAL_OPTION,
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns whose decimals are stored as text; * for all. Decimals of more than 38 digits always are.",
)
DocumentMode = Literal["columns", "text"]
DOCUMENTS_AS = Option(
    name="debezium.sink.iceberg.documents-as",
    kind=one_of("columns", "text"),
    default="columns",
    importance="medium",
    doc="MongoDB's documents: a column per member, or whole in the column document; either takes partial updates.",
)
OUTBOX_TOPICS = Option(
    name="debezium.sink.iceberg.outbox-topics",
    kind=PATTERN,
    default="outbox.event.(.+)",
    importance="medium",
    doc="Topics of Debezium's outbox router, whose events are appended; group 1 is the aggregate type. Empty: none.",
    empty=True,
)
UNAVAILABLE_PLACEHOLDER = Option(
    name="unavailable.value.placeholder",
    kind=ValueType("string", _parse_placeholder),
    default=PLACEHOLDER,
    importance="low",
    doc="Debezium's word for values that it did not send, as the source connector has it; hex: before bytes.",
    aliases=("debezium.source.unavailable.value.placeholder",),
)
TypeChangeMode = Literal["dead-letter", "stop", "new-column"]
TYPE_CHANGES = Option(
    name="debezium.sink.iceberg.type-changes",
    kind=one_of("dead-letter", "stop", "new-column"),
    default="dead-letter",
    importance="medium",
    doc="If a source column gets another type: dead-letter values that do not fit, stop, or fill column a__<type>.",
)
_REGISTRIES = {"key": (KEY_REGISTRY, KEY_APICURIO, KEY_GLUE), "value": (VALUE_REGISTRY, VALUE_APICURIO, VALUE_GLUE)}
OPTIONS: tuple[Option[object], ...] = (
    KEY_CONVERTER,
    KEY_SCHEMAS,
    *KEY_REGISTRY.all,
    *KEY_APICURIO.all,
    *KEY_GLUE.all,
    VALUE_CONVERTER,
    VALUE_SCHEMAS,
    *VALUE_REGISTRY.all,
    *VALUE_APICURIO.all,
    *VALUE_GLUE.all,
    CLOUD_SERIALIZER,
    CLOUD_DATA_SERIALIZER,
    KEY_FORMAT,
    KEY_FORMAT_SCHEMAS,
    VALUE_FORMAT,
    VALUE_FORMAT_SCHEMAS,
    ADD_FIELDS,
    ADD_FIELDS_PREFIX,
    TEMPORAL_AS_TEXT,
    DECIMAL_AS_TEXT,
    DOCUMENTS_AS,
    OUTBOX_TOPICS,
    UNAVAILABLE_PLACEHOLDER,
    TYPE_CHANGES,
)


AnyRegistry = RegistrySettings | ApicurioSettings | GlueSettings
"""Where schemas are: a registry with Confluent's API, Apicurio's own, or AWS Glue's."""


@attrs.frozen
class EventSettings:
    """Formats of key and value (names in `serde.formats`) with the registries that they need, and what an envelope adds
    to its row; `temporal_as_text` and `decimal_as_text` name columns, see `connect.text_columns`;
    `documents_as` says what MongoDB's become, `outbox_topics` (a Java pattern) which topics are the outbox router's,
    `placeholder` is the source's word for values that it did not send."""

    key_format: str
    value_format: str
    add_fields: tuple[str, ...]
    add_fields_prefix: str
    key_registry: AnyRegistry | None = None
    value_registry: AnyRegistry | None = None
    temporal_as_text: frozenset[str] = frozenset()
    decimal_as_text: frozenset[str] = frozenset()
    documents_as: DocumentMode = "columns"
    outbox_topics: str | None = None
    placeholder: str = PLACEHOLDER
    type_changes: TypeChangeMode = "dead-letter"


def build(reader: ConfigReader, *, nanoseconds: bool = False) -> EventSettings:
    """Read the events' part; faults go to the reader. `nanoseconds`: new tables have timestamps of these."""
    key = _read_format(reader, KEY_CONVERTER, KEY_SCHEMAS, KEY_FORMAT, KEY_FORMAT_SCHEMAS)
    value = _read_format(reader, VALUE_CONVERTER, VALUE_SCHEMAS, VALUE_FORMAT, VALUE_FORMAT_SCHEMAS)
    value = _choose_cloud_format(reader, value)
    return EventSettings(
        key.name,
        value.name,
        reader.get(ADD_FIELDS),
        reader.get(ADD_FIELDS_PREFIX),
        _build_registry(reader, "key", KEY_CONVERTER, key),
        _build_registry(reader, "value", VALUE_CONVERTER, value),
        frozenset(reader.get(TEMPORAL_AS_TEXT)) | ({WITH_NANOSECONDS} if nanoseconds else set()),
        frozenset(reader.get(DECIMAL_AS_TEXT)),
        "text" if reader.get(DOCUMENTS_AS) == "text" else "columns",
        reader.get(OUTBOX_TOPICS) or None,
        reader.get(UNAVAILABLE_PLACEHOLDER),
        next(mode for mode in get_args(TypeChangeMode) if mode == reader.get(TYPE_CHANGES)),
    )


def _build_registry(
    reader: ConfigReader, side: str, converter: Option[str | None], wire_format: WireFormat
) -> AnyRegistry | None:
    """Read the registry that a side's converter means; the options of the others are read, and mean nothing."""
    confluent, own, aws = _REGISTRIES[side]
    name = reader.get(converter) or ""
    # The CloudEventsConverter has Avro by either registry's converter: Apicurio's, if its URL is there.
    kind = "apicurio" if _is_cloud(name) and reader.entry(own.url) is not None else registry_of(name)
    registries: tuple[AnyRegistry | None, ...] = (
        schema_registry.build(reader, confluent, wire_format=wire_format if kind == "confluent" else None),
        apicurio.build(reader, side, own, wanted=kind == "apicurio"),
        glue.build(reader, aws, wanted=kind == "glue"),
    )
    return next((one for one in registries if one is not None), None)


def _is_cloud(name: str) -> bool:
    return short_names([name]) == short_names([CLOUD_EVENTS_CLASS])


def _choose_cloud_format(reader: ConfigReader, wire_format: WireFormat) -> WireFormat:
    """What the CloudEventsConverter's serializers make of its format: the events' own, and that of their data."""
    around, data = reader.get(CLOUD_SERIALIZER), reader.get(CLOUD_DATA_SERIALIZER)
    if not _is_cloud(reader.get(VALUE_CONVERTER) or ""):
        return wire_format
    if around == "avro":
        return FORMATS["avro"]
    return CLOUD_EVENTS_OF_AVRO if data == "avro" else wire_format


def rename_unwrap(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries with the unwrap transform under its usual name, whatever a user called it.

    An entry keeps the key it was written with, for messages.
    """
    renamed: dict[str, str] = {}
    for key, entry in entries.items():
        match = _UNWRAP.fullmatch(key)
        if match and entry.text.endswith(".ExtractNewRecordState"):
            for option in ("add.fields", "add.fields.prefix"):
                renamed[f"{match[1]}.{match[2]}.{option}"] = f"{match[1]}.unwrap.{option}"
    return {renamed.get(key, key): entry for key, entry in entries.items()}


def _read_format(
    reader: ConfigReader,
    converter: Option[str | None],
    schemas: Option[bool],
    server: Option[str],
    server_schemas: Option[bool],
) -> WireFormat:
    """A converter fixes the format; Debezium Server's keys do so only where they speak of schemas.

    They say how the server was to hand events to its own sink, so that `json` alone need not be what is in Kafka.
    """
    reader.get(server)
    by_converter, by_server = reader.get(schemas), reader.get(server_schemas)
    name, entry = reader.get(converter), reader.entry(converter)
    named = format_of(reader, entry, name) if entry is not None and name is not None else None
    if named is not None and named.without_schemas is None:
        return named
    with_schemas = FORMATS_BY_CLASS[DEFAULT_CONVERTER] if named is None else named
    if name is not None or reader.entry(schemas):
        return choose_schemas(with_schemas, enabled=by_converter)
    if reader.entry(server_schemas):
        return choose_schemas(with_schemas, enabled=by_server)
    return FORMATS["auto"]
