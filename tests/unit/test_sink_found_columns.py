"""Columns of tables that Debezium Server or Iceberg's Kafka Connect sink made, filled by ours as they were by these."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import build_old_key_rows, mark_key_changes
from connector.sink.destinations.join_columns import column_aliases
from connector.sink.destinations.late_event_tasks import CANDIDATE_COLUMNS, find_age_columns, older_than_row_task
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.events.positions.log_positions import NO_VALUE
from tests.unit import sink_plans
from tests.unit.json_messages import framed

_TIME, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_SCALED = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
_SCALED_FIELDS = [
    {"type": "int32", "optional": False, "field": "scale"},
    {"type": "bytes", "optional": False, "field": "value"},
]
MOMENT = 1_700_000_000_123
INSTANT = pa.timestamp("us", "UTC")


def event(kind: str, name: str | None, value: Any, **schema: Any) -> bytes:
    """A flattened event with one column `c`, and with the times that Debezium Server asks for."""
    told = {} if name is None else {"name": name}
    times = [{"type": "int64", "optional": True, "field": column} for column in ("__ts_ms", "__source_ts_ms")]
    fields = [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": kind, "optional": True, "field": "c", **told, **schema},
        *times,
    ]
    return framed(fields, {"id": 1, "c": value, "__ts_ms": MOMENT, "__source_ts_ms": MOMENT + 1})


def plan(columns: Mapping[str, pa.DataType], *, found: bool, **changed: Any) -> BatchPlan:
    """Append to a table of these columns, a found one or one of ours."""
    layout = sink_plans.layout({"id": pa.int64(), **columns}, found=found)
    return sink_plans.plan(TablePlan(0, layout, upsert=False, keep_deletes=False), **changed)


def _scaled(value: int, scale: int) -> dict[str, Any]:
    return {"scale": scale, "value": base64.b64encode(value.to_bytes(2, "big")).decode()}


PLAIN = {
    "Time": (event("int32", f"{_TIME}Time", 61_000), pa.int32(), 61_000),
    "MicroTime": (event("int64", f"{_TIME}MicroTime", 61_000_001), pa.int64(), 61_000_001),
    "NanoTime": (event("int64", f"{_TIME}NanoTime", 61_000_001_000), pa.int64(), 61_000_001_000),
    "Connect's time": (event("int32", f"{_CONNECT}Time", 61_000), pa.int32(), 61_000),
    "Date": (event("int32", f"{_TIME}Date", 19_000), pa.int32(), 19_000),
    "MicroTimestamp": (event("int64", f"{_TIME}MicroTimestamp", 5), pa.int64(), 5),
    "any scale": (
        event("struct", "io.debezium.data.VariableScaleDecimal", _scaled(314, 2), fields=_SCALED_FIELDS),
        _SCALED,
        {"scale": 2, "value": (314).to_bytes(2, "big")},
    ),
    "lists": (
        event("array", None, [1, None], items={"type": "int32", "optional": True, "name": f"{_TIME}Date"}),
        pa.list_(pa.int32()),
        [1, None],
    ),
}
"""What their columns hold: an event, the column's type, the value in it."""


@pytest.mark.parametrize("name", PLAIN)
def test_a_found_column_of_plain_values_stays_one(name: str) -> None:
    """Numbers and structs in a column that another tool made are those of the messages, in the same units."""
    told, kind, value = PLAIN[name]
    outcome = decode(sink_plans.run(told), plan({"c": kind}, found=True))
    assert sink_plans.dead(outcome) == {}
    assert outcome.needs[0].row.names == ["id", "c", "__ts_ms", "__source_ts_ms"]
    complete = plan({"c": kind, "__ts_ms": INSTANT, "__source_ts_ms": INSTANT}, found=True)
    (row,) = sink_plans.rows(decode(sink_plans.run(told), complete))
    assert row["c"] == value


@pytest.mark.parametrize("name", PLAIN)
def test_in_a_table_of_ours_it_is_another_type(name: str) -> None:
    """A column of numbers that gets dates has changed its type: nothing is written into it without a word."""
    told, kind, _ = PLAIN[name]
    times = {"__ts_ms": pa.int64(), "__source_ts_ms": pa.int64()}
    outcome = decode(sink_plans.run(told), plan({"c": kind, **times}, found=False))
    assert "does not fit" in sink_plans.dead(outcome)[0]


