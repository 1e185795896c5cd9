"""Plans of tables that list one data file more than once -> each listing on its own, in any snapshot."""

from __future__ import annotations

from itertools import islice
from typing import Any
from unittest.mock import Mock

import pytest

from connector.iceberg.read.scan_planning import FileScanTask, tasks_by_entry
from connector.iceberg.write.position_deletes import DataFileDeletes
from connector.source.snapshots.chunks import ChunkProgress, next_chunk

pytestmark = pytest.mark.unit


def _task(path: str, sequence: int, *deletes: str) -> FileScanTask:
    java: Any = Mock()
    java.file.return_value.dataSequenceNumber.return_value = sequence
    place = DataFileDeletes(0, (), ())
    return FileScanTask(lambda: java, path, "parquet", 1, 1, None, frozenset(deletes), frozenset(), place)


def test_each_listing_of_a_file_is_an_entry() -> None:
    """Listings differ by their sequence number, or are counted; an entry is the same in all plans, in their order."""
    old, again, other = _task("f", 1, "d"), _task("f", 3), _task("g", 2)
    before, now = tasks_by_entry([other, old], [again, other, old, again])
    assert list(before) == [("g", 0, 0), ("f", 1, 0)]
    assert list(now) == [("f", 3, 0), ("g", 0, 0), ("f", 1, 0), ("f", 3, 1)]
    assert now["f", 1, 0] is old


def test_a_file_that_is_listed_once_is_asked_nothing() -> None:
    """Only files that are listed again cost a call of Java."""
    task = _task("f", 1)
    assert tasks_by_entry([task], [task]) == [{("f", 0, 0): task}] * 2
    task.java().file.assert_not_called()


def test_a_chunk_has_each_listing_with_its_own_deletes() -> None:
    """A chunk reads each listing of a file that lives once, and what was listed since the pin is a newer file."""
    old, again, since = _task("f", 1, "d"), _task("f", 3), _task("f", 5)
    planned, now = tasks_by_entry([old, again], [since, again, old])
    entries = iter(planned)
    chunk = next_chunk([list(islice(entries, 2))], now.keys(), ChunkProgress("u", 1, 0, 1))
    assert chunk is not None
    assert [now[entry].deletes for entry in chunk.live] == [{"d"}, frozenset()]
    assert [entry for entry in now if entry not in planned] == [("f", 5, 0)]
