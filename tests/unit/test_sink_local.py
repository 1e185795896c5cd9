"""Rules of whole batches, without a JVM: map and reduce tasks run one after the other, tables are in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import call

import pytest
import structlog

from connector.errors import CommitRefused, FatalError, RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import TopicInfo
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.sink import factory
from connector.sink.fold import watermarks
from connector.sink.microbatch import group_follower
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.model.micro_batch import MicroBatch
from tests.unit.local_sink import LocalSink, local_sink

HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"


def _compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _flat(key: int | None, n: Any, op: str = "c", ts_ns: int = 0, **more: Any) -> tuple[bytes | None, bytes]:
    """A flattened event without schema."""
    row = {"id": key or 0, "n": n, "__op": op, "__deleted": str(op == "d").lower(), "__source_ts_ns": ts_ns, **more}
    return (None if key is None else _compact({"id": key})), _compact(row)


def _send(sink: LocalSink, topic: str, *events: tuple[bytes | None, bytes | None], partition: int = 0) -> Any:
    return sink.process(*(((topic, partition), key, value) for key, value in events))


def _found(sink: LocalSink, table: str) -> dict[int, Any]:
    return {row["id"]: row["n"] for row in sink.rows(table)}


def test_the_last_change_of_a_key_wins_whatever_task_reads_it(tmp_path: Path) -> None:
    """Inserts, updates and deletes in several partitions and batches leave each key its last row."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    first = [(("t", key % 3), *_flat(key, 1, ts_ns=key)) for key in range(30)]
    later = [(("t", key % 3), *_flat(key, 2, "u", 100 + key)) for key in range(0, 30, 2)]
    gone = [(("t", key % 3), *_flat(key, 0, "d", 200 + key)) for key in range(0, 30, 5)]
    assert sink.process(*first, *later).dead_letters == 0
    sink.process(*gone)
    assert _found(sink, "t") == {key: 1 if key % 2 else 2 for key in range(30) if key % 5}


def test_a_report_tells_which_topics_a_table_has_its_events_from(tmp_path: Path) -> None:
    """Several topics may go to one table; of those that events name nobody knows which topics they will be from."""
    sink = local_sink(tmp_path, ["topics=a,b,c", "iceberg.tables.topic-to-table-mapping=a:t,b:t"])
    event = _flat(1, 1, ts_ns=5 * 10**9)
    report = sink.process(*[((topic, 0), *event) for topic in ("a", "b", "c")])
    assert {table: sorted(topics) for table, topics in report.topics.items()} == {"t": ["a", "b"], "c": ["c"]}
    assert report.newest_ms == {"t": 5000, "c": 5000}


def test_leader_epochs_go_to_the_next_batch_and_into_the_offsets_table(tmp_path: Path) -> None:
    """Where a log was read up to is asked for by its epoch, also by the process after this one."""
    at = ("t", 0)
    settings = local_sink(tmp_path, ["topics=t"]).batches._settings
    sink = LocalSink(settings, KafkaOffsets("c", {"t": "id-t"}, {at: 2}, epochs={at: 5}))
    plan, _ = sink.batches.plan(MicroBatch(0, {at: 2}, {at: 4}))
    assert plan.assignment.shares == ((OffsetRange("t", 0, 2, 4, 5),),)
    assert sink.batches.plan(MicroBatch(0, {at: 3}, {at: 4}))[0].assignment.shares[0][0].epoch == -1
    sink.process((("u", 0), *_flat(1, 1)))
    sink.batches.close()
    saved, _ = sink.offsets.save.call_args[0]
    assert (saved.offsets, saved.epochs) == ({at: 2, ("u", 0): 1}, {at: 5})


