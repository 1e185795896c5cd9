"""What a real node refuses: a full disk, too many fields, documents too large; truncates; dead letters put through."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from attrs import evolve
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from connector.cli import dlq
from connector.cli.offsets import sink as sink_offsets
from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.errors import FatalError, GapError, RetriableError
from connector.runtime.monitoring.listeners import BatchReport
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model.events import START_NS, Database, row
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]


def _sink(
    spark: SparkSession, make: MakeWorkspace, search: Search, name: str, extra: dict[str, str] | None = None
) -> InProcessSink:
    base = {"debezium.sink.type": "opensearch", "connection.url": search.url, "topics": f"{name}.t"}
    return InProcessSink(
        spark, make(name, {**base, "errors.retry.timeout": "1000", "max.retries": "1", **(extra or {})})
    )


def _flat(name: str, offset: int, key: int, **fields: Any) -> Record:
    value = json.dumps({"id": key, **fields}).encode()
    return Record(f"{name}.t", 0, offset, json.dumps({"id": key}).encode(), value)


@pytest.mark.thorough
def test_a_full_disk(topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession) -> None:
    """The block that OpenSearch sets on a full disk: waited for; when it stays, nothing is acknowledged, and the same
    events arrive once it is gone."""
    block = "index.blocks.read_only_allow_delete"
    topics.replay([_flat("full", 0, 1)])
    sink = _sink(spark, plain_workspace, search, "full")
    sink.run()
    topics.replay([_flat("full", 1, 2)], create=False)
    search.ask("PUT", "full.t/_settings", {block: True})
    with pytest.raises(RetriableError, match="cluster_block_exception"):
        sink.run()
    freed = Timer(2.0, lambda: search.ask("PUT", "full.t/_settings", {block: None}))
    freed.start()
    (report,) = sink.run({"errors.retry.timeout": "60000"})
    assert (report.dead_letters, sorted(search.documents("full.t"))) == (0, ["1", "2"])


def test_too_many_fields(topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession) -> None:
    """The limit of fields stops the sink with what to do; with mappings left to OpenSearch the document is dead."""
    limit = "index.mapping.total_fields.limit"
    for name in ("wide", "guessed"):
        search.ask("PUT", f"{name}.t", {"settings": {limit: 5}})
        topics.replay([_flat(name, 0, 1, a="x"), _flat(name, 1, 2, **{f"f{n}": n for n in range(9)})])
    sink = _sink(spark, plain_workspace, search, "wide")
    with pytest.raises(FatalError, match=r"takes no more fields; raise its index\.mapping\.total_fields\.limit"):
        sink.run()
    assert search.documents("wide.t") == {}
    search.ask("PUT", "wide.t/_settings", {limit: 50})
    sink.run()
    assert sorted(search.documents("wide.t")) == ["1", "2"]
    (report,) = _sink(spark, plain_workspace, search, "guessed", {"schema.ignore": "true"}).run()
    assert (report.dead_letters, sorted(search.documents("guessed.t"))) == (1, ["1"])


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    """A node of its own, which takes small requests only."""
    home: Path = tmp_path_factory.mktemp("narrow")
    node = OpenSearchNode(home, heap_mb=256, settings={"http.max_content_length": "1mb"})
    node.start()
    yield Search(node.url)
    node.stop()


@pytest.mark.thorough
def test_a_disk_too_full_for_new_indexes(
    topics: Topics, plain_workspace: MakeWorkspace, narrow: Search, spark: SparkSession
) -> None:
    """The block of new indexes above the high watermark (403) is waited for, and named: no fault of the login.

    It is the whole node's, which other tests share: this one has its own.
    """
    block = "cluster.blocks.create_index"
    topics.replay([_flat("unmade", 0, 1)])
    sink = _sink(spark, plain_workspace, narrow, "unmade")
    narrow.ask("PUT", "_cluster/settings", {"transient": {block: True}})
    try:
        with pytest.raises(RetriableError, match=r"status 403.*create-index blocked.*free disk space"):
            sink.run()
    finally:
        narrow.ask("PUT", "_cluster/settings", {"transient": {block: None}})
    sink.run()
    assert sorted(narrow.documents("unmade.t")) == ["1"]


@pytest.mark.thorough
def test_a_document_that_is_too_large(
    topics: Topics, plain_workspace: MakeWorkspace, narrow: Search, spark: SparkSession
) -> None:
    """A node takes no more than a megabyte: the one document that is larger is a dead letter, all others arrive."""
    sizes = [10, 400_000, 1_200_000, 400_000, 400_000, 10]
    topics.create({"large.t": 1}, {"max.message.bytes": "4000000"})
    topics.replay((_flat("large", place, place, v="x" * size) for place, size in enumerate(sizes)), create=False)
    (report,) = _sink(spark, plain_workspace, narrow, "large").run()
    assert (report.dead_letters, sorted(narrow.documents("large.t"))) == (1, ["0", "1", "3", "4", "5"])


def _truncate(db: Database) -> None:
    """The source table is emptied, in a transaction of its own."""
    db.transaction()
    value = json.loads(db.log[0].value or b"")
    at = START_NS + db._transaction * 1_000_000
    value |= {"op": "t", "before": None, "after": None, "transaction": None}
    value["source"] |= {"ts_ns": at, "ts_us": at // 1000, "ts_ms": at // 1_000_000, "lsn": 10**9}
    db.rows.clear()
    db._append(0, b"", json.dumps(value).encode())
    db.log[-1] = Record(db.topic, 0, db.log[-1].offset, None, db.log[-1].value)


@pytest.mark.parametrize("rolled", tiered([False, True], [True]))
def test_a_truncate_in_a_later_batch(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession, *, rolled: bool
) -> None:
    """Documents of batches before go, behind a rolled over alias too; later ones stay, and nothing that comes again
    from before the truncate returns."""
    name = f"emptied{rolled:d}"
    extra = {"truncate.enabled": "true", "topics": f"{name}.t"}
    if rolled:
        search.ask("PUT", f"{name}.t-000001", {"aliases": {f"{name}.t": {"is_write_index": True}}})
    db = Database(f"{name}.t", 1)
    db.transaction(("c", row(1, "a")), ("c", row(2, "b")))
    db.transaction(("u", row(1, "A")))
    topics.replay(db.log)
    sink = _sink(spark, plain_workspace, search, name, extra)
    sink.run()
    before = list(db.log)
    if rolled:
        search.ask("POST", f"{name}.t/_rollover")
    assert sorted(search.documents(f"{name}.t")) == ["1", "2"]
    _truncate(db)
    db.transaction(("c", row(2, "after")))
    topics.replay(db.log[len(before) :], create=False)
    sink.run()
    assert {i: d["name"] for i, d in search.documents(f"{name}.t").items()} == {"2": "after"}
    if rolled:
        search.ask("POST", f"{name}.t/_rollover")
    topics.replay(before, create=False)
    sink.run()
    assert {i: d["name"] for i, d in search.documents(f"{name}.t").items()} == {"2": "after"}


def test_dead_letters_are_put_through_again(
    topics: Topics,
    plain_workspace: MakeWorkspace,
    search: Search,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A repaired letter becomes its document, unless its key was changed since; one that the index still refuses stays.

    That its key was deleted counts too, however long ago: the records that came after it are read.
    """
    name = "letters"
    fields = {"v": {"type": "long"}}
    search.ask("PUT", f"{name}.t", {"settings": {"index.gc_deletes": "0s"}, "mappings": {"properties": fields}})
    bad = [_flat(name, offset, key, v="no number") for offset, key in enumerate((1, 2, 3, 4))]
    after = [_flat(name, 4, 2, v="20"), _flat(name, 5, 3, v="30"), Record(f"{name}.t", 0, 6, bad[2].key, None)]
    sink = _sink(spark, plain_workspace, search, name, {"debezium.sink.batch.max-events": "4"})
    topics.replay(bad)
    sink.run()
    topics.replay(after, create=False)
    sink.run()
    assert sorted(search.documents(f"{name}.t")) == ["2"]
    settings = sink.settings()
    assert sink.lake
    monkeypatch.setattr(dlq, "open_session", lambda _: nullcontext(spark))
    monkeypatch.setenv("COLUMNS", "200")
    letters = dlq._read_dead_letters(settings)
    for letter in letters:
        if letter.offset != 3:
            (tmp_path / f"{letter.id}.value").write_bytes((letter.value or b"").replace(b"no number", b"10"))
    for execute in (False, True):
        dlq.replay_dead_letters(settings, letters=(), repaired=tmp_path, execute=execute)
        told = capsys.readouterr().out
        assert told.count("later records") == 2, told
        assert ("still dead" in told) is execute, told
    assert {i: d["v"] for i, d in search.documents(f"{name}.t").items()} == {"1": "10", "2": "20"}
    assert [letter.offset for letter in dlq._read_dead_letters(settings) if not letter.replayed] == [3]


