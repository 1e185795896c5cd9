"""Iceberg snapshots -> records in a real broker, read as a consumer reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import ConnectorError, FatalError, GapError, RetriableError
from connector.iceberg.catalog.catalog import Catalog
from connector.runtime.monitoring.listeners import StepReport
from connector.source import poll_loop
from connector.source.factory import build_source, open_offsets
from connector.source.poll_loop import PollLoop
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.runs.sources import SourceWorkspace, StepLog, in_order, make_source_workspace, payload, replica

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
MERGE_ON_READ = (
    "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read','write.merge.mode'='merge-on-read'"
)
MakeSource = Callable[..., SourceWorkspace]


@pytest.fixture(scope="module")
def make_source(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> MakeSource:
    """make_source(name, {"property": "value"}) gives a source with a catalog of its own."""

    def make(name: str, extra: dict[str, str] | None = None) -> SourceWorkspace:
        return make_source_workspace(spark, topics, tmp_path_factory.mktemp(name), name, {**PLAIN, **(extra or {})})

    return make


def test_changes_of_every_kind_are_published_in_order(make_source: MakeSource) -> None:
    """A full read, then inserts, updates, deletes, a merge and new columns: every event is right and in order."""
    source = make_source("kinds", {"include.schema.changes": "true"})
    source.sql(
        f"CREATE TABLE T.t (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ({MERGE_ON_READ})",
        "INSERT INTO T.t VALUES (1, 'one'), (2, 'two')",
    )
    source.identify("t", "id")
    assert [(step.kind, step.operations) for step in source.publish()] == [("part read", {"r": 2})]
    assert {(e["op"], e["after"]["id"], e["source"]["snapshot"]) for e in source.events("t")} == {
        ("r", 1, "true"),
        ("r", 2, "true"),
    }
    source.sql(
        "UPDATE T.t SET name = 'zwei' WHERE id = 2",
        "DELETE FROM T.t WHERE id = 1",
        "ALTER TABLE T.t ADD COLUMN more STRUCT<x: INT>",
        "MERGE INTO T.t t USING (SELECT * FROM VALUES (2), (3) AS s(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET more = named_struct('x', 7) "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'three')",
    )
    steps = source.publish()
    assert [step.kind for step in steps] == ["snapshot published"] * 3
    assert [step.operations for step in steps] == [{"u": 1}, {"d": 1}, {"c": 1, "u": 1}]
    changes = {(e["op"], json.dumps(e["before"]), json.dumps(e["after"])) for e in source.events("t") if e["op"] != "r"}
    assert changes == {
        ("u", '{"id": 2, "name": "two"}', '{"id": 2, "name": "zwei"}'),
        ("d", '{"id": 1, "name": "one"}', "null"),
        ("u", '{"id": 2, "name": "zwei", "more": null}', '{"id": 2, "name": "zwei", "more": {"x": 7}}'),
        ("c", "null", '{"id": 3, "name": "three", "more": null}'),
    }
    records = source.records("t")
    of_one = [record for record in records if payload(record.key) == {"id": 1}]
    assert [record.value is None for record in of_one] == [False, False, True]
    assert in_order(records)
    assert replica(records) == {json.dumps({"id": row["id"]}): row for row in source.rows("t")}
    assert source.publish() == []
    announced = [payload(record.value)["tableChanges"][0] for record in source.topics.read("kinds")]
    assert [(a["type"], [c["name"] for c in a["table"]["columns"]]) for a in announced] == [
        ("CREATE", ["id", "name"]),
        # The identifier columns were set after the first snapshot.
        ("ALTER", ["id", "name"]),
        ("ALTER", ["id", "name", "more"]),
    ]


@pytest.mark.thorough
def test_a_crash_before_the_position_moved_replays_the_same_bytes(make_source: MakeSource) -> None:
    """When the position is that of before a snapshot or part, the same records are published again, byte for byte."""
    source = make_source("replay", {"provide.transaction.metadata": "true"})
    source.sql(
        "CREATE TABLE T.t (id BIGINT NOT NULL, v DOUBLE, m MAP<INT, STRING>) USING iceberg",
        "INSERT INTO T.t SELECT id, id / 3, map(cast(id AS INT), 'ä\"\n') FROM range(200)",
    )
    source.identify("t", "id")
    settings = source.settings()
    before: list[Any] = []

    def keep() -> None:
        before.append(open_offsets(Catalog(source.spark, settings.catalog), settings).of("db.t"))

    keep()
    source.publish()
    keep()
    source.sql("UPDATE T.t SET v = double('NaN') WHERE id % 2 = 0", "DELETE FROM T.t WHERE id % 3 = 0")
    source.publish()
    once, boundaries = source.records("t"), source.topics.read("replay.transaction")
    open_offsets(Catalog(source.spark, settings.catalog), settings).put("db.t", before[1])
    source.publish()
    twice = source.records("t")
    # Everything after the full read is there twice, and nothing else.
    counted = Counter((r.partition, r.key, r.value) for r in twice)
    counted.subtract(Counter((r.partition, r.key, r.value) for r in once))
    changes = Counter((r.partition, r.key, r.value) for r in once if r.value is None or payload(r.value)["op"] != "r")
    assert counted == changes
    assert [(r.key, r.value) for r in source.topics.read("replay.transaction")] == [
        (r.key, r.value) for r in boundaries
    ] * 2
    assert replica(twice) == replica(once)


def test_transactions_are_numbered_and_counted(make_source: MakeSource) -> None:
    """A snapshot is a transaction: BEGIN, events numbered from 1 without gaps, END with their count."""
    source = make_source("bounds", {"provide.transaction.metadata": "true", "snapshot.mode": "no_data"})
    source.sql("CREATE TABLE T.t (id BIGINT, v INT) USING iceberg")
    source.publish()
    source.sql("INSERT INTO T.t SELECT id, 0 FROM range(100)")
    source.publish()
    events = source.events("t")
    assert sorted(e["transaction"]["total_order"] for e in events) == list(range(1, 101))
    idents = {e["transaction"]["id"] for e in events}
    bounds = [payload(r.value) for r in source.topics.read("bounds.transaction")]
    assert [(b["status"], b["event_count"]) for b in bounds] == [("BEGIN", None), ("END", 100)]
    assert {b["id"] for b in bounds} == idents
    assert bounds[1]["data_collections"] == [{"data_collection": "db.t", "event_count": 100}]


def test_own_commits_replaced_files_and_other_branches_are_not_read(make_source: MakeSource) -> None:
    """Compaction gives no event; a commit of our own sink gives none when it is to be passed over."""
    source = make_source("quiet", {"iceberg.skip.own.commits": "true"})
    source.sql("CREATE TABLE T.t (id BIGINT, v INT) USING iceberg", "INSERT INTO T.t VALUES (1, 1)")
    source.publish()
    table = source.lake().java("t", "db")
    # An empty append with the mark that the sink's commits carry.
    table.newAppend().set("icebridge.name", "a sink").commit()
    source.spark.sql(
        f"CALL {source.name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))"
    )
    source.sql("INSERT INTO T.t VALUES (2, 2)")
    assert [step.kind for step in source.publish()] == ["snapshot skipped", "snapshot skipped", "snapshot published"]
    assert [(e["op"], e["after"]["id"]) for e in source.events("t")] == [("r", 1), ("c", 2)]


def test_a_failing_table_does_not_stop_the_others(make_source: MakeSource) -> None:
    """A table whose history is gone stops with its name; the run ends with an error once the others are through."""
    source = make_source("apart")
    source.sql(
        "CREATE TABLE T.a (id BIGINT) USING iceberg",
        "CREATE TABLE T.b (id BIGINT) USING iceberg",
        "INSERT INTO T.a VALUES (1)",
        "INSERT INTO T.b VALUES (1)",
    )
    source.publish()
    source.sql("INSERT INTO T.a VALUES (2)", "DROP TABLE T.a", "CREATE TABLE T.a (id BIGINT) USING iceberg")
    source.sql("INSERT INTO T.a VALUES (5)", "INSERT INTO T.b VALUES (2)")
    with pytest.raises(ConnectorError, match=r"table db\.a: .*replaced by another table"):
        source.publish()
    assert sorted(e["after"]["id"] for e in source.events("b")) == [1, 2]
    assert [e["after"]["id"] for e in source.events("a")] == [1]
    # The way out that the message names.
    source.publish({"snapshot.mode": "when_needed"})
    assert [e["after"]["id"] for e in source.events("a")] == [1, 5]


def test_a_missing_table_is_an_error_of_its_own(make_source: MakeSource) -> None:
    """In a run to now, a named table that is not in the catalog is an error; the others are published."""
    source = make_source("missing", {"table.include.list": "db.t,db.missing"})
    source.sql("CREATE TABLE T.t (id BIGINT) USING iceberg", "INSERT INTO T.t VALUES (1)")
    with pytest.raises(FatalError, match=r"table db\.missing is not in catalog"):
        source.publish()
    assert [e["after"]["id"] for e in source.events("t")] == [1]


def test_a_key_inside_a_struct(make_source: MakeSource) -> None:
    """A configured key may be a field of structs, of any name: its rows are paired and keyed by it."""
    source = make_source("inside", {"message.key.columns": "db\\.t:a.s.x`y,p"})
    source.sql(
        "CREATE TABLE T.t (`a.s` STRUCT<`x``y`: BIGINT, z: INT>, p STRING, v STRING) USING iceberg",
        "INSERT INTO T.t SELECT /*+ COALESCE(1) */ named_struct('x`y', id, 'z', 0), 'p', 'v' FROM range(2)",
        "UPDATE T.t SET v = 'w' WHERE `a.s`.`x``y` = 1",
    )
    source.publish()
    source.sql("DELETE FROM T.t WHERE `a.s`.`x``y` = 0")
    source.publish()
    found = [(payload(r.key), None if r.value is None else payload(r.value)["op"]) for r in source.records("t")]
    keys = [{"a.s.x`y": number, "p": "p"} for number in (0, 1)]
    assert [op for key, op in found if key == keys[0]] == ["r", "d", None]
    assert [op for key, op in found if key == keys[1]] == ["r"]


def _run_beside(source: SourceWorkspace, extra: dict[str, str], *turns: tuple[int, tuple[str, ...]]) -> None:
    """Run a source, and statements after so many steps; none for the last turn, which stops it."""
    log, left = StepLog(), list(turns)

    def on_round() -> None:
        if left and len(log.steps) >= left[0][0]:
            source.sql(*left.pop(0)[1])
        if not left:
            loop.stop()

    loop = build_source(source.spark, source.settings(extra), [log], on_round=on_round)
    loop.run(once=False)


@pytest.mark.parametrize("names", tiered(["db.t,db.late", "db.t,db.l[a]te,db.late"], ["db.t,db.l[a]te,db.late"]))
def test_a_missing_table_is_waited_for(make_source: MakeSource, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """A named table that is made while the source runs is published from then on, whatever else the list has."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.2)
    source = make_source(f"waits{len(names)}", {"table.include.list": names})
    source.sql("CREATE TABLE T.t (id BIGINT) USING iceberg", "INSERT INTO T.t VALUES (1)")
    made = ("CREATE TABLE T.late (id BIGINT) USING iceberg", "INSERT INTO T.late VALUES (5)")
    _run_beside(source, {}, (1, made), (2, ()))
    assert [e["after"]["id"] for e in source.events("t") + source.events("late")] == [1, 5]


