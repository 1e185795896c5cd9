"""What an earlier commit left behind -> the sinks and the source of today go on from there.

The fixture was made by commit 363df6f, before the modules got their rooms: tables of every write mode, offsets,
deleted keys, watermarks, the source's positions. Its later records begin with some that come again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.histories.earlier import SINKS, TABLES, Earlier, fill, restore
from tests.model.recordings import Record
from tests.runs.sources import payload, replica

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]

COLUMNS = ("id", "name", "n")
NAMES = [f"{sink}_public_{table}" for sink in SINKS for table in TABLES[sink]]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Earlier]:
    """The earlier commit's world, with its servers running."""
    world = restore(tmp_path_factory.mktemp("earlier"))
    with world.broker, world.store:
        fill(world.store)
        yield world


def test_what_an_earlier_commit_left_is_read_on(earlier: Earlier) -> None:
    """Sinks read only what is new and change only that; the source publishes only that: all tables end in the truth."""
    before = {name: earlier.topics.read(f"read.default.{name}") for name in NAMES}
    earlier.topics.replay(earlier.later, create=False)
    for sink in SINKS:
        run = earlier.sink(sink)
        assert run.code == 0, run.text[-6000:]
        assert run.total("events") == sum(record.topic.startswith(f"{sink}.") for record in earlier.later)
    run = earlier.source()
    assert run.code == 0, run.text[-6000:]
    after = {name: earlier.topics.read(f"read.default.{name}") for name in NAMES}
    for name in NAMES:
        assert _reads(after[name]) == _reads(before[name]) > 0, name
        if name.endswith("append"):
            assert sum(record.value is not None for record in after[name]) == earlier.events[name]
        else:
            assert _now(after[name]) == [_plain(row) for row in _truth(earlier, name)], name


def _truth(earlier: Earlier, name: str) -> list[Mapping[str, Any]]:
    return sorted(earlier.rows[name], key=lambda row: row["id"])


def _reads(records: list[Record]) -> int:
    """How many events are of the first full read."""
    return sum(record.value is not None and payload(record.value)["op"] == "r" for record in records)


def _now(records: list[Record]) -> list[tuple[Any, ...]]:
    """The rows that a consumer of the source holds; of tables that keep more, those that are there now."""
    rows = replica(records).values()
    alive = [row for row in rows if row.get("__deleted") != "true" and row.get("is_current", True)]
    return sorted(map(_plain, alive))


def _plain(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in COLUMNS)
