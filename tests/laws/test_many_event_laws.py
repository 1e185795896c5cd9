"""Laws of many events at once: what an event becomes as a row does not depend on how many others are beside it.

Many messages are read by what they have in common (`serde.json.columns`), few one by one. Tables have any types, values
of one width each or of any, envelopes of several connectors or flattened events, with schemas and without.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode, decode_runs
from tests.harness.rounds import draws
from tests.unit import sink_plans

FIRST_OFFSET = 100
SECOND_MS = 1_700_000_000_000
Chance = random.Random
Make = Callable[[Chance, bool], Any]
"""A value: of the same width each time, or any."""


def _number(chance: Chance, same: bool) -> int | None:
    return chance.randrange(1000, 9999) if same else chance.choice([0, -5, chance.randrange(10**17), None])


def _text(chance: Chance, same: bool) -> str | None:
    odd = ["", "é€\U0001f600", 'q"uo\\te', "x" * chance.randrange(50), "null", None, '{"a":1}', "\u2028\n\t"]
    return f"abc{chance.randrange(1000):03}" if same else chance.choice(odd)


KINDS: dict[str, tuple[dict[str, Any], pa.DataType, pa.DataType, Make]] = {
    "long": ({"type": "int64"}, pa.int64(), pa.int64(), _number),
    "flag": ({"type": "boolean"}, pa.bool_(), pa.bool_(), lambda c, same: same or c.choice([True, False, None])),
    "text": ({"type": "string"}, pa.string(), pa.string(), _text),
    "double": (
        {"type": "double"},
        pa.float64(),
        pa.float64(),
        lambda c, same: 1.5 if same else c.choice([0.1, -1e300, 5, "NaN", None]),
    ),
    "date": (
        {"type": "int32", "name": "io.debezium.time.Date"},
        pa.date32(),
        pa.int64(),
        lambda c, same: c.randrange(10000, 19999) if same else c.choice([0, -1, 19000, None]),
    ),
    "instant": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        pa.timestamp("us", "UTC"),
        pa.string(),
        lambda c, same: f"2024-02-29T12:34:56.{c.randrange(10**6):06}Z" if same else "2024-02-29T12:34:56Z",
    ),
    "number": (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        },
        pa.decimal128(10, 2),
        pa.string(),
        lambda c, same: "AeI" + c.choice("AEIM") + "=" if same else c.choice(["AA==", "/w==", None]),
    ),
    "bytes": (
        {"type": "bytes"},
        pa.binary(),
        pa.string(),
        lambda c, same: "YWJ" + c.choice("jklm") if same else c.choice(["", "YQ==", None]),
    ),
    "list": (
        {"type": "array", "items": {"type": "string", "optional": True}},
        pa.list_(pa.string()),
        pa.list_(pa.string()),
        lambda c, same: ["a", "b"] if same else c.choice([[], ["x"], [None, "y"], None]),
    ),
}
"""By name: schema, the table's type with schemas and without, and values."""
SOURCES: dict[str, dict[str, Any]] = {
    "postgresql": {
        "sequence": '["1","2"]',
        "schema": "public",
        "table": "t",
        "txId": 5,
        "lsn": 24_000_000,
        "xmin": None,
    },
    "mysql": {"table": "t", "server_id": 7, "gtid": None, "file": "bin.000001", "pos": 24_000_000, "row": 0},
    "sqlserver": {"schema": "dbo", "table": "t", "commit_lsn": "00000027:00000758:0005", "event_serial_no": 1},
    "oracle": {"schema": "X", "table": "T", "scn": "2122184", "commit_scn": "2122185", "rs_id": "1.2.3", "ssn": 0},
}
ADDED = {"__deleted": pa.string(), "__op": pa.string(), "__source_ts_ns": pa.int64(), "__source_lsn": pa.int64()}


def _fields(kinds: dict[str, str]) -> list[dict[str, Any]]:
    columns = [{**KINDS[kind][0], "optional": True, "field": name} for name, kind in kinds.items()]
    return [{"type": "int64", "optional": False, "field": "id"}, *columns]


def _events(chance: Chance, kinds: dict[str, str], count: int, *, schemas: bool, flat: bool) -> list[bytes]:
    connector, same, ops = chance.choice([*SOURCES]), chance.random() < 0.6, chance.choice(["c", "cud", "r", "cu"])
    whole, spaced = chance.random() < 0.5, (", ", ": ") if chance.random() < 0.15 else (",", ":")
    events = []
    for number in range(count):
        op, at = chance.choice(ops), SECOND_MS + number
        rows = [{"id": 1000 + number % 500, **{n: KINDS[k][3](chance, same) for n, k in kinds.items()}} for _ in "ab"]
        before = rows[0] if op == "d" or (op == "u" and whole) else None
        dates = {"ts_ms": at, "ts_us": at * 1000, "ts_ns": at * 10**6}
        source = {"version": "3.5.0.Final", "connector": connector, "name": "s", **dates, "db": "d"}
        source |= {name: v + number if v == 24_000_000 else v for name, v in SOURCES[connector].items()}
        value = {"before": before, "after": None if op == "d" else rows[1], "source": source, "transaction": None}
        value |= {"op": op, **dates}
        schema = _envelope_schema(kinds, source)
        if flat:
            added = {"__deleted": str(op == "d").lower(), "__op": op, "__source_ts_ns": source["ts_ns"]}
            value, schema = {**(before if op == "d" else rows[1]), **added}, _flat_schema(kinds, added)
        events.append(
            json.dumps({"schema": schema, "payload": value} if schemas else value, separators=spaced).encode()
        )
    return events


