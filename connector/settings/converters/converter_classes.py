"""class name of a Connect converter -> the format it means here; unknown ones are refused with the nearest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from connector.settings.configdef import unknown_keys
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.converters import glue
from serde.formats import FORMATS
from serde.wire_format import WireFormat

FORMATS_BY_CLASS: dict[str, WireFormat] = {
    name: wire_format for wire_format in FORMATS.values() for name in wire_format.converter_classes
}
WRITING_CONVERTERS = tuple(
    name
    for name, wire_format in FORMATS_BY_CLASS.items()
    if wire_format.serializer and not name.startswith(("io.apicurio.", glue.PACKAGE))
)
"""Messages are written in Confluent's frame only."""
DEFAULT_CONVERTER = WRITING_CONVERTERS[0]
_BY_SHORT_NAME = {name.rpartition(".")[2]: name for name in reversed(FORMATS_BY_CLASS)}
"""Of several classes of one name the first."""
_APICURIO = ("io.apicurio.registry.utils.converter.", "io.debezium.converters.")


def short_names(classes: Iterable[str]) -> list[str]:
    """Return the names of classes without their packages, each once."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name in classes))


def format_of(reader: ConfigReader, entry: Entry, name: str) -> WireFormat | None:
    """Return the format of a converter's class, full or short name; None (and a fault) for one that cannot be used."""
    known = FORMATS_BY_CLASS.get(name) or FORMATS_BY_CLASS.get(_BY_SHORT_NAME.get(name, ""))
    if known is not None:
        return known
    reader.add_fault(entry, *_describe_unknown(name))
    return None


def registry_of(name: str) -> Literal["confluent", "apicurio", "glue"]:
    """Return whose registry, and whose frame, a converter's class means, full or short name."""
    full = name if name in FORMATS_BY_CLASS else _BY_SHORT_NAME.get(name, name)
    if full.startswith(glue.PACKAGE):
        return "glue"
    return "apicurio" if full.startswith("io.apicurio.") else "confluent"


def choose_schemas(wire_format: WireFormat, *, enabled: bool) -> WireFormat:
    """Return what `schemas.enable` makes of a format."""
    return wire_format if enabled or wire_format.without_schemas is None else FORMATS[wire_format.without_schemas]


def _describe_unknown(name: str) -> tuple[str, str]:
    short = name.rpartition(".")[2]
    confluent = FORMATS_BY_CLASS.get(_BY_SHORT_NAME.get(short, ""))
    if name.startswith(_APICURIO) and confluent is not None and confluent.needs_registry:
        todo = f"use {_BY_SHORT_NAME[short]} with the registry's Confluent API (.../apis/ccompat/v7)"
        return "is Apicurio's own converter", f"{todo} as its schema.registry.url"
    meant = _BY_SHORT_NAME.get(unknown_keys.find_nearest(short, _BY_SHORT_NAME, ()) or "") or unknown_keys.find_nearest(
        name, FORMATS_BY_CLASS, ()
    )
    return "names an unknown converter", f"did you mean {meant}?" if meant else f"use {' or '.join(FORMATS_BY_CLASS)}"
