"""rows that move between partitions -> one row each: no ghost stays behind in the old partition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.tiers import tiered
from tests.model.events import COLUMNS, Database, row

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TERMS = {"2": {"several": "region, bucket(id, 4)", "truncated": "truncate(name, 1)"}, "3": {"single": "region"}}


@pytest.mark.parametrize("version", tiered(TERMS, ["2"]))
def test_a_row_that_moves_partition_leaves_no_ghost(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, version: str
) -> None:
    """A row whose partition column changes in a later batch stands once, in its new partition (v2 and v3)."""
    databases = {name: Database(f"move{version}.public.{name}", 2) for name in TERMS[version]}
    topics.create({database.topic: database.partitions for database in databases.values()})
    extra = {
        "topics": ",".join(database.topic for database in databases.values()),
        "debezium.sink.iceberg.format-version": version,
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    }
    for name, terms in TERMS[version].items():
        extra[f"debezium.sink.iceberg.partition-by.{databases[name].topic.replace('.', '_')}"] = terms
    space = make_workspace(f"move_{version}", extra)
    for change in (_fill, _move):
        for database in databases.values():
            start = len(database.log)
            change(database)
            topics.replay(database.log[start:], create=False)
        run = space.run()
        assert run.code == 0, run.text[-6000:]
    for name, database in databases.items():
        _assert_moved(lake(space), database, version, {"several": 2}.get(name, 1))


def _assert_moved(opened: Lake, database: Database, version: str, fields: int) -> None:
    name = database.topic.replace(".", "_")
    assert sorted(map(_plain, opened.many(name))) == sorted(map(_plain, database.rows.values()))
    assert sorted(map(_plain, opened.rows(name))) == sorted(map(_plain, database.rows.values()))
    assert opened.java(name).spec().fields().size() == fields
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
