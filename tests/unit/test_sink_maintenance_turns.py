"""Which tables a sink looks at for maintenance, and when; what it does with tasks that were handed to it."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from pyspark.errors import PySparkException

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog.retention_properties import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.maintenance.lease_rules import Lease
from connector.maintenance.maintainer import TaskOutcome
from connector.maintenance.table_state import TableState
from connector.settings.iceberg.maintenance.policies import ExpiryPolicy, MaintenancePolicy
from connector.sink.destinations.iceberg.maintenance import SinkMaintenance
from connector.sink.runner import _SinkRun

pytestmark = pytest.mark.unit


class Tables:
    """Two tables; as a sink's, which has written up to snapshot `base` of each."""

    base, own = 5, False

    def __iter__(self) -> Any:
        """Their names."""
        return iter(("a", "b"))

    def __getitem__(self, name: str) -> Any:
        """One, at its snapshot."""
        properties = {EXPIRE_SNAPSHOTS_PROPERTY: "true"} if self.own else {}
        return SimpleNamespace(base=self.base, layout=SimpleNamespace(properties=properties))

    def label(self, name: str) -> str:
        """Its full name."""
        return f"db.{name}"

    def turn(self, label: str) -> Any:
        """Its lock, which only the test looks at."""
        return threading.RLock()


class Maintainer:
    """Notes what it is asked to do."""

    def __init__(self, enabled: set[str], due: dict[str, dict[str, str]], handed: tuple[str, ...] = ()) -> None:
        """Begin with tables whose maintenance is on, and what is due."""
        self.enabled, self.due, self.done, self.otherwise = enabled, due, list[Any](), "false"
        self.lease = Lease(handed=handed)
        self.accepted: list[str] = []
        self.rate_limit_s, self.lost = 0, set[str]()
        self.expire = ExpiryPolicy()
        self.looked: list[str] = []
        self.spark = Mock()
        self.leases = SimpleNamespace(
            read=lambda _: self.lease, accept=lambda label, task: self.accepted.append(f"{label}/{task}")
        )

    def policy_of(self, label: str) -> MaintenancePolicy:
        """On where told."""
        enabled = "true" if label in self.enabled else self.otherwise
        return MaintenancePolicy(enabled, self.rate_limit_s, expire=self.expire)

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
        return dict(self.due.get(table.name, {}))

    def run(
        self,
        table: Any,
        tasks: list[str],
        in_flight: tuple[int, ...],
        *,
        alone: bool = False,
        reasons: dict[str, str] | None = None,
    ) -> list[TaskOutcome]:
        """Note it, and whether another thread could commit to the table meanwhile."""
        assert _is_free(table.turn) != alone
        assert reasons == self.due.get(table.name, {})
        self.done.append((table.name, tuple(tasks), in_flight))
        lost = set() if alone else self.lost
        return [TaskOutcome(task, failure="late" if task in lost else None, is_lost=task in lost) for task in tasks]


