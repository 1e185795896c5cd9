"""Header of a moved create -> the key before: which creates are moved, and what the header says in each spelling."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.records.record_bounds import BatchSection, BatchSections
from connector.kafka.consumer.records.record_columns import read_records
from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import build_old_key_rows, mark_key_changes
from connector.sink.destinations.iceberg.lookups.key_filter import KeyFilter
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.plan import TablePlan
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.model.record_batches import Record, varint, written
from tests.unit import sink_plans

OFFSETS = np.array([5, 6, 8, 9])


def table(**keys: pa.DataType) -> TablePlan:
    """A table of these identifier columns and a text."""
    columns = pa.schema([*keys.items(), ("v", pa.string())])
    schema = build_table_schema(columns, tuple(keys), frozenset(), nanoseconds=False)
    layout = TableLayout("db.t", "u", "/", schema.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, {}, {})
    return TablePlan(0, layout, upsert=True, keep_deletes=False, patches=True)


def part(plan: TablePlan, ops: str, offsets: list[int]) -> ChangeBatch:
    """Changes at these offsets of a run; operation `?` is one that the event does not tell."""
    count = len(ops)
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(count, field.type) for field in plan.layout.columns], names=plan.layout.columns.names
    )
    none = np.full(count, NO_VALUE)
    codes = np.array([0 if op == "?" else ord(op) for op in ops], np.uint8)
    order = ChangeOrder(np.zeros(count, np.int64), np.array(offsets), none, none, unknown_positions(count), codes)
    return ChangeBatch(rows, order, codes == ord("d"), codes != ord("d"))


def told(plan: TablePlan, ops: str, offsets: list[int], headers: list[bytes | None]) -> tuple[str, list[Any]]:
    """The operations after marking, and (offset, old key) of each moved create."""
    old = pa.array(headers, pa.binary())
    made = mark_key_changes(part(plan, ops, offsets), OFFSETS, old)
    found = build_old_key_rows(made, OFFSETS, old, plan)
    keys = found.rows.select(list(plan.layout.keys)).to_pylist() if found is not None else []
    places = found.order.offset.tolist() if found is not None else []
    return bytes(made.order.op).decode().replace("\0", "?"), list(zip(places, keys, strict=True))


def test_only_creates_with_the_header_are_moved() -> None:
    """An update or delete is none, a create without the header is none; a record that was left out shifts nothing."""
    plan = table(id=pa.int64())
    headers = [b'{"id":1}', None, b'{"id":3}', b'{"id":4}']
    assert told(plan, "cc", [5, 6], headers) == ("Cc", [(5, {"id": 1})])
    assert told(plan, "ud", [5, 8], headers) == ("ud", [])
    assert told(plan, "c?", [8, 9], headers) == ("CC", [(8, {"id": 3}), (9, {"id": 4})])
    assert told(plan, "cccc", OFFSETS.tolist(), [None] * 4) == ("cccc", [])


@pytest.mark.parametrize(
    ("keys", "header", "expected"),
    [
        ({"id": pa.int32()}, b'{"id":7}', {"id": 7}),
        ({"id": pa.uuid()}, b'{"id":"00000000-0000-0000-0000-000000000007"}', {"id": UUID(int=7)}),
        ({"a": pa.int64(), "b": pa.string()}, b'{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        (
            {"id": pa.int64()},
            b'{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":7}}',
            {"id": 7},
        ),
        ({"id": pa.int64()}, b'{"id":"no number"}', None),
        ({"id": pa.int64()}, b'{"other":1}', None),
        ({"id": pa.int64()}, b"\xff", None),
        ({"id": pa.int64()}, b"", None),
    ],
)
def test_the_header_is_read_as_a_key(keys: dict[str, pa.DataType], header: bytes, expected: Any) -> None:
    """It is JSON with or without schema; one that cannot be read names no key, and breaks nothing."""
    _, found = told(table(**keys), "c", [5], [header, None, None, None])
    assert found == ([(5, expected)] if expected is not None else [])


PLACE = {"id": pa.int64(), "__dbz__sourceIdentifier": pa.string()}


@pytest.mark.parametrize(
    ("keys", "header", "expected"),
    [
        (PLACE, b'{"id":7}', {"id": 7, "__dbz__sourceIdentifier": "own"}),
        (PLACE, b'{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":7}}', 7),
        (PLACE, b'{"id":7,"__dbz__sourceIdentifier":"t1"}', {"id": 7, "__dbz__sourceIdentifier": "t1"}),
        (PLACE, b'{"id":7,"__dbz__sourceIdentifier":null}', None),
        (PLACE, b'{"id":7,"other":1}', None),
        (PLACE, b'{"other":1}', None),
        (PLACE, b'{"id":"no number"}', None),
        (PLACE, b"\xff", None),
        ({"id": pa.int64(), "shard_id": pa.string()}, b'{"ID":7}', {"id": 7, "shard_id": "own"}),
    ],
)
def test_a_field_that_a_router_added_to_the_key_stays(
    keys: dict[str, pa.DataType], header: bytes, expected: Any
) -> None:
    """`ToLogicalTopicRouter`, earlier `ByLogicalTableRouter`, adds to a key which table a row is of, not to headers."""
    plan = table(**keys)
    own = part(plan, "c", [5])
    texts = [
        pa.array(["own"]) if pa.types.is_string(field.type) else pa.nulls(1, field.type) for field in own.rows.schema
    ]
    own = attrs.evolve(own, rows=pa.RecordBatch.from_arrays(texts, schema=own.rows.schema))
    old = pa.array([header, None, None, None], pa.binary())
    found = build_old_key_rows(mark_key_changes(own, OFFSETS, old), OFFSETS, old, plan)
    rows = [] if found is None else found.rows.select(list(plan.layout.keys)).to_pylist()
    complete = [row for row in rows if None not in row.values()]
    if isinstance(expected, int):
        expected = {"id": expected, "__dbz__sourceIdentifier": "own"}
    assert complete == ([] if expected is None else [expected])


def test_a_record_with_broken_headers_is_dead_and_its_neighbours_live() -> None:
    """Nobody can tell whether such a record moves a key, so it is a dead letter where headers mean something."""
    fields = b"\0\0" + varint(1) + varint(-1) + varint(7) + b'{"a":2}' + varint(2**40)
    good = [written(Record(i, None, b'{"a":%d}' % i, ((OLD_KEY_HEADER, b'{"a":9}'),)), 0) for i in (0, 2)]
    body = good[0] + varint(len(fields)) + fields + good[1]
    chunk = ConsumerRecords.of_fetched(
        "t", 0, read_records(body, BatchSections.of([BatchSection(0, len(body), 3, 0)]), 0, 9)
    )
    run = chunk.with_headers(OLD_KEY_HEADER, NEW_KEY_HEADER)
    assert run.old_key is not None and run.old_key.to_pylist() == [b'{"a":9}', None, b'{"a":9}']
    plan = sink_plans.plan()
    outcome = decode(run, plan)
    assert sink_plans.dead(outcome) == {1: "the record's headers do not end where it does"}
    assert len(outcome.needs) == 1
    assert decode(run.only(np.array([1, 2])), plan).faults[0].row == 0
    assert not decode(chunk, plan).faults


@pytest.mark.parametrize("kinds", [{"id": pa.int64()}, {"a": pa.decimal128(30, 2), "b": pa.string()}])
def test_a_filter_lets_all_its_keys_through_and_few_others(kinds: dict[str, pa.DataType]) -> None:
    """Of keys of any type, made by several tasks; what no filter has seen is left out but for a few."""
    plan = table(**kinds)

    def changes(numbers: range) -> ChangeBatch:
        made = part(plan, "c" * len(numbers), list(numbers))
        values = pa.array(numbers, pa.int64())
        keys = {name: values.cast(kind) for name, kind in kinds.items()}
        columns = [keys.get(name, made.rows.column(name)) for name in made.rows.schema.names]
        return attrs.evolve(made, rows=pa.RecordBatch.from_arrays(columns, schema=made.rows.schema))

    one, other, none = (KeyFilter.of(each, plan) for each in ([changes(range(1000))], [changes(range(5000, 6000))], []))
    both = KeyFilter.join((one.bits, other.bits, none.bits), plan)
    found = both.select(changes(range(20_000))).order.offset.tolist()
    assert {*range(1000), *range(5000, 6000)} <= set(found)
    assert len(found) < 2100
    assert not len(none.select(changes(range(1000))))


def test_a_filter_takes_decimals_wherever_their_part_lies() -> None:
    """Spark hands on the bytes of packed parts one behind the other: a part begins at any multiple of 8."""
    plan = table(a=pa.decimal128(10, 2))
    made = part(plan, "cc", [5, 6])
    keys = pa.array([Decimal("1.00"), Decimal("2.07")], pa.decimal128(10, 2))
    packed = pack(attrs.evolve(made, rows=made.rows.set_column(0, made.rows.schema.field(0), keys)))
    for start in (0, 8):
        whole = pa.py_buffer(bytes(start) + packed)
        moved = unpack(whole.slice(start), plan.layout.rows)
        assert len(KeyFilter.of([moved], plan).select(moved)) == 2
