"""properties -> TableSettings: how tables are named, made and written, and what of events goes into them.

Names and defaults: Debezium Server's iceberg sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, LIST, TABLE_NAME, TEXT, one_of
from connector.settings.iceberg import (
    catalog,
    deleted_keys,
    iceberg_kafka_connect,
    primary_key,
    routing,
    row_lookup,
    schema_evolution,
    table_names,
    write_mode,
)
from connector.settings.iceberg.deleted_keys import DeletedKeySettings
from connector.settings.iceberg.maintenance import back_pressure, policies
from connector.settings.iceberg.maintenance import options as maintenance
from connector.settings.iceberg.maintenance.back_pressure import BackPressureSettings
from connector.settings.iceberg.maintenance.policies import MaintenanceSettings
from connector.settings.iceberg.new_tables import declared_schema, file_formats
from connector.settings.iceberg.new_tables import settings as new_tables
from connector.settings.iceberg.new_tables.settings import NewTableSettings
from connector.settings.iceberg.primary_key import KeySettings
from connector.settings.iceberg.routing import RouteSettings
from connector.settings.iceberg.row_lookup import RowLookupSettings
from connector.settings.iceberg.table_names import TableNameSettings
from connector.settings.iceberg.write_mode import WriteModeSettings
from connector.settings.kafka import topics

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
    doc="Delete the rows of a truncated source table, or mark them deleted; false ignores truncates with a warning.",
)
TRUNCATE_INDEX = attrs.evolve(
    TRUNCATE,
    doc="Delete the documents of a truncated source table (hard deletes only); false ignores truncates with a warning.",
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
EXCLUDED_COLUMNS = Option(
    name="debezium.sink.iceberg.excluded-columns",
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns to omit from tables, comma separated.",
)
OFFSETS_TABLE = Option(
    name="debezium.source.offset.storage.iceberg.table-name",
    kind=TABLE_NAME,
    default="_debezium_offset_storage",
    importance="low",
    doc="Table for committed Kafka offsets, in addition to those in every snapshot summary.",
)
HISTORY_TABLE = Option(
    name="debezium.source.schema.history.internal.iceberg.table-name",
    kind=TABLE_NAME,
    default=None,
    importance="low",
    doc="Table that gets one row per schema that a table was created with or evolved to; not set: none.",
    aliases=("debezium.source.database.history.iceberg.table-name",),
)
TABLE_MAPPER = Option(
    name="debezium.sink.iceberg.table-mapper",
    kind=one_of("default-mapper"),
    default="default-mapper",
    importance="low",
    doc="Table mapper; only the default one is supported.",
)
OPTIONS: tuple[Option[object], ...] = (
    *table_names.OPTIONS,
    UPSERT,
    KEEP_DELETES,
    SCHEMA_CHANGE_TOPICS,
    TRUNCATE,
    DEDUP_COLUMN,
    OP_FIELD,
    *schema_evolution.OPTIONS,
    EXCLUDED_COLUMNS,
    OFFSETS_TABLE,
    HISTORY_TABLE,
    TABLE_MAPPER,
    *new_tables.OPTIONS,
    *routing.OPTIONS,
    *primary_key.OPTIONS,
    *deleted_keys.OPTIONS,
    *back_pressure.OPTIONS,
    *write_mode.OPTIONS,
    *row_lookup.OPTIONS,
)
INDEX_OPTIONS: tuple[Option[object], ...] = (
    *table_names.INDEX_OPTIONS,
    UPSERT,
    KEEP_DELETED_DOCUMENTS,
    TRUNCATE_INDEX,
    DEDUP_COLUMN,
    OP_FIELD,
    *schema_evolution.OPTIONS,
    EXCLUDED_COLUMNS,
    OFFSETS_TABLE,
    *routing.OPTIONS,
    *primary_key.OPTIONS,
    *deleted_keys.OPTIONS,
)
"""Those of them that say something of indexes."""
_OF_TABLES_ONLY: tuple[Option[object], ...] = (
    *write_mode.OPTIONS,
    *row_lookup.OPTIONS,
    *back_pressure.OPTIONS,
    *maintenance.OPTIONS,
    SCHEMA_CHANGE_TOPICS,
    HISTORY_TABLE,
    new_tables.FORMAT_VERSION,
    new_tables.PARTITION_BY,
    new_tables.SORT_BY,
)
"""Those that documents have no use for."""
WRITE_PROPS = Prefix(
    name="iceberg.tables.write-props.",
    target="properties of files",
    importance="low",
    doc="Any write property (write.parquet.compression-codec ...), overriding the table's.",
)
PREFIXES = (*new_tables.PREFIXES, routing.ROUTE_REGEX, WRITE_PROPS)


@attrs.frozen
class TableSettings:
    """What the tables of a sink are called and look like, and what of events goes into them.

    `events_only` keeps every event as text in one table. `requires_fields` stops the sink where a table lacks a field.
    """

    names: TableNameSettings
    new_tables: NewTableSettings
    upsert: bool
    keep_deletes: bool
    dedup_column: str
    op_field: str
    allow_field_addition: bool
    excluded_columns: tuple[str, ...]
    offsets_table: str
    truncate: bool = False
    routes: RouteSettings | None = None
    keys: KeySettings = KeySettings()
    auto_create: bool = True
    requires_fields: bool = False
    case_insensitive: bool = False
    write_properties: Mapping[str, str] = attrs.field(factory=dict)
    history_table: str | None = None
    deleted_keys: DeletedKeySettings = DeletedKeySettings()
    back_pressure: BackPressureSettings = BackPressureSettings()
    events_only: bool = False
    writes: WriteModeSettings = WriteModeSettings()
    row_lookup: RowLookupSettings = RowLookupSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    schema_change_topics: tuple[str, ...] = ()


def build(reader: ConfigReader, *, indexes: bool = False) -> TableSettings:
    """Read the tables' part; faults go to the reader. Indexes (`indexes`) keep no deleted documents by default."""
    keeps = reader.get(KEEP_DELETED_DOCUMENTS if indexes else KEEP_DELETES)
    reader.get(TABLE_MAPPER)
    namespace = reader.get(catalog.SINK_CATALOG.namespace)
    names = table_names.build(reader, namespace)
    evolution = schema_evolution.build(reader)
    keys, written = primary_key.build(reader), write_mode.build(reader, UPSERT)
    routes = routing.build(reader, iceberg_kafka_connect.cdc_target(reader), "" if indexes else namespace)
    declared_schema.check(reader, routes, one_by_topic=names.have_one_table(reader.get(topics.TOPICS)))
    _check_formats(reader)
    _check_own_tables(reader, namespace)
    mapped = reader.entry(table_names.TOPIC_TABLES)
    if indexes:
        _note_idle(reader)
    if mapped and indexes:
        reader.add_fault(
            mapped, "is for tables, and topics have indexes here", "set topic.to.existing.resource.mapping"
        )
    return TableSettings(
        names=names,
        new_tables=new_tables.build(reader),
        upsert=written.replaces and keys.mode != "none",
        keep_deletes=keeps,
        truncate=_read_truncate(reader, keeps=keeps, indexes=indexes),
        dedup_column=reader.get(DEDUP_COLUMN),
        op_field=reader.get(OP_FIELD),
        allow_field_addition=evolution.adds_fields,
        excluded_columns=reader.get(EXCLUDED_COLUMNS),
        offsets_table=reader.get(OFFSETS_TABLE),
        routes=routes,
        keys=keys,
        auto_create=evolution.creates,
        requires_fields=evolution.requires_fields,
        case_insensitive=reader.get(routing.CASE_INSENSITIVE),
        write_properties=reader.under(WRITE_PROPS),
        history_table=reader.get(HISTORY_TABLE),
        deleted_keys=deleted_keys.build(reader),
        back_pressure=back_pressure.build(reader),
        writes=written,
        row_lookup=row_lookup.build(reader),
        maintenance=MaintenanceSettings() if indexes else policies.build(reader),
        schema_change_topics=() if indexes else reader.get(SCHEMA_CHANGE_TOPICS),
    )


