"""One name for several indexes: aliases that are rolled over, data streams, names with a day. On a real node."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.model.events import COLUMNS, START_NS, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

DAY_NS = 86_400_000_000_000


def _sink(
    spark: SparkSession, make: MakeWorkspace, search: Search, name: str, extra: dict[str, str] | None = None
) -> InProcessSink:
    base = {"debezium.sink.type": "opensearch", "connection.url": search.url, "errors.retry.timeout": "2000"}
    return InProcessSink(spark, make(name, {**base, **(extra or {})}))


def _alias(search: Search, name: str) -> None:
    told = search.ask("PUT", f"{name}-000001", {"aliases": {name: {"is_write_index": True}}})
    assert told.get("acknowledged"), told


def _rolled(search: Search, name: str) -> str:
    told = search.ask("POST", f"{name}/_rollover")
    assert told.get("rolled_over"), told
    return str(told["new_index"])


def _where(search: Search, name: str) -> list[tuple[str, str]]:
    """Every document behind a name: its id and index."""
    search.ask("POST", f"{name}/_refresh")
    page = search.ask("POST", f"{name}/_search", {"size": 10_000, "_source": False})
    return sorted((hit["_id"], hit["_index"]) for hit in page["hits"]["hits"])


def _is_source(search: Search, name: str, db: Database) -> None:
    found = {i: tuple(d.get(c) for c in COLUMNS) for i, d in search.documents(name).items()}
    assert found == {str(key): tuple(one.get(c) for c in COLUMNS) for key, one in db.rows.items()}
    twice = [i for i, count in Counter(i for i, _ in _where(search, name)).items() if count > 1]
    assert twice == []


def _split(log: Sequence[Record], parts: int) -> Iterable[list[Record]]:
    size = -(-len(log) // parts)
    for start in range(0, len(log), size):
        yield list(log[start : start + size])


@pytest.mark.thorough
def test_behind_an_alias_that_is_rolled_over_documents_stay_one_each(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Updates, deletes and changes of key find documents in older indexes; what comes again after further rollovers,
    in another order, brings nothing old back: no deleted document, and none twice."""
    name = "rolled.public.t"
    db = Database(name, 3)
    Life(40, updated=0.5).live(random.Random(11), db, 400 if THOROUGH else 200)
    _alias(search, name)
    sink = _sink(spark, plain_workspace, search, "rolled", {"topics": name, "debezium.sink.batch.max-events": "90"})
    for number, part in enumerate(_split(db.log, 3)):
        topics.replay(part, create=not number)
        sink.run()
        last = _rolled(search, name)
    _is_source(search, name, db)
    assert len({index for _, index in _where(search, name)}) > 1
    changes = [record for record in db.log if record.value is not None]
    again = [Record(r.topic, r.partition, 0, r.key, r.value) for start in (2, 1, 0) for r in changes[start::3]]
    topics.replay(again, create=False)
    reports = sink.run()
    assert sum(report.counts.get("stale", 0) for report in reports) > 0
    _is_source(search, name, db)
    settings = search.ask("GET", f"{last}/_settings?flat_settings")[last]["settings"]
    assert settings["index.gc_deletes"] == "1h"
    assert "icebridge" in search.ask("GET", f"{last}/_mapping")[last]["mappings"]["_meta"]


