"""Bytes of JSON <-> blocks: with schema blocks (`json-schema`), without (`json`), told per message (`auto`),
or by a registry (`json-registry`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from attrs import frozen

from serde.emit.connect_schema import Document
from serde.json.deserializer import JsonDeserializer
from serde.json.registered import RegisteredJsonDeserializer
from serde.json.schema_framing import JsonMode
from serde.wire_format import Deserializer, ReadOptions, WireFormat


@frozen
class JsonSerializer:
    """Writes single messages as Connect's JsonConverter does; `schema` is the schema block, None without."""

    schema: Document | None

    @property
    def columns(self) -> None:
        """Nothing: columns become JSON in Spark, faster than through Python workers."""

    def message(self, payload: Mapping[str, Any]) -> bytes:
        """See `wire_format.Serializer.message`."""
        return orjson.dumps(dict(payload) if self.schema is None else {"schema": self.schema, "payload": payload})


@frozen
class JsonSerializers:
    """Makes serializers of Connect schemas; `schemas` is the converter's `schemas.enable`."""

    schemas: bool

    def subject_schema(self, document: Document) -> None:
        """Nothing is registered: a message carries its schema, or has none."""

    def build(self, document: Document, schema_id: int | None, constant: Mapping[str, Any]) -> JsonSerializer:  # noqa: ARG002
        """See `wire_format.SerializerFactory.build`."""
        return JsonSerializer(document if self.schemas else None)


def _make_deserializer(mode: JsonMode, options: ReadOptions) -> Deserializer:
    return JsonDeserializer(mode, options.wanted, options.text_columns, options.number_columns, options.any_case)


JSON_SCHEMA = WireFormat(
    "json-schema",
    ("org.apache.kafka.connect.json.JsonConverter",),
    partial(_make_deserializer, "json-schema"),
    JsonSerializers(schemas=True),
    without_schemas="json",
)
JSON = WireFormat("json", (), partial(_make_deserializer, "json"), JsonSerializers(schemas=False))


def _make_registered(options: ReadOptions) -> Deserializer:
    if options.fetch is None:
        raise ValueError("JSON by registry needs a registry")
    texts = (options.text_columns, options.number_columns)
    return RegisteredJsonDeserializer(options.fetch, options.wanted, *texts, options.frame)


REGISTERED_JSON = WireFormat(
    "json-registry",
    (
        "io.confluent.connect.json.JsonSchemaConverter",
        "com.amazonaws.services.schemaregistry.kafkaconnect.jsonschema.JsonSchemaConverter",
    ),
    _make_registered,
    registry_type="JSON",
)
AUTO = WireFormat("auto", ("io.debezium.converters.CloudEventsConverter",), partial(_make_deserializer, "auto"))
"""Either of both, seen in each message; CloudEvents are JSON too, which the sink tells by their attributes."""
