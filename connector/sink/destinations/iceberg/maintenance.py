"""The tables of a sink -> maintained beside its batches: one table at a time, in a thread of its own. On the driver.

Spark jobs of maintenance run beside those of batches; commits of one table take turns (`Table.turn`), so that neither
waits for more than the other's commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import attrs
import structlog
from py4j.protocol import Py4JError

from connector.errors import ConnectorError
from connector.maintenance.maintainer import Maintainer
from connector.maintenance.triggers import idle_interval_s
from connector.settings.iceberg.maintenance.policies import MaintenancePolicy
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables

_REST_S = 1.0
"""Tables are gone through so often while there are no batches."""


@attrs.frozen
class _Look:
    """When a table was looked at (seconds), and the sink's newest commit by then."""

    at_s: float
    base: int | None

    def pause_s(self, policy: MaintenancePolicy, base: int | None) -> int:
        return policy.rate_limit_s if base != self.base else idle_interval_s(policy)


@attrs.define(eq=False)
class SinkMaintenance:
    """Looks, after batches and while there are none, whether a table is due; `rate-limit-seconds` apart from the last
    look at it. A table to which the sink has written nothing since is left alone for as long as no task is due by time.
    """

    maintainer: Maintainer
    tables: IcebergTables
    _looked: dict[str, _Look] = attrs.field(factory=dict)
    _running: threading.Thread | None = None
    _beginning: threading.Lock = attrs.field(factory=threading.Lock)
    _rested_s: float = 0.0

    def begin(self) -> None:
        """Begin with what is due, if nothing is under way; returns at once."""
        with self._beginning:
            if self._running is not None and self._running.is_alive():
                return
            names = self._due_names(time.monotonic())
            if names:
                self._running = threading.Thread(target=self._maintain, args=(names,), daemon=True)
                self._running.start()

    def rest(self) -> None:
        """Begin with what is due by time; may be called all the time."""
        now_s = time.monotonic()
        if now_s - self._rested_s >= _REST_S:
            self._rested_s = now_s
            self.begin()

    def wait(self) -> None:
        """Wait for what is under way."""
        if self._running is not None:
            self._running.join()

    def finish(self) -> None:
        """Do what is due, and wait for it."""
        self.wait()
        self.begin()
        self.wait()

    def _due_names(self, now_s: float) -> list[str]:
        found = []
        for name in list(self.tables):
            table, base = self.tables.label(name), self.tables[name].base
            policy, last = self.maintainer.policy_of(table), self._looked.get(table)
            if policy.enabled and (last is None or now_s - last.at_s >= last.pause_s(policy, base)):
                self._looked[table] = _Look(now_s, base)
                found.append(name)
        return found

    def _maintain(self, names: Iterable[str]) -> None:
        for name in names:
            label = self.tables.label(name)
            try:
                self._maintain_table(name, label)
            except ConnectorError as error:
                structlog.get_logger().warning("maintenance is postponed", table=label, reason=str(error))
            except (Py4JError, OSError) as error:
                # Spark was stopped meanwhile.
                structlog.get_logger().debug("maintenance ended with the sink", table=label, reason=str(error))
                return

    def _maintain_table(self, name: str, label: str) -> None:
        table = self.maintainer.load(label)
        if table is None:
            return
        table.turn = self.tables.turn(label)
        due = self.maintainer.find_due(table, self.maintainer.read_state(table))
        handed = self.maintainer.leases.read(label).handed
        tasks = (*due, *(task for task in handed if task not in due))
        if not tasks:
            return
        structlog.get_logger().info("maintenance is due", table=label, tasks=due, handed=list(handed))
        base = self.tables[name].base
        outcomes = self.maintainer.run(table, tasks, () if base is None else (base,))
        for outcome in outcomes:
            if outcome.task in handed and outcome.failure is None:
                self.maintainer.leases.accept(label, outcome.task)
