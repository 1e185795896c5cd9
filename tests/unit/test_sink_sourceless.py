"""Envelopes without `source`: Flink's `debezium-json`, and Debezium's own behind ReplaceField."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from serde.avro.deserializer import AvroDeserializer
from serde.events.kinds.event_kind import is_envelope
from serde.json.deserializer import JsonDeserializer
from serde.messages import MessageBlock
from tests.model import avro
from tests.model.avro import framed, written
from tests.unit.local_sink import LocalSink, local_sink
from tests.unit.sink_plans import append, dead, plan, routing, rows, run, upsert

HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
SOURCE = {"connector": "mysql", "name": "s", "db": "d", "table": "t", "ts_ms": 1_700_000_000_000}
Event = tuple[Any, Any]


def _event(op: str, before: Any = None, after: Any = None, **more: Any) -> Event:
    image = after or before
    return {"id": image["id"]}, {"before": before, "after": after, "op": op, **more}


def _row(key: int, name: str | None = "a", **more: Any) -> dict[str, Any]:
    return {"id": key, "name": name, **more}


def _send(sink: LocalSink, *events: Event) -> Any:
    texts = [(None if key is None else json.dumps(key).encode(), json.dumps(value).encode()) for key, value in events]
    return sink.process(*((("t", 0), *each) for each in texts))


def _found(sink: LocalSink) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in sink.rows("t")}


def _live(sink: LocalSink) -> dict[int, Any]:
    return {key: row["name"] for key, row in _found(sink).items() if row.get("__deleted") != "true"}


def _flink_history(length: int) -> tuple[list[list[Event]], dict[int, str]]:
    """Inserts, updates (a delete, then an insert) and deletes as Flink writes them, by batches; and what is left."""
    rng, rows, batches = random.Random(5), dict[int, str](), list[list[Event]]()
    for _ in range(6):
        batch = list[Event]()
        for _ in range(length):
            key, name = rng.randrange(12), f"n{rng.randrange(1000)}"
            if key in rows:
                batch.append(_event("d", _row(key, rows.pop(key))))
                if rng.random() < 0.4:
                    continue
            batch.append(_event("c", None, _row(key, name)))
            rows[key] = name
        batches.append(batch)
    return batches, rows


@pytest.mark.parametrize("keys", ["", "primary.key.mode=record_value"])
@pytest.mark.parametrize("deletes", [HARD, ""])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_flinks_changes_leave_the_rows_that_they_tell(tmp_path: Path, deletes: str, length: int, keys: str) -> None:
    """Inserts, updates and deletes of `debezium-json` end in the rows of a reference, in batches of any size."""
    sink = local_sink(tmp_path, ["topics=t", deletes, *([keys, "primary.key.fields=id"] if keys else [])])
    batches, expected = _flink_history(length)
    for batch in batches:
        assert _send(sink, *((None if keys else key, value) for key, value in batch)).dead_letters == 0
    assert _live(sink) == expected
    assert not {name for row in sink.rows("t") for name in row} & {"op", "before", "after", "source"}
    assert all("__source_ts_ns" not in row for row in sink.rows("t"))


@pytest.mark.parametrize("keep", [True, False])
def test_a_deleted_row_is_that_before_it(keep: bool) -> None:
    """With soft deletes a delete of Flink's writes its `before` and the mark; in each case it removes the key."""
    kinds = {"id": pa.int64(), "name": pa.string(), "__deleted": pa.string()}
    events = [
        _event("c", None, _row(1)),
        _event("d", _row(1)),
        _event("c", None, _row(1, "b")),
        _event("d", _row(1, "b")),
    ]
    table = upsert(0, kinds, ("id",), keep_deletes=keep)
    outcome = decode(run(*(value for _, value in events), keys=[key for key, _ in events]), plan(table))
    assert not dead(outcome)
    (part,) = fold(list(outcome.parts), ("id",)).parts
    assert [bool(gone) for gone in part.deleted][-1]
    told = [(row["name"], row["__deleted"]) for row in rows(outcome)]
    assert told[0::2] == [("a", "false"), ("b", "false")]
    assert told[1::2] == ([("a", "true"), ("b", "true")] if keep else [(None, None)] * 2)


