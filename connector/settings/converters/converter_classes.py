"""class name of a Connect converter -> the format it means here; unknown ones are refused with the nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from connector.settings.configdef import unknown_keys
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader

Format = Literal["auto", "json", "json-schema", "avro", "string", "bytes"]
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
CLOUD_EVENTS_CONVERTER = "io.debezium.converters.CloudEventsConverter"
FORMATS_BY_CLASS: Mapping[str, Format] = {
    JSON_CONVERTER: "json-schema",
    AVRO_CONVERTER: "avro",
    STRING_CONVERTER: "string",
    BYTES_CONVERTER: "bytes",
}
_BY_SHORT_NAME = {name.rpartition(".")[2]: name for name in FORMATS_BY_CLASS}
_APICURIO = ("io.apicurio.registry.utils.converter.", "io.debezium.converters.")
_UNSUPPORTED = frozenset({"JsonSchemaConverter", "ProtobufConverter"})


def format_of(reader: ConfigReader, entry: Entry, name: str) -> Format | None:
    """The format of a converter's class, full or short name; None (and a fault) for one that cannot be used."""
    if name in (CLOUD_EVENTS_CONVERTER, "CloudEventsConverter"):
        return "auto"  # JSON; the sink tells such events by their attributes
    known = FORMATS_BY_CLASS.get(name) or FORMATS_BY_CLASS.get(_BY_SHORT_NAME.get(name, ""))
    if known is not None:
        return known
    reader.add_fault(entry, *_describe_unknown(name))
    return None


def _describe_unknown(name: str) -> tuple[str, str]:
    short = name.rpartition(".")[2]
    if name.startswith(_APICURIO) and short == "AvroConverter":
        todo = (
            f"use {AVRO_CONVERTER} with the registry's Confluent API (.../apis/ccompat/v7) as its schema.registry.url"
        )
        return "is Apicurio's own converter", todo
    if short in _UNSUPPORTED:
        return f"{short} is not supported yet", f"use {' or '.join(FORMATS_BY_CLASS)}"
    meant = _BY_SHORT_NAME.get(unknown_keys.find_nearest(short, _BY_SHORT_NAME, ()) or "") or unknown_keys.find_nearest(
        name, FORMATS_BY_CLASS, ()
    )
    return "names an unknown converter", f"did you mean {meant}?" if meant else f"use {' or '.join(FORMATS_BY_CLASS)}"
