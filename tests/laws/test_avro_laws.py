"""Laws of the Avro decoder: what fastavro writes is what columns and rows hold; garbage is never a crash nor a value.

ICEBRIDGE_FUZZ_S (seconds) is how long the fuzzing goes on, with other examples each time, else it is one fixed round;
ten minutes were asked for before a release.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde.avro import single_datum
from serde.avro.datum_reader import read_datums
from serde.avro.deserializer import AvroDeserializer
from serde.avro.encoder import encode_datums
from serde.avro.writer_schema import parse_writer_schema
from serde.byte_windows import byte_windows
from serde.faults import Unfit
from serde.messages import DecodedMessages
from tests.harness.rounds import draws
from tests.model import avro

FUZZ_S = float(os.environ.get("ICEBRIDGE_FUZZ_S", "0"))
Batch = tuple[Any, list[Any]]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A schema and values of it."""
    schema = draw(avro.schemas())
    return schema, draw(st.lists(avro.values(schema), min_size=1, max_size=12))


def decoded(schema: Any, datums: list[bytes]) -> DecodedMessages:
    """Datums of one schema, framed, through the converter."""
    messages = pa.array([avro.framed(datum) for datum in datums], pa.binary())
    return AvroDeserializer(avro.fetch(schema)).decode(messages, "VALUE_CONVERTER")


def rows(outcome: DecodedMessages) -> dict[int, Any]:
    """Row -> value."""
    return {
        int(row): value
        for block in outcome.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }


@given(batches())
@settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_columns_hold_what_was_written(batch: Batch) -> None:
    """Every value that fastavro writes arrives, exactly."""
    schema, values = batch
    outcome = decoded(schema, [avro.written(schema, value) for value in values])
    assert outcome.faults == ()
    assert rows(outcome) == {index: avro.expected(schema, value) for index, value in enumerate(values)}


@given(batches())
@settings(max_examples=draws(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_rows_equal_columns(batch: Batch) -> None:
    """Read one by one, datums give what they give a column at a time."""
    schema, values = batch
    datums = [avro.written(schema, value) for value in values]
    codec = parse_writer_schema(avro.fetch(schema)(avro.ID)).codec
    alone = pa.array([single_datum.read_datum(codec, datum) for datum in datums], codec.wire).to_pylist()
    assert dict(enumerate(alone)) == rows(decoded(schema, datums))


@given(batches(), st.integers(0, 3))
@settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_columns_are_written_as_fastavro_writes_rows(batch: Batch, skipped: int) -> None:
    """Columns, also a slice of some, become the very bytes that fastavro writes for their rows."""
    schema, values = batch
    expected = [avro.written(schema, value) for value in values]
    codec = parse_writer_schema(avro.fetch(schema)(avro.ID)).codec
    _, wire, faults = read_datums(byte_windows(pa.array(expected, pa.binary()))[0], codec)
    assert not faults
    assert encode_datums(codec, wire).to_pylist() == expected
    assert encode_datums(codec, wire.slice(skipped)).to_pylist() == expected[skipped:]


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Any, list[bytes], list[bytes]]:
    """A schema, good datums, and the same with some of them changed, cut, lengthened or replaced."""
    schema, values = draw(batches())
    good = [avro.written(schema, value) for value in values]
    return schema, good, [draw(_changed(datum)) if draw(st.booleans()) else datum for datum in good]


def _changed(datum: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, max(len(datum) - 1, 0))
    bytes_ = st.sampled_from([0, 1, 2, 127, 128, 129, 254, 255]) | st.integers(0, 255)
    return st.one_of(
        places.map(lambda at: datum[:at]),
        st.binary(min_size=1, max_size=12).map(lambda more: datum + more),
        st.tuples(places, bytes_).map(lambda change: datum[: change[0]] + bytes([change[1]]) + datum[change[0] + 1 :]),
        st.binary(max_size=30),
        st.binary(min_size=8, max_size=8).map(lambda more: b"\xff" * 9 + more),
    )


def check(schema: Any, good: list[bytes], bad: list[bytes]) -> None:
    """Every datum is a row or a fault; a row is what the slow reader and fastavro read, a good datum stays good."""
    outcome = decoded(schema, bad)
    found = rows(outcome)
    assert sorted([*found, *(fault.row for fault in outcome.faults)]) == list(range(len(bad)))
    codec = parse_writer_schema(avro.fetch(schema)(avro.ID)).codec
    for index, datum in enumerate(bad):
        if datum == good[index]:
            assert index in found
        try:
            alone = pa.array([single_datum.read_datum(codec, datum)], codec.wire)
        except Unfit:
            assert index not in found
            continue
        assert repr(alone.to_pylist()) == repr([found[index]])
        value, size = avro.read(schema, datum)
        assert size == len(datum)
        assert repr(_sorted(avro.expected(schema, _told(schema, value)))) == repr(_sorted(found[index]))


def _told(schema: Any, value: Any) -> Any:
    """fastavro tells the branch of records only; the other branches here are told by the Python type."""
    if isinstance(schema, list):
        return _told_branch(schema, value)
    if not isinstance(schema, dict):
        return value
    match schema["type"]:
        case "record":
            return {field["name"]: _told(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "array":
            return [_told(schema["items"], item) for item in value]
        case "map":
            return {key: _told(schema["values"], item) for key, item in value.items()}
        case _:
            return value


def _told_branch(schema: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        branch = next(b for b in schema if isinstance(b, dict) and f"{b['namespace']}.{b['name']}" == value[0])
        return value[0], _told(branch, value[1])
    others = [branch for branch in schema if branch != "null"]
    name = others[0] if len(others) == 1 else "string" if isinstance(value, str) else "long"
    if isinstance(name, dict):
        return f"{name['namespace']}.{name['name']}", _told(name, value)
    return name, value


def _sorted(value: Any) -> Any:
    """Pairs of a map by their keys, the last of equal ones: a dict knows no more."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return sorted(({key: _sorted(item) for key, item in value}).items())
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@given(spoilt())
@settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_garbage_is_a_fault_of_its_own(case: tuple[Any, list[bytes], list[bytes]]) -> None:
    """A spoilt datum is a fault, or the very value that its bytes say; its neighbours are not touched."""
    check(*case)


@pytest.mark.timeout(FUZZ_S + 300)
def test_fuzzing() -> None:
    """The same once, or for as long as ICEBRIDGE_FUZZ_S says."""
    end = time.monotonic() + FUZZ_S

    @given(spoilt())
    @settings(max_examples=draws(50), database=None, derandomize=not FUZZ_S, suppress_health_check=list(HealthCheck))
    def once(case: tuple[Any, list[bytes], list[bytes]]) -> None:
        check(*case)

    once()
    while time.monotonic() < end:
        once()
