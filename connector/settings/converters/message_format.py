"""properties -> how the bytes of keys and values are read: their formats, and the registries that have their schemas.

Formats come from Kafka Connect's converters or from Debezium Server's `debezium.format.*`; nothing given: each message
is looked at.
"""

from __future__ import annotations

from typing import Self

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, TEXT, one_of
from connector.settings.converters import apicurio, glue, schema_registry, server_formats
from connector.settings.converters.apicurio import ApicurioOptions, ApicurioSettings
from connector.settings.converters.converter_classes import (
    DEFAULT_CONVERTER,
    FORMATS_BY_CLASS,
    choose_schemas,
    format_of,
    registry_of,
    short_names,
)
from connector.settings.converters.glue import GlueOptions, GlueSettings
from connector.settings.converters.schema_registry import RegistryOptions, RegistrySettings
from serde.formats import CLOUD_EVENTS_CLASS, CLOUD_EVENTS_OF_AVRO, FORMATS
from serde.wire_format import WireFormat

_CLASSES = [name for name in FORMATS_BY_CLASS if not name.startswith(glue.PACKAGE)]
_CONVERTERS = ", ".join(name.removesuffix("Converter") for name in short_names(_CLASSES))


@attrs.frozen
class SideOptions:
    """What tells how keys are read, or values: a converter and its registry, or Debezium Server's format."""

    name: str
    converter: Option[str | None]
    schemas: Option[bool]
    registry: RegistryOptions
    apicurio: ApicurioOptions
    glue: GlueOptions
    server_format: Option[str]
    server_schemas: Option[bool]

    @classmethod
    def of(cls, side: str) -> Self:
        """Declare the options of a side, key or value."""
        return cls(
            side,
            _declare_converter(side),
            _declare_schemas(side),
            schema_registry.declare_options(side),
            apicurio.declare_options(side),
            glue.declare_options(side),
            server_formats.declare_format(side),
            server_formats.declare_schemas(side),
        )

    @property
    def of_converter(self) -> tuple[Option[object], ...]:
        """Those of the converter and its registry, in the order documents show them."""
        return (self.converter, self.schemas, *self.registry.all, *self.apicurio.all, *self.glue.all)


def _declare_converter(side: str) -> Option[str | None]:
    return Option(
        name=f"{side}.converter",
        kind=TEXT,
        default=None,
        importance="medium",
        doc=f"{side.capitalize()}s: {_CONVERTERS}; default: by message.",
    )


def _declare_schemas(side: str) -> Option[bool]:
    return Option(
        name=f"{side}.converter.schemas.enable",
        kind=BOOLEAN,
        default=True,
        importance="medium",
        doc=f"With the JsonConverter: whether every record {side} carries its schema; not given: found per message.",
        aliases=(f"{side}.converter.json.schemas.enable",) if side == "value" else (),
        shown=f"<true with {side}.converter>",
    )


KEY, VALUE = SideOptions.of("key"), SideOptions.of("value")
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
OPTIONS: tuple[Option[object], ...] = (
    *KEY.of_converter,
    *VALUE.of_converter,
    CLOUD_SERIALIZER,
    CLOUD_DATA_SERIALIZER,
    KEY.server_format,
    KEY.server_schemas,
    VALUE.server_format,
    VALUE.server_schemas,
)

AnyRegistry = RegistrySettings | ApicurioSettings | GlueSettings
"""Where schemas are: a registry with Confluent's API, Apicurio's own, or AWS Glue's."""


@attrs.frozen
class MessageFormat:
    """The format of keys, or values, by its name in `serde.formats`, and the registry that it needs."""

    name: str
    registry: AnyRegistry | None


def build(reader: ConfigReader) -> tuple[MessageFormat, MessageFormat]:
    """Read the formats of keys and values; faults go to the reader."""
    key, value = _read_format(reader, KEY), _choose_cloud_format(reader, _read_format(reader, VALUE))
    formats = ((KEY, key), (VALUE, value))
    read_key, read_value = (MessageFormat(one.name, _build_registry(reader, side, one)) for side, one in formats)
    return read_key, read_value


def _read_format(reader: ConfigReader, side: SideOptions) -> WireFormat:
    """A converter fixes the format; Debezium Server's keys do so only where they speak of schemas.

    They say how the server was to hand events to its own sink, so that `json` alone need not be what is in Kafka.
    """
    reader.get(side.server_format)
    by_converter, by_server = reader.get(side.schemas), reader.get(side.server_schemas)
    name, entry = reader.get(side.converter), reader.entry(side.converter)
    named = format_of(reader, entry, name) if entry is not None and name is not None else None
    if named is not None and named.without_schemas is None:
        return named
    with_schemas = FORMATS_BY_CLASS[DEFAULT_CONVERTER] if named is None else named
    if name is not None or reader.entry(side.schemas):
        return choose_schemas(with_schemas, enabled=by_converter)
    if reader.entry(side.server_schemas):
        return choose_schemas(with_schemas, enabled=by_server)
    return FORMATS["auto"]


def _choose_cloud_format(reader: ConfigReader, wire_format: WireFormat) -> WireFormat:
    """What the CloudEventsConverter's serializers make of its format: the events' own, and that of their data."""
    around, data = reader.get(CLOUD_SERIALIZER), reader.get(CLOUD_DATA_SERIALIZER)
    if not reads_cloud_events(reader):
        return wire_format
    if around == "avro":
        return FORMATS["avro"]
    return CLOUD_EVENTS_OF_AVRO if data == "avro" else wire_format


def reads_cloud_events(reader: ConfigReader) -> bool:
    """Tell whether values are said to be CloudEvents."""
    return _is_cloud(reader.get(VALUE.converter) or "")


def _is_cloud(name: str) -> bool:
    return short_names([name]) == short_names([CLOUD_EVENTS_CLASS])


def _build_registry(reader: ConfigReader, side: SideOptions, wire_format: WireFormat) -> AnyRegistry | None:
    """Read the registry that a side's converter means; the options of the others are read, and mean nothing."""
    name = reader.get(side.converter) or ""
    # The CloudEventsConverter has Avro by either registry's converter: Apicurio's, if its URL is there.
    kind = "apicurio" if _is_cloud(name) and reader.entry(side.apicurio.url) is not None else registry_of(name)
    registries: tuple[AnyRegistry | None, ...] = (
        schema_registry.build(reader, side.registry, wire_format=wire_format if kind == "confluent" else None),
        apicurio.build(reader, side.name, side.apicurio, wanted=kind == "apicurio"),
        glue.build(reader, side.glue, wanted=kind == "glue"),
    )
    return next((one for one in registries if one is not None), None)
