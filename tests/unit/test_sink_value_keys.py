"""Rows that are told apart by columns of the value (`id-columns`), and updates that change these columns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.convert.left_keys import follow_left_keys
from connector.sink.fold.watermarks import merge_progress
from connector.sink.model.plan import TablePlan
from tests.unit.local_sink import LocalSink, local_sink
from tests.unit.sink_plans import plan, routing, run, upsert

BY_MAIL = ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false", "iceberg.tables.default-id-columns=mail"]
COLUMNS = {"id": pa.int64(), "mail": pa.string(), "n": pa.int64(), "__deleted": pa.string()}
Row = dict[str, Any]
CLOUD = {"specversion": "1.0", "type": "DataChangeEventV1"}


def _event(op: str, before: Row | None, after: Row | None, place: int) -> Row:
    source = {"name": "s", "db": "d", "schema": "p", "table": "t", "ts_ms": place, "lsn": place}
    return {"op": op, "before": before, "after": after, "source": source}


def _cloud(event: Row) -> Row:
    told = {f"iodebezium{name.replace('_', '')}": value for name, value in event["source"].items()}
    return {**CLOUD, **told, "iodebeziumop": event["op"], "data": {key: event[key] for key in ("before", "after")}}


def _row(key: int, mail: str | None, n: int = 0) -> Row:
    return {"id": key, "mail": mail, "n": n}


def _send(sink: LocalSink, *events: Row) -> Any:
    dumped = [json.dumps(event, separators=(",", ":")).encode() for event in events]
    return sink.process(*((("t", 0), b'{"id":1}', value) for value in dumped))


def _found(sink: LocalSink) -> dict[str, int]:
    return {row["mail"]: row["id"] for row in sink.rows("t")}


@pytest.mark.parametrize("form", [dict, _cloud], ids=["envelope", "cloud event"])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_row_leaves_the_key_that_an_update_changes(tmp_path: Path, form: Any, batches: int) -> None:
    """Its old key is gone, whether the row came in this batch or before, and free for other rows."""
    sink = local_sink(tmp_path, BY_MAIL)
    events = [
        form(_event("c", None, _row(1, "a"), 1)),
        form(_event("c", None, _row(2, "b"), 2)),
        form(_event("u", _row(1, "a"), _row(1, "c", 1), 3)),
        form(_event("u", _row(2, "b"), _row(2, "b", 1), 4)),
        form(_event("c", None, _row(3, "a"), 5)),
        form(_event("u", _row(2, "b", 1), _row(2, "d", 1), 6)),
    ]
    for first in range(0, len(events), len(events) // batches):
        assert _send(sink, *events[first : first + len(events) // batches]).dead_letters == 0
    assert _found(sink) == {"c": 1, "a": 3, "d": 2}


@pytest.mark.parametrize("schema", [True, False], ids=["schema", "bare"])
def test_a_row_leaves_its_key_whatever_else_stood_in_it(tmp_path: Path, schema: bool) -> None:
    """A value of the row before that no column can hold costs that value alone: the key beside it is needed."""
    sink = local_sink(tmp_path, BY_MAIL)
    infinity = 2**63 - 1 if schema else "endless"
    texts = [{"type": "string", "field": name} for name in ("name", "db", "schema", "table")]
    source = {"type": "struct", "fields": [*texts, *({"type": "int64", "field": name} for name in ("ts_ms", "lsn"))]}
    moment = {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True, "field": "at"}
    row = {"type": "struct", "optional": True, "fields": [{"type": "string", "field": "mail"}, moment]}
    images = [{**row, "field": name} for name in ("before", "after")]
    block = {"type": "struct", "fields": [{"type": "string", "field": "op"}, *images, {**source, "field": "source"}]}

    def send(event: Row) -> None:
        _send(sink, {"schema": block, "payload": event} if schema else event)

    send(_event("c", None, {"mail": "a", "at": 5}, 1))
    send(_event("u", {"mail": "a", "at": infinity}, {"mail": "b", "at": 6}, 2))
    assert [row["mail"] for row in sink.rows("t")] == ["b"] and not sink.letters


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_the_source(tmp_path: Path, seed: int) -> None:
    """Rows that come, move from key to free key and go, in batches cut anywhere: each live row under its last key."""
    chance, sink, live = random.Random(seed), local_sink(tmp_path, BY_MAIL), dict[int, Row]()
    events = []
    for place in range(1, 120):
        free = sorted(set("abcdefgh") - {row["mail"] for row in live.values()})
        kind = chance.random()
        if live and kind < 0.5:
            key = chance.choice(sorted(live))
            after = {**live[key], "n": place, "mail": chance.choice([live[key]["mail"], *free])}
            events.append(_event("u", live[key], after, place))
            live[key] = after
        elif free and kind < 0.8:
            live[place] = _row(place, chance.choice(free), place)
            events.append(_event("c", None, live[place], place))
        elif live:
            events.append(_event("d", live.pop(chance.choice(sorted(live))), None, place))
    while events:
        count = chance.randint(1, 60)
        assert _send(sink, *events[:count]).dead_letters == 0
        events = events[count:]
    assert sorted((row["mail"], row["id"], row["n"]) for row in sink.rows("t")) == sorted(
        (row["mail"], row["id"], row["n"]) for row in live.values()
    )


@pytest.mark.parametrize("before", [None, {"id": 1}, _row(1, None)], ids=["none", "record key only", "null"])
def test_without_the_key_before_the_row_stays(tmp_path: Path, before: Row | None) -> None:
    """Where the source does not tell what the row was (`REPLICA IDENTITY FULL` does) nothing else is deleted."""
    sink = local_sink(tmp_path, BY_MAIL)
    _send(sink, _event("c", None, _row(1, "a"), 1))
    assert _send(sink, _event("u", before, _row(1, "b"), 2)).dead_letters == 0
    assert _found(sink) == {"a": 1, "b": 1}


def test_an_update_that_is_a_dead_letter_takes_no_row(tmp_path: Path) -> None:
    """What it says happened is not in the table: neither its row, nor that the row before it is gone."""
    sink = local_sink(tmp_path, BY_MAIL)
    _send(sink, _event("c", None, _row(1, "a"), 1))
    assert _send(sink, _event("u", _row(1, "a"), {"id": 1, "mail": "b", "n": "x"}, 2)).dead_letters == 1
    assert _found(sink) == {"a": 1}


def _table(index: int, **more: Any) -> TablePlan:
    return upsert(index, COLUMNS, ("mail",), keys_from="value", **more)


def test_kept_deletes_mark_the_row_under_the_key_before() -> None:
    """With deletes kept the old key's row stays, marked, with what it held."""
    made = decode(run(_event("u", _row(1, "a", 5), _row(1, "b", 6), 2)), plan(_table(0, keep_deletes=True)))
    found = [(row["mail"], row["n"], row["__deleted"]) for part in made.parts for row in part.rows.to_pylist()]
    assert sorted(found) == [("a", 5, "true"), ("b", 6, "false")]


