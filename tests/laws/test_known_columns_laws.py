"""Values without schema in known columns: each is what a plain reading says, alone in its block or beside others."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.sink.convert.decoder import decode
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

Read = Callable[[Any], Any]
UTC = dt.UTC
_UUID = "123e4567-e89b-12d3-a456-426614174000"


class Dead(Exception):
    """No value of the column: the record is a dead letter."""


def _of(*kinds: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise Dead
        return value

    return read


def _whole(value: Any) -> int:
    number = _of(int, float)(value)
    if number != int(number) or not -(2**63) <= number < 2**63:
        raise Dead
    return int(number)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise Dead
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Dead
    if not re.fullmatch(r"-?[0-9]+\.[0-9]*" if isinstance(value, str) else ".*", str(value)):
        raise Dead
    number = Decimal(str(value))
    if number != round(number, 2) or abs(number) >= 10**7:
        raise Dead
    return round(number, 2)


def _parsed(shape: str, read: Callable[[str], Any]) -> Read:
    def parsed(value: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(shape, value):
            raise Dead
        return read(value)

    return parsed


def _nothing(_value: Any) -> Any:
    raise Dead


def _struct(**fields: Read) -> Read:
    def read(value: Any) -> dict[str, Any]:
        found = _of(dict)(value)
        return {name: None if found.get(name) is None else field(found[name]) for name, field in fields.items()}

    return read


def _list(item: Read) -> Read:
    return lambda value: [None if one is None else item(one) for one in _of(list)(value)]


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DATE}(T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})?"
_date = _parsed(_DATE, dt.date.fromisoformat)
_uuid = _parsed("[0-9a-f-]{36}", uuid.UUID)
RULES: Mapping[str, tuple[pa.DataType, Read]] = {
    "long": (pa.int64(), _whole),
    "double": (pa.float64(), lambda value: float(_of(int, float)(value))),
    "boolean": (pa.bool_(), _of(bool)),
    "string": (pa.string(), _text),
    "decimal": (pa.decimal128(9, 2), _decimal),
    "uuid": (pa.uuid(), _uuid),
    "date": (pa.date32(), _date),
    "time": (pa.time64("us"), _parsed("[0-9]{2}:[0-9]{2}:[0-9]{2}", dt.time.fromisoformat)),
    "timestamp": (pa.timestamp("us"), _parsed(_MOMENT, dt.datetime.fromisoformat)),
    "timestamptz": (pa.timestamp("us", "UTC"), _parsed(_MOMENT + r"\+02:00", dt.datetime.fromisoformat)),
    "timestamp_ns": (pa.timestamp("ns"), _parsed(_MOMENT, dt.datetime.fromisoformat)),
    "binary": (pa.binary(), _nothing),
    "fixed": (pa.binary(4), _nothing),
    "map": (pa.map_(pa.string(), pa.int64()), _nothing),
    "struct": (pa.struct([("d", pa.date32()), ("n", pa.int64())]), _struct(d=_date, n=_whole)),
    "struct of a uuid": (pa.struct([("d", pa.uuid())]), _struct(d=_uuid)),
    "list of longs": (pa.list_(pa.int64()), _list(_whole)),
    "list of dates": (pa.list_(pa.date32()), _list(_date)),
    "list of structs": (pa.list_(pa.struct([("d", pa.date32())])), _list(_struct(d=_date))),
    "struct of structs": (pa.struct([("d", pa.struct([("d", pa.date32())]))]), _struct(d=_struct(d=_date))),
}
NUMBERS: list[Any] = [5, 2024, 20240506, 121314, 0.5, 7.0, 1.255, True, False]
TEXTS = ["x", "", "5", "1.50", "1213", "20240506", "2024-05-06", "12:13:14", "2024-05-06T07:08:09", _UUID]
TEXTS += ["2024-05-06T07:08:09+02:00", "aGk=", "abcd", _UUID.replace("-", "")]
NESTED: list[Any] = [[], {}, [None], [[]], [{}], [5], ["2024-05-06"], [None, "2024-05-06"], {"d": None}, {"d": []}]
NESTED += [{"d": {}}, {"d": 5}, {"d": _UUID}, {"d": "2024-05-06"}, [{"d": None}], [{"d": []}], [{"d": "2024-05-06"}]]
NESTED += [{"d": {"d": "2024-05-06"}}, {"d": {"d": {}}}, [[], None]]
VALUES = [None, *NUMBERS, *TEXTS, *NESTED, [5, []], [5, "2024-05-06"]]


def _envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"ts_ms": 1, "db": "d", "table": "t"}}


def _cloud(row: Any) -> dict[str, Any]:
    attributes = {"specversion": "1.0", "type": "DataChangeEventV1", "iodebeziumop": "c", "iodebeziumtsms": 1}
    return {**attributes, "data": {"before": None, "after": row}}


FORMS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "flat": lambda row: row,
    "created": lambda row: _envelope("c", None, row),
    "updated": lambda row: _envelope("u", row, row),
    "deleted": lambda row: _envelope("d", row, None),
    "cloud": _cloud,
}


def _check(name: str, values: list[Any], form: str = "flat") -> None:
    kind, read = RULES[name]
    expected: dict[int, Any] = {}
    for place, value in enumerate(values):
        try:
            expected[place] = None if value is None else read(value)
        except Dead:
            continue
    events = [FORMS[form]({"k": place, "v": value}) for place, value in enumerate(values)]
    outcome = decode(run(*events), plan(append(0, {"k": pa.int64(), "v": kind, "__deleted": pa.string()})))
    assert not outcome.needs
    assert {row["k"]: row["v"] for row in rows(outcome)} == expected
    assert sorted(dead(outcome)) == [place for place in range(len(values)) if place not in expected]


@pytest.mark.parametrize("name", RULES)
def test_a_value_alone_is_what_the_column_says_or_a_dead_letter(name: str) -> None:
    """No value of any kind becomes another, or silently null, as nothing else is in its block."""
    for value in VALUES:
        _check(name, [value])
        _check(name, [value, value], "created")


@given(
    st.sampled_from(list(RULES)),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    st.sampled_from(VALUES),
    st.integers(0, 5),
    st.sampled_from(list(FORMS)),
)
@settings(max_examples=150)
def test_a_values_neighbours_do_not_matter(name: str, values: list[Any], other: Any, often: int, form: str) -> None:
    """Beside values of any kinds, some of them more frequent, each value is what it is alone."""
    _check(name, [*([other] * often), *values], form)


@pytest.mark.parametrize("name", ["uuid", "date", "timestamp", "time"])
def test_a_key_beside_numbers_is_read_as_it_is_alone(name: str) -> None:
    """Record keys too are read by the table's types, whatever is more frequent."""
    kind, read = RULES[name]
    good = [text for text in TEXTS if not _is_dead(read, text)]
    keys = [*({"k": number} for number in (5, 2024, 121314, True, 0.5, 7)), *({"k": text} for text in good)]
    table = upsert(0, {"k": kind, "v": pa.int64()}, ("k",))
    outcome = decode(run(*({"v": n} for n, _ in enumerate(keys)), keys=keys), plan(table))
    assert [row["k"] for row in rows(outcome)] == [read(text) for text in good]
    assert sorted(dead(outcome)) == list(range(6))


def _is_dead(read: Read, value: Any) -> bool:
    try:
        read(value)
    except Dead:
        return True
    return False


@pytest.mark.parametrize("value", NESTED, ids=repr)
def test_a_variant_takes_what_holds_nothing_too(value: Any) -> None:
    """Empty objects and lists are documents, alone in their block or beside others; null members stay."""
    for others in ([], [5, 5, 5], ["x"] * 3, [[1]] * 3, [{"a": 1}] * 3):
        events = [{"k": 0, "v": value}, *({"k": 1 + place, "v": other} for place, other in enumerate(others))]
        outcome = decode(run(*events), plan(append(0, {"k": pa.int64(), "v": VARIANT_ARROW_TYPE}), variants=True))
        found = {row["k"]: row["v"] for row in rows(outcome)}
        assert orjson.loads(found[0]) == value, others