def test_routing_by_a_source_that_is_not_there() -> None:
    """A template that names fields of the source makes such events dead letters, as for null; others go on."""
    rule = RouteSettings(template="${source.table}", dynamic=True)
    told = _event("c", None, _row(2), source=SOURCE)[1]
    bare = _event("c", None, _row(1))[1]
    outcome = decode(run(bare, told, bare), plan(append(0, {"id": pa.int64()}), routing=routing(rule, "t")))
    assert set(dead(outcome)) == {0, 2}


@pytest.mark.parametrize("length", [7, 300])
def test_events_with_source_and_without_in_one_topic(tmp_path: Path, length: int) -> None:
    """Each message is read by what it has: source, a null one or none, in batches of any size."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    batches, expected = _flink_history(length)
    rng, count = random.Random(7), 0
    for batch in batches:
        events = list[Event]()
        for key, value in batch:
            count += 1
            around = {**SOURCE, "ts_ms": SOURCE["ts_ms"] + count}
            events.append((key, {**value, **rng.choice([{}, {"source": None}, {"source": around, "ts_ms": 5}])}))
        assert _send(sink, *events).dead_letters == 0
    assert _live(sink) == expected


def test_the_envelopes_own_fields_stay_around_the_row(tmp_path: Path) -> None:
    """Debezium's events behind ReplaceField: times and transaction are no columns, unless `add.fields` names them."""
    sink = local_sink(tmp_path, ["topics=t", HARD, "transforms.unwrap.add.fields=op,ts_ms,source.ts_ns"])
    around = {"ts_ms": 5, "ts_us": 5000, "ts_ns": 5000000, "transaction": None}
    report = _send(sink, _event("r", None, _row(1), **around), _event("u", _row(1), _row(1, "b"), **around))
    assert report.dead_letters == 0
    (row,) = sink.rows("t")
    assert (row["id"], row["name"], row["__op"]) == (1, "b", "u")
    assert not row.keys() & {"ts_ms", "ts_us", "ts_ns", "transaction"}
    assert row.get("__source_ts_ns") is None