def test_a_row_leaves_the_table_that_an_update_changes() -> None:
    """A row whose field names another table now is in that one alone."""
    rule = RouteSettings(field="id", dynamic=True)
    made = decode(
        run(_event("u", _row(1, "a"), _row(2, "a"), 2), _event("u", _row(1, "b"), _row(1, "b", 3), 3)),
        plan(_table(0), _table(1), routing=routing(rule, "1", "2")),
    )
    found = [
        (index, row["mail"], bool(gone))
        for part, index in zip(made.parts, made.tables, strict=True)
        for row, gone in zip(part.rows.to_pylist(), part.deleted, strict=True)
    ]
    assert sorted(found) == [(0, "a", True), (0, "b", False), (1, "a", False)]


@pytest.mark.parametrize("keys_from", ["value", "record"])
def test_another_partition_may_have_later_changes_of_a_key_of_the_value(keys_from: Any) -> None:
    """A row gives its mail to one whose events are in another partition, which may be read first: what is older than
    anything there is compared with the table. Changes of a record's key are in one partition.
    """
    source = "s.d.p.t"
    table = upsert(
        0,
        COLUMNS,
        ("mail",),
        keys_from=keys_from,
        dated=True,
        watermarks={("t", 1): {source: Watermark(place=(9, 0, 0))}},
    )
    events = _event("u", _row(1, "a"), _row(1, "b"), 7), _event("c", None, _row(3, "c"), 11)
    made = decode(run(*events, keys=[{"mail": "b"}, {"mail": "c"}]), plan(table))
    found = [
        (row["mail"], bool(suspect))
        for part in made.parts
        for row, suspect in zip(part.rows.to_pylist(), part.suspect, strict=True)
    ]
    assert sorted(found) == (
        [("a", True), ("b", True), ("c", False)] if keys_from == "value" else [("b", False), ("c", False)]
    )


def test_the_row_that_left_a_table_tells_how_far_its_source_came() -> None:
    """So that what made it is older, if it comes again."""
    rule = RouteSettings(field="n", dynamic=True)
    made = decode(
        run(_event("c", None, _row(1, "a", 1), 3), _event("u", _row(1, "a", 1), _row(1, "a", 2), 7)),
        plan(_table(0, dated=True), _table(1, dated=True), routing=routing(rule, "1", "2")),
    )
    (progress,) = (one for one in merge_progress(made.progress) if one.table == 0)
    assert [mark.place for mark in progress.marks.values()] == [(7, 0, 0)]
    assert progress.after_delete == -1, "no tombstone follows"


@pytest.mark.parametrize("patches", [True, False])
def test_an_update_of_the_key_is_a_change_of_key_where_values_are_left_out(patches: bool) -> None:
    """The key that the row had is told from the row before, at the place of the update."""
    tables = [_table(0, patches=patches)]
    events = _event("u", _row(1, "a"), _row(1, "b"), 2), _event("u", _row(2, "c"), _row(2, "c", 1), 3)
    made = decode(run(*events), plan(*tables))
    parts, left = follow_left_keys(made.parts, [tables[index] for index in made.tables])
    operations = sorted(chr(code) for part in parts for code in part.order.op)
    assert operations == (["C", "d", "u"] if patches else ["d", "u", "u"])
    told = [
        (row["mail"], offset)
        for _, part in left
        for row, offset in zip(part.rows.to_pylist(), part.order.offset, strict=True)
    ]
    assert told == ([("a", 100)] if patches else [])


def test_rows_of_record_keys_are_left_to_the_source() -> None:
    """A record key that changes comes as a delete and a create: of other columns nothing is derived."""
    table = upsert(0, COLUMNS, ("id",))
    made = decode(run(_event("u", _row(1, "a"), _row(1, "b"), 2), keys=[{"id": 1}]), plan(table))
    assert [len(part) for part in made.parts] == [1]
