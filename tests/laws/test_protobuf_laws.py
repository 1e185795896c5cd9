"""Laws of the Protobuf decoder: what Google's library writes is what columns hold; garbage is never a crash."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde.faults import Unfit
from serde.messages import DecodedMessages
from serde.protobuf.deserializer import ProtobufDeserializer
from serde.protobuf.schemas.writer_schema import parse_writer_schema
from serde.protobuf.single_message import read_message
from tests.harness.rounds import draws
from tests.model import protobuf

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, Any, list[dict[str, Any]]]:
    """A file, Google's class of its message, and values of it."""
    file = protobuf.absolute(draw(protobuf.files()))
    make = protobuf.classes(file)("p.q.M")
    return file, make, draw(st.lists(protobuf.values(make.DESCRIPTOR), min_size=1, max_size=12))


def decoded(text: str, messages: list[bytes]) -> DecodedMessages:
    """Messages of one schema, framed, through the converter."""
    data = pa.array([protobuf.framed(message) for message in messages], pa.binary())
    return ProtobufDeserializer(protobuf.fetch(text)).decode(data, "VALUE_CONVERTER")


def rows(outcome: DecodedMessages) -> dict[int, Any]:
    """Row -> value."""
    return {
        int(row): protobuf.with_sets(value)
        for block in outcome.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }


def same(one: Any, other: Any) -> bool:
    """Equal, where an empty map is an empty list."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(same(left, right) for left, right in zip(one, other, strict=True))
    return one == other or (not one and not other and isinstance(one, list | set) and isinstance(other, list | set))


@given(batches(), st.booleans())
@settings(max_examples=draws(100), suppress_health_check=SLOW)
def test_columns_hold_what_was_written(batch: tuple[Any, Any, list[dict[str, Any]]], plain: bool) -> None:
    """Every value that Google's library writes arrives, by the text of its schema and by its descriptor."""
    file, make, values = batch
    text = protobuf.text_of(file) if plain else protobuf.encoded(file)
    outcome = decoded(text, [protobuf.written(make, value) for value in values])
    assert outcome.faults == ()
    found = rows(outcome)
    for index, value in enumerate(values):
        assert same(found[index], protobuf.expected(make.DESCRIPTOR, value))


@given(batches(), st.data())
@settings(max_examples=draws(100), suppress_health_check=SLOW)
def test_garbage_is_told_as_one_by_one(batch: tuple[Any, Any, list[dict[str, Any]]], data: st.DataObject) -> None:
    """Messages that are cut, joined or changed are read or refused as they are one by one; none costs another."""
    file, make, values = batch
    whole = [protobuf.written(make, value) for value in values]
    broken = [*whole]
    for at, message in enumerate(whole):
        match data.draw(st.integers(0, 3)):
            case 0:
                broken[at] = message[: data.draw(st.integers(0, len(message)))]
            case 1:
                broken[at] = message + data.draw(st.sampled_from(whole))
            case 2:
                place = data.draw(st.integers(0, len(message)))
                broken[at] = message[:place] + data.draw(st.binary(max_size=4)) + message[place + 1 :]
    text = protobuf.encoded(file)
    outcome = decoded(text, broken)
    found, codec = rows(outcome), parse_writer_schema((text,), (0,)).codec
    for at, message in enumerate(broken):
        try:
            alone = pa.array([read_message(codec, message)], codec.wire).to_pylist()[0]
        except Unfit:
            assert at not in found
            continue
        assert repr(protobuf.with_sets(alone)) == repr(found[at]) or same(protobuf.with_sets(alone), found[at])
    assert sorted([*found, *(fault.row for fault in outcome.faults)]) == list(range(len(broken)))