def test_changes_of_one_key_in_one_batch(tmp_path: Path) -> None:
    """Deleted and inserted again in one batch or at one time, read and then created: one row, the last one."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    _send(sink, "t", *(_flat(key, 1, "r", 10) for key in (1, 2, 3)))
    report = _send(
        sink,
        "t",
        _flat(1, 0, "d", 20),
        _flat(1, 2, "c", 20),
        _flat(2, 30, "d", 30),
        _flat(2, 31, "c", 31),
        _flat(3, 3, "c", 10),
        _flat(None, 4, "c", 40),
    )
    assert (report.dead_letters, _found(sink, "t")) == (1, {1: 2, 2: 31, 3: 3})


@pytest.mark.parametrize("told", [{"__op": "u"}, {}], ids=["operation", "none"])
def test_an_event_that_tells_nothing_of_itself_is_no_tombstone(told: dict[str, str], tmp_path: Path) -> None:
    """A row without operation and date counts in Kafka's order, also behind an older change that came again."""
    sink = local_sink(tmp_path, ["topics=t", HARD, "debezium.sink.iceberg.upsert-dedup-column=v"])
    rows = [{"id": 1, "n": n, "v": v, **told} for n, v in enumerate((10, 5, None))]
    _send(sink, "t", *((_compact({"id": 1}), _compact(row)) for row in rows))
    assert _found(sink, "t") == {1: 2}


def test_a_job_runs_again_for_tables_that_were_not_ready(tmp_path: Path) -> None:
    """A table is made, and later given a column, by the batch that needs it; nothing of it is written twice."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert=false"])
    _send(sink, "t", _flat(1, 1), _flat(2, 2))
    assert len(sink.job.plans) == 2
    report = _send(sink, "t", _flat(3, 3, more="x"))
    assert len(sink.job.plans) == 4
    assert [(row["id"], row.get("more")) for row in sink.rows("t")] == [(1, None), (2, None), (3, "x")]
    assert report.drift == {"t": 1}


def test_a_field_that_a_table_lacks_stops_where_that_is_asked(tmp_path: Path) -> None:
    """Nothing of such a batch is committed, nor passed over; otherwise the field is left out and counted."""
    checked = local_sink(tmp_path, ["topics=t", "schema.evolution=validate-only"])
    _send(checked, "t", _flat(1, 1))
    with pytest.raises(FatalError, match=r"validate-only: t \(more, other\); add the columns"):
        _send(checked, "t", _flat(2, 2, more="x"), _flat(3, 3, other="y", more="z"))
    assert list(_found(checked, "t")) == [1]
    assert checked.batches.position.offsets == {("t", 0): 1}
    lenient = local_sink(tmp_path, ["topics=t", "schema.evolution=none"])
    _send(lenient, "t", _flat(1, 1))
    assert _send(lenient, "t", _flat(2, 2, more="x")).drift == {"t": 1}
    assert list(_found(lenient, "t")) == [1, 2]


def test_images_that_differ_in_kind_are_no_poison(tmp_path: Path) -> None:
    """Without schema, `before` and `after` of different kinds for a new column, and a fraction among bigints, are
    letters at most: the sink goes on, and every other row is there with its digits.
    """
    big = 2**53 + 1
    rows = [{"id": n, "v": {"a": n}, "n": big + 2 * n} for n in range(40)]

    def change(op: str, before: Any, after: Any) -> tuple[bytes, bytes]:
        source = {"db": "d", "schema": "public", "table": "t", "ts_ms": 1}
        return _compact({"id": (after or before)["id"]}), _compact(
            {"op": op, "before": before, "after": after, "source": source}
        )

    events = [change("c", None, row) for row in rows]
    events.insert(20, change("d", {"id": 90, "v": [1], "n": big}, None))
    events.insert(10, change("c", None, {"id": 91, "v": {"a": 1}, "n": 0.5}))
    events.append(change("u", {"id": 39, "v": "x", "n": 1}, rows[-1]))
    sink = local_sink(tmp_path, ["topics=t", HARD])
    report = _send(sink, "t", *events)
    assert {row["id"]: (row["v"]["a"], row["n"]) for row in sink.rows("t") if row["id"] < 90} == {
        row["id"]: (row["v"]["a"], row["n"]) for row in rows
    }
    assert report.dead_letters <= 2


@pytest.mark.parametrize(("left", "right"), [('{"a":', "}"), ("[", "]")])
@pytest.mark.parametrize(("depth", "letters"), [(49, 0), (50, 1), (70, 1), (98, 1)])
@pytest.mark.parametrize("schema", [None, "null"])
def test_a_deep_value_makes_no_table_that_cannot_be_read(
    depth: int, letters: int, left: str, right: str, schema: str | None, tmp_path: Path
) -> None:
    """A value as deep as is taken is in its table, which goes on; a deeper one is a dead letter, and no column."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    _send(sink, "t", _flat(1, 1))
    deep = f'{{"id":2,"n":2,"__op":"c","v":{left * depth}1{right * depth}}}'
    deep = deep if schema is None else f'{{"schema":{schema},"payload":{deep}}}'
    assert _send(sink, "t", (_compact({"id": 2}), deep.encode())).dead_letters == letters
    _send(sink, "t", _flat(3, 3))
    assert set(_found(sink, "t")) == ({1, 3} if letters else {1, 2, 3})