def test_an_event_without_images_is_none_of_nulls(tmp_path: Path) -> None:
    """A delete whose `before` is null deletes its key, alone in a batch too; an insert without row is a dead letter."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    _send(sink, _event("c", None, _row(1)), _event("c", None, _row(2)))
    assert _send(sink, ({"id": 1}, {"before": None, "after": None, "op": "d"})).dead_letters == 0
    assert _live(sink) == {2: "a"}
    assert _send(sink, ({"id": 2}, {"before": None, "after": None, "op": "c"})).dead_letters == 1
    assert _live(sink) == {2: "a"}


@pytest.mark.parametrize("source", [None, {}, "none"])
def test_a_source_that_tells_nothing_is_none(tmp_path: Path, source: Any) -> None:
    """Events whose `source` is null or empty are those without one, alone and in one batch with others."""
    more = {} if source == "none" else {"source": source}
    alone, mixed = (local_sink(_folder(tmp_path, name), ["topics=t", HARD]) for name in ("alone", "mixed"))
    events = [_event("c", None, _row(1), **more), _event("u", _row(1), _row(1, "b"), **more)]
    for event in events:
        assert _send(alone, event).dead_letters == 0
    assert _live(alone) == {1: "b"}
    others = [_event("c", None, _row(2), source=SOURCE), _event("c", None, _row(3, "z"), source=SOURCE)]
    gone = _event("d", _row(3, "z"), **more)
    assert _send(mixed, others[0], events[0], others[1], events[1], gone).dead_letters == 0
    assert _live(mixed) == {1: "b", 2: "a"}
    (told,) = [row for row in mixed.rows("t") if row["id"] == 2]
    assert told["__source_ts_ns"] == SOURCE["ts_ms"] * 1_000_000


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


def test_rows_between_envelopes_without_source(tmp_path: Path) -> None:
    """In one batch, flattened rows are rows and envelopes are envelopes."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    flat = ({"id": 2}, {"id": 2, "name": "flat", "__op": "c", "__deleted": "false"})
    assert (
        _send(sink, _event("c", None, _row(1)), flat, _event("c", None, _row(3)), _event("d", _row(3))).dead_letters
        == 0
    )
    assert _live(sink) == {1: "a", 2: "flat"}
    assert not {name for row in sink.rows("t") for name in row} & {"op", "before", "after"}


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "op": "c", "before": None, "after": {"x": 1}},
        {"id": 1, "op": "d", "before": {"x": 1}, "after": None, "ts_ms": 4},
        {"id": 1, "op": "d", "before": "x", "after": "y"},
        {"id": 1, "op": "u", "source": "web"},
        {"op": "u", "before": "1", "after": "2", "ts_ms": 4},
        {"op": "updated", "before": None, "after": {"x": 1}},
        {"op": 1, "before": None, "after": {"x": 1}},
        {"op": "d", "ts_ms": 4},
    ],
)
def test_a_table_with_such_columns_stays_one(tmp_path: Path, row: dict[str, Any]) -> None:
    """Rows with columns op, before or after beside others, or of other types or values, are rows as they are."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    assert _send(sink, ({"id": 1}, row)).dead_letters == 0
    assert _send(sink, ({"id": 1}, row), ({"id": 2}, {**row, "id": 2} if "id" in row else row)).dead_letters == 0
    told = {name: value for name, value in row.items() if value is not None}
    for found in sink.rows("t"):
        assert {name: found[name] for name in told if name != "id"} == {n: v for n, v in told.items() if n != "id"}
    assert len(sink.rows("t")) == 2


def test_the_tables_types_hold_within_images() -> None:
    """Without schema the columns of a table say what the values of images are, as they do beside a source."""
    kinds = {"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "__deleted": pa.string()}
    event = {"before": None, "after": {"id": 1, "name": 5, "price": 3}, "op": "c"}
    outcome = decode(run(event, keys=[{"id": 1}]), plan(upsert(0, kinds, ("id",))))
    assert not dead(outcome)
    assert not outcome.needs
    ((row),) = rows(outcome)
    assert (row["id"], row["name"], row["price"]) == (1, "5", 3.0)


def test_a_closed_table_reads_them_too() -> None:
    """With `allow-field-addition=false` an image with a value of another kind is read again as one of an envelope."""
    kinds = {"id": pa.int64(), "name": pa.string(), "tags": pa.int64()}
    event = {"before": None, "after": {"id": 1, "name": "a", "tags": "7"}, "op": "c"}
    with_source = {**event, "source": SOURCE}
    made = [decode(run(value), plan(append(0, kinds), evolve=False)) for value in (event, with_source)]
    assert rows(made[0]) == rows(made[1])
    assert dead(made[0]) == dead(made[1])


def _schema(name: str | None, *more: Any, image: Any = None) -> dict[str, Any]:
    columns = [{"type": "int64", "field": "id"}, {"type": "string", "optional": True, "field": "name"}]
    image = image or {"type": "struct", "optional": True, "fields": columns}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, {"type": "string", "field": "op"}, *more]
    return {"type": "struct", "fields": fields, **({} if name is None else {"name": name})}


@pytest.mark.parametrize("name", [None, "s.d.t.Value", "s.d.t.Envelope"])
def test_envelopes_with_a_schema(tmp_path: Path, name: str | None) -> None:
    """A schema without source, whatever its name is, is one of envelopes."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    events = [
        _event("c", None, _row(1)),
        _event("d", _row(1)),
        _event("c", None, _row(1, "b")),
        _event("c", None, _row(2)),
    ]
    framed = [(key, {"schema": _schema(name), "payload": value}) for key, value in [*events, _event("d", _row(2))]]
    assert _send(sink, *framed).dead_letters == 0
    assert _live(sink) == {1: "b"}
    assert not {name for row in sink.rows("t") for name in row} & {"op", "before", "after"}


