"""Shapes of events, our commits -> the tables of a sink, created and evolved when needed. On the driver."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from threading import RLock

import attrs

from connector.errors import DataFault, FatalError, GapError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.ancestry import check_ancestry
from connector.iceberg.commit.commit import CommittedSnapshot, check_sole_writer
from connector.iceberg.commit.commit_summary import LOST_COMMIT_REMEDY
from connector.iceberg.commit.kafka_offsets import find_sources_of_others
from connector.iceberg.commit.last_commit import LastCommit, find_last_commit, snapshot_summary
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.guard.delete_guard import DeleteGuard
from connector.iceberg.keys.file_key_bounds import read_key_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.state.schema_history_table import SchemaHistoryTable
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.iceberg.types.schemas.schema_evolution import evolve, find_changed, make_optional
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.settings.iceberg.new_tables.partition_spec import parse_partition_term
from connector.sink.convert.columns.column_renames import (
    RENAMES_PROPERTY,
    find_renamed_fields,
    format_renames,
    parse_renames,
    rename_shape,
)
from connector.sink.convert.columns.field_matching import match_shape
from connector.sink.destinations.deleted_keys import DeletedKeyLog
from connector.sink.destinations.iceberg.tables import checks as table_checks
from connector.sink.destinations.iceberg.tables.creation import TableCreator
from connector.sink.destinations.iceberg.tables.needed_snapshots import NeededSnapshots
from connector.sink.destinations.iceberg.tables.options import TableOptions
from connector.sink.destinations.iceberg.tables.retention import apply_policy
from connector.sink.destinations.iceberg.tables.source_renames import find_source_renames
from connector.sink.destinations.iceberg.tables.source_schemas import SourceSchemas
from connector.sink.destinations.iceberg.tables.table_plans import build_table_plan, is_dated
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.naming import target_name
from connector.sink.destinations.table_registry import BaseTableRegistry
from connector.sink.destinations.table_schema import (
    build_declared_schema,
    find_terms,
)
from connector.sink.model.plan import SchemaChange, TablePlan

VARIANTS_VERSION = 3


class IcebergTables(BaseTableRegistry[TargetTable]):
    """All tables of one sink, by name."""

    KIND = "table"

    def __init__(
        self,
        settings: SinkSettings,
        catalog: Catalog,
        noted: Mapping[str, StoredCommit] | None = None,
        deleted_keys: DeletedKeysTable | None = None,
        guard: DeleteGuard | None = None,
        *,
        writes: bool = True,
    ) -> None:
        """Start with no table loaded; `noted` is what the offsets table stores about tables, by full name.

        With a guard each table is checked whenever it is read, for deletes that rewrites by others removed. Tables are
        loaded when first needed, which may raise GapError: a table was rolled back, or dropped and re-created; or it
        has lost deletes. Where nothing `writes` files they are not made ready for deletes either.
        """
        super().__init__(settings)
        self._guard, self._writes = guard, writes
        self._catalog, self._noted = catalog, dict(noted or {})
        self.deleted_keys = deleted_keys
        self._creator = TableCreator(settings, catalog)
        self._patched: set[str] = set()
        self._turns: dict[str, RLock] = {}
        self._needed = NeededSnapshots(catalog, settings.table)
        self._changed: set[str] = set()
        self._unstored: set[str] = set()
        history = settings.table.history_table
        self._schemas = SourceSchemas(settings) if settings.table.schema_change_topics else None
        self._history = SchemaHistoryTable(catalog, history, settings.name) if history else None

    def __getitem__(self, table: str) -> TargetTable:
        return self._known[table]

    def writers(self) -> IcebergWriterFactory:
        """Return what opens the files of tasks."""
        layout = None if self.deleted_keys is None else self.deleted_keys.layout
        return IcebergWriterFactory(DeletedKeyLog.of(layout, self._settings.name))

    def label(self, name: str) -> str:
        """Return a table's name with its namespace."""
        return self._known[name].table.name

    def needed_since_ms(self, name: str) -> int:
        """Return the time of the oldest snapshot of a table that a source has yet to read; now if there is none."""
        return self._needed.find_since_ms(name, self._known[name].table)

    def retention(self, name: str) -> Mapping[str, str]:
        """Return the properties of a table by which its snapshots expire with commits."""
        policy = self._settings.table.maintenance.of(*self._options(name).names)
        return apply_policy(self._known[name].layout.properties, policy.expire)

    def turn(self, full_name: str) -> RLock:
        """Return what commits to a table hold, by its full name."""
        return self._turns.setdefault(full_name, threading.RLock())

    def tables(self, names: Iterable[str]) -> list[Table]:
        """Return the tables of these names."""
        return [self._known[name].table for name in names]

    def name(self, topic: str) -> str:
        """Return the name of a topic's table."""
        return target_name(topic, self._settings.table)

    def full_name(self, topic: str) -> str:
        """Return the same with its namespace."""
        return self._catalog.full_name(self.name(topic))

    def find_existing(self, topics: Iterable[str]) -> list[str]:
        """Return the tables that exist for these topics, or those that events name themselves."""
        return sorted(set(self.find(topics).values())) or self.list_routed()

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        """Create and evolve tables for shapes of events that do not fit yet."""
        super().apply_schema_changes(needs)
        changed, self._changed = sorted(self._changed), set()
        if self._history is not None:
            self._history.note([self._known[name].table for name in changed])

    def expect_unavailable_values(self, name: str) -> None:
        """Record that events of a table omit values that the table may hold."""
        self._patched.add(name)

    def find_other_sources(self, name: str) -> frozenset[str]:
        """Return the names of sources whose rows other connectors wrote to a table, by its remaining snapshots."""
        summaries = map(snapshot_summary, self._known[name].table.ancestors())
        return find_sources_of_others(summaries, self._settings.name)

    def refresh(self, name: str, *, alone: bool = False) -> None:
        """Reload a table after a conflict, or after a commit of our own (`alone`).

        A writer that conflicted may do so again. From then on a delete is written for every key, whether the table is
        known to hold it or not, so that a commit of equality deletes depends on no other writer.
        """
        table = self._known[name].table
        table.refresh()
        self._known[name] = self._target(name, table, alone=alone)

    def _refresh_if_expired(self, name: str) -> bool:
        target = self._known[name]
        target.table.refresh()
        if target.base is None or target.table.java.snapshot(target.base) is not None:
            # Where it was rolled back meanwhile, or another process committed, that is why, whatever Iceberg says.
            check_sole_writer(target.table, target.stored, self._settings.name)
            return False
        self.refresh(name)
        return True

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        """Return the executors' view of a table for a batch that starts at `start`."""
        if self._known[name].altered:
            self._log.info("others have altered the table", table=self._known[name].table.name)
            self.refresh(name, alone=self._known[name].known_keys.is_complete)
        target = self._known[name]
        # Whatever else is new with the table its commit will meet.
        target.layout = target.table.renew_layout(target.layout)
        return build_table_plan(target, self._options(name), index, start, patched=name in self._patched)

    def record_commit(self, name: str, files: Iterable[FileDescription], done: CommittedSnapshot) -> None:
        """Record our own commit."""
        self._known[name].record_commit(files, done)

    def take_unstored(self, names: Iterable[str]) -> dict[str, LastCommit]:
        """Return, once, the commits of an earlier run that the offsets table does not have.

        They must be stored before later offsets are: otherwise a later rollback of such a table would not be detected.
        """
        commits = {name: self._known[name].stored for name in names if name in self._unstored}
        self._unstored -= commits.keys()
        return commits

    def _load_existing(self, name: str) -> TargetTable | None:
        try:
            return self._find_existing(name)
        except DataFault as fault:
            raise FatalError(str(fault)) from fault

    def _find_existing(self, name: str) -> TargetTable | None:
        table = None if self._is_own(name) else self._catalog.load(name)
        if table is None:
            return None
        target = self._target(name, table)
        self._compare(name, target)
        return target

    def _is_own(self, name: str) -> bool:
        """Tell whether the sink stores its own in it: offsets, deleted keys, schemas. Catalogs may not tell case."""
        rule, connectors = self._settings.table, self._settings.server.config_table
        own = (rule.offsets_table, rule.deleted_keys.table, rule.history_table, connectors)
        return self._catalog.full_name(name).lower() in {self._catalog.full_name(one).lower() for one in own if one}

    def _compare(self, name: str, target: TargetTable) -> None:
        """Compare an existing table with the settings for new tables.

        Raises:
            FatalError: a declared column is there with another type.
        """
        rule = self._settings.table
        faults = table_checks.check_types(build_declared_schema(rule.new_tables.columns), target.layout)
        if faults:
            raise FatalError(f"table {target.table.name}: {'; '.join(faults)}; correct it, or drop the table")
        own = find_terms(rule.new_tables.partition_by_table, self._options(name).names, [])
        terms = [parse_partition_term(term) for term in (rule.new_tables.partition_by if own is None else own)]
        other = table_checks.check_partitions(terms, target.layout) if terms else None
        if other is not None:
            warning = "the table keeps its partition spec; partition-by applies to new tables only"
            self._log.warning(warning, table=target.table.name, partitioned_by=other)
        if self._creator.properties()[DEFAULT_FORMAT_PROPERTY].lower() not in ("parquet", target.layout.data_format):
            warning = f"the table keeps its data file format; {DEFAULT_FORMAT_PROPERTY} applies to new tables only"
            self._log.warning(warning, table=target.table.name, format=target.layout.data_format)

    def _target(self, name: str, table: Table, *, alone: bool = True) -> TargetTable:
        """Build the target of a table as it is now; `alone` until another writer was noticed."""
        options = self._options(name)
        table.follow(options.branch)
        table.turn = self.turn(table.name)
        before = self._known.get(name)
        if self._guard is not None:
            wrote = before is not None or table.name in self._noted
            self._guard.check(table, None if before is None else before.base, wrote=wrote)
        layout = options.layout(table)
        table_checks.check_location(layout)
        table_checks.check_encryption(layout)
        mode_name = options.write_mode_name(has_key=bool(layout.keys))
        upsert, mode = options.upserts(has_key=bool(layout.keys)), WRITE_MODES[mode_name]
        table_checks.check_layout(layout, upsert=upsert)
        if table.format_version < mode.min_format_version:
            fitting = (name for name, other in WRITE_MODES.items() if other.min_format_version <= table.format_version)
            raise FatalError(
                f"table {table.name} is of format version {table.format_version}, which holds no delete files; upgrade "
                f"it to {mode.min_format_version}, or set its write-mode to {' or '.join(fitting)} ({mode_name} now)"
            )
        if mode.writes_equality_deletes:
            if self._writes:
                self._catalog.ensure_delete_spec(table)
                layout = options.layout(table)
        elif mode_name != options.write_mode_name() and name not in self._known:
            self._log.warning("table has no key: its events are appended", table=table.name)
        if upsert and name not in self._known and not is_dated(layout, options.settings):
            self._log.warning(
                "no numeric dedup column: replayed events may overwrite newer rows",
                table=table.name,
                column=options.settings.dedup_column,
            )
        known = alone and mode.writes_equality_deletes
        keys = read_key_bounds(table, layout) if known else KeyBounds()
        stored = self._find_last_commit(name, table)
        return TargetTable(table, layout, mode_name, keys, stored, table.snapshot_id, table.shape)

    def _find_last_commit(self, name: str, table: Table) -> LastCommit:
        """Return the sink's last commit to a table, from its snapshots or, once those expired, the stored offsets."""
        before = self._known.get(name)
        if before is None:
            noted = self._noted.get(table.name)
            last_commit = check_ancestry(table, self._settings.name, noted)
            if last_commit.sequence_number > (0 if noted is None else noted.sequence_number):
                self._unstored.add(name)
            return last_commit
        last_commit = find_last_commit(table, self._settings.name, before.stored)
        if last_commit.sequence_number > before.stored.sequence_number:
            # Another process of this name committed, and may not have stored it.
            self._unstored.add(name)
        return last_commit

    def _create(self, name: str, needs: list[SchemaChange]) -> TargetTable:
        if self._is_own(name):
            raise DataFault(
                f"table {self._catalog.full_name(name)} is one of the sink's own, which holds what the sink stores; "
                "route its events to another table"
            )
        # Events may name a table that is there and that no batch has met yet.
        existing = self._find_existing(name) if needs[0].table is not None else None
        if existing is not None:
            return existing
        options = self._options(name)
        if options.full_name in self._noted:
            raise GapError(
                f"table {options.full_name} was dropped since connector {self._settings.name} wrote to it: rows that "
                f"were in it are gone; {LOST_COMMIT_REMEDY}"
            )
        renames = self._find_renames(name, needs, None)
        properties = {RENAMES_PROPERTY: format_renames(renames)} if renames else {}
        needs = [rename_shape(need, renames) for need in needs]
        table = self._creator.create(name, needs, options, properties)
        if not self._settings.table.events_only:
            self._changed.add(name)
        return self._target(name, table)

    def _evolve(self, name: str, known: TargetTable, needs: list[SchemaChange]) -> TargetTable:
        known, needs = self._follow_renames(name, known, needs)
        before = columns = known.layout.columns
        rule = self._settings.table
        for need in needs:
            row = match_shape(need.row, columns.names) if rule.case_insensitive else need.row
            columns = make_optional(evolve(columns, row, add=rule.allow_field_addition), need.relaxed)
        version, written_as = known.table.format_version, known.layout.data_format
        if VARIANT_ARROW_TYPE in columns.types and version < VARIANTS_VERSION:
            raise DataFault(f"table {known.table.name} is of format version 2, which has no variant; upgrade it to 3")
        table_checks.check_new_table(known.table.name, columns, written_as, version=version, upsert=known.upsert)
        unfit = WRITE_MODES[known.write_mode].find_key_fault(columns, known.layout.keys)
        if unfit is not None:
            raise DataFault(f"table {known.table.name}: {unfit}")
        self._catalog.evolve(known.table, columns)
        self.record_drift(name, find_changed(before, columns).names)
        self._changed.add(name)
        self._log.info("table evolved", table=known.table.name, columns=len(columns))
        return attrs.evolve(known, layout=self._options(name).layout(known.table), shape=known.table.shape)

    def _follow_renames(
        self, name: str, known: TargetTable, needs: list[SchemaChange]
    ) -> tuple[TargetTable, list[SchemaChange]]:
        """Rename the columns that the source renamed, and return the shapes of events under the current names."""
        columns, before = known.layout.columns.names, parse_renames(known.layout.properties)
        renames = {**before, **self._find_renames(name, needs, columns)}
        # Where the table has both names, somebody made two columns of them.
        renames = {old: now for old, now in renames.items() if old in before or not {old, now} <= set(columns)}
        if renames != before:
            wanted = find_renamed_fields(columns, renames)
            self._catalog.rename_columns(known.table, wanted, {RENAMES_PROPERTY: format_renames(renames)})
            self._log.info("columns renamed", table=known.table.name, columns=wanted)
            self._changed.add(name)
            known = self._target(name, known.table)
        return known, [rename_shape(need, renames, before) for need in needs]

    def _find_renames(self, name: str, needs: list[SchemaChange], columns: Collection[str] | None) -> dict[str, str]:
        """Return the earlier names of the source's columns, except for key columns named in the settings."""
        if self._schemas is None:
            return {}
        renames = find_source_renames(self._schemas, needs, columns, self._settings.events.add_fields_prefix)
        kept = self._options(name).key_columns
        return {old: now for old, now in renames.items() if old not in kept}

    def _options(self, name: str) -> TableOptions:
        return TableOptions(self._settings.table, (name, self._catalog.full_name(name)))
