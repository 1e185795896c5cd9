"""Texts that may be the base64 of a decimal, in events without schema -> dead letters at any depth, never a number."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

DECIMAL = pa.decimal128(10, 2)
STRUCT = pa.struct([("x", DECIMAL), ("y", pa.string())])
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "column": (DECIMAL, lambda text: text),
    "struct": (STRUCT, lambda text: {"x": text, "y": "1234"}),
    "list": (pa.list_(DECIMAL), lambda text: ["1.50", None, text]),
    "list of structs": (pa.list_(STRUCT), lambda text: [{"x": "1.50", "y": None}, {"x": text, "y": "1234"}]),
    "struct of lists": (pa.struct([("l", pa.list_(DECIMAL))]), lambda text: {"l": [text]}),
}


@pytest.mark.parametrize("name", KINDS)
def test_digits_without_a_point_are_no_number(name: str) -> None:
    """1234 is the base64 of -26578.00, too; a text of a number has all digits of the scale, and so a point."""
    kind, value = KINDS[name]
    events = [{"id": 1, "v": value("12.34")}, {"id": 2, "v": value("1234")}, {"id": 3, "v": None}]
    columns = {"id": pa.int64(), "v": kind}
    outcome = decode(run(*events), plan(append(0, columns)))
    assert ([row["id"] for row in rows(outcome)], list(dead(outcome))) == ([1, 3], [1])
    lenient = decode(run(*events), plan(append(0, columns), evolve=False))
    found = {row["id"]: row["v"] for row in rows(lenient)}
    assert (found[1] is not None, found[2], found[3], dead(lenient)) == (True, None, None, {})
    assert lenient.metrics.nulled == 1


def test_a_decimal_without_scale_has_no_point() -> None:
    """Its texts are whole numbers."""
    kind = pa.list_(pa.decimal128(10, 0))
    assert [row["v"] for row in rows(decode(run({"v": ["1234"]}), plan(append(0, {"v": kind}))))] == [[1234]]


SCHEMA = {"type": "struct", "fields": [{"type": "string", "field": "id"}]}


@pytest.mark.parametrize("framed", [False, True], ids=["without schema", "with schema"])
def test_a_key_of_digits_without_a_point_is_no_number(framed: bool) -> None:
    """It would be the key of another row, which a delete or a tombstone takes away; a key of text is what it says."""
    columns = {"id": DECIMAL, "v": pa.int64(), "__deleted": pa.string()}
    texts = ["12.34", "1234", "12.35", "1235"]
    keys = [{"schema": SCHEMA, "payload": {"id": text}} if framed else {"id": text} for text in texts]
    gone = {"before": None, "after": None, "op": "d", "source": {"connector": "x", "ts_ms": 1}}
    outcome = decode(run(gone, gone, None, None, keys=keys), plan(upsert(0, columns, ("id",))))
    told = [row["id"] for row in rows(outcome)]
    if framed:
        assert (told, dead(outcome)) == ([Decimal("12.34"), 1234, Decimal("12.35"), 1235], {})
    else:
        reason = "key: a text without a point may be the base64 of a decimal; have keys written with their schema"
        assert (told, dead(outcome)) == ([Decimal("12.34"), Decimal("12.35")], {1: reason, 3: reason})


def test_the_key_of_a_text_converter_is_what_it_says() -> None:
    """Nothing in it is base64."""
    table = upsert(0, {"id": DECIMAL, "v": pa.int64()}, ("id",))
    made = plan(table, events=EventSettings("string", "auto", (), "__"))
    assert [row["id"] for row in rows(decode(run(None, keys=[b"1234"]), made))] == [1234]


@pytest.mark.parametrize(
    ("columns", "name", "keys"),
    [
        ({"id": DECIMAL}, "id", [{"ID": "12.34"}, {"ID": "1234"}, {"id": "1235"}]),
        (
            {"k": pa.struct([("id", DECIMAL)])},
            "k.id",
            [{"k": {"id": "12.34"}}, {"k": {"id": "1234"}}, {"K": {"id": "1"}}],
        ),
    ],
    ids=["of another case", "within a struct"],
)
def test_such_a_key_is_found_wherever_its_column_is(columns: dict[str, Any], name: str, keys: list[Any]) -> None:
    """A key that names its column in another case, or is a field of a struct, is read as any other."""
    table = upsert(0, {**columns, "__deleted": pa.string()}, (name,))
    gone = {"before": None, "after": None, "op": "d", "source": {"connector": "x", "ts_ms": 1}}
    outcome = decode(run(gone, gone, None, keys=keys), plan(table, case_insensitive=True))
    assert (len(rows(outcome)), list(dead(outcome))) == (1, [1, 2])