def test_a_row_with_a_schema_stays_one(tmp_path: Path) -> None:
    """A schema that has such columns beside others is one of rows."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    schema = _schema(None, {"type": "int64", "optional": True, "field": "id"})
    value = {"before": None, "after": _row(5), "op": "c", "id": 1}
    assert _send(sink, ({"id": 1}, {"schema": schema, "payload": value})).dead_letters == 0
    (row,) = sink.rows("t")
    assert (row["id"], row["op"], row["after"]) == (1, "c", _row(5))


def test_times_of_images_become_text() -> None:
    """A column that is to be text is one of the images', also where the schema has no source."""
    image = {"type": "struct", "optional": True}
    image["fields"] = [{"type": "int32", "name": "io.debezium.time.Date", "field": "day"}]
    message = {"schema": _schema(None, image=image), "payload": {"before": None, "after": {"day": 1}, "op": "c"}}
    texts = pa.array([json.dumps(message).encode()])
    (block,) = JsonDeserializer().decode(texts, "VALUE_CONVERTER", text_columns=frozenset({"day"})).blocks
    assert block.fields.to_pylist()[0]["after"] == {"day": "1970-01-02"}


@pytest.mark.parametrize("told", ["7", 7])
def test_a_place_in_a_transaction_that_is_text(tmp_path: Path, told: Any) -> None:
    """What stands beside the row is mended as it is beside a source."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    events = [_event("c", None, _row(key), transaction={"id": "x", "total_order": key}) for key in range(9)]
    last = _event("c", None, _row(9), transaction={"id": "x", "total_order": told})
    assert _send(sink, *events, last).dead_letters == 0
    assert len(_live(sink)) == 10


def _avro(*fields: Any) -> dict[str, Any]:
    columns = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    image = {"type": "record", "name": "Value", "fields": columns}
    told = [("before", ["null", image]), ("after", ["null", "Value"]), ("op", "string"), *fields]
    return {"type": "record", "name": "Changed", "fields": [{"name": name, "type": kind} for name, kind in told]}


def _read_avro(schema: Any, *values: Any) -> tuple[MessageBlock, ...]:
    messages = pa.array([framed(written(schema, value)) for value in values], pa.binary())
    return AvroDeserializer(avro.fetch(schema), None).decode(messages, "VALUE_CONVERTER").blocks


def test_avro_without_source() -> None:
    """A record of before, after and op alone is an envelope, one with a column beside them is a row."""
    event = {"before": None, "after": _row(1), "op": "c"}
    (block,) = _read_avro(_avro(), event)
    assert is_envelope(block.fields.type)
    (block,) = _read_avro(_avro(), {**event, "op": "updated"})
    assert not is_envelope(block.fields.type)
    (block,) = _read_avro(_avro(("id", ["null", "long"])), {**event, "id": None})
    assert not is_envelope(block.fields.type)


def test_avro_whose_source_is_null() -> None:
    """Records whose source is null are envelopes, beside others or alone."""
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    event = {"before": None, "after": _row(1), "op": "c", "source": None}
    blocks = _read_avro(_avro(("source", ["null", source])), event, {**event, "source": {"ts_ms": 3}}, event)
    assert sorted(row for block in blocks for row in block.rows.tolist()) == [0, 1, 2]
    assert all(is_envelope(block.fields.type) for block in blocks)


def test_variants_within_images() -> None:
    """A nested value of an image becomes a variant where the table has one, as beside a source."""
    kinds = {"id": pa.int64(), "v": VARIANT_ARROW_TYPE, "__deleted": pa.string()}
    event = b'{"op":"c","before":null,"after":{"id":1,"v":[5,"x"]}}'
    outcome = decode(run(event), plan(append(0, kinds)))
    assert not dead(outcome)
    (row,) = rows(outcome)
    assert row["v"] == '[5,"x"]'
