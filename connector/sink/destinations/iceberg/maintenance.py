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
from connector.sink.destinations.iceberg.tables import IcebergTables


@attrs.define(eq=False)
class SinkMaintenance:
    """Looks after each batch whether a table is due; `rate-limit-seconds` apart from the last look at it."""

    maintainer: Maintainer
    tables: IcebergTables
    _looked_s: dict[str, float] = attrs.field(factory=dict)
    _running: threading.Thread | None = None

    def begin(self) -> None:
        """Begin with what is due, if nothing is under way; returns at once."""
        if self._running is not None and self._running.is_alive():
            return
        names = self._due_names(time.monotonic())
        if names:
            self._running = threading.Thread(target=self._maintain, args=(names,), daemon=True)
            self._running.start()

    def wait(self) -> None:
        """Wait for what is under way."""
        if self._running is not None:
            self._running.join()

    def _due_names(self, now_s: float) -> list[str]:
        found = []
        for name in self.tables:
            table = self.tables.label(name)
            policy, last_s = self.maintainer.policy_of(table), self._looked_s.get(table)
            if policy.enabled and (last_s is None or now_s - last_s >= policy.rate_limit_s):
                self._looked_s[table] = now_s
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