def _drained(sink: InProcessSink, told: Callable[[BatchReport], object], extra: dict[str, str]) -> None:
    running = sink.sink(extra, told)
    try:
        running.stream.run(once=True)
    finally:
        running.close()


def test_an_index_that_is_deleted_stops_the_sink(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Deleted while the sink runs or between two runs, made again by OpenSearch or by a hand: a clear stop each time,
    and no index of later changes alone. After `offsets reset` it is filled from the topic."""
    topics.replay([_flat("dropped", n, n) for n in range(4)])
    sink, index = _sink(spark, plain_workspace, search, "dropped"), "dropped.t"
    deleted: list[object] = []

    def drop(_: BatchReport) -> None:
        deleted.append(search.ask("DELETE", index))

    with pytest.raises(GapError, match=r"index dropped\.t is gone.*icebridge offsets reset"):
        _drained(sink, drop, {"debezium.sink.batch.max-events": "2"})
    assert len(deleted) == 1 and not search.exists(index)
    with pytest.raises(GapError, match=r"index dropped\.t is gone"):
        sink.run()
    search.ask("PUT", f"{index}/_doc/9", {"id": 9})
    with pytest.raises(GapError, match=r"index dropped\.t was deleted and made again"):
        sink.run()
    assert list(search.documents(index)) == ["9"], "nobody's documents are touched"
    search.ask("DELETE", index)
    sink_offsets.reset(sink.settings(), to="earliest", topics=(), execute=True)
    sink.run()
    assert sorted(search.documents(index)) == ["0", "1", "2", "3"]


def test_an_index_made_anew_between_two_batches_stops_the_sink(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """An index, or one behind an alias, that is another by now is not written on, nor given fields."""
    topics.replay([_flat("remade", n, n, **({"more": 1} if n else {})) for n in range(2)])
    body = {"aliases": {"remade.t": {"is_write_index": True}}}
    search.ask("PUT", "remade-000001", body)

    def remake(_: BatchReport) -> None:
        search.ask("DELETE", "remade-000001")
        search.ask("PUT", "remade-000001", body)

    sink = _sink(spark, plain_workspace, search, "remade")
    with pytest.raises(GapError, match=r"index remade-000001 was deleted and made again"):
        _drained(sink, remake, {"debezium.sink.batch.max-events": "1"})
    assert search.documents("remade.t") == {}


@pytest.mark.thorough
def test_a_truncate_of_one_of_several_sources(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """Of an index that takes several sources only documents of the truncated one go, also where they come late; a
    truncate whose documents nothing tells apart is a dead letter."""
    for name, fields, expected, dead in (
        ("apart", "op,source.ts_ns,table,db,schema", {"2", "3"}, 0),
        ("alike", "op,source.ts_ns,db", {"1", "2", "3"}, 1),
    ):
        log = [_of(name, 0, "x", 1), _of(name, 1, "y", 2)]
        topics.replay(log)
        extra = {"truncate.enabled": "true", "debezium.transforms.unwrap.add.fields": fields}
        sink = _sink(spark, plain_workspace, search, f"shared_{name}", {**extra, "topics": name})
        sink.run()
        topics.replay([_of(name, 2, "x", 3, op="t"), _of(name, 3, "x", 3)], create=False)
        letters = sum(report.dead_letters for report in sink.run())
        topics.replay(log, create=False)
        sink.run()
        assert (set(search.documents(name)), letters) == (expected, dead)


def _of(topic: str, offset: int, table: str, number: int, op: str = "c") -> Record:
    """An event of a table of one database."""
    at_ns = START_NS + (offset + 1) * 1_000_000
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": at_ns}
    after = {"id": number} if op == "c" else None
    value = json.dumps({"before": None, "after": after, "source": source, "op": op}).encode()
    return Record(topic, 0, offset, None if op == "t" else json.dumps({"id": number}).encode(), value)


@pytest.mark.thorough
def test_letters_of_keys_that_changed_in_another_partition_since(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """A document that was deleted from a new partition, which the index has forgotten, does not come back, and a newer
    one stays; so the dry run says too. A letter that nothing came after goes in."""
    name, start = "moved_docs", START_NS
    fields = {"v": {"type": "long"}}
    search.ask("PUT", f"{name}.t", {"settings": {"index.gc_deletes": "0s"}, "mappings": {"properties": fields}})
    topics.create({f"{name}.t": 1})
    extra = {"debezium.sink.iceberg.upsert-keep-deletes": "false"}
    sink = _sink(spark, plain_workspace, search, name, extra)

    def event(partition: int, key: int, v: Any, age: int, op: str = "u") -> Record:
        told = {"__op": op, "__deleted": str(op == "d").lower(), "__source_ts_ns": start + age}
        value = json.dumps({"id": key, "v": v, **told}).encode()
        return Record(f"{name}.t", partition, 0, json.dumps({"id": key}).encode(), value)

    gone, newer, untouched = 1, 2, 3
    topics.replay([event(0, key, "1", 1, "c") for key in (gone, newer, untouched)], create=False)
    sink.run()
    topics.replay([event(0, key, "no number", 20) for key in (gone, newer, untouched)], create=False)
    sink.run()
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(f"{name}.t", 2)]).values():
        future.result(30)
    topics.replay([event(1, gone, "1", 30, "d"), event(1, newer, "40", 40)], create=False)
    sink.run()
    assert sorted(search.documents(f"{name}.t")) == [str(newer), str(untouched)]
    known = dlq._read_dead_letters(sink.settings())
    repaired = [evolve(one, value=(one.value or b"").replace(b"no number", b"7")) for one in known]
    planned, report = (sink.replay(repaired, known, execute=execute) for execute in (False, True))
    assert planned == report
    assert (len(report.overtaken), len(report.done), report.dead) == (2, 1, {})
    found = {i: d["v"] for i, d in search.documents(f"{name}.t").items()}
    assert found == {str(newer): "40", str(untouched): "7"}
