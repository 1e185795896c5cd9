"""Debezium events -> documents: late and repeated changes, deletes of every kind, bad input, a node that is away."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.model.events import COLUMNS, Database
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.processes import Run, Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

KEYS = 60


def _space(make: MakeWorkspace, search: Search, name: str, extra: dict[str, str]) -> Workspace:
    return make(name, {"debezium.sink.type": "opensearch", "connection.url": search.url, **extra})


def _history(seed: int, topic: str) -> Database:
    """Random transactions over some keys: creates, updates, deletes, deletes with a new create, keys that change."""
    db = Database(topic, 3)
    Life(KEYS, updated=0.6).live(random.Random(seed), db, 500 if THOROUGH else 200)
    return db


def _held(search: Search, index: str) -> dict[str, tuple[Any, ...]]:
    return {i: tuple(d.get(c) for c in COLUMNS) for i, d in search.documents(index).items()}


def _wanted(db: Database) -> dict[str, tuple[Any, ...]]:
    return {str(key): tuple(found.get(c) for c in COLUMNS) for key, found in db.rows.items()}


def test_batches_that_come_again_in_another_order_change_nothing(
    topics: Topics, make_workspace: MakeWorkspace, search: Search
) -> None:
    """Replayed by another producer, reordered and cut otherwise, old changes never bring an old document back."""
    db = _history(7, "late.public.t")
    topics.replay(db.log)
    extra = {"topics": "late.public.t", "debezium.sink.batch.max-events": "97"}
    space = _space(make_workspace, search, "late", extra)
    first = space.run()
    assert first.code == 0, first.text[-6000:]
    assert _held(search, "late.public.t") == _wanted(db)
    before = search.versions("late.public.t")
    # A second producer sends every third of the events once more, the later thirds first, into the same topic.
    changes = [record for record in db.log if record.value is not None]
    again = [Record(r.topic, r.partition, 0, r.key, r.value) for start in (2, 1, 0) for r in changes[start::3]]
    topics.replay(again, create=False)
    second = space.run()
    assert (second.code, second.total("dead_letters")) == (0, 0), second.text[-6000:]
    assert second.total("stale") > 0
    assert _held(search, "late.public.t") == _wanted(db)
    # The last change of a key may get a greater version when it comes again; none ever gets a smaller one.
    after = search.versions("late.public.t")
    assert after.keys() == before.keys()
    assert all(after[key] >= before[key] for key in before)


@pytest.mark.thorough
def test_dates_that_go_to_and_fro(topics: Topics, make_workspace: MakeWorkspace, search: Search) -> None:
    """A clock like MySQL's, reads in between, restarts: in many batches the documents end as the source's rows."""
    rng, name = random.Random(5), "clocks.public.t"
    db, life = Database(name, 2, clock="mysql", rng=rng), Life(12, updated=0.5, moved=0.3, again=0.0)
    for _ in range(60):
        db.transaction(*life.steps(rng, set(db.rows), 4))
        if rng.random() < 0.3:
            db.read(rng.randrange(12))
        if rng.random() < 0.05:
            db.again(rng.randrange(len(db.log)))
    topics.replay(db.log)
    done = _space(make_workspace, search, "clocks", {"topics": name, "debezium.sink.batch.max-events": "60"}).run()
    assert done.code == 0, done.text[-6000:]
    assert _held(search, name) == _wanted(db)


def _flat(topic: str, offset: int, key: int, **fields: Any) -> Record:
    return Record(topic, 0, offset, json.dumps({"id": key}).encode(), json.dumps({"id": key, **fields}).encode())


def _tombstone(topic: str, offset: int, key: int) -> Record:
    return Record(topic, 0, offset, json.dumps({"id": key}).encode(), None)


@pytest.fixture(scope="module")
def plain(topics: Topics) -> str:
    """A topic of events without source and operation, whose deletes are tombstones."""
    name = "plain.t"
    records = [_flat(name, 0, 1, v="a"), _flat(name, 1, 2, v="b"), _flat(name, 2, 1, v="A"), _tombstone(name, 3, 2)]
    topics.replay(records)
    return name


def test_events_without_a_source_go_by_their_offsets(
    topics: Topics, make_workspace: MakeWorkspace, search: Search, plain: str
) -> None:
    """Where events have no time of their own, versions are Kafka offsets, and tombstones delete."""
    run = _space(make_workspace, search, "plain", {"topics": plain}).run()
    assert run.code == 0, run.text[-6000:]
    assert search.documents("plain.t") == {"1": {"id": 1, "v": "A"}}
    assert search.versions("plain.t") == {"1": 2}


def test_soft_deletes_mark_the_document(
    topics: Topics, make_workspace: MakeWorkspace, search: Search, plain: str
) -> None:
    """With upsert-keep-deletes a deleted document stays, marked, with what it held."""
    extra = {"debezium.sink.iceberg.upsert-keep-deletes": "true", "debezium.sink.iceberg.table-prefix": "soft-"}
    space = _space(make_workspace, search, "soft_documents", {"topics": plain, **extra})
    run = space.run({"debezium.sink.batch.max-events": "2"})
    assert run.code == 0, run.text[-6000:]
    found = search.documents("soft-plain.t")
    assert {i: (d["v"], d["__deleted"]) for i, d in found.items()} == {"1": ("A", "false"), "2": ("b", "true")}


def test_keys_ignored_every_event_is_a_document(
    topics: Topics, make_workspace: MakeWorkspace, search: Search, plain: str
) -> None:
    """`key.ignore`: each event is a document named by its place, and once more it is the same document."""
    extra = {"key.ignore": "true", "debezium.sink.iceberg.table-prefix": "all-"}
    space = _space(make_workspace, search, "all_documents", {"topics": plain, **extra})
    for _ in range(2):
        run = space.run()
        assert run.code == 0, run.text[-6000:]
    assert sorted(search.documents("all-plain.t")) == ["plain.t+0+0", "plain.t+0+1", "plain.t+0+2"]


def test_a_document_that_the_index_refuses_is_a_dead_letter(
    topics: Topics, make_workspace: MakeWorkspace, search: Search
) -> None:
    """A mapping conflict costs one record: it goes to the dead letters, the others are indexed."""
    search.ask("PUT", "bad.t", {"mappings": {"properties": {"v": {"type": "long"}}}})
    topics.replay([_flat("bad.t", 0, 1, v="12"), _flat("bad.t", 1, 2, v="no number"), _flat("bad.t", 2, 3, v="13")])
    run = _space(make_workspace, search, "bad_documents", {"topics": "bad.t"}).run()
    assert (run.code, run.total("dead_letters")) == (0, 1), run.text[-6000:]
    assert sorted(search.documents("bad.t")) == ["1", "3"]
    (letter,) = topics.read("bad_documents-dead-letters")
    headers = dict(letter.headers)
    assert headers["__connect.errors.offset"] == b"1"
    assert b"mapper_parsing" in (headers["__connect.errors.exception.message"] or b"")
    assert "no number" not in run.text


def _stopped(space: Workspace, *words: str) -> Run:
    run = space.run()
    assert run.code == 1, run.text[-3000:]
    assert all(word in run.text for word in words), run.text[-3000:]
    return run


def test_what_the_cluster_refuses_is_never_acknowledged(
    topics: Topics, make_workspace: MakeWorkspace, search: Search
) -> None:
    """Read-only, closed, gone: each stops clearly; once it is put right, the same events arrive."""
    topics.replay([_flat("shut.t", 0, 1, v="a")])
    space = _space(
        make_workspace, search, "shut", {"topics": "shut.t", "errors.retry.timeout": "1000", "max.retries": "1"}
    )
    assert space.run().code == 0
    topics.replay([_flat("shut.t", 1, 2, v="b")], create=False)
    search.ask("PUT", "shut.t/_settings", {"index.blocks.write": True})
    _stopped(space, "cluster_block_exception")
    search.ask("PUT", "shut.t/_settings", {"index.blocks.write": False})
    search.ask("POST", "shut.t/_close")
    _stopped(space, "index_closed_exception")
    search.ask("POST", "shut.t/_open")
    assert space.run().code == 0
    assert sorted(search.documents("shut.t")) == ["1", "2"]
    search.ask("DELETE", "shut.t")
    _stopped(space, "index shut.t is gone")