def test_what_a_task_saw_of_a_partition_is_merged_with_that_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far sources came is noted once for each topic-partition, however many of them a task reads."""
    sink, merge, merged = local_sink(tmp_path, ["topics=t", HARD]), watermarks._merge_marks, list[object]()
    monkeypatch.setattr(watermarks, "_merge_marks", lambda *given: merged.append(given) or merge(*given))
    events = [(("t", key), *_flat(key, 1, ts_ns=key)) for key in range(40)]
    sink.process(*events)
    assert len(sink.rows("t")) == 40
    assert len(merged) <= 40


# A limit -> settings, how many bad and good records go beyond it.
LIMITS: dict[str, tuple[list[str], int, int]] = {
    "errors.deadletterqueue.limit.ratio": ([], 150, 150),  # more than a tenth of a batch, and more than 100
    "errors.deadletterqueue.limit.total": (["errors.deadletterqueue.limit.total=5"], 6, 300),
    "errors.tolerance": (["errors.tolerance=none"], 1, 50),
}


@pytest.mark.parametrize("named", LIMITS)
def test_too_many_dead_letters_stop_the_sink(tmp_path: Path, named: str) -> None:
    """Beyond the limit the sink stops with the limit's name, and commits nothing of the batch."""
    limit, bad, good = LIMITS[named]
    sink = local_sink(tmp_path, ["topics=t", *limit])
    events = [_flat(key, key) for key in range(good)] + [(_compact({"id": 1}), b"?")] * bad
    with pytest.raises(FatalError, match=named.replace(".", r"\.")):
        _send(sink, "t", *events)
    assert (sink.rows("t"), sink.letters) == ([], [])