def _is_free(lock: Any) -> bool:
    """Whether another thread could take it."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    other = threading.Thread(target=look)
    other.start()
    other.join()
    return found[0]


def _begin(maintainer: Any, times: int = 1) -> None:
    maintenance = SinkMaintenance(maintainer, Tables())  # type: ignore[arg-type]
    for _ in range(times):
        maintenance.begin()
        maintenance.wait()


def test_only_tables_that_are_due_and_enabled() -> None:
    """A table is maintained where it is enabled and something is due, with the snapshot that the batch reads; by jobs
    whose tasks come after those of batches.
    """
    maintainer = Maintainer({"db.a"}, {"db.a": {"convert": "why"}, "db.b": {"convert": "why"}})
    _begin(maintainer)
    maintainer.spark.sparkContext.setLocalProperty.assert_called_once_with("spark.scheduler.pool", "maintenance")
    assert maintainer.done == [("db.a", ("convert",), (5,))]


@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("error", [OSError("no space left"), PySparkException("a task failed")])
def test_what_fails_unexpectedly_holds_up_no_other_table(error: Exception, is_stopped: bool) -> None:
    """A table that fails as none should is told, and the next one has its turn; where Spark was stopped none has."""
    maintainer = Maintainer({"db.a", "db.b"}, {"db.b": {"convert": "why"}})
    maintainer.spark.sparkContext._jsc.sc.return_value.isStopped.return_value = is_stopped

    def find_due(table: Any, state: TableState) -> dict[str, str]:
        if table.name == "db.a":
            raise error
        return dict(maintainer.due[table.name])

    maintainer.find_due = find_due  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as lines:
        _begin(maintainer)
    assert [name for name, *_ in maintainer.done] == ([] if is_stopped else ["db.b"])
    assert ("warning", "db.a") in [(line["log_level"], line.get("table")) for line in lines] or is_stopped


def test_not_more_often_than_the_rate() -> None:
    """A sink that has just started, and a table that was looked at, are left alone for as long as the rate says."""
    maintainer: Any = Maintainer({"db.a", "db.b"}, {"db.a": {"convert": "why"}})
    maintainer.rate_limit_s = 1000
    maintenance = SinkMaintenance(maintainer, Tables())  # type: ignore[arg-type]
    for opened_s, wanted in ((0, 0), (2000, 1), (0, 1)):
        maintenance._opened_s -= opened_s
        maintenance.begin()
        maintenance.wait()
        assert len(maintainer.done) == wanted


@pytest.mark.parametrize(("own", "wanted"), [(True, ["db.a", "db.b"]), (False, [])])
def test_by_itself_it_maintains_its_own_tables(own: bool, wanted: list[str]) -> None:
    """With nothing configured those tables are looked at that the sink has created."""
    maintainer: Any = Maintainer(set(), {})
    maintainer.otherwise, tables = "auto", Tables()
    tables.own = own
    maintenance = SinkMaintenance(maintainer, tables)  # type: ignore[arg-type]
    maintenance.finish()
    assert maintainer.looked == wanted


@pytest.mark.parametrize(("age_s", "wanted"), [(0, []), (60, [("db.a", ("expire",), (5,))])])
def test_expiry_that_commits_do_is_not_done_twice(age_s: int, wanted: list[Any]) -> None:
    """Of a table whose commits expire snapshots it does not expire others, unless its options say which."""
    maintainer: Any = Maintainer({"db.a"}, {"db.a": {"expire": "why"}})
    maintainer.expire, tables = ExpiryPolicy(age_s=age_s), Tables()
    tables.own = True
    maintenance = SinkMaintenance(maintainer, tables)  # type: ignore[arg-type]
    maintenance.finish()
    assert maintainer.done == wanted


def test_a_quiet_table_is_not_even_looked_at() -> None:
    """Without a rate a table is looked at after each commit of the sink, and once where the sink writes nothing."""
    maintainer: Any = Maintainer({"db.a"}, {})
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
    maintainer.rate_limit_s = 1000
    maintenance = SinkMaintenance(maintainer, Tables())  # type: ignore[arg-type]
    stream = SimpleNamespace(position=KafkaOffsets(), is_stopping=stopped, run=lambda once: None)
    sink: Any = SimpleNamespace(stream=stream, destination=maintenance, close=lambda: None)
    _SinkRun(sink, ExitStack(), once).run()
    assert len(maintainer.done) == wanted


def test_what_ended_a_run_is_told_though_its_offsets_cannot_be_stored() -> None:
    """The error of the stream is the one to act on; that of letting go afterwards is in the log alone."""

    def fail(error: Exception) -> Any:
        def raise_it(**_: bool) -> None:
            raise error

        return raise_it

    stream = SimpleNamespace(position=KafkaOffsets(), is_stopping=False, run=fail(FatalError("the reason")))
    sink: Any = SimpleNamespace(stream=stream, close=fail(RetriableError("catalog away")))
    with pytest.raises(FatalError, match="the reason"), structlog.testing.capture_logs() as logs:
        _SinkRun(sink, ExitStack(), once=False).run()
    assert logs[-1]["reason"] == "catalog away"


def test_what_was_handed_over_is_done() -> None:
    """A task that lost against batches each time is done without being due while these wait, also later, and noted."""
    maintainer: Any = Maintainer({"db.a"}, {"db.a": {"expire": "why"}}, handed=("convert",))
    tables: Any = Tables()
    maintenance = SinkMaintenance(maintainer, tables)
    maintenance.finish()
    assert maintainer.done == [("db.a", ("expire",), (5,)), ("db.a", ("convert",), (5,))]
    assert maintainer.accepted == ["db.a/convert"]
    maintainer.lease, maintainer.due, tables.base = Lease(), {"db.a": {"convert": "why"}}, 6
    maintenance.finish()
    assert maintainer.done[2:] == [("db.a", ("convert",), (6,))]


def test_what_batches_overtake_is_done_while_they_wait() -> None:
    """A task that loses against batches is done again at once while these wait, and so each time from then on."""
    maintainer: Any = Maintainer({"db.a"}, {"db.a": {"convert": "why", "rewrite": "why"}})
    maintainer.lost, tables = {"rewrite"}, Tables()
    maintenance = SinkMaintenance(maintainer, tables)  # type: ignore[arg-type]
    maintenance.finish()
    tables.base = 6
    maintenance.finish()
    assert [tasks for _, tasks, _ in maintainer.done] == [
        ("convert", "rewrite"),
        ("rewrite",),
        ("convert",),
        ("rewrite",),
    ]


def test_many_tables_are_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that take long are followed by a pause that is longer, but for the last ones of a run."""
    monkeypatch.setattr("connector.sink.destinations.iceberg.maintenance._LOOKING_S", 0.01)
    maintainer: Any = Maintainer({"db.a"}, {})
    maintainer.load = lambda label: (maintainer.looked.append(label), time.sleep(0.05))[1]
    tables: Any = Tables()
    maintenance = SinkMaintenance(maintainer, tables)
    for base, wanted in ((5, 1), (6, 1)):
        tables.base = base
        maintenance.begin()
        maintenance.wait()
        assert len(maintainer.looked) == wanted
    maintenance.finish()
    assert len(maintainer.looked) == 2
