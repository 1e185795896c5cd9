"""Protobuf in a registry's frame -> columns, as a wire format: it is read only."""

from __future__ import annotations

from serde.wire_format import Deserializer, ReadOptions, WireFormat


def _make_deserializer(options: ReadOptions) -> Deserializer:
    # Its parser of schema texts is worth a tenth of a second and some megabytes, which only Protobuf should pay.
    from serde.protobuf.deserializer import ProtobufDeserializer

    if options.fetch is None:
        raise ValueError("Protobuf needs a registry")
    return ProtobufDeserializer(
        options.fetch, options.wanted, options.text_columns, options.number_columns, options.frame
    )


PROTOBUF = WireFormat(
    "protobuf",
    (
        "io.confluent.connect.protobuf.ProtobufConverter",
        "com.amazonaws.services.schemaregistry.kafkaconnect.protobuf.ProtobufSchemaConverter",
    ),
    _make_deserializer,
    registry_type="PROTOBUF",
)