def test_times_of_events_become_instants() -> None:
    """Debezium Server has milliseconds of the event and its source as instants, and stays to be known by that."""
    told = event("int32", f"{_TIME}Date", 19_000)
    columns = {"c": pa.date32(), "__ts_ms": INSTANT, "__source_ts_ms": INSTANT}
    (row,) = sink_plans.rows(decode(sink_plans.run(told), plan(columns, found=False)))
    assert row["__ts_ms"] == datetime.fromtimestamp(MOMENT // 1000, UTC).replace(microsecond=123_000)
    assert row["__source_ts_ms"] > row["__ts_ms"]
    assert row["c"] == date(2022, 1, 8)


def test_instants_tell_the_order_of_events() -> None:
    """As dedup column they count the milliseconds that other tables have in it."""
    columns = {"c": pa.int32(), "__ts_ms": INSTANT, "__source_ts_ms": INSTANT}
    made = plan(columns, found=True, dedup_column="__source_ts_ms")
    (part,) = decode(sink_plans.run(event("int32", None, 1)), made).parts
    assert part.order.dedup.tolist() == [MOMENT + 1]


@pytest.mark.parametrize("evolve", [True, False])
@pytest.mark.parametrize("told", [MOMENT, "2023-11-14T22:13:20.123Z"])
def test_times_without_schemas_become_instants_too(told: Any, *, evolve: bool) -> None:
    """Events without schemas have their milliseconds as numbers, or perhaps ISO texts."""
    event = orjson.dumps({"id": 1, "c": 3, "__ts_ms": told, "__source_ts_ms": MOMENT + 1})
    columns = {"c": pa.int64(), "__ts_ms": INSTANT, "__source_ts_ms": INSTANT}
    made = plan(columns, found=True, dedup_column="__source_ts_ms", evolve=evolve)
    outcome = decode(sink_plans.run(event), made)
    (row,) = sink_plans.rows(outcome)
    assert row["__ts_ms"] == datetime.fromtimestamp(MOMENT // 1000, UTC).replace(microsecond=123_000)
    assert outcome.parts[0].order.dedup.tolist() == [MOMENT + 1]


@pytest.mark.parametrize("kind", [INSTANT, pa.timestamp("us")])
@pytest.mark.parametrize("beyond", [2**63 - 1, -(2**63), 2**53, -(10**15)])
def test_milliseconds_that_are_no_instant_are_dead_letters(beyond: int, kind: pa.DataType) -> None:
    """A number beyond the years of tables is not written as another instant, and takes no other event with it."""
    told = framed([_number("id"), _number("__ts_ms")], {"id": 1, "__ts_ms": beyond})
    good = framed([_number("id"), _number("__ts_ms")], {"id": 2, "__ts_ms": MOMENT})
    outcome = decode(sink_plans.run(told, good), plan({"__ts_ms": kind}, found=True))
    assert list(sink_plans.dead(outcome)) == [0] and "milliseconds" in sink_plans.dead(outcome)[0]
    assert [row["id"] for row in sink_plans.rows(outcome)] == [2]


def _number(name: str) -> dict[str, Any]:
    return {"type": "int64", "optional": True, "field": name}


def test_no_other_instants_tell_the_order_of_events() -> None:
    """A dedup column is a number: by a time of the row, which no table is dated by, batches would be in two orders."""
    told = {"type": "int64", "optional": True, "field": "c", "name": f"{_TIME}MicroTimestamp"}
    made = plan({"c": pa.timestamp("us")}, found=False, dedup_column="c")
    (part,) = decode(sink_plans.run(framed([_number("id"), told], {"id": 1, "c": 5_000_123})), made).parts
    assert part.order.dedup.tolist() == [NO_VALUE]


def test_fields_within_structs_stay_plain_each_by_itself() -> None:
    """A struct's field that is a number in a found table is one; one that is a date there stays one."""
    parts = [
        {"type": "int32", "optional": True, "field": "d", "name": f"{_TIME}Date"},
        {"type": "int64", "optional": True, "field": "t", "name": f"{_TIME}MicroTime"},
    ]
    told = framed([{"type": "struct", "optional": True, "field": "c", "fields": parts}], {"c": {"d": 19_000, "t": 61}})
    for kind, day in ((pa.date32(), date(2022, 1, 8)), (pa.int32(), 19_000)):
        outcome = decode(sink_plans.run(told), plan({"c": pa.struct([("d", kind), ("t", pa.int64())])}, found=True))
        assert sink_plans.dead(outcome) == {}
        assert [row["c"] for row in sink_plans.rows(outcome)] == [{"d": day, "t": 61}]


def _dated(name: str) -> bytes:
    return framed([_number("id"), {"type": "int32", "field": name, "name": f"{_TIME}Date"}], {"id": 1, name: 19_000})


def test_plain_columns_are_found_whatever_their_case() -> None:
    """With `schema-case-insensitive` a found column of numbers takes a field of its name in other letters."""
    outcome = decode(sink_plans.run(_dated("C")), plan({"c": pa.int32()}, found=True, case_insensitive=True))
    assert sink_plans.rows(outcome) == [{"id": 1, "c": 19_000}]


@pytest.mark.parametrize("route", [None, "x.*"])
def test_tables_that_every_event_may_go_to_keep_plain_columns(route: str | None) -> None:
    """`iceberg.tables`, as Iceberg's sink has it, names the tables: what is plain in all of them stays so."""
    rule = RouteSettings(None if route is None else "name", (("d.t", route),))
    field = {"type": "string", "field": "name"}
    dated = {"type": "int32", "field": "c", "name": f"{_TIME}Date"}
    told = framed([_number("id"), dated, field], {"id": 1, "c": 19_000, "name": "x"})
    made = plan({"c": pa.int32(), "name": pa.string()}, found=True, routing=sink_plans.routing(rule, "d.t"))
    assert sink_plans.rows(decode(sink_plans.run(told), made)) == [{"id": 1, "c": 19_000, "name": "x"}]


def test_a_table_that_is_yet_to_be_made_gets_dates() -> None:
    """Beside a found table one is missing: it will be one of ours, so its events are not read as numbers."""
    rule = RouteSettings(None, (("d.t", None), ("d.new", None)))
    made = plan({"c": pa.int32()}, found=True, routing=sink_plans.routing(rule, "d.t"))
    needs = {need.table: need.row.field("c").type for need in decode(sink_plans.run(_dated("c")), made).needs}
    assert needs == {"d.new": pa.date32()}


OLD_KEYS = {
    "a date as a number": ("int32", f"{_TIME}Date", 19_000, pa.int32(), True, 19_000),
    "a time as text": ("int64", f"{_TIME}MicroTime", 3_020_399_000_000, pa.string(), False, "838:59:59.000000"),
    "a moment as text": ("int64", f"{_TIME}Timestamp", 5, pa.string(), False, "1970-01-01T00:00:00.005"),
}
"""How a key's column is told, what it is in a table (found or not), and its value there."""


@pytest.mark.parametrize("name", OLD_KEYS)
def test_headers_of_moved_keys_are_read_as_the_table_has_them(name: str) -> None:
    """The key that a row had is looked up in the table, where a found column has numbers and another one texts."""
    kind, word, value, column, found, expected = OLD_KEYS[name]
    key = {"type": kind, "field": "c", "name": word}
    table = TablePlan(0, sink_plans.layout({"c": column}, ("c",), found=found), upsert=True, keep_deletes=False)
    told = [framed([key], {"c": value}), framed([key], {"c": 1})]
    (part,) = decode(sink_plans.run(told[1], keys=[told[1]]), sink_plans.plan(table)).parts
    offsets, headers = part.order.offset, pa.array([told[0]])
    before = build_old_key_rows(mark_key_changes(part, offsets, headers), offsets, headers, table)
    assert before is not None and before.rows.column("c").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("other", "found", "expected"),
    [({}, True, 19_000), ({"c": pa.int64()}, True, 19_000), ({"c": pa.date32()}, True, None), ({}, False, None)],
)
def test_tables_that_are_routed_to_agree_on_plain_columns(
    other: Mapping[str, pa.DataType], expected: int | None, *, found: bool
) -> None:
    """One may lack a column; where one has dates in it, or is one of ours, the numbers of another are another type."""
    rule = RouteSettings("name", (("d.t", "x"), ("d.u", "y")))
    layouts = [
        sink_plans.layout({"id": pa.int64(), "c": pa.int32(), "name": pa.string()}, found=True),
        sink_plans.layout({"id": pa.int64(), "name": pa.string(), **other}, found=found),
    ]
    tables = [TablePlan(at, one, upsert=False, keep_deletes=False) for at, one in enumerate(layouts)]
    fields = [
        _number("id"),
        {"type": "int32", "field": "c", "name": f"{_TIME}Date"},
        {"type": "string", "field": "name"},
    ]
    told = framed(fields, {"id": 1, "c": 19_000, "name": "x"})
    outcome = decode(sink_plans.run(told), sink_plans.plan(*tables, routing=sink_plans.routing(rule, "d.t", "d.u")))
    assert [row["c"] for row in sink_plans.rows(outcome)] == ([] if expected is None else [expected])
    assert len(sink_plans.dead(outcome)) == (expected is None)


@pytest.mark.parametrize(
    ("held", "kind"), [(MOMENT, pa.int64()), (MOMENT * 1000, INSTANT)], ids=["milliseconds", "instants"]
)
def test_rows_that_are_stored_tell_their_age(held: int, kind: pa.DataType) -> None:
    """A change a millisecond older than the row that the table has is late, however the table holds its time."""
    layout = sink_plans.layout({"id": pa.int64(), "__source_ts_ms": kind}, ("id",), found=True)
    made = sink_plans.plan(TablePlan(0, layout, upsert=True, keep_deletes=False), dedup_column="__source_ts_ms")
    (telling,) = find_age_columns(layout, made)
    columns: dict[str, Any] = {name: pa.array([NO_VALUE] * 2) for name in CANDIDATE_COLUMNS}
    columns |= {"_bucket": pa.array([0, 0], pa.int32()), "_row": pa.array([0, 1])}
    columns |= {"_date": pa.array([MOMENT - 1, MOMENT + 1]), column_aliases("held", 1)[0]: pa.array([held] * 2, kind)}
    batch = pa.RecordBatch.from_pydict(columns)
    (late,) = older_than_row_task([telling], made)(iter([batch]))
    assert late.column("_row").to_pylist() == [0]