def _envelope_schema(kinds: dict[str, str], source: dict[str, Any]) -> dict[str, Any]:
    image = {"type": "struct", "optional": True, "fields": _fields(kinds)}
    around = {"type": "struct", "fields": _optional(source), "field": "source"}
    order = {
        "type": "struct",
        "optional": True,
        "fields": _optional({"id": "", "total_order": 1}),
        "field": "transaction",
    }
    rest = _optional({"op": "c", "ts_ms": 1, "ts_us": 1, "ts_ns": 1})
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, around, order, *rest]
    return {"type": "struct", "name": "s.t.Envelope", "fields": fields}


def _flat_schema(kinds: dict[str, str], added: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "name": "s.t.Value", "fields": [*_fields(kinds), *_optional(added)]}


def _optional(values: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = ["int64" if isinstance(value, int) else "string" for value in values.values()]
    return [{"type": kind, "optional": True, "field": name} for name, kind in zip(values, kinds, strict=True)]


def _tell(outcome: DecodedRecords) -> dict[int, str]:
    """What became of each record, by its place."""
    assert not outcome.needs
    told = dict(sink_plans.dead(outcome))
    for part in outcome.parts:
        order = part.order
        rows = zip(order.offset, part.rows.to_pylist(), part.deleted, order.op, order.date, order.place, strict=True)
        told |= {int(at) - FIRST_OFFSET: repr((row, *(each.tolist() for each in rest))) for at, row, *rest in rows}
    return told


@pytest.mark.parametrize("flat", [False, True], ids=["envelopes", "rows"])
@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
def test_runs_that_are_read_at_once_become_what_each_becomes_alone(schemas: bool, flat: bool) -> None:
    """Small runs of several partitions, with tombstones and spoilt messages and keys, do not depend on each other."""
    for seed in range(draws(12)):
        chance = Chance(f"joint {schemas} {flat} {seed}")
        kinds = {f"c{place}": chance.choice([*KINDS]) for place in range(chance.randrange(1, 5))}
        count = chance.choice([3, 40, 300, 600])
        texts: list[Any] = [*_events(chance, kinds, count, schemas=schemas, flat=flat)]
        keys: list[Any] = [{"id": 1000 + number % 500} for number in range(count)]
        for place in chance.sample(range(count), chance.randrange(min(count, 8))):
            texts[place] = chance.choice([None, b"", b"{", texts[place][:-1], b"[]", texts[place]])
            keys[place] = chance.choice([keys[place], None, b"x", {"id": None}, {"id": "7"}])
        columns = {"id": pa.int64(), **{n: KINDS[kind][1 if schemas else 2] for n, kind in kinds.items()}, **ADDED}
        events = EventSettings("auto", "auto", ("op", "source.ts_ns", "source.lsn"), "__")
        table = sink_plans.upsert(0, columns, ("id",), keep_deletes=True)
        plan = sink_plans.plan(table, events=events, ranks={("t", partition): partition for partition in range(9)})
        whole: ConsumerRecords = sink_plans.run(*texts, keys=keys)
        places = np.split(np.arange(count), np.sort(np.array(chance.choices(range(count), k=chance.randrange(1, 6)))))
        runs = [attrs.evolve(whole.only(own), partition=number) for number, own in enumerate(places)]
        joint = decode_runs(runs, plan)
        for run, outcome in zip(runs, joint, strict=True):
            alone = decode(run, plan)
            assert _tell(outcome) == _tell(alone), seed
            assert (outcome.metrics, outcome.tables) == (alone.metrics, alone.tables), seed
            assert [each.at for each in outcome.progress] == [each.at for each in alone.progress], seed


@pytest.mark.parametrize("flat", [False, True], ids=["envelopes", "rows"])
@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
def test_an_event_becomes_what_it_becomes_alone(schemas: bool, flat: bool) -> None:
    """Row, deletion, operation, date and place of an event among hundreds are those that it has by itself."""
    for seed in range(draws(12)):
        chance = Chance(f"{schemas} {flat} {seed}")
        kinds = {f"c{place}": chance.choice([*KINDS]) for place in range(chance.randrange(1, 5))}
        count = chance.choice([255, 256, 257, 300, 600])
        texts = _events(chance, kinds, count, schemas=schemas, flat=flat)
        run: ConsumerRecords = sink_plans.run(*texts, keys=[{"id": 1000 + number % 500} for number in range(count)])
        columns = {"id": pa.int64(), **{n: KINDS[kind][1 if schemas else 2] for n, kind in kinds.items()}, **ADDED}
        events = EventSettings("auto", "auto", ("op", "source.ts_ns", "source.lsn"), "__")
        plan = sink_plans.plan(sink_plans.upsert(0, columns, ("id",), keep_deletes=True), events=events)
        told = _tell(decode(run, plan))
        for place in range(0, count, count // 10):
            (alone,) = _tell(decode(run.only(np.array([place])), plan)).values()
            assert told[place] == alone, (seed, place)