def test_a_batch_that_is_tried_again_writes_its_letters_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away in a task, then refused commits: rows and letters are there once, and are counted once."""
    sink = local_sink(tmp_path, ["topics=t", "errors.deadletterqueue.limit.total=2", "errors.retry.delay.max.ms=1"])
    failures = [RetriableError("the store is away"), None, CommitRefused("another was faster"), CommitRefused("again")]
    run, commit = sink.job.run, sink.destination.commit

    def fail_once(call: Any) -> Any:
        def called(*given: Any) -> Any:
            if failures and (error := failures.pop(0)) is not None:
                raise error
            return call(*given)

        return called

    monkeypatch.setattr(type(sink.job), "run", lambda _, *given: fail_once(run)(*given))
    monkeypatch.setattr(type(sink.destination), "commit", lambda _, *given: fail_once(commit)(*given))
    bad = (_compact({"id": 9}), b"?")
    report = _send(sink, "t", _flat(1, 1), bad, _flat(2, 2))
    assert (failures, _found(sink, "t"), report.dead_letters) == ([], {1: 1, 2: 2}, 1)
    failures += [None, CommitRefused("another was faster")]
    assert _send(sink, "t", _flat(3, 3), bad).dead_letters == 1
    assert [one.offset for one in sink.letters] == [1, 4]
    with pytest.raises(FatalError, match=r"3 dead letters in this run"):
        _send(sink, "t", bad)


def test_a_letter_is_the_place_of_its_record(tmp_path: Path) -> None:
    """Bad records cost no good one; each is told by topic-partition and offset, with a reason without its content."""
    sink = local_sink(tmp_path, ["topics=t"])
    _send(sink, "t", _flat(1, 1), partition=2)
    report = _send(
        sink, "t", _flat(2, 2), (b"\xff", _flat(3, 3)[1]), _flat(4, 4), (_flat(5, 5)[0], b"s3cret"), partition=2
    )
    assert sorted(_found(sink, "t")) == [1, 2, 4]
    assert sorted((one.topic, one.partition, one.offset) for one in sink.letters) == [("t", 2, 2), ("t", 2, 4)]
    assert report.dead_letters == 2
    assert not any("s3cret" in one.reason for one in sink.letters)


@pytest.mark.parametrize("nothing", [{"a": None}, {}, {"a": {"b": None}}, {"a": []}, [None], [{}]], ids=str)
def test_what_holds_no_value_makes_no_column_yet(tmp_path: Path, nothing: Any) -> None:
    """Without schema a struct or list of nothing has no type: the column is made with its first value, and is null in
    the rows before; from then on a struct of nulls is one."""
    sink = local_sink(tmp_path, ["topics=t"])
    assert _send(sink, "t", _flat(1, 1, s=nothing), _flat(2, 2, s=nothing)).dead_letters == 0
    assert all("s" not in row for row in sink.rows("t"))
    assert _send(sink, "t", _flat(3, 3, s={"a": 5}), _flat(4, 4, s={"a": None})).dead_letters == 0
    assert [row.get("s") for row in sink.rows("t")] == [None, None, {"a": 5}, {"a": None}]


@pytest.mark.parametrize("empty", [[], {}, [None], [[]], [{}], {"a": []}, {"a": None}], ids=str)
@pytest.mark.parametrize("value", [1.5, 7, True, "x", [1], {"b": 1}, [{"b": 1}]], ids=str)
def test_what_is_empty_types_no_column(tmp_path: Path, empty: Any, value: Any) -> None:
    """Beside one value of another kind any number of empty objects and lists are letters: the value has its column."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    report = _send(sink, "t", _flat(1, empty), _flat(2, empty), _flat(3, value), _flat(4, empty))
    assert _found(sink, "t")[3] == value
    assert report.dead_letters == 0 or (report.dead_letters, _found(sink, "t")) == (3, {3: value})


def _of(table: str, key: int | None, second: int, op: str = "c", **more: Any) -> tuple[bytes | None, bytes]:
    """An envelope of a source table; the key tells when it was."""
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": second * 1000 + 1}
    row = None if key is None else {"id": key, "n": second, **more}
    return key and _compact({"id": key}), _compact({"before": None, "after": row, "source": source, "op": op})


def test_a_truncate_beside_a_source_that_needs_a_column(tmp_path: Path) -> None:
    """A source whose events need a column first has rows too: the truncate of another takes none of them."""
    fields = "debezium.transforms.unwrap.add.fields=op,source.ts_ns,table,db,schema"
    sink = local_sink(tmp_path, ["topics=t", HARD, "truncate.enabled=true", fields])
    _send(sink, "t", _of("x", 1, 1))
    _send(sink, "t", _of("y", 2, 2, more="new"), _of("x", 3, 3), _of("x", None, 4, "t"), _of("x", 5, 5), _of("y", 6, 6))
    assert _found(sink, "t") == {2: 2, 5: 5, 6: 6}


def test_a_truncate_beside_rows_of_another_connector(tmp_path: Path) -> None:
    """Rows that another connector brought into the table are of other sources: they stay."""
    fields = "debezium.transforms.unwrap.add.fields=op,source.ts_ns,table,db,schema"
    sink = local_sink(tmp_path, ["topics=t", HARD, "truncate.enabled=true", fields])
    _send(sink, "t", _of("x", 1, 1))
    sink.destination.rows["t"][9,] = {
        "id": 9,
        "n": 9,
        "__table": "y",
        "__db": "db",
        "__schema": "public",
        "__source_ts_ns": 5,
    }
    sink.destination.tables.find_other_sources = lambda name: frozenset({"srv.db.public.y"})  # type: ignore[method-assign]
    assert _send(sink, "t", _of("x", None, 7, "t"), _of("x", 8, 8)).dead_letters == 0
    assert _found(sink, "t") == {8: 8, 9: 9}


