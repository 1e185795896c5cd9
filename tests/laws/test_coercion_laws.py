"""Lenient conversion, value by value: any JSON scalar in any column is what a plain reading says, or null."""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.sink.convert.decoder import decode
from tests.harness.rounds import draws
from tests.unit.sink_plans import append, dead, plan, rows, run

EPOCH = dt.datetime(1970, 1, 1)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_DIGITS = re.compile(r"[+-]?[0-9]+")


def _whole(value: Any) -> int | None:
    """A value as a whole number: numbers and booleans, digits in a text; 1.0 is one, 1.5 is none, nor is an object."""
    if isinstance(value, dict | list):
        return None
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    return int(value) if value == int(value) else None


def _within(bits: int) -> Callable[[Any], int | None]:
    def read(value: Any) -> int | None:
        number = _whole(value)
        return number if number is not None and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None

    return read


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return None if _whole(value) is None else value != 0


def _numbers_only(read: Callable[[int], Any]) -> Callable[[Any], Any]:
    def found(value: Any) -> Any:
        number = None if isinstance(value, str) else _whole(value)
        try:
            return None if number is None else read(number)
        except OverflowError:
            return None

    return found


def _time(millis: int) -> dt.time | None:
    return (EPOCH + dt.timedelta(milliseconds=millis)).time() if 0 <= millis < 86_400_000 else None


def _bytes(value: Any) -> bytes | None:
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        return None
    return base64.b64decode(value)


RULES: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int32(): _within(32),
    pa.int64(): _within(64),
    pa.bool_(): _flag,
    pa.timestamp("us"): _numbers_only(lambda number: EPOCH + dt.timedelta(milliseconds=number)),
    pa.date32(): _numbers_only(lambda number: EPOCH.date() + dt.timedelta(days=number)),
    pa.time64("us"): _numbers_only(_time),
    pa.binary(): _bytes,
}
NUMBERS = st.one_of(
    st.integers(-(2**40), 2**40),
    st.integers(-100_000, 100_000),
    st.sampled_from([0, 1, -1, 2**31, 2**31 - 1, -(2**31) - 1, 86_399_999, 86_400_000, 1.0, 1.5, -2.0, 1e9]),
)
TEXTS = st.sampled_from(
    ["7", "+7", "-7", "0x10", "7.0", "1e3", "", " 7", "true", "FALSE", "maybe", "x", "aGk=", "1234"]
)
NESTED = st.sampled_from([[], {}, [None], [[]], [{}], {"z": None}, [1], {"a": 1}])
WITHOUT_BOOLEANS = {kind for kind in RULES if kind not in (pa.int32(), pa.int64(), pa.bool_())}


@given(st.lists(st.one_of(NUMBERS, TEXTS, NESTED, st.booleans()), min_size=1, max_size=8), st.sampled_from(list(RULES)))
@settings(max_examples=draws(150))
def test_a_value_is_what_the_table_says_or_null(values: list[Any], kind: pa.DataType) -> None:
    """Values of any kinds beside each other in one batch: each is converted by itself, exactly, or null."""
    if kind in WITHOUT_BOOLEANS:
        values = [value for value in values if not isinstance(value, bool)] or [1]
    if kind == pa.date32():
        # Python's dates end before Arrow's do; numbers beyond both are left in.
        values = [v for v in values if isinstance(v, str | list | dict) or abs(v) < 700_000 or abs(v) >= 2**32] or [1]
    events = [{"k": i, "v": value} for i, value in enumerate(values)]
    outcome = decode(run(*events), plan(append(0, {"k": pa.int64(), "v": kind}), evolve=False))
    assert dead(outcome) == {}
    expected = {i: RULES[kind](v) for i, v in enumerate(values)}
    assert {row["k"]: row["v"] for row in rows(outcome)} == expected
    assert outcome.metrics.nulled == sum(made is None for made in expected.values())
