"""A sink's settings -> its Iceberg tables as a destination: what plans, writes, commits and maintains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import structlog

from connector.iceberg.catalog.retention_properties import (
    METADATA_CLEANUP_PROPERTY,
    METADATA_FILES,
    find_growth,
    may_delete_files,
)
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.guard.delete_guard import DeleteGuard
from connector.maintenance.lease import LeaseTable, owner_name
from connector.maintenance.maintainer import Maintainer
from connector.settings.iceberg.maintenance.policies import MaintenanceSettings
from connector.sink.destinations.context import DestinationContext, open_deleted_keys
from connector.sink.destinations.iceberg.back_pressure import BackPressure
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.lookups.table_lookups import (
    HistoryLookup,
    LateEventLookup,
    MissingValueLookup,
)
from connector.sink.destinations.iceberg.maintenance import SinkMaintenance, expires_by_task
from connector.sink.destinations.iceberg.replay import IcebergReplay
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.tables.retention import apply_policy
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.model.destination import Lookups
from connector.sink.model.plan import BatchPlan

_MOST_NAMED = 10


@attrs.frozen(eq=False)
class IcebergDestination:
    """The tables of one sink; each keeps the offsets of its commits in its own snapshots."""

    tables: IcebergTables
    committer: IcebergCommitter
    offsets: Mapping[str, KafkaOffsets]
    back_pressure: BackPressure
    maintenance: SinkMaintenance | None = None
    target_kind: str = "table"
    keeps_offsets: bool = True

    def stored_offsets(self) -> Mapping[str, KafkaOffsets]:
        """Return the offsets of the tables that existed at the start, as stored in their snapshots."""
        return self.offsets

    def writers(self) -> IcebergWriterFactory:
        """Return what opens the files of tasks."""
        return self.tables.writers()

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        """Return the joins with the tables' rows at the snapshots of the plan."""
        tables, prefix = self.tables.tables(names), plan.events.add_fields_prefix
        missing = MissingValueLookup(tables, plan.dedup_column, plan.op_field, prefix)
        histories = HistoryLookup(tables, plan.reducers, plan.op_field)
        return Lookups(LateEventLookup(plan, tables, self.tables.deleted_keys), (histories, missing))

    def replay_target(self) -> IcebergReplay:
        """Return what commits repaired dead letters."""
        return IcebergReplay(self.tables, self.committer)

    def find_hold(self) -> str | None:
        """Say which tables are above a limit; the sink's own maintenance goes on meanwhile."""
        reason = self.back_pressure.find_reason()
        if reason is not None and self.maintenance is not None:
            self.maintenance.begin()
        return reason

    def rest(self) -> None:
        """Start the maintenance that is due by time, even if no batches come."""
        if self.maintenance is not None:
            self.maintenance.rest()

    def finish(self) -> None:
        """Do the maintenance that is due before the session ends; runs that are started now and then need it."""
        if self.maintenance is not None:
            self.maintenance.finish()

    def clean_up(self) -> None:
        """Start the maintenance that is due; remove old rows from the table of deleted keys."""
        if self.maintenance is not None:
            self.maintenance.begin()
        if self.tables.deleted_keys is not None:
            self.tables.deleted_keys.clean_up()


def _warn_of_growth(targets: Mapping[str, TargetTable], maintenance: MaintenanceSettings) -> None:
    """Warn once about tables that nothing here maintains: tables created by others are not changed."""
    found = ((target.table.name, _find_growth(name, target, maintenance)) for name, target in targets.items())
    growing = {name: grows for name, grows in found if grows}
    if growing:
        structlog.get_logger().warning(
            "the sink does not maintain these tables: without other maintenance they grow with every commit, which "
            "gets slower; set iceberg.maintenance.enabled, or the properties in docs/how-to/batches.md",
            tables={name: ", ".join(growing[name]) for name in sorted(growing)[:_MOST_NAMED]},
            count=len(growing),
        )


def _find_growth(name: str, target: TargetTable, maintenance: MaintenanceSettings) -> tuple[str, ...]:
    """Name what grows in a table although the sink may maintain it; nothing if the sink expires snapshots."""
    properties = target.layout.properties
    policy = maintenance.of(name, target.table.name)
    grows = find_growth(apply_policy(properties, policy.expire))
    if expires_by_task(policy, properties) and may_delete_files(properties):
        return tuple(growth for growth in grows if growth == METADATA_FILES and METADATA_CLEANUP_PROPERTY in properties)
    return grows


def open_destination(context: DestinationContext) -> IcebergDestination:
    """Load the tables of the sink's topics.

    Raises:
        GapError: a table that the offsets table knows was rolled back, or dropped and made again; or a table has lost
            equality deletes that cannot be had back.
        RetriableError: the catalog is away.
    """
    settings = context.settings
    guard = None if context.is_dry else DeleteGuard(settings.name)
    noted, deleted_keys = context.offsets.tables, open_deleted_keys(context)
    tables = IcebergTables(settings, context.catalog, noted, deleted_keys, guard, writes=not context.is_dry)
    loaded = {name: tables[name] for name in tables.find_existing(context.topics)}
    offsets = {target.table.name: target.stored.position for target in loaded.values()}
    _warn_of_growth(loaded, settings.table.maintenance)
    committer = IcebergCommitter(context.spark, tables, settings.name)
    limits = BackPressure(tables, settings.table.back_pressure)
    return IcebergDestination(tables, committer, offsets, limits, _open_maintenance(context, tables))


def _open_maintenance(context: DestinationContext, tables: IcebergTables) -> SinkMaintenance | None:
    settings = context.settings
    if not settings.table.maintenance.in_sink:
        return None
    leases = LeaseTable.open(context.catalog, settings.table.offsets_table, owner_name())
    maintainer = Maintainer(
        context.spark, context.catalog, settings.table, settings.name, leases, listeners=context.listeners
    )
    return SinkMaintenance(maintainer, tables)
