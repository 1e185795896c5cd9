"""properties -> NewTableSettings: what a table looks like that the sink makes.

Names and defaults: Debezium Server's iceberg sink.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, one_of, whole_number
from connector.settings.iceberg import routing
from connector.settings.iceberg.new_tables import declared_schema, file_formats
from connector.settings.iceberg.new_tables.declared_schema import DeclaredColumn
from connector.settings.iceberg.new_tables.partition_spec import PARTITION_TERMS
from connector.settings.iceberg.new_tables.sort_order import SORT_TERMS

IDENTIFIER_FIELDS = Option(
    name="debezium.sink.iceberg.create-identifier-fields",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Create tables with the record key's columns as identifier fields; tables without any are appended to.",
)
PRESERVE_REQUIRED = Option(
    name="debezium.sink.iceberg.preserve-required-property",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Create columns as required if the event's schema says so; otherwise only key columns are.",
)
WRITE_FORMAT = Option(
    name="debezium.sink.iceberg.write.format.default",
    kind=one_of(*file_formats.FORMATS, any_case=True),
    default="parquet",
    importance="low",
    doc="Data file format of new tables: parquet, avro or orc. Delete files are Parquet.",
)
NANOSECONDS_VERSION = 3
"""The format version that has timestamps of nanoseconds."""
FORMAT_VERSION = Option(
    name="debezium.sink.iceberg.format-version",
    kind=whole_number(2, 3),
    default=2,
    importance="medium",
    doc="Iceberg format version of new tables: 2 or 3.",
)
PARTITION_BY = Option(
    name="debezium.sink.iceberg.partition-by",
    kind=PARTITION_TERMS,
    default=(),
    importance="medium",
    doc="Partition spec of new tables: columns, year|month|day|hour(c), bucket(c, N), truncate(c, N).",
)
SORT_BY = Option(
    name="debezium.sink.iceberg.sort-by",
    kind=SORT_TERMS,
    default=(),
    importance="low",
    doc="Sort order of new tables: terms as in partition-by, each with asc|desc and nulls first|last.",
)
SORT_BY_TABLE = Prefix(
    name="debezium.sink.iceberg.sort-by.",
    target="sort-by of one table",
    importance="low",
    doc="sort-by of one table; the rest of the key is its topic or table name.",
)
PARTITION_BY_TABLE = Prefix(
    name="debezium.sink.iceberg.partition-by.",
    target="partition-by of one table",
    importance="medium",
    doc="partition-by of one table; the rest of the key is its topic or table name.",
)
NESTED_AS_VARIANT = Option(
    name="debezium.sink.iceberg.nested-as-variant",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Create columns for nested values and io.debezium.data.Json as variant; new tables get format version 3.",
)
CREATE_PROPS = Prefix(
    name="iceberg.tables.auto-create-props.",
    target="properties of new tables",
    importance="medium",
    doc="Any table property of new tables.",
)
OPTIONS: tuple[Option[object], ...] = (
    IDENTIFIER_FIELDS,
    PRESERVE_REQUIRED,
    WRITE_FORMAT,
    FORMAT_VERSION,
    PARTITION_BY,
    SORT_BY,
    NESTED_AS_VARIANT,
    *declared_schema.OPTIONS,
)
PREFIXES = (PARTITION_BY_TABLE, SORT_BY_TABLE, CREATE_PROPS)


@attrs.frozen
class NewTableSettings:
    """How tables are made; partition and sort terms are text as written, for `partition_spec` to parse.

    The terms of `*_by_table` are of one table or topic. `columns` and `location` are of a sink with a single table.
    """

    create_identifier_fields: bool = True
    preserve_required: bool = False
    write_format: str = "parquet"
    format_version: int = 2
    nested_as_variant: bool = False
    partition_by: tuple[str, ...] = ()
    partition_by_table: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    sort_by: tuple[str, ...] = ()
    sort_by_table: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    properties: Mapping[str, str] = attrs.field(factory=dict)
    columns: tuple[DeclaredColumn, ...] = ()
    location: str | None = None

    @property
    def has_nanoseconds(self) -> bool:
        """Whether new tables are of a format version with timestamps of nanoseconds."""
        return self.format_version >= NANOSECONDS_VERSION


def build(reader: ConfigReader) -> NewTableSettings:
    """Read the part of new tables; faults go to the reader."""
    return NewTableSettings(
        create_identifier_fields=reader.get(IDENTIFIER_FIELDS),
        preserve_required=_read_preserve_required(reader),
        write_format=reader.get(WRITE_FORMAT),
        format_version=3 if reader.get(NESTED_AS_VARIANT) else reader.get(FORMAT_VERSION),
        nested_as_variant=reader.get(NESTED_AS_VARIANT),
        partition_by=reader.get(PARTITION_BY),
        partition_by_table=_read_by_table(reader, PARTITION_BY, PARTITION_BY_TABLE),
        sort_by=reader.get(SORT_BY),
        sort_by_table=_read_by_table(reader, SORT_BY, SORT_BY_TABLE),
        properties=reader.under(CREATE_PROPS),
        columns=reader.get(declared_schema.COLUMNS),
        location=reader.get(declared_schema.LOCATION),
    )


def _read_preserve_required(reader: ConfigReader) -> bool:
    forced, entry = reader.get(routing.FORCE_OPTIONAL), reader.entry(routing.FORCE_OPTIONAL)
    kept = reader.get(PRESERVE_REQUIRED)
    if entry and forced and kept:
        reader.add_fault(entry, f"{PRESERVE_REQUIRED.name} is true, which says the opposite", "keep one of them")
    return kept if entry is None else not forced


def _read_by_table(reader: ConfigReader, option: Option[tuple[str, ...]], of_one: Prefix) -> dict[str, tuple[str, ...]]:
    return {table: reader.get(attrs.evolve(option, name=of_one.name + table)) for table in reader.under(of_one)}
