"""Events that do not fit their table, with evolution off: every row of docs/reference/documented-behaviour.md.

What Debezium Server's page says of `allow-field-addition=false` (Jackson's rules) is in the same tables; where Jackson
would make up a default (0, false), the value is null instead.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connector.sink.convert.columns.field_matching import find_case_renames
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

UTC = dt.UTC
TS, TSTZ = pa.timestamp("us"), pa.timestamp("us", "UTC")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])


def _one(kind: pa.DataType, value: Any, required: tuple[str, ...] = ()) -> Any:
    made = plan(append(0, {"k": pa.int64(), "v": kind}, required), evolve=False)
    # Neighbours of the right shape, as in any batch.
    return decode(run({"k": 0}, {"k": 1, "v": value}, {"k": 2}), made)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        pytest.param(pa.int32(), 7, 7, id="int: number"),
        pytest.param(pa.int32(), 7.0, 7, id="int: whole number with a point"),
        pytest.param(pa.int32(), "7", 7, id="int: text"),
        pytest.param(pa.int32(), True, 1, id="int: boolean (Jackson)"),
        pytest.param(pa.int64(), "+5", 5, id="long: text with a sign"),
        pytest.param(pa.binary(4), "YWJjZA==", b"abcd", id="fixed: base64"),
        pytest.param(pa.int64(), "-9007199254740993", -9007199254740993, id="long: text"),
        pytest.param(pa.float32(), 1.5, 1.5, id="float: number"),
        pytest.param(pa.float64(), "2.5", 2.5, id="double: text"),
        pytest.param(pa.float64(), 2, 2.0, id="double: whole number"),
        pytest.param(pa.decimal128(9, 2), "12.30", Decimal("12.30"), id="decimal: text"),
        pytest.param(pa.decimal128(9, 2), 12.3, Decimal("12.30"), id="decimal: number"),
        pytest.param(pa.bool_(), True, True, id="boolean: boolean"),
        pytest.param(pa.bool_(), "TRUE", True, id="boolean: text"),
        pytest.param(pa.bool_(), "false", False, id="boolean: text false"),
        pytest.param(pa.bool_(), 3, True, id="boolean: number (Jackson)"),
        pytest.param(pa.string(), "x", "x", id="string: text"),
        pytest.param(pa.string(), 12, "12", id="string: number"),
        pytest.param(pa.string(), True, "true", id="string: boolean"),
        pytest.param(TS, "2024-05-06T07:08:09", dt.datetime(2024, 5, 6, 7, 8, 9), id="timestamp: ISO"),
        pytest.param(TS, 1_700_000_000_123, dt.datetime(2023, 11, 14, 22, 13, 20, 123000), id="timestamp: millis"),
        pytest.param(TSTZ, "2024-05-06T07:08:09+02:00", dt.datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC), id="tz: ISO"),
        pytest.param(TSTZ, 1_000, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), id="timestamptz: millis"),
        pytest.param(pa.date32(), "2024-05-06", dt.date(2024, 5, 6), id="date: ISO"),
        pytest.param(pa.date32(), 1, dt.date(1970, 1, 2), id="date: days"),
        pytest.param(pa.time64("us"), "07:08:09", dt.time(7, 8, 9), id="time: ISO"),
        pytest.param(pa.time64("us"), 1_000, dt.time(0, 0, 1), id="time: millis"),
        pytest.param(pa.binary(), "aGk=", b"hi", id="binary: base64"),
        pytest.param(
            pa.uuid(),
            "123e4567-e89b-12d3-a456-426614174000",
            uuid.UUID("123e4567-e89b-12d3-a456-426614174000"),
            id="uuid: text",
        ),
        pytest.param(STRUCT, {"a": "5", "b": 6, "c": 7}, {"a": 5, "b": "6"}, id="struct: recursive"),
        pytest.param(STRUCT, {"b": "x"}, {"a": None, "b": "x"}, id="struct: missing field"),
        pytest.param(pa.list_(pa.int64()), ["1", 2], [1, 2], id="list: of two kinds"),
        pytest.param(pa.list_(pa.int64()), ["1", "2"], [1, 2], id="list: recursive"),
        pytest.param(pa.list_(pa.int64()), ["1", "x"], [1, None], id="list: an item that does not fit"),
    ],
)
def test_accepted_values(kind: pa.DataType, value: Any, expected: Any) -> None:
    """Each row of "Accepted event values": the value is in the table in the column's type, as that page says."""
    outcome = _one(kind, value)
    assert not outcome.faults
    assert rows(outcome)[1]["v"] == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), "x"),
        (pa.int32(), 1.7),
        (pa.int64(), "0x10"),
        (pa.int64(), "5.0"),
        (pa.binary(4), "abcd"),
        (pa.int32(), 2**40),
        (pa.int32(), {"a": 1}),
        (pa.int32(), [1]),
        (pa.float64(), "x"),
        (pa.decimal128(4, 2), "1.234"),
        (pa.bool_(), "maybe"),
        (pa.string(), {"a": 1}),
        (TS, "soon"),
        (TS, 2**62),
        pytest.param(TS, 1_700_000_000_123_456, id="timestamp: microseconds, in milliseconds of the year 55841"),
        pytest.param(TSTZ, -62_135_596_800_001, id="timestamptz: before the year 1"),
        (pa.date32(), 2**40),
        pytest.param(pa.date32(), 2_146_033_979, id="date: PostgreSQL's infinity"),
        (pa.time64("us"), 86_400_000),
        (pa.binary(), "%"),
        (pa.uuid(), "12"),
        (STRUCT, 5),
        (pa.list_(pa.int64()), 5),
    ],
)
def test_what_cannot_be_converted(kind: pa.DataType, value: Any) -> None:
    """Rows "Wrong type, not coercible": null in an optional column, a dead letter in a required one, never a value."""
    outcome = _one(kind, value)
    assert not outcome.faults
    assert [(row["k"], row["v"]) for row in rows(outcome)] == [(0, None), (1, None), (2, None)]
    values = [{"k": 1, "v": value}]
    required = decode(run(*values), plan(append(0, {"k": pa.int64(), "v": kind}, ("v",)), evolve=False))
    assert list(dead(required)) == [0]
    assert not rows(required)