def test_types_of_newer_versions_are_told_once(tmp_path: Path) -> None:
    """A name of Debezium's that is not known is one log line of a run, and its column has the plain values."""
    sink = local_sink(tmp_path, ["topics=t"])
    newer = {"type": "int64", "optional": True, "field": "n", "name": "io.debezium.time.PicoTimestamp"}
    fields = [{"type": "int32", "optional": False, "field": "id"}, newer]
    schema = {"type": "struct", "name": "t.Value", "fields": fields}
    key = _compact({"id": 1})
    with structlog.testing.capture_logs() as lines:
        for value in (5, 6):
            _send(sink, "t", (key, _compact({"schema": schema, "payload": {"id": 1, "n": value}})))
    told = [line["types"] for line in lines if line["event"].startswith("events have types")]
    assert told == [["io.debezium.time.PicoTimestamp (int64)"]]
    assert _found(sink, "t") == {1: 6}


def test_a_name_in_several_cases_is_one_column(tmp_path: Path) -> None:
    """Events of one batch, of the first and of later ones, fill one column however they write its name;
    of an event that gives several the column's own name counts. Values that do not fit together are dead letters."""
    sink = local_sink(tmp_path, ["topics=t,u", HARD, "iceberg.tables.schema-case-insensitive=true"])

    def events(first: int, *rows: dict[str, Any]) -> list[tuple[bytes | None, bytes]]:
        made = [_flat(first + n, n, ts_ns=first + n, **row) for n, row in enumerate(rows)]
        return [(key, value.replace(b'"n"', [b'"n"', b'"N"'][place % 2])) for place, (key, value) in enumerate(made)]

    _send(sink, "t", *events(1, {"name": "a"}, {"NAME": "b"}, {"Name": "c"}))
    _send(sink, "t", *events(4, {"NAME": "d"}, {"Name": "f", "name": "e"}, {"New": "g"}, {"NEW": "h"}))
    assert [(row["id"], row["name"], row.get("New")) for row in sink.rows("t")] == [
        (1, "a", None),
        (2, "b", None),
        (3, "c", None),
        (4, "d", None),
        (5, "e", None),
        (6, None, "g"),
        (7, None, "h"),
    ]
    assert [row["n"] for row in sink.rows("t")] == [0, 1, 2, 0, 1, 2, 3]
    assert {name for row in sink.rows("t") for name in row} & {"NAME", "Name", "N", "NEW"} == set()
    assert sink.letters == []
    _send(sink, "u", *events(1, {"v": 1}, {"V": "text"}, {"V": None}))
    assert [(row["id"], row["v"]) for row in sink.rows("u")] == [(1, 1), (3, None)]
    assert [letter.offset for letter in sink.letters] == [1] and "V: not a number" in sink.letters[0].reason


def test_record_keys_in_several_cases_name_one_row(tmp_path: Path) -> None:
    """Keys of one batch, of the first and of later ones, and of tombstones, are of one column however they write it."""
    sink = local_sink(tmp_path, ["topics=t", HARD, "iceberg.tables.schema-case-insensitive=true"])

    def change(key: str, row: str, number: int, v: int, op: str = "c") -> tuple[bytes, bytes]:
        return _compact({key: number}), _compact({row: number, "v": v, "__op": op, "__source_ts_ns": v})

    _send(sink, "t", change("ID", "id", 1, 1), change("Id", "iD", 2, 2), change("id", "id", 3, 3))
    assert [(row["id"], row["v"]) for row in sink.rows("t")] == [(1, 1), (2, 2), (3, 3)]
    _send(sink, "t", change("id", "ID", 1, 4, "u"), (_compact({"ID": 2}), None), change("iD", "Id", 3, 5, "d"))
    assert [(row["id"], row["v"]) for row in sink.rows("t")] == [(1, 4)]
    assert sink.letters == []


