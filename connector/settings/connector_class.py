"""`connector.class` -> the connector that a file configures; a class that is none of ours is refused with the nearest.

As in Kafka Connect a class may be given without its package, and without `Connector` at its end.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.settings.configdef.config_providers import has_reference
from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.unknown_keys import find_near_miss
from connector.settings.configdef.value_types import TEXT

SOURCE_CLASS = "io.debezium.connector.iceberg.IcebergConnector"
ICEBERG_SINK_CLASS = "org.apache.iceberg.connect.IcebergSinkConnector"
OPENSEARCH_SINK_CLASS = "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"
CONNECTOR_CLASS = Option(
    name="connector.class",
    kind=TEXT,
    default=SOURCE_CLASS,
    importance="high",
    doc=f"Makes a file a source's: {SOURCE_CLASS}, or IcebergSource for short.",
)
_OF_DEBEZIUM = "io.debezium.connector."
_SINKS = {
    "IcebergSink": ICEBERG_SINK_CLASS,
    "OpensearchSink": OPENSEARCH_SINK_CLASS,
    "OpenSearchSink": OPENSEARCH_SINK_CLASS,
}
"""Aiven's has a capital more in its later versions."""
_SOURCES = {"icebergsource": SOURCE_CLASS, "iceberg": SOURCE_CLASS}
"""In any case: it is a class of this program alone."""
_NAMES = ("IcebergSource", "IcebergConnector", "IcebergSinkConnector", "OpensearchSinkConnector")
_ALL = (
    f"{SOURCE_CLASS} (IcebergSource for short) makes a source, {ICEBERG_SINK_CLASS} or {OPENSEARCH_SINK_CLASS} a sink; "
    "a sink's file may leave it out"
)


def find_class(text: str) -> str | None:
    """Return the full name of the class of ours that a text means; None for any other."""
    stem = _stem(text)
    return _SINKS.get(stem) or _SOURCES.get(stem.lower())


def is_named(entries: Mapping[str, Entry], full: str) -> bool:
    """Tell whether entries name this class of ours."""
    entry = entries.get(CONNECTOR_CLASS.name)
    return entry is not None and find_class(entry.text) == full


def is_of_source(entries: Mapping[str, Entry]) -> bool:
    """Tell whether the class that entries name is a source's, or has a name that is nearly one's."""
    entry = entries.get(CONNECTOR_CLASS.name)
    return entry is not None and find_class(_find_meant(entry.text) or entry.text) == SOURCE_CLASS


def check(reader: ConfigReader) -> bool:
    """Refuse a class that is none of ours; False where nothing tells what the file is to configure."""
    entry = reader.entries.get(CONNECTOR_CLASS.name)
    if entry is None or not entry.text.strip() or find_class(entry.text):
        return True
    if has_reference(entry.text):
        reader.add_fault(entry, "is looked up elsewhere, and says what the file configures", "write the class itself")
        return False
    shown, meant = reader.show(entry, CONNECTOR_CLASS), _find_meant(entry.text)
    if meant:
        reader.add_fault(entry, f"{shown} is no connector of this program", f"did you mean {meant}? ({_ALL})")
    elif entry.text.strip().startswith(_OF_DEBEZIUM):
        reader.add_fault(entry, f"{shown} is a connector that runs in Kafka Connect, not here", _ALL)
    else:
        reader.add_fault(entry, f"{shown} is no connector of this program", _ALL)
    return meant is not None


def _stem(text: str) -> str:
    return text.strip().rpartition(".")[2].removesuffix("Connector")


def _find_meant(text: str) -> str | None:
    """The name of a class of ours that is nearly this one; None for one of ours too."""
    if find_class(text):
        return None
    named = {name: name for name in _NAMES} | {_stem(name): name for name in _NAMES}
    short = text.strip().rpartition(".")[2]
    return next((named[near] for form in (short, _stem(text)) if (near := find_near_miss(form, named))), None)
