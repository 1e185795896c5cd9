"""Laws of the JSON decoder: columns equal rows, cuts do not matter, neighbours do not matter, decimals are exact."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from serde.byte_windows import byte_windows
from serde.connect.values import binary_values
from serde.formats import make_deserializer
from serde.json.columns import column_reader
from serde.json.json_types import node_of, parse_schema_block
from serde.json.row_reader import read_value, to_array
from serde.messages import DecodedMessages
from tests.harness.rounds import draws

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_PLAIN = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": TEXT,
}


def _schemas() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.sampled_from(sorted(_PLAIN)).map(lambda kind: {"type": kind, "optional": True})

    def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        fields = st.dictionaries(TEXT, inner, min_size=1, max_size=3).map(
            lambda named: {
                "type": "struct",
                "optional": True,
                "fields": [{**kind, "field": name} for name, kind in named.items()],
            }
        )
        return fields | inner.map(lambda item: {"type": "array", "optional": True, "items": item})

    inner = st.recursive(plain, nested, max_leaves=5)
    return st.dictionaries(TEXT, inner, min_size=1, max_size=5).map(
        lambda named: {
            "type": "struct",
            "optional": False,
            "fields": [{**kind, "field": name} for name, kind in named.items()],
        }
    )


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any]
    match schema["type"]:
        case "struct":
            made = st.fixed_dictionaries({}, optional={field["field"]: _values(field) for field in schema["fields"]})
        case "array":
            made = st.lists(_values(schema["items"]), max_size=3)
        case kind:
            made = _PLAIN[kind]
    return st.none() | made if schema.get("optional") else made


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    """A schema block and payloads that fit it."""
    schema = draw(_schemas())
    return json.dumps(schema).encode(), draw(st.lists(_values(schema), min_size=1, max_size=20))


def _rows(decoded: DecodedMessages) -> dict[int, Any]:
    return {
        int(row): value
        for block in decoded.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }


def _framed(schema: bytes, payload: Any) -> bytes:
    return b'{"schema":' + schema + b',"payload":' + json.dumps(payload).encode() + b"}"


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in below:
        yield from _floats(child)


@given(batches())
@settings(max_examples=draws(150))
def test_columns_equal_rows(batch: tuple[bytes, list[Any]]) -> None:
    """The columnar reader and the row-by-row fallback give the same arrays."""
    schema, payloads = batch
    node = parse_schema_block(schema).node
    texts, _ = byte_windows(pa.array([json.dumps(payload).encode() for payload in payloads], pa.binary()))
    reading = column_reader.ColumnReader(texts, node.wire, strict=False).read()
    assert not reading.rest
    # What the columns leave are large floating numbers whose text may be a whole number's.
    assert all(any(abs(n) >= 2**24 for n in _floats(payloads[at])) for rows in reading.failed for at in rows.tolist())
    one_by_one = to_array([read_value(node, payload) for payload in payloads], node.wire)
    for places, array in reading.parts:
        assert array.to_pylist() == one_by_one.take(pa.array(places)).to_pylist()


@given(batches(), st.lists(st.binary(max_size=12), max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=draws(150))
def test_garbage_never_disturbs_neighbours(batch: tuple[bytes, list[Any]], junk: list[bytes], random: Any) -> None:
    """Whatever bytes lie between, the same messages give the same rows."""
    schema, payloads = batch
    good = [_framed(schema, payload) for payload in payloads]
    mixed: list[tuple[int | None, bytes]] = list(enumerate(good))
    for bad in [*junk, good[0][:-3], b"{" + bad_tail(good[0]), b'{"a":{}', b"{}}"]:
        mixed.insert(random.randrange(len(mixed) + 1), (None, bad))
    alone = _rows(make_deserializer("auto").decode(pa.array(good, pa.binary()), "VALUE_CONVERTER"))
    among = _rows(
        make_deserializer("auto").decode(pa.array([text for _, text in mixed], pa.binary()), "VALUE_CONVERTER")
    )
    place = {index: at for at, (index, _) in enumerate(mixed) if index is not None}
    assert {index: among[at] for index, at in place.items()} == alone


def bad_tail(message: bytes) -> bytes:
    """The second half of a message."""
    return message[len(message) // 2 :]


@given(batches(), st.integers(0, 20))
@settings(max_examples=draws(100))
def test_a_cut_does_not_matter(batch: tuple[bytes, list[Any]], at: int) -> None:
    """Two parts of a chunk give the rows of the chunk."""
    schema, payloads = batch
    messages = pa.array([_framed(schema, payload) for payload in payloads], pa.binary())
    whole = _rows(make_deserializer("auto").decode(messages, "VALUE_CONVERTER"))
    first = _rows(make_deserializer("auto").decode(messages.slice(0, at), "VALUE_CONVERTER"))
    second = _rows(make_deserializer("auto").decode(messages.slice(at), "VALUE_CONVERTER"))
    assert whole == first | {row + min(at, len(messages)): value for row, value in second.items()}


@given(st.data())
@settings(max_examples=draws(100))
def test_bare_rows_keep_their_values(data: st.DataObject) -> None:
    """Without a schema every value arrives, nulls apart, whatever the converter saw before."""
    schema = data.draw(_schemas())
    payloads = data.draw(st.lists(_values(schema), min_size=1, max_size=20))
    json_converter = make_deserializer("json")
    half = len(payloads) // 2
    json_converter.decode(pa.array([json.dumps(p).encode() for p in payloads[half:]], pa.binary()), "VALUE_CONVERTER")
    decoded = json_converter.decode(
        pa.array([json.dumps(p).encode() for p in payloads], pa.binary()), "VALUE_CONVERTER"
    )
    assert not decoded.faults
    assert {row: _full(value) for row, value in _rows(decoded).items()} == {
        row: _full(p) for row, p in enumerate(payloads)
    }


def _full(value: Any) -> Any:
    """A value without what has no type: nulls, empty objects, lists of nothing but such."""
    if isinstance(value, dict):
        kept = {name: _full(child) for name, child in value.items()}
        return {name: child for name, child in kept.items() if child not in (None, {}, [])} or None
    if isinstance(value, list):
        items = [_full(item) for item in value]
        return items if any(item not in (None, {}, []) for item in items) else None
    return value


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, list[int | None]]:
    """Precision, scale and unscaled values that fit."""
    precision = draw(st.integers(1, 38))
    limit = 10**precision - 1
    return (
        precision,
        draw(st.integers(0, precision)),
        draw(st.lists(st.none() | st.integers(-limit, limit), max_size=30)),
    )


@given(decimals())
@settings(max_examples=draws(200))
def test_decimals_round_trip(case: tuple[int, int, list[int | None]]) -> None:
    """Base64 of any unscaled value within the precision decodes to exactly that number, slices included."""
    precision, scale, unscaled = case
    text = pa.array(
        [None, "AAAA", *(None if number is None else binary_values.encode_unscaled(number) for number in unscaled)],
        pa.string(),
    )
    made, bad = _decode(text.slice(2), pa.decimal128(precision, scale))
    assert bad is None
    assert made.to_pylist() == [None if n is None else Decimal(n).scaleb(-scale, _wide()) for n in unscaled]


def _decode(text: pa.StringArray, kind: pa.Decimal128Type) -> tuple[pa.Decimal128Array, Any]:
    binary, bad = binary_values.base64_to_binary(text)
    assert bad is None
    return binary_values.bytes_to_decimal(binary, kind)


def _wide() -> Any:
    return Context(prec=60)


@given(st.integers(-(2**127), 2**127 - 1), st.integers(1, 38))
@settings(max_examples=draws(200))
def test_decimal_is_bad_exactly_beyond_its_precision(number: int, precision: int) -> None:
    """No number is refused that fits, none is taken that does not."""
    _, bad = _decode(pa.array([binary_values.encode_unscaled(number)]), pa.decimal128(precision, 0))
    assert (bad is not None) == (abs(number) >= 10**precision)


@given(st.lists(st.none() | st.binary(max_size=20), max_size=20))
@settings(max_examples=draws(200))
def test_base64_round_trip(values: list[bytes | None]) -> None:
    """Bytes of any length and nulls between decode together."""
    text = pa.array([None if value is None else base64.b64encode(value).decode() for value in values], pa.string())
    made, bad = binary_values.base64_to_binary(text)
    assert bad is None and made.to_pylist() == values


@given(st.lists(TEXT | st.just("QUJD"), max_size=20))
@settings(max_examples=draws(200))
def test_base64_refuses_exactly_what_is_none(values: list[str]) -> None:
    """Foreign text is bad row by row and its neighbours decode."""
    made, bad = binary_values.base64_to_binary(pa.array(values, pa.string()))
    for index, value in enumerate(values):
        try:
            expected = base64.b64decode(value, validate=True) if value.isascii() else None
        except binascii.Error:
            expected = None
        assert made[index].as_py() == expected
        assert bool(bad is not None and bad[index]) == (expected is None)


def test_schema_tree_of_a_found_type_is_plain() -> None:
    """Types found without a schema need no conversion, so decoding them twice is the same."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    node = node_of(kind)
    assert node.wire == kind and node.logical == kind and np.all([True])