@pytest.mark.parametrize("values", [[1, "x"], ["7", 8], [True, "5"], [1.5], ["true", [1], None], [2**53 + 1, 0.5]])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.decimal128(20, 2), TS, STRUCT])
def test_cloud_events_are_converted_as_envelopes_are(kind: pa.DataType, values: list[Any]) -> None:
    """Their images are in `data`, and are looked at there."""
    told = {"id": "1", "source": "/debezium/postgresql/p", "specversion": "1.0", "type": "DataChangeEvent"}
    images = [{"before": None, "after": {"k": key, "v": value}} for key, value in enumerate(values)]
    envelopes = [{**image, "op": "c", "source": {"connector": "postgresql", "ts_ms": 1}} for image in images]
    events = [{**told, "iodebeziumop": "c", "iodebeziumtsms": "1", "data": image} for image in images]
    table = append(0, {"k": pa.int64(), "v": kind, "__deleted": pa.string()})
    one, other = (decode(run(*them), plan(table, evolve=False)) for them in (envelopes, events))
    assert rows(one) == rows(other)
    assert (list(dead(one)), one.metrics.nulled) == (list(dead(other)), other.metrics.nulled)


def test_nulls_are_counted() -> None:
    """A value that became null is counted, so that the log can tell."""
    assert _one(pa.int32(), "x").metrics.nulled == 1


TABLE = {"id": pa.int64(), "name": pa.string()}


def _into(table: TablePlan, *values: Any) -> Any:
    return decode(run(*values), plan(table, evolve=False))


def test_exact_match_and_extra_fields() -> None:
    """Rows "Exact match" and "Extra fields in event": written; what the table does not have is left out and counted."""
    outcome = _into(append(0, TABLE), {"id": 1, "name": "a"}, {"id": 2, "name": "b", "more": 1, "__op": "c"})
    assert rows(outcome) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert outcome.metrics.drift == {(0, "more")}


