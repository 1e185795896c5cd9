"""topic + Connect schema -> subject, registered schema and its id: once per schema, on the driver, before a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from connector.errors import FatalError
from connector.kafka.registry.confluent import schema_registry_for
from connector.settings.converters.serializers import RegistrationSettings, Strategy
from connector.settings.source.event_output import EventOutputSettings
from connector.source.envelope.column_records import EventSerializers
from connector.source.envelope.event_format import EventFormat
from serde.emit.connect_schema import Document
from serde.emit.side_topics import SideMessage
from serde.formats import FORMATS
from serde.wire_format import Serializer, SubjectSchema

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
    _schema_ids: dict[tuple[SideName, str, str], int] = attrs.field(factory=dict)

    def serializers(self, wire: EventFormat) -> EventSerializers:
        """Return how the events of a table are written, with their schemas registered.

        Raises:
            RetriableError: the registry is away.
            FatalError: a schema cannot be written in its format, or the registry refuses it.
        """
        key = wire.key_schema
        return EventSerializers(
            None if key is None else self._serializer("key", wire.topic, key, {}).columns,
            self._serializer("value", wire.topic, wire.value_schema, wire.constant).columns,
        )

    def message(self, side: SideName, topic: str, message: SideMessage) -> bytes:
        """Return the bytes of a single message; raises as `serializers`."""
        return self._serializer(side, topic, message.schema, {}).message(message.payload)

    def _serializer(self, side: SideName, topic: str, schema: Document, constant: Mapping[str, Any]) -> Serializer:
        """Return the serializer of one side of a topic."""
        settings = self.settings.key if side == "key" else self.settings.value
        wire_format = FORMATS[settings.format]
        assert wire_format.serializer is not None
        try:
            subject_schema = wire_format.serializer.subject_schema(schema)
        except ValueError as error:
            name = wire_format.name.capitalize()
            raise FatalError(
                f"topic {topic}: no {name} schema for its {side}s: {error}; rename the column, leave it out "
                "(column.exclude.list), or set field.name.adjustment.mode"
            ) from error
        schema_id = None
        if subject_schema is not None and wire_format.registry_type is not None:
            assert settings.registration is not None
            schema_id = self._schema_id(side, topic, subject_schema, wire_format.registry_type, settings.registration)
        return wire_format.serializer.build(schema, schema_id, constant)

    def _schema_id(
        self, side: SideName, topic: str, schema: SubjectSchema, schema_type: str, settings: RegistrationSettings
    ) -> int:
        wanted = side, topic, schema.text
        if wanted not in self._schema_ids:
            subject = subject_name(settings.subjects, side, topic, schema.record)
            self._schema_ids[wanted] = schema_registry_for(settings.registry).schema_id(
                subject, schema.text, schema_type, register=settings.register
            )
        return self._schema_ids[wanted]
