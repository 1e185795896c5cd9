"""rows that move between partitions -> one row each: no ghost stays behind in the old partition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import MakeWorkspace, OpenLake
from tests.model.events import COLUMNS, Database, row
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TERMS = {"v2": ("2", "region, bucket(id, 4)"), "v3": ("3", "region"), "truncated": ("2", "truncate(name, 1)")}


@pytest.mark.parametrize("case", TERMS)
def test_a_row_that_moves_partition_leaves_no_ghost(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, case: str
) -> None:
    """A row whose partition column changes in a later batch stands once, in its new partition (v2 and v3)."""
    version, terms = TERMS[case]
    database = Database(f"move{case}.public.t", 2)
    extra = {
        "topics": database.topic,
        "debezium.sink.iceberg.format-version": version,
        "debezium.sink.iceberg.partition-by": terms,
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    }
    space = make_workspace(f"move_{case}", extra)
    for change in (_fill, _move):
        start = len(database.log)
        change(database)
        if not start:
            topics.create({database.topic: database.partitions})
        topics.replay(database.log[start:], create=False)
        run = space.run()
        assert run.code == 0, run.text[-6000:]
    name = database.topic.replace(".", "_")
    opened = lake(space)
    assert sorted(map(_plain, opened.many(name))) == sorted(map(_plain, database.rows.values()))
    assert sorted(map(_plain, opened.rows(name))) == sorted(map(_plain, database.rows.values()))
    assert opened.java(name).spec().isPartitioned()
    assert opened.java(name).operations().current().formatVersion() == int(version)


def _fill(db: Database) -> None:
    for key in range(40):
        db.transaction(("c", row(key, f"{'abc'[key % 3]}{key}", region=["north", "south", None][key % 3])))


def _move(db: Database) -> None:
    """Move most rows, delete some, keep some."""
    for key in range(30):
        db.transaction(("u", row(key, f"{'bcd'[key % 3]}{key}", 1, region=["south", None, "east"][key % 3])))
    for key in range(25, 35):
        db.transaction(("d", key))


def _plain(found: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(found.get(c)) for c in COLUMNS)
