"""A finished job's files -> one commit per table. On the driver.

Files become visible table by table, each in one commit with the batch's end offsets; a batch that is replayed after a
crash is filtered per table by these offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitRefused, ConnectorError, GapError, OutdatedFiles, RetriableError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import (
    CommittedSnapshot,
    PendingCommit,
    RowsToReplace,
    check_no_rollback,
    check_own_commits,
    check_sole_writer,
    commit_files,
    commit_own_files,
    expect_last_commit,
)
from connector.iceberg.commit.commit_attempts import Ancestors
from connector.iceberg.commit.commit_summary import SCHEMA_DRIFT_COUNT
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.snapshot_expiry import expire_snapshots
from connector.iceberg.commit.truncate import truncate_table
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.sink.destinations.iceberg.lookups.truncated_rows import TruncatedRows, write_marked_rows
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.iceberg.write_modes.row_lookup import collect_keys
from connector.sink.destinations.table_position import build_table_position
from connector.sink.model.destination import TableCommit
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from connector.sink.model.task_output import TaskOutput
from connector.sink.model.truncate_limit import find_truncate_limit
from connector.sink.model.truncate_scope import SourceRows, TruncateScope
from serde.events.changes import DELETED_COLUMN

COMMIT_THREADS = 8

LOOKUP_ATTEMPTS = 10
"""How often rows are looked for while other writers are faster, before the whole batch is done again."""


class IcebergCommitter:
    """Commits batches to the tables of one sink."""

    def __init__(self, spark: SparkSession, targets: IcebergTables, connector: str) -> None:
        """Commit under the name of a connector."""
        self._spark, self._targets, self._connector = spark, targets, connector
        self._committed_before: dict[str, TableCommit] = {}
        # Kept from batch to batch: a new thread has connections to the JVM and back, with threads at their other ends.
        self._threads = ThreadPoolExecutor(COMMIT_THREADS, "commit")
        self._log = structlog.get_logger()

    def commit(
        self, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> dict[str, TableCommit]:
        """Commit every table; if one fails the others are still committed, and its error is raised afterwards.

        When the batch is retried, the tables that were committed the first time are reported with the rest.
        """
        try:
            needed = self._empty(plan, names)
        except CommitRefused:
            # Nothing of the batch was tried before it. A truncate that is done twice changes nothing.
            self.discard(names, result)
            for table in plan.tables:
                if table.truncated.emptied:
                    self._targets.refresh(names[table.index])
            raise
        self._remember(names, result)
        come = {table.index: build_table_position(plan, table, result.progress, position) for table in plan.tables}
        work = [table for table in plan.tables if _has_work(table, result, come[table.index])]
        futures = {
            t.index: self._threads.submit(
                self._commit_table, t, names[t.index], result, come[t.index], needed.get(t.index)
            )
            for t in work
        }
        failed = [(index, error) for index, future in futures.items() if (error := future.exception())]
        for index in futures.keys() - dict(failed).keys():
            commit = futures[index].result()
            if commit is not None:
                self._committed_before[names[index]] = commit.after(self._committed_before.get(names[index]))
        refused = {index: error for index, error in failed if isinstance(error, CommitRefused)}
        # Only a refused commit is known to refer to no file, and to land no more; after any other error they stay.
        for index in refused:
            self._discard(names[index], result.written.get(index, ()))
        for index, error in refused.items():
            self._refresh_refused(names[index], error)
        if failed:
            raise next((e for _, e in failed if not isinstance(e, RetriableError)), failed[0][1])
        done, self._committed_before = self._committed_before, {}
        return {**self._take_unstored(names), **done}

    def _refresh_refused(self, name: str, error: CommitRefused) -> None:
        """Reload a table; who alters it adds no rows, so that its keys stay known where they were."""
        alone = isinstance(error, OutdatedFiles) and self._targets[name].known_keys.is_complete
        self._targets.refresh(name, alone=alone)

    def _take_unstored(self, names: Iterable[str]) -> dict[str, TableCommit]:
        """Return the commits of a run that crashed before it could store its offsets."""
        tables = {name: self._targets[name].table for name in names}
        return {
            name: TableCommit(tables[name].name, one.position, {}, tables[name].uuid, None, one.sequence_number)
            for name, one in self._targets.take_unstored(names).items()
        }

    def close(self) -> None:
        """End the threads of commits."""
        self._threads.shutdown()

    def truncate(self, plan: BatchPlan, names: list[str], scopes: Mapping[int, TruncateScope]) -> None:
        """Do nothing yet: tables lose their rows with the batch's commit."""

    def look_up_keys(self, outputs: Sequence[TaskOutput]) -> KeyLookup | None:
        """Ask for the rows of a few keys; None for none."""
        return collect_keys(self._spark, outputs) if outputs else None

    def discard(self, names: list[str], result: JobResult) -> None:
        """Delete files that no commit will refer to; one that cannot be deleted is an orphan, and harmless."""
        for index, files in result.written.items():
            self._discard(names[index], files)
        if self._targets.deleted_keys is not None:
            self._delete_files(self._targets.deleted_keys.delete_file, result.deleted_key_files)

    def _discard(self, name: str, files: Iterable[FileDescription]) -> None:
        self._delete_files(self._targets[name].table.delete_file, files)

    def _delete_files(self, delete: Callable[[str], None], files: Iterable[FileDescription]) -> None:
        # Deletion vectors share files.
        for path in dict.fromkeys(file.path for file in files):
            try:
                delete(path)
            except ConnectorError as error:
                self._log.warning("a file is left behind", reason=str(error))

    def _remember(self, names: list[str], result: JobResult) -> None:
        """Record hard deletes before they are committed; after a crash these keys are deleted again."""
        if not result.deleted_key_files or self._targets.deleted_keys is None:
            return
        try:
            self._targets.deleted_keys.add(result.deleted_key_files)
        except CommitRefused:
            # Nothing of the batch was tried before it.
            self.discard(names, result)
            raise

    def _empty(self, plan: BatchPlan, names: list[str]) -> dict[int, int | None]:
        """Delete the rows that tables held before they were truncated, or mark them deleted if deletes keep their rows.

        Returns the snapshots that these tables have then, by the tables' indexes. The job omitted deletes for keys that
        a table was known not to hold. So nobody else may have written to the table since; the batch's commit itself
        checks only the time after the truncate.
        """
        emptied: dict[int, int | None] = {}
        for table in plan.tables:
            for cut, rows in table.truncated.emptied:
                target, until = self._targets[names[table.index]], find_truncate_limit(cut, table, plan)
                before = target.table.list_snapshots().keys()
                seen = None
                try:
                    if table.keep_deletes:
                        seen = self._mark_rows(names[table.index], table, TruncatedRows(until, rows.values))
                    else:
                        self._delete_rows(target, until, rows.values)
                except (CommitRefused, GapError) as error:
                    # A second sink's rows may be later than the truncate, which this process cannot know. Where nothing
                    # but the truncate's own commit was rolled back no row is lost that does not come again.
                    check_sole_writer(target.table, target.stored, self._connector)
                    raise CommitRefused(str(error)) from error.__cause__
                self._targets.refresh(names[table.index], alone=True)
                check_no_rollback(target.table, before, seen, self._connector)
                # Of what the batch goes on from: a second sink may have committed since the rows went.
                check_own_commits(target.table, target.base, target.stored, self._connector)
                emptied[table.index] = self._targets[names[table.index]].base
                self._log.info(_tell_truncate(table, rows), table=target.table.name)
        return emptied

    def _delete_rows(self, target: TargetTable, until: tuple[str, int] | None, own: Sequence[tuple[str, str]]) -> None:
        """Delete the rows of a truncate (`commit.truncate`)."""
        truncate_table(self._spark, target.table, until, own, name=self._connector, rule=self._expect_own(target))

    def _expect_own(self, target: TargetTable, needed: int | None = None) -> Callable[[Ancestors], bool]:
        return expect_last_commit(self._connector, target.stored, target.base, needed)

    def _mark_rows(self, name: str, table: TablePlan, which: TruncatedRows) -> int | None:
        """Mark the rows of a truncate deleted, in a separate commit; a repeated call finds nothing left to mark.

        Returns the snapshot that had nothing to mark, None after a commit.
        """
        target = self._targets[name]
        target.table.refresh()
        base = target.table.snapshot_id
        if DELETED_COLUMN not in table.layout.columns.names:
            self._log.warning("a truncate marks no rows: the table has no column for it", table=target.table.name)
            return base
        if base is None:
            return None
        # Others may have written since the batch was planned: every key has its row taken out.
        plan = attrs.evolve(table.with_identity_key, base=base, known_keys=KeyBounds())
        with ExitStack() as kept, self._targets.detect_expired_reads(name):
            outputs = self._write_marked_rows(target.table, plan, which, kept)
            files, lookup = outputs.written.get(table.index, []), outputs.key_lookups.get(table.index)
            try:
                hits, replacing = (None, []) if lookup is None else self._search_rows(target.table, plan, lookup)
                files = [*files, *replacing]
                if not files:
                    return base
                replace = WRITE_MODES[table.write_mode].apply
                # Rows that were rolled back since they were read would come back with their marks.
                rule = self._expect_own(target, base)
                commit_own_files(
                    target.table, files, base, self._connector, hits, replace, rule, table.layout.schema_json
                )
            except CommitRefused:
                self._discard(name, files)
                raise
        return None

    def _write_marked_rows(self, table: Table, plan: TablePlan, which: TruncatedRows, kept: ExitStack) -> JobResult:
        return write_marked_rows(self._spark, table, plan, which, kept)

    def _commit_table(
        self, table: TablePlan, name: str, result: JobResult, position: KafkaOffsets, needed: int | None
    ) -> TableCommit | None:
        lookup = result.key_lookups.get(table.index)
        files = result.written.get(table.index, [])
        attempts = LOOKUP_ATTEMPTS if lookup and table.index not in result.tables_read else 1
        always = _is_told(table, result, position)
        return self.commit_table_files(
            table, name, files, lookup, position, attempts=attempts, always=always, needed=needed
        )

    def commit_table_files(
        self,
        table: TablePlan,
        name: str,
        files: Sequence[FileDescription],
        lookup: KeyLookup | None,
        position: KafkaOffsets,
        *,
        attempts: int = 1,
        always: bool = False,
        properties: Mapping[str, str] | None = None,
        needed: int | None = None,
    ) -> TableCommit | None:
        """Commit files to a table, and the removal of the looked-up rows; None if there is nothing to commit.

        With `always` an empty commit is made too, to store the position. On a commit conflict the row lookup is
        repeated, up to `attempts` times. Data files are reused, so they must not depend on looked-up values. The table
        must have the snapshot `needed`.

        Raises:
            CommitRefused: another writer was faster each time.
            CommitUnknown, RetriableError: as `commit.commit.commit_files`.
        """
        for attempts_left in reversed(range(attempts)):
            with self._targets.detect_expired_reads(name):
                hits, replacing = self._find_rows(name, table, lookup)
            if not files and not replacing and not (hits and hits.affected_files) and not always:
                return None
            pending = self._build_pending(name, table, [*files, *replacing], hits, position)
            pending = attrs.evolve(pending, properties={**(properties or {}), **pending.properties}, needed=needed)
            try:
                with self._targets.detect_expired_reads(name):
                    done = commit_files(self._targets[name].table, pending, self._connector)
            except CommitRefused as error:
                self._discard(name, replacing)
                if not attempts_left or isinstance(error, OutdatedFiles):
                    raise
                self._log.warning("repeating the row lookup after a commit conflict", table=name, reason=str(error))
                self._refresh_alone(name)
            else:
                return self._note_commit(name, pending.files, done)
        raise AssertionError("unreachable")

    def _refresh_alone(self, name: str) -> None:
        """Reload a table; FatalError where a second sink of this name has committed what these files may have too."""
        expected = self._targets[name].stored
        self._targets.refresh(name)
        check_sole_writer(self._targets[name].table, expected, self._connector)

    def _build_pending(
        self,
        name: str,
        table: TablePlan,
        files: Sequence[FileDescription],
        hits: RowsToReplace | None,
        position: KafkaOffsets,
    ) -> PendingCommit:
        target, drift = self._targets[name], self._targets.drift.get(name)
        return PendingCommit(
            files=files,
            position=target.stored.position.advance(position),
            expected=target.stored,
            base=target.base,
            guarded=table.known_keys.is_complete,
            replaces=target.upsert,
            properties={SCHEMA_DRIFT_COUNT: str(len(drift))} if drift else {},
            rows_to_replace=hits,
            replace_rows=WRITE_MODES[table.write_mode].apply,
            schema_json=table.layout.schema_json,
        )

    def _note_commit(self, name: str, files: Sequence[FileDescription], done: CommittedSnapshot) -> TableCommit:
        self._targets.record_commit(name, files, done)
        table = self._targets[name].table
        expire_snapshots(table, self._targets.retention(name), lambda: self._targets.needed_since_ms(name))
        counts = {"data_files": done.data_files, "delete_files": done.delete_files}
        return TableCommit(table.name, done.stored.position, counts, table.uuid, done.snapshot_id, done.sequence_number)

    def _find_rows(
        self, name: str, table: TablePlan, lookup: KeyLookup | None
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Look up the rows to remove in the table as it is now; return them, and files without them."""
        if lookup is None:
            return None, []
        target = self._targets[name]
        plan = attrs.evolve(table.with_identity_key, base=target.base)
        return self._search_rows(target.table, plan, lookup)

    def _search_rows(
        self, table: Table, plan: TablePlan, lookup: KeyLookup
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        return WRITE_MODES[plan.write_mode].find_rows(self._spark, table, plan, lookup)


def _tell_truncate(table: TablePlan, rows: SourceRows) -> str:
    if table.keep_deletes:
        return "rows of a truncated source marked deleted"
    return "rows of a truncated source deleted" if rows.values else "table emptied by a truncate at its source"


def _has_work(table: TablePlan, result: JobResult, position: KafkaOffsets) -> bool:
    has_files = result.written.get(table.index) or table.index in result.key_lookups
    return bool(has_files) or _is_told(table, result, position)


def _is_told(table: TablePlan, result: JobResult, position: KafkaOffsets) -> bool:
    """Tell whether a table gets a commit though no row of it may change.

    That a key has no row, so that its delete changes nothing, is known of the table as it was planned: only a commit
    notices that a second sink of the same name has put a row there since.
    """
    return position.dated or table.index in result.tables_changed
