"""Debezium Server's names for formats (`debezium.format.*`) -> options, and the converters that read the other ones."""

from __future__ import annotations

from connector.settings.configdef.option import Option
from connector.settings.configdef.value_types import BOOLEAN, InvalidValue, ValueType, one_of
from serde.formats import CLOUD_EVENTS_CLASS

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


def declare_format(side: str) -> Option[str]:
    """Declare the option that names the format of a side, key or value."""
    return Option(
        name=f"debezium.format.{side}",
        kind=_format_type(side),
        default="json",
        importance="low",
        doc=f"Debezium Server's format of record {side}s: json or connect; for others set {side}.converter.",
    )


def declare_schemas(side: str) -> Option[bool]:
    """Declare the option that tells whether messages of a side carry their schemas."""
    return Option(
        name=f"debezium.format.{side}.schemas.enable",
        kind=BOOLEAN,
        default=True,
        importance="low",
        doc=f"Debezium Server's name of the same option for record {side}s; not given: found per message.",
        shown="<found per message>",
    )


def _format_type(side: str) -> ValueType[str]:
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
