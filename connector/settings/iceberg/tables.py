"""properties -> TableSettings: how tables are named, made, partitioned and written.

Names and defaults: Debezium Server's iceberg sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from connector.settings.configdef import regexps
from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    LIST,
    PATTERN,
    TEXT,
    one_of,
    whole_number,
)
from connector.settings.iceberg import (
    back_pressure,
    catalog,
    declared_schema,
    deleted_keys,
    file_formats,
    iceberg_kafka_connect,
    maintenance,
    primary_key,
    routing,
    row_lookup,
    write_mode,
)
from connector.settings.iceberg.back_pressure import BackPressureSettings
from connector.settings.iceberg.declared_schema import DeclaredColumn
from connector.settings.iceberg.deleted_keys import DeletedKeySettings
from connector.settings.iceberg.maintenance import MaintenanceSettings
from connector.settings.iceberg.partition_spec import PARTITION_TERMS
from connector.settings.iceberg.primary_key import KeySettings
from connector.settings.iceberg.routing import RouteSettings
from connector.settings.iceberg.row_lookup import RowLookupSettings
from connector.settings.iceberg.sort_order import SORT_TERMS
from connector.settings.iceberg.write_mode import WriteModeSettings
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
UPSERT = Option(
    name="debezium.sink.iceberg.upsert",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Keep one row per key; false appends one row per event. Tables without a key are always appended to.",
)
KEEP_DELETES = Option(
    name="debezium.sink.iceberg.upsert-keep-deletes",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc='Keep a deleted row with __deleted = "true" (soft delete); false removes it (hard delete).',
)
KEEP_DELETED_DOCUMENTS = attrs.evolve(
    KEEP_DELETES,
    default=False,
    doc='Keep a deleted document with __deleted = "true" (soft delete); false removes it (hard delete).',
)
SCHEMA_CHANGE_TOPICS = Option(
    name="debezium.sink.iceberg.schema-change-topics",
    kind=LIST,
    default=(),
    importance="medium",
    doc="Topics of the sources' schema changes: columns that DDL renames there are renamed, and keep their field ids.",
)
TRUNCATE = Option(
    name="truncate.enabled",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Delete the rows of a truncated source table (hard deletes only); false ignores truncates with a warning.",
)
DEDUP_COLUMN = Option(
    name="debezium.sink.iceberg.upsert-dedup-column",
    kind=TEXT,
    default="__source_ts_ns",
    importance="low",
    doc="Numeric column that orders changes of a key, so that a replayed one loses: a timestamp or log position.",
)
OP_FIELD = Option(
    name="debezium.sink.iceberg.upsert-op-field",
    kind=TEXT,
    default="__op",
    importance="low",
    doc="Operation field of events without envelope: c, insert, u, delete ... in any case; others are dead letters.",
)
IDENTIFIER_FIELDS = Option(
    name="debezium.sink.iceberg.create-identifier-fields",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Create tables with the record key's columns as identifier fields; tables without any are appended to.",
)
FIELD_ADDITION = Option(
    name="debezium.sink.iceberg.allow-field-addition",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Add new columns and widen types as events need it; false leaves the schema as it is.",
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
    kind=one_of(*file_formats.FORMATS),
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
EXCLUDED_COLUMNS = Option(
    name="debezium.sink.iceberg.excluded-columns",
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns to omit from tables, comma separated.",
)
OFFSETS_TABLE = Option(
    name="debezium.source.offset.storage.iceberg.table-name",
    kind=TEXT,
    default="_debezium_offset_storage",
    importance="low",
    doc="Table for committed Kafka offsets, in addition to those in every snapshot summary.",
)
HISTORY_TABLE = Option(
    name="debezium.source.schema.history.internal.iceberg.table-name",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Table that gets one row per schema that a table was created with or evolved to; not set: none.",
    aliases=("debezium.source.database.history.iceberg.table-name",),
)
NESTED_AS_VARIANT = Option(
    name="debezium.sink.iceberg.nested-as-variant",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Create columns for nested values and io.debezium.data.Json as variant; new tables get format version 3.",
)
TABLE_MAPPER = Option(
    name="debezium.sink.iceberg.table-mapper",
    kind=one_of("default-mapper"),
    default="default-mapper",
    importance="low",
    doc="Table mapper; only the default one is supported.",
)
OPTIONS: tuple[Option[object], ...] = (
    TABLE_PREFIX,
    DESTINATION_REGEXP,
    DESTINATION_REPLACE,
    UPPERCASE,
    LOWERCASE,
    UPSERT,
    KEEP_DELETES,
    SCHEMA_CHANGE_TOPICS,
    TRUNCATE,
    DEDUP_COLUMN,
    OP_FIELD,
    IDENTIFIER_FIELDS,
    FIELD_ADDITION,
    PRESERVE_REQUIRED,
    WRITE_FORMAT,
    FORMAT_VERSION,
    PARTITION_BY,
    SORT_BY,
    EXCLUDED_COLUMNS,
    OFFSETS_TABLE,
    HISTORY_TABLE,
    NESTED_AS_VARIANT,
    TABLE_MAPPER,
    *routing.OPTIONS,
    *primary_key.OPTIONS,
    *declared_schema.OPTIONS,
    *deleted_keys.OPTIONS,
    *back_pressure.OPTIONS,
    *write_mode.OPTIONS,
    *row_lookup.OPTIONS,
)
INDEX_OPTIONS: tuple[Option[object], ...] = (
    TABLE_PREFIX,
    DESTINATION_REGEXP,
    DESTINATION_REPLACE,
    UPSERT,
    KEEP_DELETED_DOCUMENTS,
    TRUNCATE,
    DEDUP_COLUMN,
    OP_FIELD,
    FIELD_ADDITION,
    EXCLUDED_COLUMNS,
    OFFSETS_TABLE,
    *routing.OPTIONS,
    *primary_key.OPTIONS,
)
"""Those of them that say something of indexes."""
CREATE_PROPS = Prefix(
    name="iceberg.tables.auto-create-props.",
    target="properties of new tables",
    importance="medium",
    doc="Any table property of new tables.",
)
WRITE_PROPS = Prefix(
    name="iceberg.tables.write-props.",
    target="properties of files",
    importance="low",
    doc="Any write property (write.parquet.compression-codec ...), overriding the table's.",
)
PREFIXES = (PARTITION_BY_TABLE, SORT_BY_TABLE, routing.ROUTE_REGEX, CREATE_PROPS, WRITE_PROPS)


@attrs.frozen
class TableSettings:
    """What tables are called and look like; partition terms are text as written, for `partition_spec` to parse.

    `events_only` keeps every event as text in one table.
    `destination_regexp_replace` is a Java replacement, see `regexps.translate_replacement`.
    """

    prefix: str
    destination_regexp: str | None
    destination_regexp_replace: str
    case: Literal["keep", "upper", "lower"]
    upsert: bool
    keep_deletes: bool
    dedup_column: str
    op_field: str
    create_identifier_fields: bool
    allow_field_addition: bool
    preserve_required: bool
    write_format: str
    format_version: int
    partition_by: tuple[str, ...]
    partition_by_table: Mapping[str, tuple[str, ...]]
    excluded_columns: tuple[str, ...]
    offsets_table: str
    truncate: bool = False
    nested_as_variant: bool = False
    routes: RouteSettings | None = None
    keys: KeySettings = KeySettings()
    auto_create: bool = True
    case_insensitive: bool = False
    create_properties: Mapping[str, str] = attrs.field(factory=dict)
    write_properties: Mapping[str, str] = attrs.field(factory=dict)
    columns: tuple[DeclaredColumn, ...] = ()
    location: str | None = None
    sort_by: tuple[str, ...] = ()
    sort_by_table: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    history_table: str | None = None
    deleted_keys: DeletedKeySettings = DeletedKeySettings()
    back_pressure: BackPressureSettings = BackPressureSettings()
    events_only: bool = False
    writes: WriteModeSettings = WriteModeSettings()
    row_lookup: RowLookupSettings = RowLookupSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    schema_change_topics: tuple[str, ...] = ()

    @property
    def has_nanoseconds(self) -> bool:
        """Whether new tables are of a format version with timestamps of nanoseconds."""
        return self.format_version >= NANOSECONDS_VERSION


def build(reader: ConfigReader, *, indexes: bool = False) -> TableSettings:
    """Read the tables' part; faults go to the reader. Indexes (`indexes`) keep no deleted documents by default."""
    keeps = reader.get(KEEP_DELETED_DOCUMENTS if indexes else KEEP_DELETES)
    reader.get(TABLE_MAPPER)
    _check_replacement(reader)
    _check_prefix(reader)
    keys, written = primary_key.build(reader), write_mode.build(reader, UPSERT)
    routes = routing.build(reader, iceberg_kafka_connect.cdc_target(reader))
    declared_schema.check(reader, routes, reader.get(topics.TOPICS))
    properties = (catalog.SINK_CATALOG.rest, CREATE_PROPS, WRITE_PROPS)
    file_formats.check(reader, properties, (WRITE_FORMAT, CREATE_PROPS), WRITE_PROPS, NESTED_AS_VARIANT)
    return TableSettings(
        prefix=reader.get(TABLE_PREFIX),
        destination_regexp=reader.get(DESTINATION_REGEXP),
        destination_regexp_replace=reader.get(DESTINATION_REPLACE),
        case=_read_case(reader),
        upsert=written.replaces and keys.mode != "none",
        keep_deletes=keeps,
        truncate=_read_truncate(reader, keeps=keeps, indexes=indexes),
        dedup_column=reader.get(DEDUP_COLUMN),
        op_field=reader.get(OP_FIELD),
        create_identifier_fields=reader.get(IDENTIFIER_FIELDS),
        allow_field_addition=reader.get(FIELD_ADDITION),
        preserve_required=_read_preserve_required(reader),
        write_format=reader.get(WRITE_FORMAT),
        format_version=3 if reader.get(NESTED_AS_VARIANT) else reader.get(FORMAT_VERSION),
        nested_as_variant=reader.get(NESTED_AS_VARIANT),
        partition_by=reader.get(PARTITION_BY),
        partition_by_table=_read_by_table(reader, PARTITION_BY, PARTITION_BY_TABLE),
        sort_by=reader.get(SORT_BY),
        sort_by_table=_read_by_table(reader, SORT_BY, SORT_BY_TABLE),
        excluded_columns=reader.get(EXCLUDED_COLUMNS),
        offsets_table=reader.get(OFFSETS_TABLE),
        routes=routes,
        keys=keys,
        auto_create=reader.get(routing.AUTO_CREATE),
        case_insensitive=reader.get(routing.CASE_INSENSITIVE),
        create_properties=reader.under(CREATE_PROPS),
        write_properties=reader.under(WRITE_PROPS),
        columns=reader.get(declared_schema.COLUMNS),
        location=reader.get(declared_schema.LOCATION),
        history_table=reader.get(HISTORY_TABLE),
        deleted_keys=deleted_keys.build(reader),
        back_pressure=back_pressure.build(reader),
        writes=written,
        row_lookup=row_lookup.build(reader),
        maintenance=MaintenanceSettings() if indexes else maintenance.build(reader),
        schema_change_topics=() if indexes else reader.get(SCHEMA_CHANGE_TOPICS),
    )


