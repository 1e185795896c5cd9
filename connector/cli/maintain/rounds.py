"""Tables of a sink -> what maintenance finds to do in them, shown or done (`icebridge maintain`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat

import attrs
import structlog

from connector.cli.maintain.reports import TableReport, print_reports
from connector.errors import ConfigError, ConnectorError, FatalError, RetriableError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import map_java_errors
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.maintenance.lease import LeaseTable, owner_name
from connector.maintenance.maintainer import Maintainer, TaskOutcome
from connector.maintenance.orphan_files import delete_orphan_files
from connector.maintenance.partitions import count_partitions
from connector.maintenance.spark_actions import count_small_manifests
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.session import open_session
from connector.runtime.stop_flag import StopFlag
from connector.runtime.stop_signals import stop_on_signals
from connector.settings import SinkSettings


@attrs.frozen
class Round:
    """What is asked for: which tables and tasks (none: all), by their triggers or whatever there is to do."""

    tables: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    by_triggers: bool = False
    execute: bool = False


def maintain_tables(settings: SinkSettings, asked: Round, *, every_s: int | None, as_json: bool) -> None:
    """Look at tables, and maintain them if told; once, or again and again. A signal ends it after the current table.

    A table that cannot be looked at, or a task that fails, does not keep the others from their turn.

    Args:
        settings: a sink's: its catalog, tables, and policies.
        asked: what is to be done.
        every_s: seconds from one round to the next; None for one round.
        as_json: print one JSON document for each round.

    Raises:
        ConfigError: there is no such table.
        RetriableError: the catalog stayed away at the start.
        FatalError: of one round, that something failed.
    """
    waiting = _Waiting()
    with open_session(settings) as spark, stop_on_signals(waiting):
        catalog = Catalog(spark, settings.catalog, settings.errors)
        try:
            leases = call_with_retries(
                lambda: LeaseTable.open(catalog, settings.table.offsets_table, owner_name()), settings.errors
            )
        except RetriableError:
            if not waiting.is_over:
                raise
            structlog.get_logger().info("stopped as asked")
            return
        maintainer = Maintainer(
            spark, catalog, settings.table, settings.name, leases, keeps_indexes=every_s is not None
        )
        for first in chain([True], repeat(False)):
            reports = list(waiting.until_stopped(do_round(settings, catalog, maintainer, asked, first=first)))
            print_reports(reports, executed=asked.execute, as_json=as_json)
            if every_s is None and not waiting.is_over:
                _check_done(reports)
                return
            if waiting.wait(every_s):
                # Who stops us may have stopped Spark's workers too: what failed is no news then.
                structlog.get_logger().info("stopped as asked")
                return


def _check_done(reports: Sequence[TableReport]) -> None:
    failed = [f"{report.table}: {failure}" for report in reports for failure in report.failures]
    if failed:
        raise FatalError(f"maintain: {'; '.join(failed)}")


class _Waiting:
    def __init__(self) -> None:
        self._stopping = StopFlag()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_over(self) -> bool:
        return self._stopping.is_set()

    def until_stopped(self, reports: Iterator[TableReport]) -> Iterator[TableReport]:
        for report in reports:
            yield report
            if self.is_over:
                return

    def wait(self, seconds: float | None) -> bool:
        return self._stopping.wait(seconds)


def do_round(
    settings: SinkSettings, catalog: Catalog, maintainer: Maintainer, asked: Round, *, first: bool
) -> Iterator[TableReport]:
    """Yield what became of each table.

    Raises:
        ConfigError: in the first round there is no such table, of those that are asked for.
    """
    try:
        noted = call_with_retries(partial(_list_tables, settings, catalog), settings.errors)
    except ConnectorError as error:
        yield _report_failure(settings.table.offsets_table, error)
        return
    maintainer.wrote = frozenset(noted).__contains__
    tables = {name: _load(maintainer, name, settings) for name in map(catalog.full_name, asked.tables or noted)}
    missing = sorted(name for name, table in tables.items() if table is None)
    if missing and asked.tables and first:
        raise ConfigError(f"maintain: no table {', '.join(missing)}; add its namespace if it is in another one")
    for name, table in tables.items():
        if isinstance(table, ConnectorError):
            yield _report_failure(name, table)
        elif table is not None:
            yield _do_table(maintainer, table, asked)
        elif asked.tables:
            yield _report_failure(
                name, FatalError(f"table {name} no longer exists: it was dropped; leave it out of --table")
            )


def _list_tables(settings: SinkSettings, catalog: Catalog) -> tuple[str, ...]:
    return tuple(sorted(OffsetsTable(catalog, settings.table.offsets_table, settings.name).tables))


def _load(maintainer: Maintainer, name: str, settings: SinkSettings) -> Table | ConnectorError | None:
    try:
        return call_with_retries(partial(maintainer.load, name), settings.errors)
    except ConnectorError as error:
        return error


def _report_failure(table: str, error: ConnectorError) -> TableReport:
    structlog.get_logger().warning("a table could not be maintained", table=table, reason=str(error))
    return TableReport(table, failure=str(error))


def _do_table(maintainer: Maintainer, table: Table, asked: Round) -> TableReport:
    report = TableReport(table.name)
    try:
        table.refresh()
        state = maintainer.read_state(table)
        due, failed = _find_due(maintainer, table, state, asked)
        report = attrs.evolve(report, state=state, due=due, done=failed)
        if asked.execute and due:
            with map_java_errors(f"maintaining table {table.name}"):  # a job that fails holds up no other table
                report = _execute(maintainer, table, asked, report)
        # Repeated, a look at a table with nothing to do reads its metadata file only.
        if due or failed or not asked.by_triggers:
            policy = maintainer.policy_of(table.name).rewrite
            report = attrs.evolve(report, partitions=count_partitions(table, policy))
    except ConnectorError as error:
        return attrs.evolve(report, failure=_report_failure(table.name, error).failure)
    return report


def _find_due(
    maintainer: Maintainer, table: Table, state: TableState, asked: Round
) -> tuple[dict[str, str], list[TaskOutcome]]:
    """Return what is to be done and why, and which tasks cannot tell: these keep no other from its turn."""
    if not asked.by_triggers:
        return _find_work(maintainer, table, state, asked)
    due = maintainer.find_due(table, state, asked.tasks)
    looked = () if asked.execute else maintainer.find_needless(table, tuple(due))
    needless = {one.task for one in looked if one.failure is None}
    return {task: why for task, why in due.items() if task not in needless}, [one for one in looked if one.failure]


def _execute(maintainer: Maintainer, table: Table, asked: Round, report: TableReport) -> TableReport:
    """Do what is due, and rewrite files of which a conversion has left few rows, which nobody can tell before."""
    looked_at = {*report.due, *(one.task for one in report.done)}
    may_follow = CONVERT in report.due and REWRITE not in looked_at and not asked.by_triggers
    enabled = maintainer.policy_of(table.name).rewrite.enabled
    after = (REWRITE,) if may_follow and _is_wanted(asked, REWRITE, enabled=enabled) else ()
    outcomes = maintainer.run(table, (*report.due, *after))
    done = [one for one in outcomes if one.task in report.due or one.failure is not None or one.counts.get("removed")]
    found = {one.task: "what the conversion left" for one in done if one.task not in report.due}
    table.refresh()
    due = {**report.due, **found}
    return attrs.evolve(report, due=due, done=[*done, *report.done], state=maintainer.read_state(table))


def _find_work(
    maintainer: Maintainer, table: Table, state: TableState, asked: Round
) -> tuple[dict[str, str], list[TaskOutcome]]:
    """Return the tasks that have something to do now, whether or not they are due by their triggers; as `_find_due`."""
    policy = maintainer.policy_of(table.name)
    looks: dict[str, tuple[bool, Callable[[], str | None]]] = {
        CONVERT: (policy.convert.enabled, lambda: _tell(state.equality_deletes, "equality deletes")),
        REWRITE: (policy.rewrite.enabled, lambda: _find_rewrite(maintainer, table)),
        MANIFESTS: (policy.manifests.enabled, lambda: _tell(count_small_manifests(table), "small manifests")),
        EXPIRE: (policy.expire.enabled, lambda: _find_expiry(maintainer, table, state)),
        ORPHANS: (policy.orphans.enabled, lambda: _find_orphans(maintainer, table, asked)),
    }
    work, failed = dict[str, str](), list[TaskOutcome]()
    for task, (enabled, look) in looks.items():
        try:
            with map_java_errors(f"looking at table {table.name}"):
                reason = look() if _is_wanted(asked, task, enabled=enabled) else None
        except ConnectorError as error:
            structlog.get_logger().warning("maintenance failed", table=table.name, task=task, reason=str(error))
            failed.append(TaskOutcome(task, failure=str(error)))
        else:
            work |= {} if reason is None else {task: reason}
    return work, failed


def _tell(count: int, what: str) -> str | None:
    return f"{count} {what}" if count else None


def _find_rewrite(maintainer: Maintainer, table: Table) -> str | None:
    return _tell(maintainer.count_rewrites(table), "groups of files that are small, or of which much is deleted")


def _find_expiry(maintainer: Maintainer, table: Table, state: TableState) -> str | None:
    expiry = maintainer.find_expiry(table)
    return None if expiry is None else _tell(expiry.snapshots, f"of {state.snapshots} snapshots may go")


def _find_orphans(maintainer: Maintainer, table: Table, asked: Round) -> str | None:
    policy = maintainer.policy_of(table.name).orphans
    # They are looked for once: by the task itself where it is done.
    if not asked.execute and not delete_orphan_files(maintainer.spark, table, policy, execute=False)["removed"]:
        return None
    return f"files older than {policy.min_age_s} s that no snapshot has"


def _is_wanted(asked: Round, task: str, *, enabled: bool) -> bool:
    return task in asked.tasks if asked.tasks else enabled
