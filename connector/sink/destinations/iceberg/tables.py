"""The tables of a sink: created on first sight, evolved on need, and where each of them stands. On the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import attrs
import pyarrow as pa

from connector.errors import DataFault, FatalError, GapError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import DEFAULT_FORMAT_PROPERTY, TableLayout
from connector.iceberg.commit.ancestry import StoredCommit, check_ancestry
from connector.iceberg.commit.commit import CommittedSnapshot, LastCommit, read_last_commit
from connector.iceberg.commit.kafka_position import LOST_COMMIT_REMEDY, TopicPartition
from connector.iceberg.commit.snapshot_expiry import CREATED_TABLE_PROPERTIES
from connector.iceberg.keys.key_bounds import KeyBounds, read_key_bounds, widen_bounds
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.state.schema_history_table import SchemaHistoryTable
from connector.iceberg.types.arrow_types import VARIANT_ARROW_TYPE, build_table_schema
from connector.iceberg.types.nested_columns import find_path
from connector.iceberg.types.schema_evolution import evolve, make_optional, union_shapes
from connector.settings import SinkSettings
from connector.settings.iceberg.partition_spec import PartitionTerm, parse_partition_term
from connector.settings.iceberg.sort_order import SortTerm, parse_sort_term
from connector.settings.iceberg.write_mode import APPEND_MODE, DECLARED_MODES
from connector.sink.convert import icebergevents
from connector.sink.convert.decoder import DELETED_COLUMN
from connector.sink.convert.field_matching import merge_case_variants
from connector.sink.destinations.iceberg import file_format_checks, table_checks
from connector.sink.destinations.iceberg.lookups.deleted_keys import DeletedKeyLog
from connector.sink.destinations.iceberg.table_writer import IcebergWriterFactory
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.naming import table_name
from connector.sink.destinations.table_registry import BaseTableRegistry
from connector.sink.destinations.table_schema import (
    build_declared_schema,
    choose_key,
    find_required_columns,
    find_terms,
    scd2_key,
    with_keys,
    with_validity,
)
from connector.sink.model.plan import VALID_FROM, SchemaChange, TablePlan

T = TypeVar("T", PartitionTerm, SortTerm)

VARIANTS_VERSION = 3

TOMBSTONES_PROPERTY = "icebridge.tombstones"
"""Table property, set when a table is made for events that carry no deletes themselves: then tombstones are deletes."""


@attrs.define(eq=False)
class TargetTable:
    """One table of the sink; `base` is the snapshot that `read_key_bounds` and `read_last_commit` are true of."""

    table: Table
    layout: TableLayout
    write_mode: str
    known_keys: KeyBounds
    stored: LastCommit
    base: int | None

    @property
    def upsert(self) -> bool:
        """Whether the table keeps one row per key."""
        return DECLARED_MODES[self.write_mode].replaces_rows


class IcebergTables(BaseTableRegistry[TargetTable]):
    """All tables of one sink, by name."""

    KIND = "table"

    def __init__(
        self,
        settings: SinkSettings,
        catalog: Catalog,
        noted: Mapping[str, StoredCommit] | None = None,
        deleted_keys: DeletedKeysTable | None = None,
    ) -> None:
        """Start with no table known; `noted` is what the offsets table says of tables, by full name.

        Tables are loaded on first sight. Raises then:
            GapError: a table that was noted was rolled back, or dropped and made again.
        """
        super().__init__(settings)
        self._catalog, self._noted = catalog, dict(noted or {})
        self.deleted_keys = deleted_keys
        self._patched: set[str] = set()
        self._changed: set[str] = set()
        history = settings.table.history_table
        self._history = SchemaHistoryTable(catalog, history, settings.name) if history else None

    def __getitem__(self, table: str) -> TargetTable:
        return self._known[table]

    @property
    def outlet(self) -> IcebergWriterFactory:
        """Where tasks write: files."""
        return IcebergWriterFactory(DeletedKeyLog.of(self.deleted_keys, self._settings.name))

    def label(self, name: str) -> str:
        """Give a table's name with its namespace."""
        return self._known[name].table.name

    def tables(self, names: Iterable[str]) -> list[Table]:
        """Give the tables of these names."""
        return [self._known[name].table for name in names]

    def name(self, topic: str) -> str:
        """Give the name of a topic's table."""
        return icebergevents.TABLE if self._settings.events_only else table_name(topic, self._settings.table)

    def full_name(self, topic: str) -> str:
        """Give the same with its namespace."""
        return self._catalog.full_name(self.name(topic))

    def find_existing(self, topics: Iterable[str]) -> list[str]:
        """Give the tables there are of these topics, or of those that events name themselves."""
        return sorted(set(self.find(topics).values())) or self.routed()

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        """Create and evolve tables for shapes of events that they were not ready for."""
        super().apply_schema_changes(needs)
        changed, self._changed = sorted(self._changed), set()
        if self._history is not None:
            self._history.note([self._known[name].table for name in changed])

    def patch(self, name: str) -> None:
        """Take note that a table's events leave out values that the table may hold."""
        self._patched.add(name)

    def refresh(self, name: str, *, alone: bool = False) -> None:
        """Read a table again, after a conflict, or after a change of our own (`alone`).

        Who conflicted may do so again: from then on keys are deleted whether the table is known to hold them or not,
        so that a commit of equality deletes depends on no other writer.
        """
        table = self._known[name].table
        table.refresh()
        self._known[name] = self._target(name, table, alone=alone)

    def _refresh_if_expired(self, name: str) -> bool:
        target = self._known[name]
        target.table.refresh()
        if target.base is None or target.table.java.snapshot(target.base) is not None:
            return False
        self.refresh(name)
        return True

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        """Give the executors' view of a table for a batch that starts at `start`."""
        target, history = self._known[name], self._keeps_history(name)
        if target.table.renew():
            # Whatever else is new with the table its commit will meet.
            target.layout = attrs.evolve(target.layout, io_properties=target.table.io_properties())
        ahead = {at: o for at, o in target.stored.position.offsets.items() if o > start.get(at, o)}
        return TablePlan(
            index=index,
            layout=target.layout,
            mode="upsert" if target.upsert else "append",
            keep_deletes=self._settings.table.keep_deletes and not history,
            tombstones="skip" if history else self._tombstone_mode(target),
            base=target.base,
            known_keys=target.known_keys,
            committed=ahead,
            patches=name in self._patched and target.upsert and not history,
            keys_from=self._settings.table.keys.key_source(*self._names(name)),
            dated=target.upsert and not history and self._is_dated(target.layout),
            watermarks=target.stored.position.watermarks,
            partitions=target.stored.position.partitions,
            after_delete=target.stored.position.after_delete,
            truncated=target.stored.position.truncated,
            truncated_at=target.stored.position.truncated_at,
            write_mode=target.write_mode,
            needs_row_lookup=WRITE_MODES[target.write_mode].looks_up_rows,
            history=target.upsert and history,
        )

    def _is_dated(self, layout: TableLayout) -> bool:
        """Tell whether the table's rows say how old they are."""
        column = self._settings.table.dedup_column
        return column in layout.columns.names and pa.types.is_integer(layout.columns.field(column).type)

    def _tombstone_mode(self, target: TargetTable) -> Literal["delete", "skip"]:
        if not target.upsert:
            return "skip"
        told = target.layout.properties.get(TOMBSTONES_PROPERTY) == "delete"
        return "delete" if told or not self._settings.table.keep_deletes else "skip"

    def committed(self, name: str, files: Iterable[bytes], done: CommittedSnapshot) -> None:
        """Take note of our own commit."""
        target = self._known[name]
        parent = target.table.java.snapshot(done.snapshot_id).parentId()
        ours = parent is None if target.base is None else parent is not None and int(parent) == target.base
        # After another writer's commit the bounds that we kept are not those of the whole table.
        keys = widen_bounds(target.known_keys, target.layout, files) if ours else KeyBounds()
        target.known_keys = keys if target.upsert else KeyBounds()
        target.stored, target.base = done.stored, done.snapshot_id

    def _load_existing(self, name: str) -> TargetTable | None:
        table = self._catalog.load(name)
        if table is None:
            return None
        target = self._target(name, table)
        self._compare(name, target)
        return target

    def _compare(self, name: str, target: TargetTable) -> None:
        """Compare a table that is there with what the settings say of tables that are made.

        Raises:
            FatalError: a declared column is there with another type.
        """
        rule = self._settings.table
        faults = table_checks.check_types(build_declared_schema(rule.columns), target.layout)
        if faults:
            raise FatalError(f"table {target.table.name}: {'; '.join(faults)}; correct it, or drop the table")
        own = find_terms(rule.partition_by_table, self._names(name), [])
        terms = [parse_partition_term(term) for term in (rule.partition_by if own is None else own)]
        other = table_checks.check_partitions(terms, target.layout) if terms else None
        if other is not None:
            told = "the table keeps its partition spec; partition-by applies to new tables only"
            self._log.warning(told, table=target.table.name, partitioned_by=other)
        if self._properties()[DEFAULT_FORMAT_PROPERTY].lower() == "avro" != target.layout.data_format:
            told = f"the table keeps its data file format; {DEFAULT_FORMAT_PROPERTY} applies to new tables only"
            self._log.warning(told, table=target.table.name, format=target.layout.data_format)

    def _target(self, name: str, table: Table, *, alone: bool = True) -> TargetTable:
        """See a table as it is; `alone` until another writer was met."""
        rule = self._settings.table
        table.follow(rule.writes.branch_of(*self._names(name)))
        layout, configured = self._layout(name, table), self._configured_mode(name)
        mode_name = configured if layout.keys else APPEND_MODE
        upsert, mode = DECLARED_MODES[mode_name].replaces_rows, WRITE_MODES[mode_name]
        file_format_checks.check_layout(layout, upsert=upsert)
        if table.format_version < mode.min_format_version:
            fitting = (name for name, other in WRITE_MODES.items() if other.min_format_version <= table.format_version)
            raise FatalError(
                f"table {table.name} is of format version {table.format_version}, which holds no delete files: upgrade "
                f"it to {mode.min_format_version}, or set its write-mode to {' or '.join(fitting)} ({mode_name} now)"
            )
        if mode.writes_equality_deletes:
            self._catalog.ensure_delete_spec(table)
            layout = self._layout(name, table)
        elif mode_name != configured and name not in self._known:
            self._log.warning("table has no key: its events are appended", table=table.name)
        if upsert and name not in self._known and not self._is_dated(layout):
            self._log.warning(
                "no numeric dedup column: replayed events may overwrite newer rows",
                table=table.name,
                column=rule.dedup_column,
            )
        known = alone and mode.writes_equality_deletes
        keys = read_key_bounds(table, layout) if known else KeyBounds()
        return TargetTable(table, layout, mode_name, keys, self._stored(name, table), table.snapshot_id)

    def _stored(self, name: str, table: Table) -> LastCommit:
        """Give where the sink stands in a table, by its snapshots or, once those have expired, by what is known."""
        before = self._known.get(name)
        if before is None:
            return check_ancestry(table, self._settings.name, self._noted.get(table.name))
        found = read_last_commit(table, self._settings.name)
        return found if found.commit_id is not None else attrs.evolve(before.stored, commit_id=None)

    def _names(self, name: str) -> tuple[str, str]:
        """Give the names by which a table's own settings may call it: without its namespace, and with it."""
        return name, self._catalog.full_name(name)

    def _keeps_history(self, name: str) -> bool:
        return self._settings.table.writes.keeps_history(*self._names(name))

    def _configured_mode(self, name: str) -> str:
        """Return the write mode that a table is to have if it has a key."""
        table_settings = self._settings.table
        return table_settings.writes.mode_of(*self._names(name)) if table_settings.upsert else APPEND_MODE

    def _write_mode(self, name: str) -> WriteMode:
        return WRITE_MODES[self._configured_mode(name)]

    def _layout(self, name: str, table: Table) -> TableLayout:
        """Give a table's layout with the key and write properties that are configured.

        Raises:
            FatalError: a configured key column is none of the table's.
        """
        rule = self._settings.table
        layout = table.layout()
        properties = {**layout.properties, **rule.write_properties}
        ids = rule.keys.of(*self._names(name)) if rule.upsert else ()
        if rule.upsert and self._keeps_history(name):
            ids = scd2_key(layout, ids)
        layout = attrs.evolve(layout, properties=properties, id_columns=ids)
        below = sorted(name for name in layout.variants if "." in name)
        if below:
            raise FatalError(f"table {table.name} has variants inside other columns ({', '.join(below)}): not written")
        missing = [column for column in layout.id_columns if find_path(layout.columns, column) is None]
        if missing:
            raise FatalError(f"table {table.name} has no column {', '.join(missing)}, which is configured as its key")
        columns = pa.schema(
            [f.with_type(VARIANT_ARROW_TYPE) if f.name in layout.variants else f for f in layout.columns]
        )
        unfit = self._write_mode(name).find_key_fault(columns, layout.keys)
        if unfit is not None:
            raise FatalError(f"table {table.name}: {unfit}")
        return layout

    def _made(self, name: str, needs: list[SchemaChange]) -> TargetTable:
        # Events may name a table that is there and that no batch has met yet.
        found = self._load_existing(name) if needs[0].table is not None else None
        return found or self._create_table(name, needs)

    def _create_table(self, name: str, needs: list[SchemaChange]) -> TargetTable:
        rule, full_name = self._settings.table, self._catalog.full_name(name)
        if full_name in self._noted:
            raise GapError(
                f"table {full_name} was dropped since connector {self._settings.name} wrote to it: rows that were in "
                f"it are gone; {LOST_COMMIT_REMEDY}"
            )
        if not rule.auto_create:
            raise DataFault(f"table {full_name} does not exist, and auto-create-enabled is false")
        if self._settings.events_only:
            return self._target(name, self._create_events_table(name))
        columns = (
            build_declared_schema(rule.columns)
            if rule.columns
            else union_shapes(merge_case_variants(need.row) if rule.case_insensitive else need.row for need in needs)
        )
        keys, properties = choose_key(needs, columns, rule, self._names(name)), self._properties()
        columns = with_keys(columns, needs if rule.keys.key_source(*self._names(name)) == "record" else [], keys)
        if not len(columns):
            raise DataFault("its events have no columns that a table could have")
        upsert = DECLARED_MODES[self._configured_mode(name)].replaces_rows and bool(keys)
        unfit = self._write_mode(name).find_key_fault(columns, keys)
        if unfit is not None:
            raise (FatalError if rule.keys.of(*self._names(name)) else DataFault)(f"table {full_name}: {unfit}")
        if upsert and self._keeps_history(name):
            columns, keys = with_validity(columns), (*keys, VALID_FROM)
        elif upsert and rule.keep_deletes and DELETED_COLUMN not in columns.names:
            columns = columns.append(pa.field(DELETED_COLUMN, pa.string()))
            properties[TOMBSTONES_PROPERTY] = "delete"
        required = find_required_columns(needs) if rule.preserve_required else frozenset()
        required |= frozenset(column.name for column in rule.columns if column.required)
        written_as = {**properties, **rule.write_properties}[DEFAULT_FORMAT_PROPERTY]
        file_format_checks.check_new_table(full_name, columns, written_as, version=rule.format_version, upsert=upsert)
        schema = build_table_schema(columns, keys, required, nanoseconds=rule.format_version > 2)  # noqa: PLR2004
        spec, order = self._partitioning(name, needs, columns), self._sorting(name, needs, columns)
        table = self._catalog.create(name, schema, spec, properties, sort_by=order, location=rule.location)
        self._log.info("table created", table=table.name, columns=len(columns), identifier_fields=list(keys))
        self._changed.add(name)
        return self._target(name, table)

    def _create_events_table(self, name: str) -> Table:
        properties, order = self._properties(), icebergevents.SORT_ORDER
        return self._catalog.create(name, icebergevents.SCHEMA, icebergevents.PARTITIONS, properties, sort_by=order)

    def _evolve(self, name: str, known: TargetTable, needs: list[SchemaChange]) -> TargetTable:
        before = columns = known.layout.columns
        for need in needs:
            columns = make_optional(
                evolve(columns, need.row, add=self._settings.table.allow_field_addition), need.relaxed
            )
        version, written_as = known.table.format_version, known.layout.data_format
        if VARIANT_ARROW_TYPE in columns.types and version < VARIANTS_VERSION:
            raise DataFault(f"table {known.table.name} is of format version 2, which has no variant; upgrade it to 3")
        file_format_checks.check_new_table(known.table.name, columns, written_as, version=version, upsert=known.upsert)
        unfit = WRITE_MODES[known.write_mode].find_key_fault(columns, known.layout.keys)
        if unfit is not None:
            raise DataFault(f"table {known.table.name}: {unfit}")
        self._catalog.evolve(known.table, columns)
        new = (f for f in columns if f.name not in before.names or not f.equals(before.field(f.name)))
        self.record_drift(name, (field.name for field in new))
        self._changed.add(name)
        self._log.info("table evolved", table=known.table.name, columns=len(columns))
        return attrs.evolve(known, layout=self._layout(name, known.table))

    def _properties(self) -> dict[str, str]:
        rule, catalog = self._settings.table, self._settings.catalog
        # A catalog's own defaults are somebody's decision too.
        kept = {
            key: value
            for key, value in CREATED_TABLE_PROPERTIES.items()
            if f"table-default.{key}" not in catalog.properties
        }
        own = {**kept, "format-version": str(rule.format_version), "write.format.default": rule.write_format}
        return file_format_checks.complete_properties({**own, **catalog.table_properties, **rule.create_properties})

    def _partitioning(self, name: str, needs: list[SchemaChange], columns: pa.Schema) -> tuple[PartitionTerm, ...]:
        rule = self._settings.table
        own = find_terms(rule.partition_by_table, self._names(name), needs)
        if own is not None:
            return tuple(parse_partition_term(term) for term in own)
        return self._there("partition-by", name, [parse_partition_term(term) for term in rule.partition_by], columns)

    def _sorting(self, name: str, needs: list[SchemaChange], columns: pa.Schema) -> tuple[SortTerm, ...]:
        rule = self._settings.table
        own = find_terms(rule.sort_by_table, self._names(name), needs)
        if own is not None:
            return tuple(parse_sort_term(term) for term in own)
        return self._there("sort-by", name, [parse_sort_term(term) for term in rule.sort_by], columns)

    def _there(self, option: str, name: str, terms: list[T], columns: pa.Schema) -> tuple[T, ...]:
        """Leave out the terms of columns that a table has not: what is meant for all tables need not fit each."""
        missing = [term.column for term in terms if term.column not in columns.names]
        if missing:
            self._log.warning(f"{option} names columns that the table lacks", table=name, columns=missing)
        return tuple(term for term in terms if term.column in columns.names)
