"""properties -> TableSettings of a sink that keeps every event as text in one Iceberg table."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.converters import event_format, message_format
from connector.settings.iceberg import routing, schema_evolution, tables, write_mode
from connector.settings.iceberg.maintenance import back_pressure
from connector.settings.iceberg.maintenance.policies import TABLE_INFIX
from connector.settings.iceberg.new_tables import settings as new_tables
from connector.settings.iceberg.tables import TableSettings
from connector.settings.kafka import transactions
from connector.settings.sink.sink_types import SinkTypeSettings
from connector.sink.destinations.iceberg.settings import CHAPTERS

_OF_ANY_TABLE: tuple[Option[object], ...] = (
    *back_pressure.OPTIONS,
    tables.OFFSETS_TABLE,
    tables.TABLE_MAPPER,
    routing.AUTO_CREATE,
    schema_evolution.EVOLUTION,
    new_tables.WRITE_FORMAT,
    new_tables.FORMAT_VERSION,
    write_mode.BRANCH,
)
_OF_MESSAGES = (*message_format.KEY.of_converter, *message_format.VALUE.of_converter)
_OF_ROWS = tuple(
    option
    for option in (*tables.OPTIONS, *event_format.OPTIONS)
    if option not in (*_OF_ANY_TABLE, *message_format.OPTIONS)
)
"""What else is said of tables is of their rows, and the rows of this one are always the same."""


def _build(reader: ConfigReader) -> tuple[TableSettings, None]:
    _note_idle(reader)
    return attrs.evolve(tables.build(reader), upsert=False, routes=None, events_only=True), None


def _note_idle(reader: ConfigReader) -> None:
    """Name what is said of rows; converters read the ends of transactions."""
    of_messages = () if reader.entry(transactions.TOPIC) else _OF_MESSAGES
    of_one = [entry for entry in reader.members(routing.ROUTE_REGEX) if not _has_effect(entry.key)]
    of_one += reader.members(new_tables.PARTITION_BY_TABLE) + reader.members(new_tables.SORT_BY_TABLE)
    reader.note_idle("these options have no effect on events as text", (*_OF_ROWS, *of_messages), of_one)


def _has_effect(key: str) -> bool:
    return key.endswith(write_mode.BRANCH_SUFFIX) or TABLE_INFIX in key


SETTINGS = SinkTypeSettings(_build, CHAPTERS)
