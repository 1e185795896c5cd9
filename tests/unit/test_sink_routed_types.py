"""Events without schema that name their tables are read by the types of these tables, as where a topic has one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import BatchPlan, TablePlan
from tests.unit.sink_plans import Columns, append, dead, plan, routing, rows, run, upsert

DECIMAL = pa.decimal128(38, 2)
KINDS = (
    *(DECIMAL, pa.string(), pa.int64(), pa.float64(), pa.float32(), pa.bool_()),
    *(pa.struct([("d", DECIMAL), ("t", pa.string())]), pa.list_(DECIMAL)),
)
VALUES = (
    *(b"12345678901234567.89", b"1152921504606846976", b"1152921504606847001", b"0.5", b"7", b"-1.25", b"null"),
    *(b'"12"', b'"abc"', b'"12.50"', b"true", b'{"d":12345678901234567.89,"t":1.50}', b'{"d":1,"t":"x"}'),
    *(b"[12345678901234567.89,1]", b"[]", b"{}", b"16777217", b"0.1234567890123"),
)


def _event(value: bytes, table: str) -> bytes:
    return b'{"v":%s,"__t":"%s"}' % (value, table.encode())


def _routed(*tables: TablePlan, **changed: Any) -> BatchPlan:
    names = [f"t{table.index}" for table in tables]
    return plan(*tables, routing=routing(RouteSettings("__t", dynamic=True), *names), **changed)


def _table(index: int, kind: pa.DataType) -> TablePlan:
    return append(index, {"v": kind, "__t": pa.string()})


def _read_alone(kind: pa.DataType, value: bytes, **changed: Any) -> list[Any]:
    """What a topic of this one table makes of the value; nothing where it is a dead letter."""
    outcome = decode(run(_event(value, "t0")), plan(_table(0, kind), **changed))
    return [row["v"] for row in rows(outcome)]


def test_decimals_keep_their_digits() -> None:
    """A routed decimal is the number that was written, alone, beside fractions, and beside another table's texts."""
    tables = [_table(0, DECIMAL), _table(1, pa.string())]
    long, whole, half = (_event(value, "t0") for value in (b"12345678901234567.89", b"1152921504606846976", b"0.5"))
    wanted = [Decimal("12345678901234567.89"), Decimal(1152921504606846976), Decimal("0.50")]
    assert [row["v"] for row in rows(decode(run(long), _routed(*tables)))] == wanted[:1]
    outcome = decode(run(long, whole, half, _event(b'"abc"', "t1")), _routed(*tables))
    assert [row["v"] for row in rows(outcome)] == wanted
    assert [row["v"] for row in rows(outcome, 1)] == ["abc"]
    assert (dead(outcome), outcome.needs) == ({}, ())


@pytest.mark.parametrize("evolve", [True, False])
def test_a_value_is_read_alike_however_it_came(evolve: bool) -> None:
    """Each value gives the row that a topic of the table gives, alone and among those of all tables."""
    made = _routed(*(_table(index, kind) for index, kind in enumerate(KINDS)), evolve=evolve)
    given = [(at, value) for at in range(len(KINDS)) for value in VALUES]
    among = decode(run(*(_event(value, f"t{at}") for at, value in given)), made)
    read = {at: iter(rows(among, at)) for at in range(len(KINDS))}
    for row, (at, value) in enumerate(given):
        wanted = _read_alone(KINDS[at], value, evolve=evolve)
        alone = decode(run(_event(value, f"t{at}")), made)
        assert [one["v"] for one in rows(alone, at)] == wanted, (KINDS[at], value)
        assert [next(read[at])["v"] for _ in range(row not in dead(among))] == wanted, (KINDS[at], value)


def test_numbers_of_a_new_table_are_read_without_the_types_of_others() -> None:
    """What other tables have under a name decides nothing for a table that is not there yet."""
    outcome = decode(run(_event(b"1.234", "t1")), _routed(_table(0, pa.decimal128(5, 1))))
    assert [(need.table, need.row.field("v").type) for need in outcome.needs] == [("t1", pa.float64())]


def test_values_that_clash_in_a_new_table_wait_for_it() -> None:
    """The first values make the column; no other type is asked for in the same job."""
    outcome = decode(run(*(_event(value, "t1") for value in (b"1", b"2", b'"a"'))), _routed(_table(0, DECIMAL)))
    assert [(need.table, need.row.field("v").type) for need in outcome.needs] == [("t1", pa.int64())]


def _envelope(op: str, before: bytes, after: bytes) -> bytes:
    source = b'{"connector":"postgresql","name":"p","db":"d","schema":"s","table":"t0","ts_ms":1,"lsn":1}'
    return b'{"op":"%s","before":%s,"after":%s,"source":%s}' % (op.encode(), before, after, source)


def test_images_of_envelopes_keep_their_digits() -> None:
    """Images, and the rows before that an update leaves, are found by all the digits of their keys."""
    columns: Columns = {"v": DECIMAL, "n": pa.int64(), "__deleted": pa.string()}
    table = upsert(0, columns, ("v",), keys_from="value")
    routes = routing(RouteSettings("source.table", dynamic=True), "t0")
    before, after = b'{"v":12345678901234567.89,"n":1}', b'{"v":12345678901234567.91,"n":2}'
    outcome = decode(run(_envelope("u", before, after)), plan(table, routing=routes))
    assert {row["v"] for row in rows(outcome)} == {Decimal("12345678901234567.89"), Decimal("12345678901234567.91")}


def test_record_keys_keep_their_digits() -> None:
    """Keys of routed events are read by the types of their table's key."""
    table = upsert(0, {"id": pa.decimal128(38, 0), "__t": pa.string()}, ("id",))
    text = upsert(1, {"id": pa.string(), "__t": pa.string()}, ("id",))
    keys = [b'{"id":1152921504606847001}', b'{"id":123456789012345678901234}', b'{"id":12.50}', b'{"id":"x"}']
    values = [b'{"__t":"%s"}' % name for name in (b"t0", b"t0", b"t1", b"t1")]
    outcome = decode(run(*values, keys=keys), _routed(table, text))
    assert [row["id"] for row in rows(outcome)] == [Decimal(1152921504606847001), Decimal(123456789012345678901234)]
    assert [row["id"] for row in rows(outcome, 1)] == ["12.5", "x"]
    assert dead(outcome) == {}
