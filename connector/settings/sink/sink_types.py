"""name of a destination -> how its options are read: one line here for each kind of sink.

A sink is of a type by `debezium.sink.type`, or by the `connector.class` of a sink that it stands in for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import InvalidValue, ValueType
from connector.settings.iceberg import tables
from connector.settings.iceberg.tables import TableSettings
from connector.settings.opensearch import data_streams, documents
from connector.settings.opensearch.documents import OpenSearchSettings


@attrs.frozen
class SinkType:
    """A kind of destination.

    `build` reads how events are turned into rows, and what the destination has to know beside that. `check_absent`
    refuses its own options in the file of another type. `connector_class` is how the class of the sink ends whose files
    mean this type.
    """

    name: str
    doc: str
    build: Callable[[ConfigReader], tuple[TableSettings, object]]
    check_absent: Callable[[ConfigReader], None] | None = None
    connector_class: str | None = None


def _build_iceberg(reader: ConfigReader) -> tuple[TableSettings, None]:
    return tables.build(reader), None


def _build_iceberg_events(reader: ConfigReader) -> tuple[TableSettings, None]:
    return attrs.evolve(tables.build(reader), upsert=False, routes=None), None


def _build_opensearch(reader: ConfigReader) -> tuple[TableSettings, OpenSearchSettings]:
    table, settings = tables.build(reader, indexes=True), documents.build(reader)
    upsert = table.upsert and not settings.key_ignore
    data_streams.check(reader, settings.series, upsert=upsert, partial=settings.partial)
    return table, settings


SINK_TYPES = (
    SinkType("iceberg", "tables of rows", _build_iceberg),
    SinkType("icebergevents", "every event as text in one table", _build_iceberg_events),
    SinkType("opensearch", "documents in indexes", _build_opensearch, documents.check_absent, documents.AIVEN_CLASS),
)


def _parse_sink_type(text: str) -> str:
    names = [sink_type.name for sink_type in SINK_TYPES]
    if text in names:
        return text
    raise InvalidValue("{} is not a sink of this program", f"write {', '.join(names[:-1])} or {names[-1]}")


SINK_TYPE = Option(
    name="debezium.sink.type",
    kind=ValueType("string", _parse_sink_type),
    default=SINK_TYPES[0].name,
    importance="low",
    doc="; ".join(f"{sink_type.name}: {sink_type.doc}" for sink_type in SINK_TYPES) + ".",
)


def find_sink_type(reader: ConfigReader) -> SinkType:
    """Return the type of the sink that a file configures; options of the other types are refused."""
    name = reader.get(SINK_TYPE)
    for sink_type in SINK_TYPES:
        if sink_type.connector_class and _has_class(reader.entries, sink_type.connector_class):
            name = sink_type.name
    for sink_type in SINK_TYPES:
        if sink_type.name != name and sink_type.check_absent:
            sink_type.check_absent(reader)
    return next(sink_type for sink_type in SINK_TYPES if sink_type.name == name)


def _has_class(entries: Mapping[str, Entry], ending: str) -> bool:
    entry = entries.get("connector.class")
    return entry is not None and entry.text.strip().endswith(ending)
