"""Runs of records of any content, good ones among them: decoding never raises, and what is good comes through."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert import decoder, failing_records
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.plan import BatchPlan
from tests.unit.folds import select_rows_to_keep
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.string(), "__deleted": pa.string()}
SCALARS: list[Any] = [
    *(None, True, False, 0, -1, 0.5, 1e308, 2**63 - 1, -(2**63), 2**53 + 1),
    *(
        "",
        "x",
        "NaN",
        "Infinity",
        "null",
        "\0",
        "\ufffe",
        "é" * 50,
        "2020-13-45",
        "9999999999999-01-01",
        "1234",
        "AQ==",
    ),
]
RAW = [
    *(b"", b" ", b"{", b"}", b"null ", b"[]", b"{}", b"nul", b"\0\0\0\0\1", b"\0", b"\xff\xfe", b'"x"', b"1", b"NaN"),
    *(b'{"id":1e400}', b'{"id":' + b"9" * 5000 + b"}", b'{"id":1,"id":2}', b'{"id":"\\ud800"}', b'{"\\ud800":1}'),
    *(
        b'{"":1}',
        b'{"":{"":{"":[]}}}',
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"a\\u0000b":1}',
        b'{"ID":1,"id":2}',
    ),
    *(b'{"a":' * 200 + b"1" + b"}" * 200, b"[" * 100_000, b'{"id":-0}', b'{"id":1e-400}', b'{"id":01}', b'{"id":0x1}'),
    *(b'{"schema":null,"payload":null}', b'{"schema":{},"payload":{}}', b'{"schema":{"type":"int64"},"payload":1}'),
    *(b'{"schema":{"type":"struct","fields":[{"field":"id","type":"int64"}]},"payload":{"id":"x"}}',),
    *(b'{"schema":{"type":"struct","fields":[{"field":"id","type":"struct","fields":[]}]},"payload":{"id":{}}}',),
    *(b'{"schema":{"type":"struct","fields":7},"payload":{}}', b'{"schema":[],"payload":{"id":1}}'),
    *(b'{"schema":{"type":"struct","fields":[{"field":1,"type":"int64"}]},"payload":{"1":1}}',),
    *(b'{"op":"d","source":{}}', b'{"op":"u","source":1,"after":2}', b'{"op":1,"source":{},"after":{}}'),
    *(
        b'{"op":"c","source":{"ts_ns":"x"},"after":{"id":3},"before":[]}',
        b'{"op":"d","before":"x","source":{"ts_ms":1e99}}',
    ),
    *(b'{"specversion":"1.0","iodebeziumop":7,"data":{}}', b'{"specversion":1,"iodebeziumop":"c","data":{"after":1}}'),
]


def _value(random: random.Random, depth: int = 0) -> Any:
    form = random.choice(["scalar", "scalar", "scalar", "list", "object"]) if depth < 4 else "scalar"
    if form == "scalar":
        return random.choice(SCALARS)
    if form == "list":
        return [_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(["id", "v", "V", "", "a.b", "w", "\0"]): _value(random, depth + 1) for _ in range(3)}


def _envelope(random: random.Random) -> dict[str, Any]:
    source = {name: _value(random, 3) for name in ("ts_ms", "ts_ns", "lsn", "db", "table") if random.random() < 0.5}
    images = {name: random.choice([None, _value(random), _row(random)]) for name in ("before", "after")}
    return {"op": random.choice(["c", "u", "d", "t", "m", "x", "", 1, None]), "source": source, **images}


def _row(random: random.Random) -> dict[str, Any]:
    return {"id": random.choice([1, 2, 3, random.choice(SCALARS)]), "v": _value(random), "w": _value(random)}


def _schema(random: random.Random) -> dict[str, Any]:
    kinds = ["int8", "int32", "int64", "float", "double", "boolean", "string", "bytes", "array", "map", "struct", "odd"]
    names = [None, "org.apache.kafka.connect.data.Decimal", "io.debezium.time.MicroTimestamp", "io.debezium.data.Uuid"]
    fields = [
        {
            "field": random.choice(["id", "v", "w", ""]),
            "type": random.choice(kinds),
            "name": random.choice(names),
            "optional": random.random() < 0.8,
            "parameters": random.choice([None, {"scale": "2"}, {"scale": "-1"}, {"scale": "x"}]),
            "items": {"type": random.choice(kinds)},
            "fields": [],
        }
        for _ in range(random.randrange(4))
    ]
    return {"type": "struct", "fields": fields}


def _message(random: random.Random) -> bytes | None:
    form = random.choice(["raw", "row", "envelope", "value", "schema", "spoilt", "none"])
    if form == "raw":
        return random.choice(RAW)
    if form == "none":
        return None
    made: Any = (
        _envelope(random) if form in ("envelope", "spoilt") else _row(random) if form == "row" else _value(random)
    )
    if form == "schema":
        made = {"schema": _schema(random), "payload": random.choice([_row(random), made])}
    text = orjson.dumps(made)
    if form == "spoilt":
        at = random.randrange(len(text))
        return text[:at] + random.choice([b"", b"\xff", b'"', b"}", b",", b"0"]) + text[at + random.randrange(3) :]
    return text


def _good(number: int, form: str) -> bytes:
    row = {"id": number, "v": f"good {number}"}
    source = {"ts_ms": number, "ts_ns": number * 1_000_000, "db": "d", "table": "t"}
    return orjson.dumps({"op": "c", "before": None, "after": row, "source": source} if form == "envelope" else row)


PLANS: dict[str, Callable[[], BatchPlan]] = {
    "append": lambda: plan(append(0, COLUMNS)),
    "upsert": lambda: plan(upsert(0, COLUMNS, ("id",))),
    "keys from the value": lambda: plan(upsert(0, COLUMNS, ("id",), keys_from="value")),
    "fixed columns": lambda: plan(append(0, COLUMNS), evolve=False),
    "typed": lambda: plan(append(0, {**COLUMNS, "w": pa.decimal128(10, 2)}), evolve=False),
    "documents": lambda: plan(append(0, {**COLUMNS, "w": pa.string()}), variants=True),
    "no table": plan,
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("form", ["envelope", "row"])
def test_garbage_never_raises_and_good_records_come_through(name: str, form: str, monkeypatch: Any) -> None:
    """Every record of a run is foreseen: the last line of defence is not needed; and the good ones are rows."""
    monkeypatch.setattr(failing_records, "CONTENT_ERRORS", ())
    for seed in range(20):
        chance = random.Random(f"{name} {form} {seed}")
        messages = [_message(chance) for _ in range(chance.choice([1, 2, 5, 40]))]
        places = sorted(chance.sample(range(len(messages) + 3), 3))
        for number, place in enumerate(places):
            messages.insert(place, _good(1000 + number, form))
        keys = [
            orjson.dumps({"id": 1000 + places.index(at)}) if at in places else _message(chance)
            for at in range(len(messages))
        ]
        made = PLANS[name]()
        outcome = decode(run(*messages, keys=keys), made)
        bad = dead(outcome)
        # Without a table the most frequent kind of a column wins, which garbage may be.
        assert not made.tables or not [bad[place] for place in places if place in bad], (seed, messages)
        if made.tables and not outcome.needs:
            told = {row["id"]: row["v"] for row in rows(outcome)}
            assert {n: told.get(n) for n in (1000, 1001, 1002)} == {n: f"good {n}" for n in (1000, 1001, 1002)}, seed
            _fold(outcome.parts, made)


@pytest.mark.parametrize("name", PLANS)
def test_garbage_in_one_partition_leaves_the_others_as_they_are(name: str, monkeypatch: Any) -> None:
    """Runs that are read at once need no last line of defence either, and good ones beside garbage are rows."""
    monkeypatch.setattr(failing_records, "CONTENT_ERRORS", ())
    monkeypatch.setattr(decoder, "CONTENT_ERRORS", ())
    for seed in range(20):
        chance = random.Random(f"joint {name} {seed}")
        messages = [_message(chance) for _ in range(chance.choice([1, 5, 40]))]
        made = attrs.evolve(PLANS[name](), ranks={("t", 0): 0, ("t", 1): 1})
        good = run(_good(1000, "row"), _good(1001, "row"), keys=[b'{"id":1000}', b'{"id":1001}'])
        odd = run(*messages, keys=[_message(chance) for _ in messages])
        _, outcome = decoder.decode_runs([odd, attrs.evolve(good, partition=1)], made)
        assert not made.tables or not outcome.faults, (seed, messages)
        if made.tables and not outcome.needs:
            told = {row["id"]: row["v"] for row in rows(outcome)}
            assert told == {1000: "good 1000", 1001: "good 1001"}, (seed, messages)


def _fold(parts: Any, made: BatchPlan) -> None:
    table = made.tables[0]
    if table.upsert:
        for part in select_rows_to_keep(fold(list(parts), table.identity), table.identity):
            assert len(unpack(pa.py_buffer(pack(part)), table.layout.rows)) == len(part)


def _raising(guilty: set[bytes], error: Exception, whole: Callable[..., Any]) -> Callable[..., Any]:
    def read(given: ConsumerRecords, plan: BatchPlan) -> Any:
        if guilty & set(given.value.to_pylist()):
            raise error
        return whole(given, plan)

    return read


@pytest.mark.parametrize("error", [pa.ArrowInvalid("secret"), OverflowError(), RecursionError(), KeyError("secret")])
def test_what_nobody_foresaw_costs_the_guilty_records_only(monkeypatch: Any, error: Exception) -> None:
    """Records on which decoding raises are dead letters with a reason; all others are rows."""
    messages = [_good(number, "row") for number in range(100)]
    guilty = {messages[7], messages[8], messages[99]}
    monkeypatch.setattr(decoder, "_decode", _raising(guilty, error, decoder._decode))
    outcome = decode(run(*messages), PLANS["append"]())
    assert sorted(dead(outcome)) == [7, 8, 99]
    assert not any("secret" in reason for reason in dead(outcome).values())
    assert [row["id"] for row in rows(outcome)] == [n for n in range(100) if n not in (7, 8, 99)]


@pytest.mark.parametrize("error", [OSError("away"), ConnectionError()])
def test_errors_of_the_world_around_stay_errors(monkeypatch: Any, error: Exception) -> None:
    """Storage, broker and registry that are away are no record's fault."""
    message = _good(1, "row")
    monkeypatch.setattr(decoder, "_decode", _raising({message}, error, decoder._decode))
    with pytest.raises(type(error)):
        decode(run(message), PLANS["append"]())


def test_an_error_without_any_record_stays_an_error(monkeypatch: Any) -> None:
    """What raises for no record at all is a fault of the program: nothing goes to the dead letters for it."""

    def read(given: ConsumerRecords, plan: BatchPlan) -> Any:
        raise KeyError("plan")

    monkeypatch.setattr(decoder, "_decode", read)
    with pytest.raises(KeyError):
        decode(run(_good(1, "row")), PLANS["append"]())
