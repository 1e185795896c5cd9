"""Numbers in JSON without schema, beside any neighbours: each is what Python's decimals say, or nowhere."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from serde.events.positions.log_positions import FIRST_NUMBER
from tests.harness.rounds import draws
from tests.unit.sink_plans import append, dead, plan, rows, run

KINDS = (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 10), pa.decimal128(10, 2), pa.string())
_WIDE = Context(prec=200)
NEIGHBOURS = ["0.5", "1e3", '"x"', '"NaN"', "true", "null", "{}", "[1]", "0", "-0", "-0.0", "1.0"]


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """A number as JSON may write it: whole or not, of any length, with or without an exponent."""
    size = draw(st.sampled_from([1, 4, 9, 16, 17, 19, 20, 30, 45]))
    digits = str(draw(st.integers(10 ** (size - 1), 10**size - 1)))
    sign, form = draw(st.sampled_from(["", "-"])), draw(st.sampled_from(["whole", "whole", "point", "exponent"]))
    if form == "point":
        place = draw(st.integers(0, len(digits)))
        digits = f"{digits[:place] or '0'}.{digits[place:] or '0'}"
    if form == "exponent":
        digits = f"{digits[0]}.{digits[1:] or '0'}{draw(st.sampled_from('eE'))}{draw(st.integers(-40, 40))}"
    return sign + digits


VALUES = st.one_of(
    numbers(),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.integers(2**24 - 3, 2**24 + 3).map(str),
    st.integers(-(2**63) - 2, -(2**63) + 2).map(str),
    st.sampled_from(["9007199254740993.0", "0.1000000000000000000000001", "1e-400", "123456789012345680000", "1e22"]),
)
SHAPES = {
    "flat": lambda k, v: f'{{"k":{k},"v":{v}}}',
    "after": lambda k, v: f'{{"op":"c","before":null,"after":{{"k":{k},"v":{v}}},"source":{{"ts_ms":1}}}}',
    "before": lambda k, v: f'{{"op":"d","before":{{"k":{k},"v":{v}}},"after":null,"source":{{"ts_ms":1}}}}',
    "struct": lambda k, v: f'{{"k":{k},"v":{{"n":{v}}}}}',
    "list": lambda k, v: f'{{"k":{k},"v":[{v},null]}}',
}


def _written(lexeme: str, kind: pa.DataType) -> Any:
    """What a column of this type holds of a number; None where it has no room for it."""
    number = Decimal(lexeme)
    if pa.types.is_integer(kind):
        whole = int(number) if abs(number) < 2**64 and number == int(number) else None
        return whole if whole is not None and abs(2 * whole + 1) <= 2**kind.bit_width else None
    if pa.types.is_decimal(kind):
        cut = number.quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE) if abs(number) < 10**60 else None
        return cut if cut == number and abs(number) < Decimal(10) ** (kind.precision - kind.scale) else None
    return number if pa.types.is_string(kind) else _float(lexeme, number, kind)


def _float(lexeme: str, number: Decimal, kind: pa.DataType) -> Any:
    found = np.float32(lexeme) if kind.bit_width == 32 else float(lexeme)
    if not math.isfinite(found):
        return None
    whole = lexeme.lstrip("-").isdigit()
    same = number in (Decimal(float(found)), Decimal(str(found)))
    return float(found) if same or not whole else None


def _held(value: Any, lexeme: str, kind: pa.DataType) -> bool:
    expected = _written(lexeme, kind)
    if pa.types.is_string(kind):
        return Decimal(value) == expected
    return expected is not None and bool(value == expected)


def _column(kind: pa.DataType, shape: str) -> pa.DataType:
    return pa.struct([("n", kind)]) if shape == "struct" else pa.list_(kind) if shape == "list" else kind


def _found(row: dict[str, Any], shape: str) -> Any:
    value = row["v"]
    if value is None:
        return None
    return value["n"] if shape == "struct" else value[0] if shape == "list" else value


def _decoded(lexemes: list[str], column: pa.DataType, shape: str, *, evolve: bool) -> DecodedRecords:
    messages = [SHAPES[shape](index, value).encode() for index, value in enumerate(lexemes)]
    columns = {"k": pa.int64(), "v": column, "__deleted": pa.string()}
    return decode(run(*messages), plan(append(0, columns), evolve=evolve))


@given(
    st.lists(VALUES, min_size=1, max_size=6),
    st.lists(st.sampled_from(NEIGHBOURS), max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from(list(SHAPES)),
    st.booleans(),
)
@example(["9007199254740993"], ["0.5"], pa.int64(), "flat", True)
@example(["1", "374310603650463370174758405193", "1.5e30"], [], pa.decimal128(38, 10), "flat", True)
@example(["1", "2.2250738585e-313"], [], pa.decimal128(10, 2), "flat", False)
@example(["9007199254740993"], ["0.5"], pa.int64(), "before", True)
@example(["1234567890123456789012.345"], ["0.5"], pa.decimal128(38, 10), "list", True)
@settings(max_examples=draws(300))
def test_a_number_is_exact_in_its_column_or_not_there(
    values: list[str], others: list[str], kind: pa.DataType, shape: str, evolve: bool
) -> None:
    """A row holds the very number of its event, and every event whose number the column can hold is a row."""
    outcome = _decoded([*values, *others], _column(kind, shape), shape, evolve=evolve)
    if outcome.needs:
        # An int grows when a value needs it, a column within another as soon as there is a number without schema.
        kind = pa.int64() if pa.types.is_integer(kind) else pa.float64()
        outcome = _decoded([*values, *others], _column(kind, shape), shape, evolve=evolve)
    assert not outcome.needs
    told = {row["k"]: _found(row, shape) for row in rows(outcome)}
    faulty = dead(outcome)
    assert sorted([*told, *faulty]) == list(range(len(values) + len(others)))
    for index, lexeme in enumerate(values):
        if told.get(index) is not None:
            assert _held(told[index], lexeme, kind), (lexeme, told[index])
        elif pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind):
            infinite = not math.isfinite(float(lexeme))
            assert infinite or _written(lexeme, kind) is None, (lexeme, faulty.get(index))


@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from([s for s in SHAPES if s != "list"]))
@settings(max_examples=draws(150))
def test_a_number_of_a_new_column_is_exact_or_not_there(values: list[str], shape: str) -> None:
    """Where no table says what a column is, whole numbers that no double holds never become other numbers."""
    messages = [SHAPES[shape](index, value).encode() for index, value in enumerate(values)]
    need = decode(run(*messages), plan(append(0, {"k": pa.int64()}))).needs
    if not need:
        return
    column = need[0].row.field("v").type
    kind = column.field("n").type if pa.types.is_struct(column) else column
    outcome = _decoded(values, column, shape, evolve=True)
    for index, value in {row["k"]: _found(row, shape) for row in rows(outcome)}.items():
        assert _held(value, values[index], kind), (values[index], value)


@pytest.mark.parametrize("place", ["ts_ns", "lsn"])
def test_a_position_that_is_no_whole_number_takes_none_from_its_neighbours(place: str) -> None:
    """One event whose position is a fraction is a dead letter; the others keep their positions to the last digit."""
    source = [1700000000123456789, 0.5, 1700000000123456791]
    events = [
        {"op": "c", "before": None, "after": {"k": k, "v": k}, "source": {"ts_ms": 1, place: position}}
        for k, position in enumerate(source)
    ]
    outcome = decode(
        run(*map(orjson.dumps, events)), plan(append(0, {"k": pa.int64(), "v": pa.int64(), "__deleted": pa.string()}))
    )
    assert list(dead(outcome)) == [1]
    found = [
        value
        for part in outcome.parts
        for value in (part.order.place[:, FIRST_NUMBER] if place == "lsn" else part.order.dedup)
    ]
    assert found == [source[0], source[2]]
