"""Name of a destination -> how its options are read: one line here for each kind of sink.

All else of a destination is in its folder, `connector/sink/destinations/<name>`, and is found by that name: SETTINGS of
its module `settings` declares and reads its options, `open_destination` of its module `destination` opens it. A sink is
of a type by `debezium.sink.type`, or by the `connector.class` of a sink that it stands in for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import attrs

from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.configdef.value_types import InvalidValue, ValueType
from connector.settings.connector_class import is_named
from connector.settings.iceberg.tables import TableSettings

SINK_TYPES: Mapping[str, str] = {
    "iceberg": "tables of rows",
    "icebergevents": "every event as text in one table",
    "opensearch": "documents in indexes",
}
"""What each type writes, in the order of the documentation. The first is the default."""

DESTINATIONS_PACKAGE = "connector.sink.destinations"


@attrs.frozen
class SinkTypeSettings:
    """The settings of a destination.

    `build` reads how events are turned into rows, and what the destination has to know beside that. `chapters` are its
    part of the reference, which is written where there is a `title`. `own_options` are refused in the files of other
    types. `foreign_keys` are those of the programs that it stands in for, `connector_class` is the class of the sink
    whose files mean this type.
    """

    build: Callable[[ConfigReader], tuple[TableSettings, object]]
    chapters: tuple[OptionScope, ...]
    title: str = ""
    own_options: tuple[Option[object], ...] = ()
    foreign_keys: tuple[ForeignKeys, ...] = ()
    connector_class: str | None = None


def load_sink_type(name: str) -> SinkTypeSettings:
    """Return the settings that a destination's folder declares."""
    settings: SinkTypeSettings = import_module(f"{DESTINATIONS_PACKAGE}.{name}.settings").SETTINGS
    return settings


def _parse_sink_type(text: str) -> str:
    names = list(SINK_TYPES)
    if text in names:
        return text
    raise InvalidValue("{} is not a sink of this program", f"write {', '.join(names[:-1])} or {names[-1]}")


SINK_TYPE = Option(
    name="debezium.sink.type",
    kind=ValueType("string", _parse_sink_type),
    default=next(iter(SINK_TYPES)),
    importance="low",
    doc="; ".join(f"{name}: {doc}" for name, doc in SINK_TYPES.items()) + ".",
)


def find_sink_type(reader: ConfigReader) -> str:
    """Return the type of the sink that a file configures; options of the other types are refused."""
    name, types = reader.get(SINK_TYPE), {name: load_sink_type(name) for name in SINK_TYPES}
    for other, settings in types.items():
        if settings.connector_class and is_named(reader.entries, settings.connector_class):
            name = other
    allowed = {option.name for option in types[name].own_options}
    for other, settings in types.items():
        if other != name:
            _refuse(reader, other, settings, allowed)
    return name


def _refuse(reader: ConfigReader, name: str, settings: SinkTypeSettings, allowed: set[str]) -> None:
    for option in settings.own_options:
        entry = reader.entry(option)
        if entry is not None and option.name not in allowed:
            reader.add_fault(entry, f"is an option of the {settings.title} sink", f"set {SINK_TYPE.name}={name}")
