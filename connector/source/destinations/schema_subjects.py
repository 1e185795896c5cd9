"""topic + Connect schema -> subject, registered schema and its id: once per schema, on the driver, before a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import orjson

from connector.errors import FatalError
from connector.kafka.schema_registry import schema_registry_for
from connector.settings.converters.serializers import SerializerSettings, Strategy
from connector.settings.source.event_output import EventOutputSettings
from connector.source.envelope.envelope import EventFormat
from serde.emit.avro_datums import AvroSerializer, parse_record_codec
from serde.emit.avro_schema import avro_schema
from serde.emit.connect_schema import Document
from serde.emit.side_topics import SideMessage

SideName = Literal["key", "value"]


def subject_name(strategy: Strategy, side: SideName, topic: str, record: str) -> str:
    """Name the subject of a schema, as Confluent's serializers do; `record` is the Avro record's full name."""
    match strategy:
        case "TopicNameStrategy":
            return f"{topic}-{side}"
        case "RecordNameStrategy":
            return record
        case "TopicRecordNameStrategy":
            return f"{topic}-{record}"


@attrs.define(eq=False)
class SchemaSubjects:
    """The schemas of one source that are registered already."""

    settings: EventOutputSettings
    _numbers: dict[tuple[SideName, str, str], int] = attrs.field(factory=dict)

    def on(self, wire: EventFormat) -> EventFormat:
        """Return the format with the registered schemas of those of its sides that are Avro.

        Raises:
            RetriableError: the registry is away.
            FatalError: a schema cannot be written in Avro, or the registry refuses it.
        """
        key = wire.key_schema
        return attrs.evolve(
            wire,
            key_avro=None if key is None else self._avro("key", wire.topic, key, {}),
            value_avro=self._avro("value", wire.topic, wire.value_schema, wire.constant),
        )

    def message(self, side: SideName, topic: str, message: SideMessage) -> bytes:
        """Return the bytes of a single message; raises as `on`."""
        avro = self._avro(side, topic, message.schema, {})
        return message.json(schemas=self._side(side).schemas) if avro is None else avro.message(message.payload)

    def _side(self, side: SideName) -> SerializerSettings:
        return self.settings.key if side == "key" else self.settings.value

    def _avro(self, side: SideName, topic: str, schema: Document, constant: Mapping[str, Any]) -> AvroSerializer | None:
        """How this side of a topic becomes Avro; None where it is JSON."""
        settings = self._side(side).avro
        if settings is None:
            return None
        try:
            made = avro_schema(schema)
            text = orjson.dumps(made).decode()
            parse_record_codec(text)
        except ValueError as error:
            raise FatalError(f"topic {topic}: no Avro schema for its {side}s: {error}") from error
        wanted = side, topic, text
        if wanted not in self._numbers:
            full = f"{made['namespace']}.{made['name']}" if made.get("namespace") else made["name"]
            name = subject_name(settings.subjects, side, topic, full)
            self._numbers[wanted] = schema_registry_for(settings.registry).number(
                name, text, register=settings.register
            )
        return AvroSerializer(text, self._numbers[wanted], constant)
