"""The end of a sink -> what is left of it in its process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from connector.errors import RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.factory import Sink
from connector.sink.model.destination import TableCommit
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult
from tests.unit.destinations.memory import MemoryDestination
from tests.unit.local_sink import LocalSink, local_sink


class _Committer(IcebergCommitter):
    """Iceberg's committer, of tables that take everything."""

    def _commit_table(
        self, table: TablePlan, name: str, result: JobResult, position: KafkaOffsets, needed: int | None
    ) -> TableCommit:
        return TableCommit(name, position)


class _Destination(MemoryDestination):
    """A destination whose tables are committed as Iceberg's are."""

    def __init__(self, tables: Any) -> None:
        super().__init__(tables)
        targets = MagicMock(deleted_keys=None)
        targets.take_unstored.return_value = {}
        self.own = _Committer(None, targets, "sink")  # type: ignore[arg-type]

    @property
    def committer(self) -> Any:
        return self.own


def _run_a_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Sink, LocalSink]:
    monkeypatch.setattr("tests.unit.local_sink.MemoryDestination", _Destination)
    made = local_sink(folder, ["topics=t"])
    made.process((("t", 0), None, b'{"id": 1}'))
    return Sink(None, made.batches, made.destination), made  # type: ignore[arg-type]


def test_no_thread_is_left_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server starts and stops connectors for as long as it runs: none may leave a thread."""
    before = set(threading.enumerate())
    sink, _ = _run_a_batch(tmp_path, monkeypatch)
    begun = {thread.name.partition("_")[0] for thread in set(threading.enumerate()) - before}
    assert {"commit", "offsets", "cleanup"} <= begun
    sink.close()
    assert set(threading.enumerate()) <= before


def test_no_thread_is_left_where_the_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer group that cannot be left is told of, once all that was begun has ended."""
    before = set(threading.enumerate())
    sink, made = _run_a_batch(tmp_path, monkeypatch)
    made.group.close.side_effect = RetriableError("away")
    with pytest.raises(RetriableError, match="away"):
        sink.close()
    assert set(threading.enumerate()) <= before