def test_missing_optional_field() -> None:
    """Row "Missing optional field", and a column removed at the source: null."""
    assert rows(_into(append(0, TABLE), {"id": 1}, {"id": 2, "name": "b"}))[0] == {"id": 1, "name": None}


@pytest.mark.parametrize("evolve", [True, False])
def test_missing_required_field(evolve: bool) -> None:
    """Row "Missing required field": a dead letter, whether tables follow their events or not."""
    table = append(0, TABLE, ("name",))
    outcome = decode(run({"id": 1}, {"id": 2, "name": "b"}, {"id": 3, "name": None}), plan(table, evolve=evolve))
    assert list(dead(outcome)) == [0, 2]
    assert [row["id"] for row in rows(outcome)] == [2]


def test_no_fields_match() -> None:
    """Row "No fields match schema": a dead letter; an event with one known field is a row."""
    outcome = _into(append(0, TABLE), {"a": 1, "b": 2}, {"id": 1, "a": 1}, {"c": "x"})
    assert list(dead(outcome)) == [0, 2]
    assert [row["id"] for row in rows(outcome)] == [1]


def test_one_bad_event_does_not_fail_the_batch() -> None:
    """ "Mismatch handling is per-event": every kind of event of one batch ends where it belongs."""
    table = append(0, {**TABLE, "n": pa.int32()}, ("id",))
    values = [{"id": i, "n": i} for i in range(50)]
    values[7], values[20], values[33] = {"id": 7, "n": "x"}, {"n": 1}, {"id": "33", "n": "33"}
    outcome = _into(table, *values)
    assert list(dead(outcome)) == [20]
    assert {row["id"]: row["n"] for row in rows(outcome)} == {i: None if i == 7 else i for i in range(50) if i != 20}


def test_a_delete_needs_its_key_only() -> None:
    """A row that is removed is written nowhere: what it lacks of required columns is no fault."""
    columns = {"id": pa.int64(), "name": pa.string()}
    table = upsert(0, columns, ("id",))
    made = plan(table, evolve=False)
    outcome = decode(run({"id": 1, "__deleted": "true"}, None, keys=[{"id": 1}, {"id": 2}]), made)
    assert not outcome.faults
    assert [row["id"] for row in rows(outcome)] == [1, 2]


@pytest.mark.parametrize("keep", [False, True])
def test_a_row_that_is_removed_may_have_had_another_type(keep: bool) -> None:
    """What a delete tells of the row before, as a column was then, is written where deleted rows are kept alone."""
    kinds = {"id": "int64", "v": "string"}
    schema = {"type": "struct", "fields": [{"type": kind, "field": name} for name, kind in kinds.items()]}
    schema["fields"] += [{"type": "string", "field": "__deleted"}]
    gone = {"schema": schema, "payload": {"id": 1, "v": "old", "__deleted": "true"}}
    bad = {"schema": schema, "payload": {"id": 2, "v": "old", "__deleted": "false"}}
    columns = {"id": pa.int64(), "v": pa.int32(), "__deleted": pa.string()}
    table = upsert(0, columns, ("id",), keep_deletes=keep)
    outcome = decode(run(gone, bad, keys=[{"id": 1}, {"id": 2}]), plan(table))
    assert [row["id"] for row in rows(outcome)] == ([] if keep else [1])
    assert list(dead(outcome)) == ([0, 1] if keep else [1])


def test_columns_whatever_their_case() -> None:
    """`iceberg.tables.schema-case-insensitive`: ID is the column id, an exact name wins over one of another case."""
    made = plan(append(0, TABLE), evolve=False, case_insensitive=True)
    assert rows(decode(run({"ID": 1, "Name": "a"}), made)) == [{"id": 1, "name": "a"}]
    assert rows(decode(run({"ID": 1, "id": 2}), made)) == [{"id": 2, "name": None}]
    assert rows(decode(run({"ID": 1, "name": "a"}), plan(append(0, TABLE), evolve=False))) == [
        {"id": None, "name": "a"}
    ]


