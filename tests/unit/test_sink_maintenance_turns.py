"""Which tables a sink looks at for maintenance, and when; what it does with tasks that were handed to it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from connector.errors import RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.maintenance.lease_rules import Lease
from connector.maintenance.maintainer import TaskOutcome
from connector.maintenance.table_state import TableState
from connector.settings.iceberg.maintenance.policies import MaintenancePolicy
from connector.sink.destinations.iceberg.maintenance import SinkMaintenance
from connector.sink.runner import _SinkRun

pytestmark = pytest.mark.unit


class Tables:
    """Two tables; as a sink's, which has written up to snapshot `base` of each."""

    base = 5

    def __iter__(self) -> Any:
        """Their names."""
        return iter(("a", "b"))

    def __getitem__(self, name: str) -> Any:
        """One, at its snapshot."""
        return SimpleNamespace(base=self.base)

    def label(self, name: str) -> str:
        """Its full name."""
        return f"db.{name}"

    def turn(self, label: str) -> Any:
        """Its lock."""
        return threading.RLock()


class Maintainer:
    """Notes what it is asked to do."""

    def __init__(self, enabled: set[str], due: dict[str, dict[str, str]], handed: tuple[str, ...] = ()) -> None:
        """Begin with tables whose maintenance is on, and what is due."""
        self.enabled, self.due, self.done = enabled, due, list[Any]()
        self.lease = Lease(handed=handed)
        self.accepted: list[str] = []
        self.rate_limit_s = 1000
        self.looked: list[str] = []
        self.leases = SimpleNamespace(
            read=lambda _: self.lease, accept=lambda label, task: self.accepted.append(f"{label}/{task}")
        )

    def policy_of(self, label: str) -> MaintenancePolicy:
        """On where told."""
        return MaintenancePolicy(enabled=label in self.enabled, rate_limit_s=self.rate_limit_s)

    def load(self, label: str) -> Any:
        """Give a table, unless the catalog is away."""
        self.looked.append(label)
        if label == "db.away":
            raise RetriableError("away")
        return SimpleNamespace(name=label, turn=None)

    def read_state(self, table: Any) -> TableState:
        """Give none."""
        return TableState()

    def find_due(self, table: Any, state: TableState) -> dict[str, str]:
        """Tell what was told."""
        return self.due.get(table.name, {})

    def run(self, table: Any, tasks: tuple[str, ...], in_flight: tuple[int, ...]) -> list[TaskOutcome]:
        """Note it."""
        self.done.append((table.name, tasks, in_flight))
        return [TaskOutcome(task) for task in tasks]


def _begin(maintainer: Any, times: int = 1) -> None:
    maintenance = SinkMaintenance(maintainer, Tables())  # type: ignore[arg-type]
    for _ in range(times):
        maintenance.begin()
        maintenance.wait()


def test_only_tables_that_are_due_and_enabled() -> None:
    """A table is maintained where it is enabled and something is due, with the snapshot that the batch reads."""
    maintainer = Maintainer({"db.a"}, {"db.a": {"convert": "why"}, "db.b": {"convert": "why"}})
    _begin(maintainer)
    assert maintainer.done == [("db.a", ("convert",), (5,))]


def test_not_more_often_than_the_rate() -> None:
    """A table that was looked at is left alone for as long as the rate says."""
    maintainer = Maintainer({"db.a", "db.b"}, {"db.a": {"convert": "why"}})
    _begin(maintainer, times=3)
    assert len(maintainer.done) == 1


def test_a_quiet_table_is_not_even_looked_at() -> None:
    """Without a rate a table is looked at after each commit of the sink, and once where the sink writes nothing."""
    maintainer: Any = Maintainer({"db.a"}, {})
    maintainer.rate_limit_s = 0
    tables: Any = Tables()
    maintenance = SinkMaintenance(maintainer, tables)

    def rest(times: int) -> None:
        for _ in range(times):
            maintenance.begin()
            maintenance.wait()

    rest(5)
    assert maintainer.looked == ["db.a"]
    tables.base = 6
    rest(5)
    assert maintainer.looked == ["db.a"] * 2


@pytest.mark.parametrize(("once", "stopped", "wanted"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_run_that_ends_by_itself_is_maintained(once: bool, stopped: bool, wanted: int) -> None:
    """A run up to given offsets does what is due before its session ends; one that is told to stop leaves at once."""
    maintainer: Any = Maintainer({"db.a"}, {"db.a": {"convert": "why"}})
    maintenance = SinkMaintenance(maintainer, Tables())  # type: ignore[arg-type]
    stream = SimpleNamespace(position=KafkaOffsets(), is_stopping=stopped, run=lambda once: None)
    sink: Any = SimpleNamespace(stream=stream, destination=maintenance, close=lambda: None)
    _SinkRun(sink, ExitStack(), once).run()
    assert len(maintainer.done) == wanted


def test_what_was_handed_over_is_done() -> None:
    """A task that another maintainer lost is done without being due, and noted."""
    maintainer = Maintainer({"db.a"}, {"db.a": {"expire": "why"}}, handed=("convert",))
    _begin(maintainer)
    assert maintainer.done == [("db.a", ("expire", "convert"), (5,))]
    assert maintainer.accepted == ["db.a/convert"]
