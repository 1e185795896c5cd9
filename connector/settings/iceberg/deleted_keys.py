"""properties -> how long hard deletes are remembered, and where (`state.deleted_keys_table`)."""

from __future__ import annotations

from datetime import timedelta

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TABLE_NAME, whole_number

TABLE = Option(
    name="deleted.keys.table.name",
    kind=TABLE_NAME,
    default="_debezium_deleted_keys",
    importance="low",
    doc="Table of hard-deleted keys; prevents late events from re-creating deleted rows.",
)
RETENTION = Option(
    name="deleted.keys.retention.ms",
    kind=whole_number(0),
    default=7 * 24 * 3600 * 1000,
    importance="low",
    doc="How long (ms, up to a day more) deleted keys are kept; 0 keeps none and creates no table.",
)
OPTIONS: tuple[Option[object], ...] = (TABLE, RETENTION)


@attrs.frozen
class DeletedKeySettings:
    """The table of deleted keys; a retention of nothing: there is none."""

    table: str = TABLE.default
    retention: timedelta = timedelta(milliseconds=RETENTION.default)


def build(reader: ConfigReader) -> DeletedKeySettings:
    """Read the options."""
    return DeletedKeySettings(reader.get(TABLE), timedelta(milliseconds=reader.get(RETENTION)))