def _note_idle(reader: ConfigReader) -> None:
    """Name what is said of tables where there are only indexes."""
    of_one = [entry for entry in reader.members(routing.ROUTE_REGEX) if entry.key.endswith(write_mode.SUFFIXES)]
    of_one += reader.members(new_tables.PARTITION_BY_TABLE) + reader.members(new_tables.SORT_BY_TABLE)
    reader.note_idle("these options are of tables, and have no effect on indexes", _OF_TABLES_ONLY, of_one)


def _check_formats(reader: ConfigReader) -> None:
    """Refuse file formats that are not written, wherever a property of tables or files asks for one."""
    created = new_tables.CREATE_PROPS
    properties = (catalog.SINK_CATALOG.rest, created, WRITE_PROPS)
    own = (new_tables.WRITE_FORMAT, created)
    file_formats.check(reader, properties, own, WRITE_PROPS, new_tables.NESTED_AS_VARIANT)


def _check_own_tables(reader: ConfigReader, namespace: str) -> None:
    """Refuse one table for two things that the sink stores."""
    options = (OFFSETS_TABLE, HISTORY_TABLE, deleted_keys.TABLE)
    named = [(table_names.shorten_name(name, namespace), one) for one in options if (name := reader.get(one))]
    for (name, first), (other, second) in combinations(named, 2):
        entry = reader.entry(second) or reader.entry(first)
        if name == other and entry:
            reader.add_fault(entry, f"{first.name} and {second.name} have one table", "give each its own")


def _read_truncate(reader: ConfigReader, *, keeps: bool, indexes: bool) -> bool:
    option = TRUNCATE_INDEX if indexes else TRUNCATE
    wanted, entry = reader.get(option), reader.entry(option)
    if wanted and entry and indexes and not reader.get(DEDUP_COLUMN).startswith("__source_ts_"):
        todo = f"set {DEDUP_COLUMN.name}=__source_ts_ns"
        reader.add_fault(entry, "a truncate has a time, and documents have other versions", todo)
    if wanted and entry and reader.get(write_mode.SCD_TYPE) == "2":
        reader.add_fault(entry, f"{write_mode.SCD_TYPE.name}=2 keeps every row", "set one of them to its default")
    if wanted and entry and indexes and reader.get(UPSERT) and keeps:
        fault = f"{KEEP_DELETES.name} is true, which keeps every document"
        reader.add_fault(entry, fault, f"set {KEEP_DELETES.name}=false")
    return wanted