def test_an_alias_that_nobody_can_write_through_stops_the_sink(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Several indexes and none that takes documents, or a filter: said by name, nothing is acknowledged."""
    topics.replay([_flat("mute.t", 0, 1)])
    search.ask("PUT", "mute-1", {"aliases": {"mute.t": {}}})
    search.ask("PUT", "mute-2", {"aliases": {"mute.t": {}}})
    sink = _sink(spark, plain_workspace, search, "mute", {"topics": "mute.t"})
    with pytest.raises(FatalError, match="set is_write_index on one"):
        sink.run()
    filtered = {"add": {"index": "mute-2", "alias": "mute.t", "filter": {"term": {"v": 1}}}}
    search.ask("POST", "_aliases", {"actions": [filtered]})
    with pytest.raises(FatalError, match="has a filter"):
        sink.run()
    search.ask("DELETE", "mute-2")
    sink.run()
    assert sorted(search.documents("mute.t")) == ["1"]


def _flat(topic: str, offset: int, key: int, **fields: Any) -> Record:
    return Record(topic, 0, offset, json.dumps({"id": key}).encode(), json.dumps({"id": key, **fields}).encode())


def _events(topic: str, days: Sequence[int]) -> list[Record]:
    """A created row for each day after the first, in one partition."""
    db = Database(topic, 1)
    for key, day in enumerate(days):
        db.transaction(("c", row(key, f"n{key}")))
        value = json.loads(db.log[-1].value or b"")
        value["source"] |= {"ts_ns": START_NS + day * DAY_NS, "ts_us": (START_NS + day * DAY_NS) // 1000}
        value["source"]["ts_ms"] = (START_NS + day * DAY_NS) // 1_000_000
        db.log[-1] = Record(topic, 0, key, db.log[-1].key, json.dumps(value).encode())
    return db.log


def test_a_data_stream_takes_each_event_once(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Each event is a document with the time of its change; what comes again, after a rollover too, adds none."""
    name, stream = "streamed.t", "events-streamed.t"
    topics.replay(_events(name, [0, 0, 1, 2]))
    extra = {"topics": name, "key.ignore": "true", "data.stream.enabled": "true", "data.stream.prefix": "events"}
    _sink(spark, plain_workspace, search, "streamed", extra).run()
    found = search.documents(stream)
    assert sorted(found) == [f"{name}+0+{offset}" for offset in range(4)]
    assert [found[i]["@timestamp"][:10] for i in sorted(found)] == ["2023-11-14"] * 2 + ["2023-11-15", "2023-11-16"]
    _rolled(search, stream)
    other = _sink(spark, plain_workspace, search, "streamed_again", extra)
    other.run()
    assert len(_where(search, stream)) == 4
    # A new column reaches the indexes that there are, and those to come.
    topics.replay([_flat(name, 4, 9, since="2024-05-06T00:00:00Z", extra=1)], create=False)
    (report,) = other.run({"data.stream.timestamp.field": "since"})
    assert (report.dead_letters, search.documents(stream)[f"{name}+0+4"]["@timestamp"][:4]) == (0, "2024")
    fresh = _rolled(search, stream)
    assert "extra" in search.mapping(fresh)


def test_a_data_stream_takes_no_documents_with_keys(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Documents that follow their keys cannot be in a data stream: the sink stops and says so."""
    search.ask("PUT", "_index_template/keyless", {"index_patterns": ["keyless.t"], "data_stream": {}, "priority": 500})
    search.ask("PUT", "_data_stream/keyless.t")
    topics.replay([_flat("keyless.t", 0, 1)])
    with pytest.raises(FatalError, match=r"keyless\.t is a data stream"):
        _sink(spark, plain_workspace, search, "keyless", {"topics": "keyless.t"}).run()


def test_names_with_a_day(topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession) -> None:
    """Each event goes to the index of its day, and to the same one when it comes again; without a time it is dead."""
    name = "daily.t"
    topics.replay(_events(name, [0, 1, 1]))
    extra = {"topics": name, "key.ignore": "true", "topic.format": "${topic}-${timestamp}"}
    for run in ("daily", "daily_again"):
        _sink(spark, plain_workspace, search, run, extra).run()
        days = Counter(index for _, index in _where(search, "daily.t-*"))
        assert days == {"daily.t-20231114": 1, "daily.t-20231115": 2}
    told = [_flat(name, 3, 7, at="2024-02-29T23:59:59-01:00", extra=1), _flat(name, 4, 8)]
    topics.replay(told, create=False)
    (report,) = _sink(spark, plain_workspace, search, "daily_fields", extra).run({"message.timestamp.keys": "at"})
    assert report.dead_letters == 4
    assert list(search.documents("daily.t-20240301")) == [f"{name}+0+3"]
    assert {"extra", "at"} <= set(search.mapping("daily.t-20231114")), "all indexes of the group have new fields"


def _named(
    offset: int,
    op: str,
    key: str,
    row: dict[str, Any],
    header: tuple[str, str] | None = None,
    *,
    place: int | None = None,
) -> Record:
    """A change of a document whose key is `_id`; the two events of a change of key have one place in the source."""
    place = offset if place is None else place
    source: dict[str, Any] = {"name": "s", "db": "d", "table": "t", "ts_ns": START_NS + place * 10**9, "lsn": place}
    source |= {"ts_ms": source["ts_ns"] // 1_000_000, "ts_us": source["ts_ns"] // 1000, "txId": place}
    image = {"_id": key, **row}
    before, after = (image, None) if op == "d" else (None, image)
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": source["ts_ms"]}
    headers = ((f"__debezium.{header[0]}", json.dumps({"_id": header[1]}).encode()),) if header else ()
    return Record("named.t", 0, offset, json.dumps({"_id": key}).encode(), json.dumps(value).encode(), headers)


def test_columns_whose_names_no_field_may_have(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """They are kept under other names, through updates, values left out, deletes, changes of key and new columns."""
    columns = ("_source", "_doc_count", "a", "a.b", "a..b", ".a", "")
    fields = ("_source_2", "_doc_count_3", "a", "a_b", "a__b", "_a", "_", "s")
    inside = {"a": 1, "a.b": 2, "": 3, ".x": 4, "y..z": [{"..": 5}]}
    row = {**dict.fromkeys(columns, 1), "_source": "long", "s": inside}
    unsent = {**row, "a.b": 2, "_source": "__debezium_unavailable_value"}
    sink = _sink(spark, plain_workspace, search, "named", {"topics": "named.t"})
    log = [_named(0, "c", "1", row), _named(1, "c", "2", row), _named(2, "c", "3", row)]
    log += [_named(3, "d", "2", dict.fromkeys(columns)), _named(4, "u", "1", {**unsent, "_index": 7})]
    moved = [_named(5, "d", "3", dict.fromkeys(columns), ("newkey", "4"))]
    moved += [_named(6, "c", "4", unsent, ("oldkey", "3"), place=5)]
    for number, part in enumerate((log[:3], log[3:], moved)):
        topics.replay(part, create=not number)
        reports = sink.run()
        assert sum(report.dead_letters for report in reports) == 0
    found = {key: {name: d.get(name) for name in ("_id_1", *fields)} for key, d in search.documents("named.t").items()}
    kept = dict(zip(fields, unsent.values(), strict=True)) | {"_source_2": "long"}
    kept["s"] = {"a": 1, "a_b": 2, "_": 3, "_x": 4, "y__z": [{"__": 5}]}
    assert found == {key: {"_id_1": key, **kept} for key in ("1", "4")}
    (added,) = (name for name in search.mapping("named.t") if name.startswith("_index"))
    assert search.documents("named.t")["1"][added] == 7
