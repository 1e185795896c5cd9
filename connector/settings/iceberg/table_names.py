"""properties -> TableNameSettings: what the tables and indexes of topics are called.

Names and defaults: Debezium Server's iceberg sink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import attrs

from connector.settings.configdef import regexps
from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, PATTERN, TEXT, is_table_name, topic_pairs
from connector.settings.kafka import topics

TABLE_PREFIX = Option(
    name="debezium.sink.iceberg.table-prefix",
    kind=TEXT,
    default="",
    importance="medium",
    doc="Prefix of every table name; the rest is the topic name with _ for each dot.",
)
DESTINATION_REGEXP = Option(
    name="debezium.sink.iceberg.destination-regexp",
    kind=PATTERN,
    default=None,
    importance="medium",
    doc="Matches in the topic name are replaced before the table is named; can map several topics to one table.",
)
DESTINATION_REPLACE = Option(
    name="debezium.sink.iceberg.destination-regexp-replace",
    kind=TEXT,
    default="",
    importance="medium",
    doc="Replacement for matches of destination-regexp; $1 is the first group.",
    literal=True,
)
UPPERCASE = Option(
    name="debezium.sink.iceberg.destination-uppercase-table-names",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Convert table names to upper case.",
)
LOWERCASE = Option(
    name="debezium.sink.iceberg.destination-lowercase-table-names",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Convert table names to lower case.",
)
TOPIC_TABLES = Option(
    name="iceberg.tables.topic-to-table-mapping",
    kind=topic_pairs("table", is_table_name),
    default=(),
    importance="medium",
    doc="Tables of single topics, as topic:namespace.table pairs; several topics may share a table.",
)
INDEX_OPTIONS: tuple[Option[object], ...] = (TABLE_PREFIX, DESTINATION_REGEXP, DESTINATION_REPLACE)
"""Those of them that say something of indexes."""
OPTIONS: tuple[Option[object], ...] = (*INDEX_OPTIONS, UPPERCASE, LOWERCASE, TOPIC_TABLES)


@attrs.frozen
class TableNameSettings:
    """How a topic's name becomes its table's; `destination_regexp_replace` is a Java replacement, see `regexps`.

    `mapped`: topics whose table was given, with its namespace if that is another one than the sink's.
    """

    prefix: str = ""
    destination_regexp: str | None = None
    destination_regexp_replace: str = ""
    case: Literal["keep", "upper", "lower"] = "keep"
    mapped: Mapping[str, str] = attrs.field(factory=dict)

    def have_one_table(self, names: Collection[str]) -> bool:
        """Tell whether topics are known to go to one table: a single one, or all mapped to the same."""
        return len(names) == 1 or (self.mapped.keys() >= set(names) and len({self.mapped[one] for one in names}) == 1)


def build(reader: ConfigReader, namespace: str) -> TableNameSettings:
    """Read the names' part, of a sink whose tables are in a namespace; faults go to the reader."""
    _check_replacement(reader)
    _check_topics(reader)
    _check_prefix(reader)
    return TableNameSettings(
        prefix=reader.get(TABLE_PREFIX),
        destination_regexp=reader.get(DESTINATION_REGEXP),
        destination_regexp_replace=reader.get(DESTINATION_REPLACE),
        case=_read_case(reader),
        mapped={topic: shorten_name(table, namespace) for topic, table in reader.get(TOPIC_TABLES)},
    )


def shorten_name(table: str, namespace: str) -> str:
    """Leave the sink's own namespace out, so that one table has one name however topics and events are told it."""
    own, _, name = table.rpartition(".")
    return name if own == namespace else table


def _check_topics(reader: ConfigReader) -> None:
    entry, read = reader.entry(TOPIC_TABLES), reader.get(topics.TOPICS)
    others = [topic for topic, _ in reader.get(TOPIC_TABLES) if topic not in read]
    if entry and read and others:
        reader.add_fault(entry, f"names {', '.join(others)}, not in topics", "add the topic there, or take it out here")


def _check_prefix(reader: ConfigReader) -> None:
    entry = reader.entry(TABLE_PREFIX)
    if entry and "." in reader.get(TABLE_PREFIX):
        reader.add_fault(
            entry, "has a dot, which would separate a namespace", "use debezium.sink.iceberg.table-namespace"
        )


def _read_case(reader: ConfigReader) -> Literal["keep", "upper", "lower"]:
    upper, lower = reader.get(UPPERCASE), reader.get(LOWERCASE)
    entry = reader.entry(LOWERCASE)
    if upper and lower and entry:
        reader.add_fault(entry, f"{UPPERCASE.name} is true too", "set one of them to false")
    return "upper" if upper else "lower" if lower else "keep"


def _check_replacement(reader: ConfigReader) -> None:
    pattern, entry = reader.get(DESTINATION_REGEXP), reader.entry(DESTINATION_REPLACE)
    if pattern is None or entry is None:
        return
    try:
        regexps.translate_replacement(reader.get(DESTINATION_REPLACE), regexps.compile_java(pattern))
    except ValueError as wrong:
        reader.add_fault(entry, f"holds {wrong}", "write $1 for a group, \\$ for a dollar sign")
