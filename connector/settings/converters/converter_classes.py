"""class name of a Connect converter -> the format it means here; unknown ones are refused with the nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from connector.settings.configdef import nearest_key
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import Reading

Format = Literal["auto", "json", "json-schema", "avro", "string", "bytes"]
JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CLOUD_EVENTS = "io.debezium.converters.CloudEventsConverter"
ALL: Mapping[str, Format] = {JSON: "json-schema", AVRO: "avro", STRING: "string", BYTES: "bytes"}
_SHORT = {name.rpartition(".")[2]: name for name in ALL}
_APICURIO = ("io.apicurio.registry.utils.converter.", "io.debezium.converters.")
_LATER = frozenset({"JsonSchemaConverter", "ProtobufConverter"})


def format_of(reading: Reading, entry: Entry, name: str) -> Format | None:
    """The format of a converter's class, full or short name; None (and a fault) for one that cannot be used."""
    if name in (CLOUD_EVENTS, "CloudEventsConverter"):
        return "auto"  # JSON; the sink tells such events by their attributes
    known = ALL.get(name) or ALL.get(_SHORT.get(name, ""))
    if known is not None:
        return known
    reading.refuse(entry, *_refusal(name))
    return None


def _refusal(name: str) -> tuple[str, str]:
    short = name.rpartition(".")[2]
    if name.startswith(_APICURIO) and short == "AvroConverter":
        todo = f"use {AVRO} with the registry's Confluent API (.../apis/ccompat/v7) as its schema.registry.url"
        return "is Apicurio's own converter", todo
    if short in _LATER:
        return f"{short} is not supported yet", f"use {' or '.join(ALL)}"
    meant = _SHORT.get(nearest_key.nearest(short, _SHORT, ()) or "") or nearest_key.nearest(name, ALL, ())
    return "names an unknown converter", f"did you mean {meant}?" if meant else f"use {' or '.join(ALL)}"
