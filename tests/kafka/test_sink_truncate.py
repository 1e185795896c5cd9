"""a source table that was truncated -> an Iceberg table without the rows of before, in whatever partition."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.iceberg.catalog.table import Table
from connector.sink.destinations.iceberg import committer
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.tiers import tiered
from tests.model import recordings
from tests.model.events import START_NS
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink
from tests.runs.processes import Run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "emptied.public.trunc_me"


def _is_before(record: Record) -> bool:
    """A row of the time before the truncate."""
    return record.value is not None and json.loads(record.value)["payload"]["op"] in ("r", "c") and record.offset < 2


def _rows(space: object, lake: OpenLake) -> list[tuple[int, str]]:
    return sorted((r["id"], r["v"]) for r in lake(space).rows("emptied_public_trunc_me"))  # type: ignore[arg-type]


def test_a_truncate_empties_the_table(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Rows of earlier batches and of other partitions go; the row after the truncate stays."""
    records = [attrs.evolve(r, topic=TOPIC) for r in recordings.load("json_schema_envelope", "trunc_me")]
    topics.replay(r for r in records if _is_before(r))
    extra = {"topics": TOPIC, "truncate.enabled": "true", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("truncating", {**extra, "debezium.sink.iceberg.write-mode": "position-delete"})
    _fine(space.run())
    assert _rows(space, lake) == [(1, "x"), (2, "y"), (3, "z")]
    topics.replay((r for r in records if not _is_before(r)), create=False)
    run = _fine(space.run())
    assert _rows(space, lake) == [(1, "after truncate")]
    assert run.total("dead_letters") == 0
    # The whole recording in one batch, read by a sink that starts anew.
    other = make_workspace("truncated", extra)
    _fine(other.run())
    assert _rows(other, lake) == [(1, "after truncate")]
    # Without the setting a truncate is told and changes nothing.
    ignoring = make_workspace("ignoring", {**extra, "truncate.enabled": "false"})
    ignored = _fine(ignoring.run())
    assert _rows(ignoring, lake) == [(1, "after truncate"), (2, "y"), (3, "z")]
    assert "truncates are ignored" in ignored.text and ignored.total("dead_letters") == 0


def test_what_comes_again_after_a_truncate_changes_nothing(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Rows from before a truncate that the source sends again stay away, and its truncate takes no newer row."""
    name = "emptied_again"
    records = [attrs.evolve(r, topic=name) for r in recordings.load("json_schema_envelope", "trunc_me")]
    extra = {"topics": name, "truncate.enabled": "true", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    sink = InProcessSink(spark, plain_workspace(name, extra))
    topics.replay(records)
    sink.run()
    late = []
    for part in ([r for r in records if b"after truncate" not in (r.value or b"")], list(filter(_is_before, records))):
        topics.replay(part, create=False)
        late += [report.metrics.late for report in sink.run()]
        assert [(r["id"], r["v"]) for r in sink.lake.many(name)] == [(1, "after truncate")]
    # With its truncate each row is before it in the batch; alone the rows are late.
    assert late == [0, 3]


def _event(topic: str, offset: int, table: str, number: int, op: str = "c") -> Record:
    """An event of a table of one database; keys of its tables differ."""
    moment = START_NS + number * 1_000_000
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": moment}
    after = {"id": number} if op == "c" else None
    value = json.dumps({"before": None, "after": after, "source": source, "op": op}).encode()
    return Record(topic, 0, offset, None if op == "t" else json.dumps({"id": number}).encode(), value)


_SHARED = {
    "a topic of several tables": {},
    "several topics": {
        "debezium.sink.iceberg.destination-regexp": "^shared.*$",
        "debezium.sink.iceberg.destination-regexp-replace": "all_of_them",
    },
    "named by events": {
        "iceberg.tables.route-field": "__db",
        "iceberg.tables": "all_of_them",
        "iceberg.table.all_of_them.route-regex": "db",
    },
    "not told apart": {"debezium.transforms.unwrap.add.fields": "op,source.ts_ns"},
}


@pytest.mark.parametrize("way", tiered(_SHARED, ["several topics", "not told apart"]))
def test_a_truncate_of_one_of_several_sources(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, way: str
) -> None:
    """Rows of the others stay, also from what comes late; where nothing tells rows apart all do, and the truncate is a
    dead letter."""
    name = f"shared_{list(_SHARED).index(way)}"
    one, other = (f"{name}.x", f"{name}.y") if way == "several topics" else (name, name)
    extra = {"topics": ",".join({one, other}), "truncate.enabled": "true"}
    space = plain_workspace(name, {**extra, "debezium.sink.iceberg.upsert-keep-deletes": "false", **_SHARED[way]})
    topics.create(dict.fromkeys({one, other}, 2))
    sink = InProcessSink(spark, space)
    first = [_event(one, 0, "x", 1), _event(other, 1, "y", 2), _event(one, 2, "x", 3), _event(other, 3, "y", 4)]
    topics.replay(first, create=False)
    sink.run()
    later = [_event(other, 4, "y", 5), _event(one, 5, "x", 6, "t"), _event(one, 6, "x", 7), _event(other, 7, "y", 8)]
    topics.replay(later, create=False)
    dead = sum(report.dead_letters for report in sink.run())
    topics.replay([attrs.evolve(first[0], partition=1), first[2], attrs.evolve(first[3], partition=1)], create=False)
    late = sum(report.metrics.late for report in sink.run())
    assert late == (0 if way == "not told apart" else 2)
    table = name if way in ("a topic of several tables", "not told apart") else "all_of_them"
    found = sorted(row["id"] for row in sink.lake.many(table))
    if way == "not told apart":
        assert (found, dead) == ([1, 2, 3, 4, 5, 7, 8], 1)
    else:
        assert (found, dead) == ([2, 4, 5, 7, 8], 0)


def _fine(run: Run) -> Run:
    assert run.code == 0, run.text[-6000:]
    return run


def _dated(topic: str, partition: int, key: int | None, second: int) -> Record:
    """A create, or a truncate for want of a key, with the date of a whole second."""
    moment = START_NS - START_NS % 10**9 + second * 10**9
    source = {"name": "srv", "db": "db", "table": topic.partition(".")[2], "ts_ns": moment}
    value = {"before": None, "after": key and {"id": key}, "source": source, "op": "c" if key else "t"}
    raw = json.dumps({"id": key}).encode() if key else None
    return Record(topic, partition, 0, raw, json.dumps(value).encode())


def test_rows_of_the_second_of_a_truncate(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """In the truncate's only partition all rows of earlier batches came before it, whatever their dates say; with other
    partitions beside, those with its own date stay.
    """
    topics.create({"moment.one": 1, "moment.two": 2})
    extra = {"topics": "moment.one,moment.two", "truncate.enabled": "true"}
    inside = InProcessSink(
        spark, plain_workspace("moments", {**extra, "debezium.sink.iceberg.upsert-keep-deletes": "false"})
    )
    seconds = enumerate((4, 5, 6), start=1)
    topics.replay(
        [_dated(topic, place % 2 * ("two" in topic), place, second) for place, second in seconds for topic in _MOMENTS],
        create=False,
    )
    inside.run()
    topics.replay([_dated(topic, 0, key, 5) for topic in _MOMENTS for key in (None, 9)], create=False)
    inside.run()
    found = {topic: sorted(r["id"] for r in inside.lake.many(topic.replace(".", "_"))) for topic in _MOMENTS}
    assert found == {"moment.one": [9], "moment.two": [2, 3, 9]}


_MOMENTS = ("moment.one", "moment.two")


@pytest.mark.parametrize("keep", tiered(["true", "false"], ["true"]))
def test_a_table_that_is_rolled_back_behind_a_truncate_is_emptied_again(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    """Its rows go in a commit of their own: where that is gone before the batch's, all of the batch is done again."""
    names = [f"back_{keep}_{mode}" for mode in ("eq", "cow")]
    extra = {"topics": ",".join(names), "truncate.enabled": "true", "debezium.sink.iceberg.upsert-keep-deletes": keep}
    extra[f"iceberg.table.{names[1]}.write-mode"] = "copy-on-write"
    inside = InProcessSink(spark, plain_workspace(f"back_{keep}", extra))
    topics.replay([_event(name, 0, "x", key) for name in names for key in (1, 2)])
    inside.run()
    first = {name: inside.lake.java(name).currentSnapshot().snapshotId() for name in names}
    topics.replay([_event(name, 0, "x", *told) for name in names for told in ((3, "t"), (4,))], create=False)
    left = {"before the look": names[:1], "before the commit": names[1:]}

    def roll_back(moment: str) -> None:
        for name in left.pop(moment, ()):
            inside.lake.java(name).manageSnapshots().rollbackTo(first[name]).commit()

    look, commit = committer.check_no_rollback, IcebergCommitter._commit_table

    def look_later(table: Table, *told: Any) -> None:
        if table.name.endswith("eq"):
            roll_back("before the look")
            table.refresh()
        look(table, *told)

    def commit_later(*told: Any) -> Any:
        roll_back("before the commit")
        return commit(*told)

    monkeypatch.setattr(committer, "check_no_rollback", look_later)
    monkeypatch.setattr(IcebergCommitter, "_commit_table", commit_later)
    reports = inside.run()
    assert not left and sum(report.dead_letters for report in reports) == 0
    for name in names:
        rows = {row["id"] for row in inside.lake.many(name) if row.get("__deleted") != "true"}
        assert rows == {4}, name
        kept = {row["id"] for row in inside.lake.many(name)}
        assert kept == ({1, 2, 4} if keep == "true" else {4}), name
