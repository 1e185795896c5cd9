"""properties -> SideSettings: in which format record keys or values are written, and under which names in a registry.

Names and defaults: Kafka Connect's converters, Confluent's Avro converter and its serializers.
"""

from __future__ import annotations

from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, TEXT, InvalidValue, ValueType
from connector.settings.converters import schema_registry
from connector.settings.converters.converter_classes import (
    DEFAULT_CONVERTER,
    FORMATS_BY_CLASS,
    WRITING_CONVERTERS,
    choose_schemas,
    format_of,
    registry_of,
)
from connector.settings.converters.schema_registry import RegistryOptions, RegistrySettings

Strategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]
_PACKAGE = "io.confluent.kafka.serializers.subject."
_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def _parse_strategy(text: str) -> str:
    short = text.removeprefix(_PACKAGE)
    if short not in _STRATEGIES:
        raise InvalidValue(
            "{} is not a known strategy", f"write {' or '.join(_STRATEGIES)}, with or without {_PACKAGE}"
        )
    return short


@attrs.frozen
class SerializerOptions:
    """The options of one side, key or value."""

    converter: Option[str]
    schemas: Option[bool]
    registry: RegistryOptions
    subjects: Option[str]
    register: Option[bool]

    @property
    def all(self) -> tuple[Option[object], ...]:
        """Every option, in the order documents show them."""
        return (self.converter, self.schemas, *self.registry.all, self.subjects, self.register)


def declare_options(side: str) -> SerializerOptions:
    """Declare the options of a side."""
    return SerializerOptions(
        converter=Option(
            name=f"{side}.converter",
            kind=TEXT,
            default=DEFAULT_CONVERTER,
            importance="medium",
            doc=f"Converter of the record {side}s: {' or '.join(WRITING_CONVERTERS)}.",
        ),
        schemas=Option(
            name=f"{side}.converter.schemas.enable",
            kind=BOOLEAN,
            default=True,
            importance="medium",
            doc=f"With the JsonConverter: whether every record {side} carries its schema block.",
            aliases=(f"debezium.format.{side}.schemas.enable",),
        ),
        registry=schema_registry.declare_options(side),
        subjects=Option(
            name=f"{side}.converter.{side}.subject.name.strategy",
            kind=ValueType("class", _parse_strategy),
            default=_STRATEGIES[0],
            importance="low",
            doc=f"Subject of the {side}s' schemas: <topic>-{side} (TopicNameStrategy), the record's name "
            "(RecordNameStrategy), or <topic>-<record's name> (TopicRecordNameStrategy).",
        ),
        register=Option(
            name=f"{side}.converter.auto.register.schemas",
            kind=BOOLEAN,
            default=True,
            importance="low",
            doc=f"Whether new schemas of {side}s are registered; else they have to be in the registry.",
        ),
    )


KEY_SERIALIZER, VALUE_SERIALIZER = declare_options("key"), declare_options("value")


@attrs.frozen
class RegistrationSettings:
    """Where schemas are registered, and under which subjects."""

    registry: RegistrySettings
    subjects: Strategy
    register: bool


@attrs.frozen
class SerializerSettings:
    """One side: the name of its format in `serde.formats`, the converter's `schemas.enable`, and the registration of
    schemas, None for a format that needs none.
    """

    format: str
    schemas: bool = True
    registration: RegistrationSettings | None = None


def build(reader: ConfigReader, side: SerializerOptions) -> SerializerSettings:
    """Read one side; faults go to the reader."""
    entry, name = reader.entry(side.converter), reader.get(side.converter)
    default = FORMATS_BY_CLASS[DEFAULT_CONVERTER]
    wire_format = default if entry is None else format_of(reader, entry, name)
    if entry is not None and registry_of(name) == "apicurio":
        todo = f"use {WRITING_CONVERTERS[1]} with the registry's Confluent API (.../apis/ccompat/v7)"
        reader.add_fault(entry, "is Apicurio's own converter", f"{todo} as its schema.registry.url")
        wire_format = None
    if entry is not None and registry_of(name) == "glue":
        todo = f"use {' or '.join(WRITING_CONVERTERS)}"
        reader.add_fault(entry, "writes to AWS Glue's registry, which is only read here", todo)
        wire_format = None
    if entry is not None and wire_format is not None and wire_format.serializer is None:
        reader.add_fault(entry, f"{name} cannot write events", f"use {' or '.join(WRITING_CONVERTERS)}")
    client = schema_registry.build(reader, side.registry, wire_format=wire_format)
    subjects, register = reader.get(side.subjects), reader.get(side.register)
    schemas = reader.get(side.schemas)
    return SerializerSettings(
        choose_schemas(wire_format or default, enabled=schemas).name,
        schemas,
        None if client is None else RegistrationSettings(client, cast("Strategy", subjects), register),
    )
