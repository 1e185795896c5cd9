"""Values without schema that become variants: each is what was sent, whatever stands beside it."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from tests.unit.sink_plans import append, dead, plan, routing, rows, run, upsert

VALUES: list[str] = [
    '[5,"x"]',
    "[5,[]]",
    "[[],5]",
    '[{"k":5},{"k":"x"}]',
    '[{"k":5},"x"]',
    '{"a":[1,"x",null,true],"b":null}',
    '{"a":5}',
    '{"a":0.5}',
    '{"a":"x"}',
    "[1,2]",
    "[5,0.5]",
    "[9007199254740993,0.5]",
    "[0.1234567890123456789]",
    "[100000000000000000000000000000]",
    "[1,true]",
    "[{},[]]",
    '["5","x"]',
    "true",
    "12",
    "1.50",
]
COLUMNS = {"k": pa.int64(), "v": VARIANT_ARROW_TYPE, "__deleted": pa.string()}
AROUND: dict[str, str] = {
    "flattened": '{"k":%d,"v":%s}',
    "without schema": '{"schema":null,"payload":{"k":%d,"v":%s}}',
    "envelope": '{"op":"c","source":{"db":"d","table":"t"},"before":null,"after":{"k":%d,"v":%s}}',
    "cloud event": '{"specversion":"1.0","iodebeziumop":"c","id":"1","data":{"before":null,"after":{"k":%d,"v":%s}}}',
    "row in a cloud event": '{"specversion":"1.0","iodebeziumop":"c","id":"1","data":{"k":%d,"v":%s}}',
}


def _messages(around: str, values: list[str]) -> list[bytes]:
    return [(AROUND[around] % (number, value)).encode() for number, value in enumerate(values)]


@pytest.mark.parametrize("around", AROUND)
def test_a_variant_is_what_was_sent(around: str) -> None:
    """Lists of several kinds, numbers beside others, members that are null stay as they are, alone and together."""
    made = plan(append(0, COLUMNS))
    together = decode(run(*_messages(around, VALUES)), made)
    assert dead(together) == {}
    assert [row["v"] for row in rows(together)] == VALUES
    for value in VALUES:
        (row,) = rows(decode(run(*_messages(around, [value])), made))
        assert row["v"] == value


def test_texts_stay_texts() -> None:
    """A text is no document of its own: beside documents it is what it was."""
    values = ["plain", "NaN", "", "[5]", {"a": 1}, None]
    found = rows(decode(run(*({"k": n, "v": value} for n, value in enumerate(values))), plan(append(0, COLUMNS))))
    assert [row["v"] for row in found] == ["plain", "NaN", "", "[5]", '{"a":1}', None]


def test_other_columns_keep_their_digits() -> None:
    """A message that holds a document is read as any other, digit by digit."""
    made = plan(append(0, {**COLUMNS, "d": pa.decimal128(30, 10), "n": pa.int64()}))
    message = b'{"k":1,"v":[1],"d":12345678901234567890.1234567890,"n":-9223372036854775808}'
    (row,) = rows(decode(run(message), made))
    assert (str(row["d"]), row["n"]) == ("12345678901234567890.1234567890", -(2**63))


@pytest.mark.parametrize("value", ['{"a":1}', '[{"a":1}]', "[[1]]", "[5,[]]", '[{"k":5},"x"]', '[5,"x"]'])
@pytest.mark.parametrize("table", [True, False], ids=["known table", "new table"])
@pytest.mark.parametrize("around", AROUND)
def test_a_new_column_becomes_a_variant(around: str, value: str, table: bool) -> None:
    """With `nested-as-variant` a new column of objects, nested lists or lists of several kinds is a variant."""
    made = plan(*([append(0, {"k": pa.int64()})] if table else []), variants=True)
    outcome = decode(run(*_messages(around, [value])), made)
    (need,) = outcome.needs
    assert (dead(outcome), need.row.field("v").type) == ({}, VARIANT_ARROW_TYPE)


def test_a_new_list_of_one_kind_stays_a_list() -> None:
    """Lists of single values of one kind, and columns that a table has, are no variants."""
    (need,) = decode(run({"k": 1, "v": ["a", None]}), plan(variants=True)).needs
    assert need.row.field("v").type == pa.list_(pa.string())
    kind = pa.struct([("a", pa.int64())])
    (row,) = rows(decode(run({"k": 1, "v": {"a": 1}}), plan(append(0, {"k": pa.int64(), "v": kind}), variants=True)))
    assert row["v"] == {"a": 1}


def test_a_list_column_takes_numbers_among_texts_as_texts() -> None:
    """Without a variant a column has one kind: numbers and flags in a list of texts are their digits and words."""
    made = plan(append(0, {"k": pa.int64(), "v": pa.list_(pa.string())}))
    outcome = decode(run({"k": 0, "v": [5, "x", True]}, {"k": 1, "v": [5, []]}), made)
    assert [row["v"] for row in rows(outcome)] == [["5", "x", "true"]]
    assert set(dead(outcome)) == {1}


def test_events_that_name_their_table() -> None:
    """A column that one table has as a variant and another as a struct is read as the struct."""
    first = upsert(0, {"k": pa.int64(), "v": VARIANT_ARROW_TYPE}, ("k",))
    second = upsert(1, {"k": pa.int64(), "v": pa.struct([("a", pa.int64())])}, ("k",))
    routes = routing(RouteSettings(field="to", dynamic=True), "first", "second")
    for tables, value in (((first,), [5, []]), ((first, second), {"a": 1})):
        known = routing(RouteSettings(field="to", dynamic=True), *("first", "second")[: len(tables)])
        made = plan(*tables, routing=known if len(tables) == 1 else routes, excluded_columns=frozenset({"to"}))
        message = {"k": 1, "v": value, "to": ("first", "second")[len(tables) - 1]}
        outcome = decode(run(message, keys=[{"k": 1}]), made)
        (row,) = rows(outcome, len(tables) - 1)
        assert row["v"] == (orjson.dumps(value).decode() if len(tables) == 1 else value)


def test_what_cannot_be_parsed_is_a_dead_letter_alone(records: Any = (b"{", b"[1]", b"\xff", b"")) -> None:
    """Beside it documents are read."""
    outcome = decode(run(*records, b'{"k":1,"v":[5,[]]}'), plan(append(0, COLUMNS)))
    assert set(dead(outcome)) == {0, 1, 2, 3}
    assert [row["v"] for row in rows(outcome)] == ["[5,[]]"]


@pytest.mark.parametrize("evolve", [True, False])
def test_a_variant_under_other_letters_is_what_was_sent(evolve: bool) -> None:
    """Where case does not count, each value stays as it is, under whichever spelling, beside others."""
    made = plan(append(0, COLUMNS), case_insensitive=True, evolve=evolve)
    messages = [
        text.replace(b'"v"', b'"V"') if at % 2 else text for at, text in enumerate(_messages("flattened", VALUES))
    ]
    outcome = decode(run(*messages), made)
    assert ([row["v"] for row in rows(outcome)], dead(outcome)) == (VALUES, {})


def test_a_routed_variant_is_what_was_sent_beside_a_plain_column() -> None:
    """Another table's column of the name, which is none, does not change what the variant holds."""
    plain, tables = append(1, {"k": pa.int64(), "v": pa.float64(), "t": pa.string()}), ("a", "b")
    made = plan(
        append(0, COLUMNS | {"t": pa.string()}), plain, routing=routing(RouteSettings("t", dynamic=True), *tables)
    )
    messages = [text[:-1] + b',"t":"a"}' for text in _messages("flattened", VALUES)]
    outcome = decode(run(*messages, b'{"k":1,"v":0.5,"t":"b"}'), made)
    assert ([row["v"] for row in rows(outcome)], dead(outcome)) == (VALUES, {})
