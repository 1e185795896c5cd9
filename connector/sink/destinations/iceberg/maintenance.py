"""The tables of a sink -> maintained beside its batches: one table at a time, in a separate thread. On the driver.

Spark jobs of maintenance run beside those of batches, whose tasks go first; commits of one table take turns
(`Table.turn`), so that neither waits for more than the other's commit. A task that batches overtake each time is done
while they wait, in small portions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import attrs
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.errors import ConnectorError
from connector.iceberg.catalog.retention_properties import SnapshotRetention, is_kept_small
from connector.iceberg.catalog.table import Table
from connector.maintenance.maintainer import Maintainer, TaskOutcome
from connector.maintenance.tasks import EXPIRE
from connector.maintenance.triggers import idle_interval_s
from connector.runtime.lifecycle import start_thread
from connector.runtime.spark.job_pools import MAINTENANCE, enter_pool
from connector.settings.iceberg.maintenance.policies import ExpiryPolicy, MaintenancePolicy
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables

_REST_S = 1.0
"""Tables are gone through so often while there are no batches."""
_LOOKING_S, _LOOKING_SHARE = 1.0, 0.05
"""Where looking at all tables takes longer, so much of the time is spent on it: thousands are looked at less often."""


def expires_by_task(policy: MaintenancePolicy, properties: Mapping[str, str]) -> bool:
    """Tell whether a sink's maintenance expires snapshots of a table: not where its commits do, and nothing is set."""
    by_commits = SnapshotRetention.of(properties) is not None and policy.expire == ExpiryPolicy()
    return policy.covers(is_own=is_kept_small(properties)) and policy.expire.enabled and not by_commits


def _is_stopped(spark: SparkSession) -> bool:
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):
        return True  # so is its JVM


@attrs.frozen
class _Look:
    """When a table was last checked (seconds), and the sink's newest commit at that time."""

    at_s: float
    base: int | None

    def pause_s(self, policy: MaintenancePolicy, base: int | None) -> int:
        return policy.rate_limit_s if base != self.base else idle_interval_s(policy)


@attrs.frozen(eq=False)
class _DueTasks:
    """A table and the tasks that are due; `handed` are tasks that other maintainers have given up."""

    name: str
    table: Table
    due: Mapping[str, str]
    handed: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return (*self.due, *(task for task in self.handed if task not in self.due))


@attrs.define(eq=False)
class SinkMaintenance:
    """Checks, after batches and between them, whether maintenance of a table is due.

    A table is checked at most once per `rate-limit-seconds`, counted from the last check or the sink's start. A table
    to which the sink has written nothing since is skipped until a task is due by time.
    """

    maintainer: Maintainer
    tables: IcebergTables
    _looked: dict[str, _Look] = attrs.field(factory=dict)
    _opened_s: float = attrs.field(factory=time.monotonic)
    _overtaken: set[tuple[str, str]] = attrs.field(factory=set)
    _running: threading.Thread | None = None
    _beginning: threading.Lock = attrs.field(factory=threading.Lock)
    _rested_s: float = 0.0
    _next_look_s: float = 0.0

    def begin(self) -> None:
        """Start what is due, unless maintenance is running; returns at once."""
        self._begin(at_end=False)

    def rest(self) -> None:
        """Start what is due by time; may be called at any time."""
        now_s = time.monotonic()
        if now_s - self._rested_s >= _REST_S:
            self._rested_s = now_s
            self.begin()

    def wait(self) -> None:
        """Wait for running maintenance."""
        if self._running is not None:
            self._running.join()

    def finish(self) -> None:
        """Do what is due, in recently checked tables too, and wait for it."""
        self.wait()
        self._begin(at_end=True)
        self.wait()

    def _begin(self, *, at_end: bool) -> None:
        with self._beginning:
            if self._running is not None and self._running.is_alive():
                return
            names = self._due_names(time.monotonic(), at_end=at_end)
            if names:
                self._running = start_thread(lambda: self._maintain(names), "maintenance")

    def _due_names(self, now_s: float, *, at_end: bool) -> list[str]:
        if now_s < self._next_look_s and not at_end:
            return []
        names = []
        for name in list(self.tables):
            label, target = self.tables.label(name), self.tables[name]
            policy, last = self.maintainer.policy_of(label), self._looked.get(label, _Look(self._opened_s, None))
            if not policy.covers(is_own=is_kept_small(target.layout.properties)):
                continue
            if now_s - last.at_s >= last.pause_s(policy, target.base) or (at_end and target.base != last.base):
                self._looked[label] = _Look(now_s, target.base)
                names.append(name)
        return names

    def _maintain(self, names: Iterable[str]) -> None:
        looking_s = 0.0
        with suppress(Py4JError, OSError):
            enter_pool(self.maintainer.spark, MAINTENANCE)
        for name in names:
            label, begun_s = self.tables.label(name), time.monotonic()
            try:
                work = self._look(name, label)
                looking_s += time.monotonic() - begun_s
                if work is not None and work.tasks:
                    self._maintain_table(work)
            except ConnectorError as error:
                structlog.get_logger().warning("maintenance is postponed", table=label, reason=str(error))
            except (Py4JError, PySparkException, OSError) as error:
                if _is_stopped(self.maintainer.spark):
                    structlog.get_logger().debug("maintenance ended with the sink", table=label, reason=str(error))
                    return
                structlog.get_logger().warning("maintenance is postponed", table=label, reason=str(error))
        if looking_s > _LOOKING_S:
            self._next_look_s = time.monotonic() + looking_s / _LOOKING_SHARE

    def _look(self, name: str, label: str) -> _DueTasks | None:
        """Return what is due in a table; None if the table no longer exists."""
        table = self.maintainer.load(label)
        if table is None:
            return None
        table.turn = self.tables.turn(label)
        due = self.maintainer.find_due(table, self.maintainer.read_state(table))
        if not expires_by_task(self.maintainer.policy_of(label), self.tables[name].layout.properties):
            due.pop(EXPIRE, None)
        return _DueTasks(name, table, due, self.maintainer.leases.read(label).handed)

    def _maintain_table(self, work: _DueTasks) -> None:
        table, label = work.table, work.table.name
        self._overtaken |= {(label, task) for task in work.handed}
        beside = self._run(work, [task for task in work.tasks if (label, task) not in self._overtaken])
        self._overtaken |= {(label, outcome.task) for outcome in beside if outcome.is_lost}
        overtaken = [task for task in work.tasks if (label, task) in self._overtaken]
        if overtaken:
            with table.turn:
                alone = self._run(work, overtaken, alone=True)
            for outcome in alone:
                if outcome.failure is None:
                    self.maintainer.leases.accept(label, outcome.task)

    def _run(self, work: _DueTasks, tasks: Sequence[str], *, alone: bool = False) -> list[TaskOutcome]:
        base = self.tables[work.name].base
        in_flight = () if base is None else (base,)
        return self.maintainer.run(work.table, tasks, in_flight, alone=alone, reasons=work.due) if tasks else []