DROPPED = ("DROP TABLE T.t",)
AGAIN = ("CREATE TABLE T.t (id BIGINT) USING iceberg", "INSERT INTO T.t VALUES (5)")


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_table_that_is_replaced_while_it_is_followed(
    make_source: MakeSource, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Another table of its name is never taken for it: it stops the table, or is read in full with `when_needed`."""
    monkeypatch.setattr(poll_loop, "DISCOVERY_S", 0.2)
    source = make_source(f"replaced_{mode}", {"table.include.list": "db.t", "snapshot.mode": mode})
    source.sql("CREATE TABLE T.t (id BIGINT) USING iceberg", "INSERT INTO T.t VALUES (1)")
    if mode == "initial":
        with pytest.raises(GapError, match=r"table db\.t: .*replaced by another table of the same name"):
            _run_beside(source, {}, (1, (*DROPPED, *AGAIN)), (2, ()))
        source.sql(*DROPPED)
        with pytest.raises(FatalError, match=r"table db\.t is not in catalog"):
            source.publish()
        with pytest.raises(GapError, match="replaced by another table"):
            _run_beside(source, {}, (0, AGAIN), (1, ()))
    else:
        _run_beside(source, {}, (1, (*DROPPED, *AGAIN)), (2, ()))
        assert [e["after"]["id"] for e in source.events("t")] == [1, 5]
        _run_beside(source, {}, (0, DROPPED), (0, ()), (0, AGAIN), (1, ()))
        assert [e["after"]["id"] for e in source.events("t")] == [1, 5, 5]


def test_a_dropped_table_stops_with_its_name(make_source: MakeSource) -> None:
    """A table that is dropped while the source runs stops, and is told with what to do."""
    source = make_source("dropped", {"table.include.list": "db.t"})
    source.sql("CREATE TABLE T.t (id BIGINT) USING iceberg", "INSERT INTO T.t VALUES (1)")
    with pytest.raises(FatalError, match=r"table db\.t was dropped; .*when_needed"):
        _run_beside(source, {}, (1, DROPPED), (2, ()))


@pytest.mark.thorough
def test_a_full_read_goes_on_at_the_part_it_had_reached(make_source: MakeSource) -> None:
    """A full read in several parts stores each; what is out is not read again, and the rows are all there once."""
    source = make_source("parts", {"max.batch.size": "100"})
    source.sql("CREATE TABLE T.t (id BIGINT NOT NULL) USING iceberg")
    for start in range(0, 400, 50):
        source.sql(f"INSERT INTO T.t SELECT id FROM range({start}, {start + 50}, 1, 1)")
    source.identify("t", "id")
    settings = source.settings()
    running: list[PollLoop] = []

    class Halt:
        def on_step(self, report: StepReport) -> None:
            if report.part == 2:
                running[0].stop()

    running.append(build_source(source.spark, settings, [Halt()]))
    running[0].run(once=True)
    part_way = len(source.events("t"))
    assert 0 < part_way < 400
    # Another batch size does not change how this read is cut.
    steps = source.publish({"max.batch.size": "1000"})
    assert steps[0].part == 3
    assert sorted(e["after"]["id"] for e in source.events("t")) == list(range(400))


def test_a_full_read_stays_at_its_snapshot_after_a_failure(make_source: MakeSource) -> None:
    """A first part that failed is read again at its snapshot: a row that is gone since is read, then deleted."""
    source = make_source("pinned")
    source.sql("CREATE TABLE T.t (id BIGINT NOT NULL) USING iceberg", "INSERT INTO T.t VALUES (1), (2)")
    source.identify("t", "id")
    away = {"producer.override.bootstrap.servers": "127.0.0.1:9", "producer.override.max.block.ms": "500"}
    with pytest.raises(RetriableError, match=r"publishing to pinned\.db\.t: TimeoutException"):
        source.publish({**away, "errors.retry.timeout": "0"})
    source.sql("DELETE FROM T.t WHERE id = 2")
    assert [step.kind for step in source.publish()] == ["part read", "snapshot published"]
    assert sorted((e["op"], (e["after"] or e["before"])["id"]) for e in source.events("t")) == [
        ("d", 2),
        ("r", 1),
        ("r", 2),
    ]


def test_a_second_source_of_the_same_name_is_noticed(make_source: MakeSource) -> None:
    """Whoever stores a position over one that another process stored meanwhile stops; another table's is no matter."""
    source = make_source("twice")
    settings = source.settings()
    first, second = (open_offsets(Catalog(source.spark, settings.catalog), settings) for _ in range(2))
    first.put("db.a", TableOffset(SnapshotOffset("u", 1), 5))
    second.put("db.b", TableOffset(SnapshotOffset("u", 2), 5))
    first.put("db.a", TableOffset(SnapshotOffset("u", 3), 5))
    with pytest.raises(FatalError, match="another source named twice is running"):
        second.put("db.a", TableOffset(SnapshotOffset("u", 2), 5))
    stored = open_offsets(Catalog(source.spark, settings.catalog), settings)
    assert (stored.of("db.a"), stored.of("db.b")) == (
        TableOffset(SnapshotOffset("u", 3), 5),
        TableOffset(SnapshotOffset("u", 2), 5),
    )


def test_the_sink_makes_a_replica_that_equals_the_source(
    make_source: MakeSource, make_workspace: MakeWorkspace
) -> None:
    """Source, broker and our own sink together: the replica equals the table, after copy-on-write and merge-on-read."""
    source = make_source("there", {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"})
    kinds = {"cow": "'format-version'='2'", "mor": f"'format-version'='3',{MERGE_ON_READ}"}
    kinds = kinds if THOROUGH else {"mor": kinds["mor"]}
    for table, properties in kinds.items():
        source.sql(
            f"CREATE TABLE T.{table} (id BIGINT NOT NULL, name STRING, amount DECIMAL(20, 3), at TIMESTAMP, day DATE, "
            f"l ARRAY<INT>, d DOUBLE) USING iceberg PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ({properties})",
            f"INSERT INTO T.{table} SELECT id, concat('n', id), id / 7, timestamp_micros(id * 1000001 - 5000), "
            f"date_from_unix_date(id - 100), array(cast(id AS INT)), id / 3 FROM range(200)",
        )
        source.identify(table, "id")
    source.publish()
    for table in kinds:
        source.sql(
            f"UPDATE T.{table} SET amount = -amount, id = id + 5000 WHERE id % 10 = 3",
            f"DELETE FROM T.{table} WHERE id % 10 = 4",
            f"INSERT INTO T.{table} SELECT id, NULL, NULL, NULL, NULL, NULL, NULL FROM range(2000, 2100)",
        )
    source.publish()
    extra = {
        "topics": ",".join(f"there.db.{table}" for table in kinds),
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    }
    space = make_workspace("replica", extra)
    ended = space.run()
    assert ended.code == 0, ended.text[-4000:]
    copy = Lake(source.spark, space.name, space.catalog)
    for table in kinds:
        wanted = source.rows(table)
        found = copy.many(f"there_db_{table}")
        columns = list(wanted[0])
        assert Counter(repr([row[c] for c in columns]) for row in found) == Counter(
            repr([row[c] for c in columns]) for row in wanted
        )