@pytest.mark.parametrize("key", ["iceberg.table.t.id-columns=CODE", "iceberg.tables.default-id-columns=Code"])
def test_key_columns_are_named_in_any_case(tmp_path: Path, key: str) -> None:
    """`id-columns=CODE` is the column `code`, of a new table and of one that is there."""
    sink = local_sink(tmp_path, ["topics=t", HARD, key, "iceberg.tables.schema-case-insensitive=true"])

    def change(code: int, v: int) -> tuple[bytes, bytes]:
        return _compact({"id": v}), _compact({"code": code, "v": v, "__op": "u", "__source_ts_ns": v})

    for v in (1, 2):
        _send(sink, "t", change(1, v), change(v + 1, v))
    assert sorted((row["code"], row["v"]) for row in sink.rows("t")) == [(1, 2), (2, 1), (3, 2)]
    assert sink.letters == []


def test_what_the_group_lacks_is_told_once(tmp_path: Path) -> None:
    """Who has no right on it has none with the next batch either; another reason, or the same later, is told again."""
    sink = local_sink(tmp_path, ["topics=t"])
    with structlog.testing.capture_logs() as lines:
        for number, problem in enumerate(["no right", "no right", "away", None, "no right"]):
            sink.group.commit_offsets.return_value = problem
            _send(sink, "t", _flat(number, 1))
            sink.batches._await_settlement()
    told = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert told == ["no right", "away", "no right"]


def test_the_group_follows_where_no_batch_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did not take is told again while the topics are quiet, and nothing once it has everything."""
    monkeypatch.setattr(group_follower, "_AGAIN_S", 0.0)
    sink = local_sink(tmp_path, ["topics=t"])
    sink.group.commit_offsets.side_effect = ["away", None]
    _send(sink, "t", _flat(1, 1))
    sink.batches._await_settlement()
    for _ in range(3):
        _rest(sink)
    assert sink.group.commit_offsets.call_args_list == [call({("t", 0): 1})] * 2


def test_the_group_follows_to_where_a_process_begins(tmp_path: Path) -> None:
    """Who ended between saving offsets and telling the group tells it at the next start, with no batch."""
    sink = local_sink(tmp_path, ["topics=t"])
    _rest(sink)
    sink.batches.expect_group({("t", 0): 7, ("t", 1): 9})
    for _ in range(2):
        _rest(sink)
    assert sink.group.commit_offsets.call_args_list == [call({("t", 0): 7, ("t", 1): 9})]


def _rest(sink: LocalSink) -> None:
    sink.batches.rest()
    if sink.batches._following is not None:
        sink.batches._following.result(60)


def test_a_catalog_that_goes_away_while_a_sink_starts_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that cannot be loaded for what waits in the topics end no sink: they are loaded a moment later."""
    sink = local_sink(tmp_path, ["topics=t"])
    answers = iter([RetriableError("loading table t: the catalog is away"), None])
    load_existing = sink.destination.tables._load_existing

    def load(name: str) -> Any:
        if (error := next(answers)) is not None:
            raise error
        return load_existing(name)

    monkeypatch.setattr(sink.destination.tables, "_load_existing", load)
    monkeypatch.setattr(factory, "sample_schemas", lambda *_: [])
    at = ("t", 0)
    cluster = ClusterState("c", {"t": TopicInfo("t", "id-t", 1)}, {at: 0}, {at: 5})
    position = KafkaOffsets("c", {"t": "id-t"}, {at: 0})
    factory._prepare_tables(sink.batches._settings, sink.destination.tables, sink.batches, position, cluster)
    assert next(answers, "all were asked for") == "all were asked for"


def test_a_column_that_begins_with_words_for_numbers_is_text(tmp_path: Path) -> None:
    """Without schemas nothing tells NaN from text: numbers that come later are stored as text, and none is lost."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert=false"])
    for value in ("NaN", 1.5, "Infinity"):
        assert sink.process((("t", 0), None, json.dumps({"id": 1, "f": value}).encode())).dead_letters == 0
    assert [row["f"] for row in sink.rows("t")] == ["NaN", "1.5", "Infinity"]
