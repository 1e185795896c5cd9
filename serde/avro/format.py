"""Avro in Confluent's frame as a wire format: Connect schema -> registered schema -> serializer, and its reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from serde.avro.deserializer import AvroDeserializer
from serde.avro.emitted_schema import avro_schema
from serde.avro.serializer import AvroSerializer, parse_record_codec
from serde.emit.connect_schema import Document
from serde.wire_format import Deserializer, ReadOptions, SubjectSchema, WireFormat


class AvroSerializers:
    """Makes serializers of Connect schemas."""

    def subject_schema(self, document: Document) -> SubjectSchema:
        """See `wire_format.SerializerFactory.subject_schema`."""
        schema = avro_schema(document)
        text = orjson.dumps(schema).decode()
        parse_record_codec(text)
        record = f"{schema['namespace']}.{schema['name']}" if schema.get("namespace") else schema["name"]
        return SubjectSchema(text, record)

    def build(self, document: Document, schema_id: int | None, constant: Mapping[str, Any]) -> AvroSerializer:
        """See `wire_format.SerializerFactory.build`; ValueError without a schema id."""
        if schema_id is None:
            raise ValueError("Avro needs the id of a registered schema")
        return AvroSerializer(self.subject_schema(document).text, schema_id, constant)


def _make_deserializer(options: ReadOptions) -> Deserializer:
    if options.fetch is None:
        raise ValueError("Avro needs a registry")
    texts = (options.text_columns, options.number_columns)
    return AvroDeserializer(options.fetch, options.wanted, *texts, options.frame)


AVRO = WireFormat(
    "avro",
    (
        "io.confluent.connect.avro.AvroConverter",
        "io.apicurio.registry.utils.converter.AvroConverter",
        "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter",
    ),
    _make_deserializer,
    AvroSerializers(),
    registry_type="AVRO",
)