def _read_preserve_required(reader: ConfigReader) -> bool:
    forced, entry = reader.get(routing.FORCE_OPTIONAL), reader.entry(routing.FORCE_OPTIONAL)
    kept = reader.get(PRESERVE_REQUIRED)
    if entry and forced and kept:
        reader.add_fault(entry, f"{PRESERVE_REQUIRED.name} is true, which says the opposite", "keep one of them")
    return kept if entry is None else not forced


def _check_prefix(reader: ConfigReader) -> None:
    entry = reader.entry(TABLE_PREFIX)
    if entry and "." in reader.get(TABLE_PREFIX):
        reader.add_fault(
            entry, "has a dot, which would part off a namespace", "use debezium.sink.iceberg.table-namespace"
        )


def _read_truncate(reader: ConfigReader, *, keeps: bool, indexes: bool) -> bool:
    wanted, entry = reader.get(TRUNCATE), reader.entry(TRUNCATE)
    if wanted and entry and indexes and not reader.get(DEDUP_COLUMN).startswith("__source_ts_"):
        todo = f"set {DEDUP_COLUMN.name}=__source_ts_ns"
        reader.add_fault(entry, "a truncate tells its time, and documents have other versions", todo)
    if wanted and entry and reader.get(write_mode.SCD_TYPE) == "2":
        reader.add_fault(entry, f"{write_mode.SCD_TYPE.name}=2 keeps every row", "set one of them to its default")
    if wanted and entry and reader.get(UPSERT) and keeps:
        reader.add_fault(entry, f"{KEEP_DELETES.name} is true, which keeps every row", f"set {KEEP_DELETES.name}=false")
    return wanted


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


def _read_by_table(reader: ConfigReader, option: Option[tuple[str, ...]], of_one: Prefix) -> dict[str, tuple[str, ...]]:
    return {table: reader.get(attrs.evolve(option, name=of_one.name + table)) for table in reader.under(of_one)}
