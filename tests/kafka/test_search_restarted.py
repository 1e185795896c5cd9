"""a late change of a key that is gone -> no document, although the node has forgotten the version of its delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connector.demo.servers.opensearch_node import OpenSearchNode
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.events import Database, row
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(400)]


def _life(topic: str) -> Database:
    """Keys that are deleted, deleted and made again, moved to another key, updated; the last change is of key 1."""
    db = Database(topic, 1)
    db.transaction(*(("c", row(key, "first", key)) for key in range(1, 8)))
    db.transaction(*(("u", row(key, "second", key)) for key in range(1, 8)))
    db.transaction(("d", 2), ("d", 3), ("k", 4, 14))
    db.transaction(("c", row(3, "again")))
    db.transaction(("k", 5, 15))
    db.transaction(("d", 15))
    db.transaction(("u", row(1, "third")))
    return db


def _truncated(db: Database) -> None:
    """Empty the source's table, and make one row after it."""
    db.read(1)
    made = json.loads(db.log.pop().value or b"")
    made["source"]["lsn"] = db._lsn
    made["source"]["ts_ns"] = 1_700_000_000_000_000_000 + db._transaction * 1_000_000 + 500_000
    truncate = {**made, "op": "t", "before": None, "after": None}
    db._next[0] -= 1
    db._append(0, None, json.dumps(truncate).encode())
    db.rows.clear()
    db.transaction(("c", row(6, "after")))


def _late(db: Database) -> list[Record]:
    """All changes of the first two transactions, and the changes of keys, once more by another producer."""
    found = []
    for record in db.log:
        told = json.loads(record.value) if record.value else {}
        if told.get("op") in ("c", "u", "d") and told["transaction"]["id"].split(":")[0] in ("1", "2", "5"):
            found.append(record)
    return found


def _moved() -> tuple[list[Record], list[Record]]:
    """A row moves to a key that is deleted then; its old key's partition lags: what it has of that comes last."""
    db = Database("restarted.public.moved", 2)
    old, new = (next(key for key in range(1, 20) if db._partition(_key(key)) == at) for at in (0, 1))
    db.transaction(("c", row(old, "moved")))
    db.transaction(("k", old, new))
    db.transaction(("d", new))
    return [one for one in db.log if one.partition or not one.offset], [r for r in db.log if not r.partition][1:]


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()


def _held(search: Search, db: Database) -> dict[str, str]:
    return {key: str(found["name"]) for key, found in search.documents(db.topic).items()}


def _wanted(db: Database) -> dict[str, str]:
    return {str(key): str(found["name"]) for key, found in db.rows.items()}


def test_a_late_change_brings_no_deleted_document_back(
    topics: Topics, make_workspace: MakeWorkspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Deleted, moved or truncated away, what a restarted node has forgotten stays away when old changes come late; so
    does a document that moves late to a key which was deleted since.
    """
    deleted, truncated = _life("restarted.public.deleted"), _life("restarted.public.truncated")
    _truncated(truncated)
    home: Path = tmp_path_factory.mktemp("restarted-node")
    with OpenSearchNode(home) as node:
        before, lagging = _moved()
        names = f"{deleted.topic},{truncated.topic},{before[0].topic}"
        extra = {"debezium.sink.type": "opensearch", "connection.url": node.url, "topics": names}
        space = make_workspace("restarted", {**extra, "truncate.enabled": "true"})
        search = Search(node.url)
        topics.replay([*deleted.log, *truncated.log, *before])
        first = space.run({"debezium.sink.batch.max-events": "20"})
        assert first.code == 0, first.text[-6000:]
        assert (_held(search, deleted), _held(search, truncated)) == (_wanted(deleted), _wanted(truncated))
        assert len(search.documents(before[0].topic)) == 1
        search.ask("POST", "_flush?force=true")
        node.stop()
        node.start()
        search = Search(node.url)
        topics.replay([*_late(deleted), *_late(truncated), *lagging], create=False)
        second = space.run({"connection.url": node.url})
        assert (second.code, second.total("dead_letters")) == (0, 0), second.text[-6000:]
        assert (_held(search, deleted), _held(search, truncated)) == (_wanted(deleted), _wanted(truncated))
        assert search.documents(before[0].topic) == {}
