"""awkward key changes -> one row per key: transactions that other consumers lose, in one batch and cut at every point.

Debezium's events of one transaction share their timestamp, and a changed key is a delete and a create in partitions of
their own. One topic per cut: the part before it in one run of the sink, the rest in
the next, so that two runs see every cut of every story.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from typing import Any

import attrs
import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.tiers import tiered
from tests.model.events import COLUMNS, Database, row
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = (1, 3)


def _stories(database: Database) -> list[list[Record]]:
    """Change the database in every awkward way, each on keys of its own; the records of each story."""
    stories = []
    for story in (_reborn, _insert_delete_insert, _swap, _there_and_back, _moved_onto_a_deleted_key, _short_life):
        start = len(database.log)
        story(database)
        stories.append(database.log[start:])
    return stories


def _reborn(db: Database) -> None:
    db.transaction(("c", row(10, "first")))
    db.transaction(("d", 10), ("c", row(10, "reborn")))


def _insert_delete_insert(db: Database) -> None:
    db.transaction(("c", row(20, "first")), ("d", 20), ("c", row(20, "second")))


def _swap(db: Database) -> None:
    db.transaction(("c", row(31, "one")), ("c", row(32, "two")))
    db.transaction(("k", 31, -31), ("k", 32, 31), ("k", -31, 32))


def _there_and_back(db: Database) -> None:
    db.transaction(("c", row(41, "home")))
    db.transaction(("k", 41, 42), ("k", 42, 41))


def _moved_onto_a_deleted_key(db: Database) -> None:
    db.transaction(("c", row(51, "mover")), ("c", row(52, "goner")))
    db.transaction(("d", 52), ("k", 51, 52), ("u", row(52, "moved")))


def _short_life(db: Database) -> None:
    db.transaction(("c", row(60, "short")), ("u", row(60, "shorter")), ("d", 60))


def _longest() -> int:
    return max(len(story) for story in _stories(Database("length", 1)))


def _parts(stories: Iterable[list[Record]], cut: int) -> tuple[list[Record], list[Record]]:
    """The first `cut` records of every story, and the rest; offsets keep the order, numbers are the broker's."""
    first = [record for story in stories for record in story[:cut]]
    return first, [record for story in stories for record in story[cut:]]


def _flat(key: int) -> Record:
    """A flattened event of a topic whose deletes are tombstones and nothing else (delete-to-tombstone)."""
    value = {**row(key, "flat"), "__op": "c", "__source_ts_ns": 1000 + key}
    return Record(BARE, 0, 0, json.dumps({"id": key}).encode(), json.dumps(value).encode())


BARE = "keys.public.bare"
CUTS = tuple(range(_longest() + 1))
CUT_TOPICS = tiered(product(CUTS, PARTITIONS), list(zip(CUTS, PARTITIONS * len(CUTS), strict=False))[3:7:3])
"""In `make test` every third cut with one number of partitions, in turn."""
Expected = dict[str, dict[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def cut_runs(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake, request: pytest.FixtureRequest
) -> tuple[dict[str, Lake], Expected]:
    """Both runs, with deletes gone and with deletes kept, over the topics of all tests that are to run."""
    own = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    cuts = sorted({(told["cut"], told["partitions"]) for item in own if "cut" in (told := item.callspec.params)})
    spaces = {
        mode: make_workspace(f"keys_{mode}", {"topics.regex": r"keys\..*", **extra})
        for mode, extra in (("hard", {"debezium.sink.iceberg.upsert-keep-deletes": "false"}), ("soft", {}))
    }
    expected: Expected = {}
    rest: list[Record] = []
    for cut, partitions in cuts:
        database = Database(f"keys.public.p{partitions}_{cut}", partitions)
        first, then = _parts(_stories(database), cut)
        topics.create({database.topic: partitions})
        topics.replay(first, create=False)
        rest += then
        expected[database.topic.replace(".", "_")] = database.rows
    topics.create({BARE: 1})
    for produced in ([_flat(1), _flat(2)], [*rest, attrs.evolve(_flat(1), value=None)]):
        topics.replay(produced, create=False)
        for space in spaces.values():
            run = space.run(timeout_s=400)
            assert run.code == 0, run.text[-6000:]
    return {mode: lake(space) for mode, space in spaces.items()}, expected


@pytest.mark.parametrize(("cut", "partitions"), CUT_TOPICS)
def test_key_stories_end_right_wherever_they_are_cut(
    cut_runs: tuple[dict[str, Lake], Expected], cut: int, partitions: int
) -> None:
    """Each story ends in the source's rows when the batch ends after its `cut`-th record; at 0 it is one batch."""
    lakes, expected = cut_runs
    name = f"keys_public_p{partitions}_{cut}"
    rows = lakes["hard"].many(name)
    assert sorted(_plain(r) for r in rows) == sorted(_plain(r) for r in expected[name].values())


@pytest.mark.parametrize(("cut", "partitions"), CUT_TOPICS)
def test_kept_deletes_mark_exactly_the_dead_keys(
    cut_runs: tuple[dict[str, Lake], Expected], cut: int, partitions: int
) -> None:
    """With deletes kept the living rows are the source's and every dead key has one marked row."""
    lakes, expected = cut_runs
    name = f"keys_public_p{partitions}_{cut}"
    rows = lakes["soft"].many(name)
    alive = [r for r in rows if r["__deleted"] == "false"]
    assert sorted(_plain(r) for r in alive) == sorted(_plain(r) for r in expected[name].values())
    assert sorted(r["id"] for r in rows if r["__deleted"] == "true") == [-31, 42, 51, 60]


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_tombstone_alone_deletes_a_row_of_an_earlier_batch(
    cut_runs: tuple[dict[str, Lake], Expected], mode: str
) -> None:
    """A delete that comes as nothing but a tombstone ends the row: it is gone, or marked where deletes are kept."""
    rows = cut_runs[0][mode].many("keys_public_bare")
    assert [r["id"] for r in rows if r.get("__deleted") != "true"] == [2]
    assert [r["id"] for r in rows if r.get("__deleted") == "true"] == [1] * (mode == "soft")


@pytest.mark.thorough
def test_one_event_per_batch_ends_right(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Cut after every single record the stories end in the source's rows too."""
    database = Database("single.public.t", 1)
    _stories(database)
    topics.replay(database.log)
    extra = {
        "topics": database.topic,
        "debezium.sink.batch.max-events": "1",
        "debezium.sink.batch.interval-ms": "0",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    }
    space = make_workspace("keys_single", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    assert len(run.batches) > len(database.log) // 2
    assert sorted(_plain(r) for r in lake(space).many("single_public_t")) == sorted(map(_plain, database.rows.values()))


def _plain(found: dict[str, Any]) -> tuple[Any, ...]:
    """A row's own columns, in a form that sorts."""
    return tuple(str(found.get(c)) for c in COLUMNS)