def test_record_keys_whatever_their_case() -> None:
    """With case-insensitive matching the record key's ID is the key column id."""
    made = plan(upsert(0, TABLE, ("id",)), case_insensitive=True)
    assert rows(decode(run({"ID": 1, "NAME": "a"}, keys=[{"ID": 1}]), made)) == [{"id": 1, "name": "a"}]


def test_one_field_per_column() -> None:
    """Of fields that differ in case only the first is the column; an exact name leaves nothing to the others."""
    assert find_case_renames(["NAME", "Name", "x"], ["name", "X", "y"]) == {"NAME": "name", "x": "X"}
    assert find_case_renames(["NAME", "name"], ["name"]) == {}


def test_one_column_per_field() -> None:
    """Of columns that differ in case only it is the first, whichever process looks."""
    columns = [f"{name}{end}" for name in "abcdefghij" for end in ("xX", "Xx")]
    wanted = {f"{name}xx": f"{name}xX" for name in "abcdefghij"}
    assert find_case_renames(list(wanted), columns) == wanted


def test_record_keys_that_say_nothing_are_not_read() -> None:
    """Where keys come from the value, a record key that cannot be read is no reason against a new table."""
    outcome = decode(run({"id": 1}, keys=[b"not json"]), plan(record_keys=False))
    assert not outcome.faults
    assert [need.key for need in outcome.needs] == [None]


def test_keys_from_the_value() -> None:
    """`id-columns`: the row's own columns tell rows apart; a row without a value for one is a dead letter."""
    table = upsert(0, {"id": pa.int64(), "name": pa.string()}, ("id",), keys_from="value")
    outcome = decode(
        run({"id": 1, "name": "a"}, {"name": "b"}, {"id": 3, "__deleted": "true"}), plan(table, evolve=False)
    )
    assert list(dead(outcome)) == [1]
    assert [row["id"] for row in rows(outcome)] == [1, 3]


@pytest.mark.parametrize(
    "kind", [pa.uuid(), pa.date32(), TS, TSTZ, pa.time64("us"), pa.binary(), pa.decimal128(38, 2)], ids=str
)
@pytest.mark.parametrize("image", ["row", "after"])
def test_no_event_gets_lost_beside_others(kind: pa.DataType, image: str) -> None:
    """Where a text stands beside numbers that it cannot be told from, each event is a row or a dead letter, once."""
    made = plan(append(0, {"k": pa.int64(), "v": kind}), evolve=False)
    for odd in (2**63, -(10**20), 5, 2.5, 1.00000000000000000001, True, "2020-01-02", "7", [], {"a": 2**64}):
        events: list[Any] = [{"k": n, "v": v} for n, v in enumerate(("12345678-1234-1234-1234-123456789abc", odd, "x"))]
        if image == "after":
            events = [{"op": "c", "source": {"ts_ms": 1}, "after": event} for event in events]
        outcome = decode(run(*(json.dumps(event).encode() for event in events)), made)
        assert sorted([*(row["k"] for row in rows(outcome)), *dead(outcome)]) == [0, 1, 2], odd


@pytest.mark.parametrize("evolve", [True, False])
def test_spellings_of_a_column_are_read_apart(evolve: bool) -> None:
    """Where case does not count, values of unlike types under two spellings give the rows that each gives alone."""
    shape = pa.struct([("a", pa.int64()), ("b", pa.string())])
    table = append(0, {"f": shape, "d": pa.date32()})
    made = plan(table, case_insensitive=True, evolve=evolve)
    events: list[dict[str, Any]] = [{"f": {"a": 1}, "d": "2024-01-01"}, {"F": {"b": "x"}, "D": None}, {"D": 5}, {}]
    alone = [decode(run(event), made) for event in events]
    among = decode(run(*events), made)
    assert rows(among) == [row for each in alone for row in rows(each)]
    assert list(dead(among)) == [row for row, each in enumerate(alone) if dead(each)]
