"""properties -> KeySettings: which columns tell rows apart, and where their values come from.

Names: the JDBC sink's (`primary.key.mode`, `primary.key.fields`) and Iceberg Kafka Connect's (`...id-columns`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import LIST, InvalidValue, ValueType
from connector.settings.iceberg.routing import ROUTE_REGEX

KeySource = Literal["record", "value"]


def _parse_mode(text: str) -> str:
    if text in {"kafka", "record_header"}:
        raise InvalidValue("{} is not supported", "write none, record_key or record_value")
    if text not in {"none", "record_key", "record_value"}:
        raise InvalidValue("{} is not known", "write none, record_key or record_value")
    return text


MODE = Option(
    name="primary.key.mode",
    kind=ValueType("string", _parse_mode),
    default="record_key",
    importance="medium",
    doc="Source of the row's key: record_key, record_value (columns of primary.key.fields), or none (append).",
)
FIELDS = Option(
    name="primary.key.fields",
    kind=LIST,
    default=(),
    importance="medium",
    doc="Key columns: fields of the record key or value, dotted within structs. They override identifier fields.",
)
ID_COLUMNS = Option(
    name="iceberg.tables.default-id-columns",
    kind=LIST,
    default=(),
    importance="medium",
    doc="Key columns, read from the value; short for primary.key.mode=record_value with these primary.key.fields.",
)
OPTIONS: tuple[Option[object], ...] = (MODE, FIELDS, ID_COLUMNS)


@attrs.frozen
class KeySettings:
    """Key columns that are configured: of every table, and of single ones; empty: the record key's, or the table's.

    `mode` none makes every table append; record_value reads them from the row, those of the table where none is named.
    """

    mode: Literal["none", "record_key", "record_value"] = "record_key"
    fields: tuple[str, ...] = ()
    by_table: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    def of(self, *names: str) -> tuple[str, ...]:
        """The configured key columns of a table that is known by these names."""
        return next((self.by_table[name] for name in names if name in self.by_table), self.fields)

    def key_source(self, *names: str) -> KeySource:
        """Where a table's keys are read."""
        columns = next((self.by_table[name] for name in names if name in self.by_table), ())
        return "value" if self.mode == "record_value" or columns else "record"


def build(reader: ConfigReader) -> KeySettings:
    """Read the keys' part; faults go to the reader."""
    mode, fields, columns = reader.get(MODE), reader.get(FIELDS), reader.get(ID_COLUMNS)
    given = reader.entry(MODE)
    entry = given if given and given.layer >= 0 else None
    if mode == "record_value" and not fields and not columns and entry:
        reader.add_fault(entry, f"needs {FIELDS.name}", "name the columns of the value that tell rows apart")
    listed = reader.entry(FIELDS)
    if columns and listed:
        reader.add_fault(listed, f"{ID_COLUMNS.name} is given too", "keep one of them")
    if columns and entry and mode != "record_value":
        reader.add_fault(entry, f"{ID_COLUMNS.name} is given too, which reads keys from the value", "keep one of them")
    of_tables = [each for each in reader.members(ROUTE_REGEX) if each.key.endswith(".id-columns")]
    for each in of_tables if entry and mode == "none" else ():
        reader.add_fault(each, f"{MODE.name}=none is given too", "keep one of them")
    by_table = {
        each.key.removeprefix(ROUTE_REGEX.name).removesuffix(".id-columns"): reader.get(_table_option(each.key))
        for each in of_tables
    }
    if columns:
        return KeySettings("record_value", columns, by_table)
    return KeySettings(
        "none" if mode == "none" else "record_value" if mode == "record_value" else "record_key", fields, by_table
    )


def _table_option(key: str) -> Option[tuple[str, ...]]:
    return Option(name=key, kind=LIST, default=(), importance="low", doc="")
