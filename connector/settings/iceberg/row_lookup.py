"""properties -> RowLookupSettings: how the rows that changes replace are found, in write modes that look them up."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import one_of, whole_number

DECLARED_LOOKUPS = ("key-index", "join")
"""Every way by name, in the order of the documentation; what each does is in `destinations.iceberg.row_search`."""

LOOKUP = Option(
    name="iceberg.row-lookup",
    kind=one_of(*DECLARED_LOOKUPS),
    default=DECLARED_LOOKUPS[0],
    importance="low",
    doc="How replaced rows are found: key-index (of each data file, on executors) or join (with the table's keys).",
)
INDEX_BYTES = Option(
    name="iceberg.row-lookup.index.max-bytes",
    kind=whole_number(0),
    default=8 * 1024**3,
    importance="low",
    doc="Bytes of key indexes that an executor keeps in its scratch folder; data files beyond it are joined.",
)
OPTIONS: tuple[Option[object], ...] = (LOOKUP, INDEX_BYTES)


@attrs.frozen
class RowLookupSettings:
    """The way in which rows are found, and the bytes of indexes per executor."""

    name: str = LOOKUP.default
    index_bytes: int = INDEX_BYTES.default


def build(reader: ConfigReader) -> RowLookupSettings:
    """Read the options."""
    return RowLookupSettings(reader.get(LOOKUP), reader.get(INDEX_BYTES))
