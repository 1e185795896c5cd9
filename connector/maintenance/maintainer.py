"""Tables of a catalog -> the tasks that are due, shown or done, one table after the other. On the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitRefused, ConnectorError, FatalError, RetriableError
from connector.iceberg.catalog.catalog import Catalog, names_in_settings
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import DATA_PATH_PROPERTY
from connector.iceberg.commit.commit_attempts import is_refusal
from connector.iceberg.guard.delete_guard import DeleteGuard
from connector.maintenance.conversion.conversion import ConversionResult, convert_deletes
from connector.maintenance.conversion.position_files import FILE_LABEL
from connector.maintenance.expiry import (
    expire_snapshots,
    find_expiry,
    limit_metadata_files,
    read_reader_positions,
)
from connector.maintenance.expiry_rules import IN_FLIGHT_MS, Expiry
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.known_counts import KnownCounts
from connector.maintenance.lease import LeaseTable, MaintenanceRun
from connector.maintenance.lease_rules import LOST_RACES
from connector.maintenance.live_files import count_live_files
from connector.maintenance.orphan_files import ORPHAN_BYTES, delete_orphan_files, delete_unfinished_files
from connector.maintenance.rewrite_rules import TURN_BYTES, WritePermit, commits_by_groups
from connector.maintenance.spark_actions import (
    count_rewrite_groups,
    count_small_manifests,
    rewrite_data_files,
    rewrite_manifests,
)
from connector.maintenance.table_history import read_history
from connector.maintenance.table_state import TableState, summarize
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE, TASKS
from connector.maintenance.triggers import find_due_tasks
from connector.runtime.monitoring.listeners import MaintenanceListener, MaintenanceReport
from connector.settings import TableSettings
from connector.settings.iceberg.maintenance.policies import MaintenancePolicy, RewritePolicy

_BY_FILES = (CONVERT, REWRITE, MANIFESTS)
"""Tasks that find the same in a table to which nothing was written."""
_BY_INTERVAL = (CONVERT, REWRITE)
"""Tasks that leave a snapshot, and are due by time."""
_TELLING = ("delete_files", "removed", "added", "failed")
"""What they count where there was something to do."""


@attrs.frozen
class TaskOutcome:
    """What became of a task: what was counted, or why it was not done; `is_lost`: others were faster each time."""

    task: str
    counts: Mapping[str, int] = attrs.field(factory=dict)
    failure: str | None = None
    seconds: float = 0.0
    is_lost: bool = False


@attrs.define(eq=False)
class Maintainer:
    """Does the tasks of maintenance for one connector.

    `name` goes into summaries; `wrote` tells of a table whether the connector has written to it; `in_flight_ms` is how
    long batches and queries of others may read a snapshot. With `keeps_indexes` conversions leave indexes of data
    files' keys on executors for later ones. `listeners` hear of each task, and of each look at a table.
    """

    spark: SparkSession
    catalog: Catalog
    settings: TableSettings
    name: str
    leases: LeaseTable
    wrote: Callable[[str], bool] = lambda _: True
    in_flight_ms: int = IN_FLIGHT_MS
    keeps_indexes: bool = True
    listeners: Sequence[MaintenanceListener] = ()
    _done_ms: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _fruitless: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _merged: dict[str, int] = attrs.field(factory=dict)
    """Up to which sequence number a table's manifests were merged."""
    _has_more: set[str] = attrs.field(factory=set)
    """Tables of which files were merged, and maybe not all that there were."""
    _grouped: set[str] = attrs.field(factory=set)
    _counts: KnownCounts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Know what runs before this one counted."""
        self._counts = KnownCounts(self.leases)

    def policy_of(self, table: str) -> MaintenancePolicy:
        """Return the policy of a table, by its full name."""
        return self.settings.maintenance.of(*names_in_settings(self.catalog, table))

    def load(self, name: str) -> Table | None:
        """Return a table at its branch; None if there is none, and then it has no figures any more.

        Raises:
            RetriableError: the catalog is away.
            FatalError: it has no such branch.
        """
        table = self.catalog.load(name)
        if table is not None:
            table.follow(self.settings.writes.branch_of(*names_in_settings(self.catalog, name)))
            return table
        for listener in self.listeners:
            listener.on_table(name, {})
        return None

    def read_state(self, table: Table) -> TableState:
        """Return a table's state as it was last read, which listeners hear of; reads the metadata file."""
        state = self._counts.describe(table, read_history(table), self._vain_of(table))
        for listener in self.listeners:
            listener.on_table(table.name, state.figures)
        return state

    def find_due(self, table: Table, state: TableState, asked: Collection[str] = ()) -> dict[str, str]:
        """Return which tasks are due, and why; only those that are `asked` for, enabled or not, if any are."""
        self._note_progress(table, state)
        done = {task: self._done_ms.get((table.name, task), 0) for task in TASKS}
        vain, merged = self._vain_of(table), self._merged.get(table.name)
        policy, has_more = self.policy_of(table.name).enable(asked), table.name in self._has_more
        due = find_due_tasks(policy, state, _now_ms(), done, vain, merged, has_more=has_more)
        return {task: reason for task, reason in due.items() if task in (asked or TASKS)}

    def _vain_of(self, table: Table) -> dict[str, int]:
        return {task: at for (name, task), at in self._fruitless.items() if name == table.name}

    def _note_progress(self, table: Table, state: TableState) -> None:
        """Remember when tasks were done: the snapshots that tell may expire before these are due by time."""
        for task in _BY_INTERVAL if state.snapshots else ():
            since_ms, key = state.since(task).since_ms, (table.name, task)
            if since_ms is not None:
                self._done_ms[key] = max(self._done_ms.get(key, 0), since_ms)
            else:
                self._done_ms.setdefault(key, state.oldest_ms)
        merged = state.since(MANIFESTS)
        done, newest = merged.numbers
        # A table that was made again counts from the beginning.
        if merged.since_ms is not None or self._merged.get(table.name, newest + 1) > newest:
            self._merged[table.name] = done

    def find_expiry(self, table: Table, in_flight: Collection[int] = ()) -> Expiry | None:
        """Return what may expire, with regard to where sources stand.

        Raises:
            RetriableError: offsets cannot be read: then nothing may expire.
        """
        policy = self.policy_of(table.name).expire
        tables = (self.settings.offsets_table, *policy.offset_tables)
        readers = read_reader_positions(self.catalog, tables, table)
        return find_expiry(table, policy, readers, in_flight=in_flight, in_flight_ms=self.in_flight_ms)

    def count_rewrites(self, table: Table, *, alone: bool = False) -> int:
        """Return how many groups of files a rewrite would begin with, as the table was last read; `alone` as in `run`.

        Raises:
            RetriableError, FatalError: as `count_rewrite_groups`.
        """
        policy = self._rewrite_policy(table, alone=alone)
        return count_rewrite_groups(self.spark, table, policy, summarize(read_history(table)))

    def run(
        self,
        table: Table,
        tasks: Sequence[str],
        in_flight: Collection[int] = (),
        *,
        alone: bool = False,
        reasons: Mapping[str, str] | None = None,
    ) -> list[TaskOutcome]:
        """Do tasks of a table under its lease, in their order; a task that fails does not keep the next from its turn.

        `alone` says that the connector commits nothing meanwhile, so that little is done at once. With `reasons` it is
        told why those tasks are due that have something to do.

        Returns:
            What became of each; nothing where another process has the lease.
        """
        wanted = [task for task in TASKS if task in tasks]
        idle = self.find_needless(table, wanted, in_flight, alone=alone)
        wanted = [task for task in wanted if all(one.task != task for one in idle)]
        if not wanted:
            return idle
        if reasons is not None:
            told = {task: reasons[task] for task in wanted if task in reasons}
            handed = [task for task in wanted if task not in reasons]
            structlog.get_logger().info("maintenance is due", table=table.name, tasks=told, handed=handed)
        with self.leases.hold(table.name) as run:
            if run is None:
                structlog.get_logger().info("another process maintains this table", table=table.name)
                return []
            run.is_alone = alone
            done = [self._run_task(table, task, in_flight, run) for task in wanted]
            run.failed = any(one.failure is not None for one in done)
            run.counts = self._count(table, done)
            self._clean_up(table, run)
        return [*done, *idle]

    def find_needless(
        self, table: Table, tasks: Sequence[str], in_flight: Collection[int] = (), *, alone: bool = False
    ) -> list[TaskOutcome]:
        """Return the outcomes of tasks that find nothing to do, or cannot tell: a lease for them would be two commits.

        They are not due again until their schedule or a commit says so.
        """
        found = []
        # What tasks leave for those after them cannot be told before.
        if MANIFESTS in tasks and not {CONVERT, REWRITE} & set(tasks):
            found.append(self._find_needless_task(table, MANIFESTS, lambda: count_small_manifests(table)))
        if REWRITE in tasks and CONVERT not in tasks:
            found.append(self._find_needless_task(table, REWRITE, lambda: self.count_rewrites(table, alone=alone)))
        if EXPIRE in tasks:
            found.append(self._find_needless_task(table, EXPIRE, lambda: self._count_old(table, in_flight)))
        return [one for one in found if one is not None]

    def _find_needless_task(self, table: Table, task: str, count: Callable[[], int]) -> TaskOutcome | None:
        try:
            if task != EXPIRE:
                table.refresh()  # a sink's commits soon delete the metadata file that was read before
            if count():
                return None
        except ConnectorError as error:
            structlog.get_logger().warning("maintenance failed", table=table.name, task=task, reason=str(error))
            self._tell(MaintenanceReport(table.name, task, "failed", 0.0))
            return TaskOutcome(task, failure=str(error))
        counts = dict.fromkeys(("snapshots", "files") if task == EXPIRE else ("removed", "added"), 0)
        self._note_done(table, task, counts)
        return TaskOutcome(task, counts)

    def _count_old(self, table: Table, in_flight: Collection[int]) -> int:
        found = self.find_expiry(table, in_flight)
        return 0 if found is None else found.snapshots

    def _rewrite_policy(self, table: Table, *, alone: bool) -> RewritePolicy:
        policy = self.policy_of(table.name).rewrite
        return attrs.evolve(policy, max_bytes=min(policy.max_bytes, TURN_BYTES)) if alone else policy

    def _count(self, table: Table, done: Sequence[TaskOutcome]) -> FileCounts | None:
        """Return what is known of the table's files after some tasks; None where these told nothing new."""
        orphans = next((one.counts.get(ORPHAN_BYTES) for one in done if one.task == ORPHANS), None)
        known = self._counts.of(table.name)
        try:
            if any(one.task in (CONVERT, REWRITE) for one in done):
                table.refresh()
                counted = count_live_files(self.spark, table, self.policy_of(table.name).rewrite)
                return self._counts.note(table.name, counted, orphan_bytes=orphans)
        except ConnectorError as error:
            structlog.get_logger().warning("files could not be counted", table=table.name, reason=str(error))
        return None if orphans is None else self._counts.note(table.name, known, orphan_bytes=orphans)

    def _clean_up(self, table: Table, run: MaintenanceRun) -> None:
        """Remove what runs before this one wrote and did not commit, as soon as they can commit no more."""
        try:
            table.refresh()
            newest = table.java.snapshot(table.branch)
            newest_ms = 0 if newest is None else int(newest.timestampMillis())
            gone = [one.run for one in run.left if not one.can_commit(newest_ms)]
            policy = self.policy_of(table.name).orphans
            files = sum(delete_unfinished_files(self.spark, table, policy, _folder(table, name)) for name in gone)
            if gone:
                structlog.get_logger().info("files of unfinished runs are removed", table=table.name, files=files)
                self.leases.forget_runs(table.name, gone)
        except ConnectorError as error:
            structlog.get_logger().warning(
                "files of unfinished runs could not be removed", table=table.name, reason=str(error)
            )

    def _run_task(self, table: Table, task: str, in_flight: Collection[int], run: MaintenanceRun) -> TaskOutcome:
        started = time.monotonic()
        try:
            counts = self._races(table, task, lambda: self._do(table, task, in_flight, run))
        except ConnectorError as error:
            structlog.get_logger().warning("maintenance failed", table=table.name, task=task, reason=str(error))
            seconds, is_lost = time.monotonic() - started, isinstance(error, CommitRefused)
            self._tell(MaintenanceReport(table.name, task, "lost" if is_lost else "failed", seconds))
            return TaskOutcome(task, failure=str(error), seconds=seconds, is_lost=is_lost)
        self._note_done(table, task, counts)
        done = TaskOutcome(task, counts, seconds=time.monotonic() - started)
        structlog.get_logger().info(
            "maintenance", table=table.name, task=task, **counts, seconds=round(done.seconds, 3)
        )
        self._tell(MaintenanceReport(table.name, task, "done", done.seconds, counts))
        return done

    def _tell(self, report: MaintenanceReport) -> None:
        for listener in self.listeners:
            listener.on_task(report)

    def _note_done(self, table: Table, task: str, counts: Mapping[str, int]) -> None:
        self._done_ms[table.name, task] = _now_ms()
        is_vain = not any(counts.get(name) for name in _TELLING)
        if task == REWRITE:
            self._has_more = self._has_more - {table.name} if is_vain else self._has_more | {table.name}
        if task in _BY_FILES and table.snapshot_id is not None and is_vain:
            self._fruitless[table.name, task] = table.snapshot_id

    def _races(self, table: Table, task: str, do: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        """Do a task again that lost against another writer; after some losses it is the sink's."""
        for left in reversed(range(LOST_RACES)):
            try:
                return do()
            except (RetriableError, FatalError) as error:
                if not is_refusal(error):
                    raise
                structlog.get_logger().warning("another writer committed first", table=table.name, reason=str(error))
                if not left:
                    self.leases.hand_over(table.name, task)
                    raise CommitRefused(str(error)) from error.__cause__
        raise AssertionError("unreachable")

    def _do(self, table: Table, task: str, in_flight: Collection[int], run: MaintenanceRun) -> Mapping[str, int]:
        policy = self.policy_of(table.name)
        table.refresh()
        if task in (CONVERT, REWRITE):
            # Nothing may stand upon a rewrite of another engine that was not looked at.
            DeleteGuard(self.name).check(table, None, wrote=self.wrote(table.name))
        if task == CONVERT:
            return self._convert(table, policy.convert.max_bytes, run)
        if task == REWRITE:
            return self._rewrite(table, self._rewrite_policy(table, alone=run.is_alone), run)
        if task == MANIFESTS:
            return rewrite_manifests(self.spark, table, self.name)
        if task == EXPIRE:
            return self._expire(table, in_flight)
        if task == ORPHANS:
            return delete_orphan_files(self.spark, table, policy.orphans, execute=True)
        raise ValueError(task)

    def _convert(self, table: Table, max_bytes: int, run: MaintenanceRun) -> Mapping[str, int]:
        layout = table.layout()
        layout = attrs.evolve(layout, properties={**layout.properties, DATA_PATH_PROPERTY: _folder(table, run.name)})
        done = convert_deletes(
            self.spark,
            table,
            self.name,
            layout=layout,
            max_bytes=max_bytes,
            index_bytes=self.settings.row_lookup.index_bytes if self.keeps_indexes else 0,
            holds=run.is_held,
        )
        return _count_conversion(done)

    def _rewrite(self, table: Table, policy: RewritePolicy, run: MaintenanceRun) -> Mapping[str, int]:
        """Merge files; a table of which all could not be merged at once is from then on merged group by group."""
        state, permit = self.read_state(table), WritePermit(_folder(table, run.name), run.is_held)
        has_failed = table.name in self._grouped and not run.is_alone
        by_groups = commits_by_groups(policy, state, has_failed=has_failed)
        try:
            done = rewrite_data_files(self.spark, table, policy, state, self.name, permit, by_groups=by_groups)
        except (RetriableError, FatalError) as error:
            fails_again = isinstance(error, FatalError) or is_refusal(error)
            if by_groups or not policy.partial_progress or not fails_again:
                raise
            self._grouped.add(table.name)
            structlog.get_logger().warning("files are merged group by group", table=table.name, reason=str(error))
            raise CommitRefused(str(error)) from error.__cause__
        if done["failed"]:
            note = "some files could not be merged; Iceberg's own lines in the log, above, say why"
            structlog.get_logger().warning(note, table=table.name, files=done["failed"])
        is_untouched = not any(done[name] for name in ("removed", "failed"))
        if has_failed and is_untouched and count_rewrite_groups(self.spark, table, policy, state):
            raise CommitRefused("no group of files could be committed")  # Iceberg says nothing of it
        return done

    def _expire(self, table: Table, in_flight: Collection[int]) -> Mapping[str, int]:
        found = self.find_expiry(table, in_flight)
        if found is None or not found.snapshots:
            return {"snapshots": 0, "files": 0}
        limit_metadata_files(table)
        removed = expire_snapshots(self.spark, table, found)
        return {"snapshots": found.snapshots, "files": sum(removed.values()), **removed}


def _folder(table: Table, run: str) -> str:
    """Return where a run writes: what it leaves behind is found there."""
    return f"{table.layout().data_path}/{FILE_LABEL}-{run}"


def _count_conversion(done: ConversionResult) -> dict[str, int]:
    return {
        "delete_files": done.converted,
        "deletes": done.rows,
        "data_files": done.data_files,
        "bytes": done.written_bytes,
        "left": sum(count for _, count in done.unconverted),
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
