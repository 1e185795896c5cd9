"""MongoDB's partial updates, and outbox events -> tables: what joins with stored rows, and what comes in headers."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

DOCUMENTS, OUTBOX = "mongo.shop.documents", "outbox.event.order"
_SOURCE = {"connector": "mongodb", "name": "mongo", "db": "shop", "rs": "rs0", "collection": "documents"}


def _event(number: int, now: int, op: str, **parts: Any) -> Record:
    source = {**_SOURCE, "ts_ms": now * 1000, "ts_ns": now * 10**9, "ord": 1}
    value = {"before": None, "after": None, "updateDescription": None, "source": source, "op": op, **parts}
    return Record(DOCUMENTS, 0, 0, json.dumps({"id": str(number)}).encode(), json.dumps(value).encode())


def _create(number: int, now: int) -> Record:
    document = {"_id": {"$numberLong": str(number)}, "n": now, "inner": {"a": 1, "b": [1, 2, 3]}, "gone": True}
    return _event(number, now, "c", after=json.dumps(document))


def _patch(number: int, now: int, updated: dict[str, Any], *removed: str) -> Record:
    told = {"updatedFields": json.dumps(updated), "removedFields": list(removed), "truncatedArrays": []}
    return _event(number, now, "u", updateDescription=told)


def test_partial_updates_are_applied_to_stored_rows(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """Documents as columns: changes come to the row of the batch, or of the table; others have what is set."""
    named = "mongo.shop.columns"
    first = [_create(1, 1), _create(2, 2), _create(3, 3), _patch(1, 4, {"n": 4, "inner.b.1": 9}, "gone")]
    topics.replay([attrs.evolve(record, topic=named) for record in first])
    extra = {"topics": named, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("document_columns", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    later = [_patch(1, 11, {"inner.b.0": 7, "fresh.deep": "x"}), _patch(2, 12, {"inner": {"a": 2}}), _event(3, 13, "d")]
    later += [_patch(2, 14, {"n": 14}, "gone"), _patch(9, 15, {"n": 15})]
    topics.replay([attrs.evolve(record, topic=named) for record in later], create=False)
    again = space.run()
    assert again.code == 0, again.text[-6000:]
    assert not again.total("dead_letters")
    rows = {row["_id"]: row for row in lake(space).rows("mongo_shop_columns")}
    told = {number: {name: row[name] for name in ("n", "inner", "gone", "fresh")} for number, row in rows.items()}
    assert told == {
        "1": {"n": 4, "inner": {"a": 1, "b": [7, 9, 3]}, "gone": None, "fresh": {"deep": "x"}},
        "2": {"n": 14, "inner": {"a": 2, "b": None}, "gone": None, "fresh": None},
        "9": {"n": 15, "inner": None, "gone": None, "fresh": None},
    }


def test_partial_updates_are_applied_to_stored_documents(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """Changes come to the document of the batch, or of the table; outbox events are appended with their headers."""
    event = Record(OUTBOX, 0, 0, b"007", b'{"id": 1, "total": 1.50}', (("id", b"event 1"), ("eventType", b"Made")))
    topics.replay([_create(1, 1), _create(2, 2), _create(3, 3), _patch(1, 4, {"n": 4}, "gone"), event])
    extra = {"topics": f"{DOCUMENTS},{OUTBOX}", "debezium.sink.iceberg.documents-as": "text"}
    space = make_workspace("documents", {**extra, "debezium.sink.iceberg.upsert-keep-deletes": "false"})
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    later = [_patch(1, 11, {"inner.b.1": 9}), _patch(2, 12, {"inner": {"c": None}}), _patch(2, 13, {"n": 13}, "gone")]
    topics.replay([*later, _event(3, 14, "d"), attrs.evolve(event, value=b"second")], create=False)
    again = space.run()
    assert again.code == 0, again.text[-6000:]
    assert not again.total("dead_letters")
    rows = {row["_id"]: json.loads(row["document"]) for row in lake(space).rows("mongo_shop_documents")}
    assert rows == {
        "1": {"_id": "1", "n": 4, "inner": {"a": 1, "b": [1, 9, 3]}},
        "2": {"_id": "2", "n": 13, "inner": {"c": None}},
    }
    events = sorted(lake(space).rows("outbox_event_order"), key=lambda row: str(row["payload"]))
    same = {"id": "event 1", "aggregatetype": "order", "aggregateid": "007", "type": "Made"}
    assert events == [{**same, "payload": "second"}, {**same, "payload": '{"id": 1, "total": 1.50}'}]
