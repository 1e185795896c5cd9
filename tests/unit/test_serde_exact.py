"""A value and its neighbours: what one event holds changes no value of another, on any way in."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.iceberg.types.values.conversion import convert
from connector.iceberg.types.values.variants import decode_variants, encode_variants, to_json_text
from connector.opensearch.documents.document_ids import build_document_ids
from connector.sink.convert.decoder import decode
from connector.sink.destinations.deleted_keys import keys_to_text
from serde.formats import make_deserializer
from serde.json import schemaless
from serde.messages import DecodedMessages
from tests.harness.tiers import tiered
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert

BIG = 2**53 + 1
ROW = {"k": pa.int64(), "v": pa.int64(), "__deleted": pa.string()}


def _envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"ts_ms": 1, "db": "d", "table": "t"}}


@pytest.mark.parametrize("place", tiered([0, 70, 1500, 2999], [0, 1500]))
@pytest.mark.parametrize("poison", [0.5, "x", [1], {"a": 1}, True], ids=str)
def test_one_event_of_another_kind_changes_no_neighbour(place: int, poison: Any) -> None:
    """Thousands of bigints beside one value of another kind stay what they are, in flat events and in envelopes."""
    values = [BIG + 2 * n for n in range(3000)]
    values[place] = poison
    flat = [{"k": n, "v": value} for n, value in enumerate(values)]
    for events in (flat, [_envelope("c", None, row) for row in flat], [_envelope("d", row, None) for row in flat]):
        outcome = decode(run(*events), plan(append(0, ROW)))
        assert list(dead(outcome)) == [place]
        told = {row["k"]: row["v"] for row in rows(outcome)}
        assert told == {n: value for n, value in enumerate(values) if n != place}


@pytest.mark.parametrize("place", [0, 1500])
def test_a_new_column_is_of_the_kind_that_most_events_have(place: int) -> None:
    """One fraction among bigints that no double holds makes no column of doubles."""
    values: list[Any] = [BIG + 2 * n for n in range(2000)]
    values[place] = 0.5
    outcome = decode(run(*({"k": n, "v": value} for n, value in enumerate(values))), plan())
    (need,) = outcome.needs
    assert need.row.field("v").type == pa.int64()
    assert list(dead(outcome)) == [place]


def test_fractions_that_no_sample_shows_are_few_beside_long_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds are counted alike in columns and one by one, so that no two types are tried again and again."""
    reads: list[object] = []
    read = schemaless._read_columns
    monkeypatch.setattr(schemaless, "_read_columns", lambda *given: reads.append(given) or read(*given))
    few = range(2400, 2460)
    messages = [orjson.dumps({"v": 0.5 if n in few else BIG + 2 * n}) for n in range(5000)]
    decoded = make_deserializer("auto").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    assert [fault.row for fault in decoded.faults] == [*few]
    assert len(reads) < 4


@pytest.mark.parametrize("most", ["rows", "envelopes"])
def test_an_event_of_the_other_form_is_read_by_the_tables_types(most: str) -> None:
    """Where a transform was taken in or out, one event of the other form, which no sample shows, keeps its digits."""
    exact = '{"k":7,"v":12345678901234567.89}'
    forms = {"rows": "%s", "envelopes": '{"op":"c","before":null,"after":%s,"source":{"ts_ms":1}}'}
    other = next(form for name, form in forms.items() if name != most)
    messages = [(forms[most] % f'{{"k":{n},"v":0.5}}').encode() for n in range(3000)]
    messages[1501] = (other % exact).encode()
    table = append(0, {"k": pa.int64(), "v": pa.decimal128(38, 10), "__deleted": pa.string()})
    outcome = decode(run(*messages), plan(table))
    assert not outcome.faults and not outcome.needs
    assert rows(outcome)[1501]["v"] == Decimal("12345678901234567.89")


@pytest.mark.parametrize("text", ["1.5E+30", "15.0e29", "1234567890123456789012345678901234567890.0", "1\\u002e5E30"])
def test_a_text_beyond_a_decimal_column_is_no_other_number(text: str) -> None:
    """Where numbers make the column one of decimals, a text of a number that it has no room for is refused."""
    table = append(0, {"k": pa.int64(), "v": pa.decimal128(38, 10)})
    messages = [f'{{"k":{n},"v":0.5}}'.encode() for n in range(200)]
    messages[150] = f'{{"k":150,"v":"{text}"}}'.encode()
    outcome = decode(run(*messages), plan(table))
    assert dead(outcome).keys() == {150}
    assert {row["v"] for row in rows(outcome)} == {Decimal("0.5000000000")}


@pytest.mark.parametrize("evolve", [True, False])
@pytest.mark.parametrize("form", ["%s", '{"op":"c","before":null,"after":%s,"source":{"ts_ms":1}}'])
def test_a_field_in_other_letters_is_read_by_its_columns_type(form: str, *, evolve: bool) -> None:
    """Where case does not matter, numbers keep their digits under any name, also beside those under the column's."""
    kinds = {"k": pa.int64(), "v": pa.decimal128(38, 10), "s": pa.struct([("x", pa.decimal128(20, 4))])}
    table = append(0, {**kinds, "__deleted": pa.string()})
    rest = '"s":{"x":1}', '"S":{"x":0.5}', '"S":{"x":1234567890123456.25}', '"S":{}'
    messages = [
        (form % f'{{"k":1,"{name}":12345678901234567.89,{rest[n % 4]}}}').encode() for n, name in enumerate("VVvV" * 50)
    ]
    outcome = decode(run(*messages), plan(table, case_insensitive=True, evolve=evolve))
    assert not outcome.faults and not outcome.needs
    assert {row["v"] for row in rows(outcome)} == {Decimal("12345678901234567.89")}
    assert [row["s"]["x"] for row in rows(outcome)][:4] == [1, Decimal("0.5"), Decimal("1234567890123456.25"), None]


@pytest.mark.parametrize("evolve", [True, False])
def test_a_column_is_read_by_its_type_under_its_earlier_name(*, evolve: bool) -> None:
    """Events of before the source renamed a column keep their digits."""
    table = append(0, {"k": pa.int64(), "now": pa.decimal128(38, 10), "b": pa.timestamp("us")})
    table = attrs.evolve(table, renames={"then": "now", "a": "b"})
    messages = [b'{"k":1,"then":12345678901234567.89,"a":"2020-01-02T00:00:00"}', b'{"k":2,"then":1,"a":null}']
    outcome = decode(run(*messages), plan(table, evolve=evolve))
    assert not outcome.faults and not outcome.needs
    assert [row["now"] for row in rows(outcome)] == [Decimal("12345678901234567.89"), Decimal(1)]


def test_a_number_for_a_date_in_other_letters_does_not_depend_on_texts() -> None:
    """A table that does not follow its events takes it as it does alone, where case does not matter too."""
    table = append(0, {"k": pa.int64(), "b": pa.timestamp("us")})
    number, texts = b'{"k":1,"B":16777217}', (b'{"k":2,"B":"2020-01-02"}', b'{"k":2,"b":"2020-01-02"}')
    alone, *beside = (
        rows(decode(run(*messages), plan(table, case_insensitive=True, evolve=False)))
        for messages in ([number], *([number, text] for text in texts))
    )
    assert alone[0]["b"] is not None
    assert [found[0] for found in beside] == [alone[0]] * 2
    assert [found[1]["b"].year for found in beside] == [2020, 2020]


@pytest.mark.parametrize("number", [2**60, 2**63, 9007199254740993, 2**53])
def test_a_long_number_for_a_decimal_keeps_its_digits_where_another_value_does_not_fit(number: int) -> None:
    """Events are read again without the table's types, and beside fractions: a number is itself, or a letter."""
    kinds = {"v": pa.decimal128(38, 2), "vs": pa.list_(pa.decimal128(38, 2)), "f": pa.list_(pa.int64())}
    table = append(0, {"k": pa.int64(), **kinds})
    odd = [f'{{"k":{n},"v":{n}.5,"vs":[{n}.5],"f":0}}'.encode() for n in range(200)]
    odd[70] = f'{{"k":70,"v":{number},"vs":[1],"f":0}}'.encode()
    odd[80] = f'{{"k":80,"v":0,"vs":[{number}],"f":0}}'.encode()
    odd[90] = f'{{"k":90,"v":0,"vs":[{number},0.5],"f":0}}'.encode()
    outcome = decode(run(*odd), plan(table, evolve=False))
    lost, found = dead(outcome), {row["k"]: row for row in rows(outcome)}
    assert len(found) + len(lost) == len(odd) and len(found) >= len(odd) - 3
    assert 70 in lost or found[70]["v"] == number
    assert 80 in lost or found[80]["vs"] == [number]
    assert 90 in lost or found[90]["vs"] == [number, Decimal("0.5")]
    assert number >= 2**63 or not {70, 80} & lost.keys()


def test_columns_that_fit_are_read_by_their_types_again() -> None:
    """A decimal keeps its digits also in an event of which another value does not fit, alone and beside others."""
    table = append(0, {"k": pa.int64(), "v": pa.decimal128(38, 2), "f": pa.list_(pa.int64())})
    exact = b'{"k":1,"v":123456789012345678901.25,"f":0}'
    for beside in ([], [b'{"k":2,"v":0.5,"f":0}'], [b'{"k":2,"v":7,"f":[1]}', b'{"k":3,"v":"1.5","f":0}']):
        outcome = decode(run(exact, *beside), plan(table, evolve=False))
        assert not outcome.faults
        assert rows(outcome)[0] == {"k": 1, "v": Decimal("123456789012345678901.25"), "f": None}


def test_a_message_with_spaces_keeps_its_columns_beside_kinds_that_exclude_each_other() -> None:
    """A column that only such a message has is of its own kind, whatever the others disagree about."""
    plain = [orjson.dumps({"k": n, "v": "x" if n == 7 else n}) for n in range(40)]
    spaced = b'{ "k": 99, "v": 1, "note": "here" }'
    decoded = make_deserializer("auto").decode(pa.array([*plain, spaced], pa.binary()), "VALUE_CONVERTER")
    assert [fault.row for fault in decoded.faults] == [7]
    (block,) = decoded.blocks
    assert block.fields.to_pylist()[-1] == {"k": 99, "v": 1, "note": "here"}


def _of_type(kind: str, name: str | None, *texts: str) -> DecodedMessages:
    """Values as JSON writes them, behind a schema block."""
    field = {"type": kind, "optional": True, "field": "v", **({"name": name} if name else {})}
    front = b'{"schema":' + orjson.dumps({"type": "struct", "fields": [field]}) + b',"payload":{"v":'
    messages = [front + text.encode() + b"}}" for text in texts]
    return make_deserializer("json-schema").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")


def _values(decoded: DecodedMessages) -> dict[int, Any]:
    return {
        int(row): value["v"]
        for block in decoded.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }


MOMENTS = {
    "IsoTimestamp": [
        "2020-01-02",
        "2020-01-02 10:00:01",
        "2020-01-02T10",
        "2020-01-02T10:00",
        "2020-01-02T10:00Z",
        "x",
    ],
    "ZonedTimestamp": ["2020-01-02T10Z", "2020-01-02 10:00Z", "2020-01-02T10:00:00+0100", "2020-01-02T10:00+01", "x"],
    "IsoDate": ["2020-01-02", "2020-01-02Z", "2020-01", "20200102", "x"],
    "IsoTime": ["04", "04:05", "04:05:06", "4:05", "x"],
}


@pytest.mark.parametrize("name", MOMENTS)
def test_a_moment_is_read_beside_infinity_as_it_is_alone(name: str) -> None:
    """A text that is no time costs no neighbour, in whatever shape that is written."""
    whole = f"io.debezium.time.{name}"
    texts = [orjson.dumps(text).decode() for text in MOMENTS[name]]
    beside = _of_type("string", whole, '"infinity"', *texts, '"infinity"')
    alone = [_values(_of_type("string", whole, text)).get(0) for text in texts]
    assert [_values(beside).get(place) for place in range(1, len(texts) + 1)] == alone
    assert any(value is not None for value in alone)


@pytest.mark.parametrize(
    "text", ["7.038531e-26", "1.00000005960464477540", "1.17549435e-38", "3.4028235e38", "1e39", "0.1", "-0", "-0.0"]
)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_float_does_not_depend_on_who_reads_it(kind: str, text: str) -> None:
    """One that is read alone, beside a value that does not fit, is the nearest float, too, of the same sign."""
    many, beside = _of_type(kind, None, text), _of_type(kind, None, text, "true")
    assert repr(_values(beside).get(0)) == repr(_values(many).get(0))


def test_what_has_more_than_schema_and_payload_is_no_row_of_nulls() -> None:
    """A member beside both makes the message something else than the schema says."""
    front = b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":true,"field":"v"}]},"payload":{"v":1}'
    messages = [front + b"}", front + b',"more":{"v":2}}', front + b"}"]
    decoded = make_deserializer("auto").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    assert [fault.row for fault in decoded.faults] == [1]
    assert _values(decoded) == {0: 1, 2: 1}


@pytest.mark.parametrize("place", [0, 1000, 2999])
@pytest.mark.parametrize("framed", [False, True])
def test_one_key_of_one_value_is_found_among_many(place: int, framed: bool) -> None:
    """A key that a transform made a single value names its row wherever it stands."""
    struct = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "k"}], "optional": False}
    keys = [orjson.dumps({"schema": struct, "payload": {"k": n}} if framed else {"k": n}) for n in range(3000)]
    keys[place] = b'{"schema":{"type":"int64","optional":false},"payload":7}' if framed else b"7"
    expected = pa.struct([("k", pa.int64())])
    decoded = make_deserializer("auto").decode(pa.array(keys, pa.binary()), "KEY_CONVERTER", expected)
    assert not decoded.faults
    found = {int(r): v["k"] for b in decoded.blocks for r, v in zip(b.rows, b.fields.to_pylist(), strict=True)}
    assert found == {n: 7 if n == place else n for n in range(3000)}


def test_a_key_beside_a_fraction_keeps_its_digits() -> None:
    """Record keys are read by the table's types, whatever else comes."""
    keys = [{"k": BIG}, {"k": 0.5}, {"k": "x"}, {"k": BIG + 2}]
    outcome = decode(run(*({"k": 1, "v": 1} for _ in keys), keys=map(orjson.dumps, keys)), plan(upsert(0, ROW, ("k",))))
    assert [row["k"] for row in rows(outcome)] == [BIG, BIG + 2]
    assert sorted(dead(outcome)) == [1, 2]


@pytest.mark.parametrize(("kind", "good", "bad"), [("double", 2**53, BIG), ("float", 2**24, 2**24 + 1)])
def test_a_whole_number_that_a_floating_column_cannot_hold_is_a_fault(kind: str, good: int, bad: int) -> None:
    """With a schema block too, alone and in arrays; of a fraction it is the nearest, as in Java."""
    item = {"type": kind, "optional": True}
    fields = [{**item, "field": "v"}, {"type": "array", "items": item, "field": "a"}]
    front = b'{"schema":' + orjson.dumps({"type": "struct", "fields": fields}) + b',"payload":'
    texts = [str(good), str(bad), "0.1", f"{bad}.0", "1e400" if kind == "double" else "1e39"]
    messages = [front + f'{{"v":{text},"a":[]}}}}'.encode() for text in texts]
    messages += [front + f'{{"v":null,"a":[1.5,{text}]}}}}'.encode() for text in texts]
    outcome = make_deserializer("json-schema").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    assert [fault.row for fault in outcome.faults] == [1, 4, 6, 9]
    (block,) = outcome.blocks
    made = pa.array([float(good), 0.1, float(bad)], pa.float32() if kind == "float" else pa.float64()).to_pylist()
    assert block.fields.field("v").to_pylist()[:3] == made
    assert [row[1] for row in block.fields.field("a").to_pylist()[3:]] == made


def test_images_of_different_kinds_are_no_poison() -> None:
    """`before` and `after` that differ in kind for a column that the table does not have: letters at most, no error."""
    kinds = [1, "x", 0.5, [1], [{"a": 1}], {"a": 1}, {"a": "x"}, True, None, BIG, []]
    for one in kinds:
        for other in kinds:
            events = [
                _envelope("u", {"k": 1, "v": one}, {"k": 1, "v": other}),
                _envelope("d", {"k": 2, "v": one}, None),
                _envelope("c", None, {"k": 3, "v": other}),
                _envelope("c", None, {"k": 4}),
            ]
            for tables in ((), (append(0, {"k": pa.int64()}),)):
                outcome = decode(run(*events), plan(*tables))
                assert not {0, 3} & set(dead(outcome)) or repr(one) != repr(other), (one, other)
                assert 3 not in dead(outcome)


def test_images_of_different_types_by_their_schema() -> None:
    """With a schema block too: deletes are rows of the type of `before`, all others of that of `after`."""
    source = {"type": "struct", "field": "source", "fields": [{"type": "int64", "field": "ts_ms"}]}

    def image(name: str, kind: str) -> dict[str, Any]:
        fields = [{"type": "int64", "field": "k"}, {"type": kind, "field": "v", "optional": True}]
        return {"type": "struct", "field": name, "optional": True, "fields": fields}

    fields = [image("before", "int64"), image("after", "string"), source, {"type": "string", "field": "op"}]
    front = b'{"schema":' + orjson.dumps({"type": "struct", "fields": fields}) + b',"payload":'
    payloads = [_envelope("d", {"k": 1, "v": 5}, None), _envelope("u", {"k": 2, "v": 6}, {"k": 2, "v": "x"})]
    messages = [front + orjson.dumps(payload) + b"}" for payload in payloads]
    made = decode(run(*messages), plan(append(0, {"k": pa.int64(), "v": pa.string(), "__deleted": pa.string()})))
    assert sorted((row["k"], row["v"]) for row in rows(made)) == [(1, "5"), (2, "x")]
    numbers = decode(run(*messages), plan(append(0, {"k": pa.int64(), "v": pa.int64(), "__deleted": pa.string()})))
    assert [row["v"] for row in rows(numbers)] == [5]
    assert list(dead(numbers)) == [1]


NUMBERS: list[tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = [
    (pa.float64(), [0.1, 2.0**24 + 1, 1e39, 0.1234567890123, 1e-46], pa.float32(), [0.1, None, None, None, None]),
    # The nearest float is 4.189638E16: Java 17 writes a digit more of it.
    (pa.float64(), [-4.1896379e16, 9.41896379e15, 2.0**53 + 2], pa.float32(), [-4.189638e16, 9.4189642e15, None]),
    (pa.int64(), [2**63 - 1, BIG, -(2**63), 5], pa.float64(), [None, None, -(2.0**63), 5.0]),
    (pa.int64(), [2**24 + 1, 2**24], pa.float32(), [None, 2.0**24]),
    (
        pa.int64(),
        [5, 99, 100, -99, 2**63 - 1],
        pa.decimal128(3, 1),
        [Decimal(5), Decimal(99), None, Decimal(-99), None],
    ),
    (pa.int32(), [2**31 - 1, 10**8], pa.decimal128(9, 0), [None, Decimal(10**8)]),
    (pa.decimal128(38, 2), [Decimal("0.10"), Decimal("12345678901234567890.12")], pa.float64(), [0.1, None]),
    (pa.string(), [str(BIG), str(BIG - 1), "1e400", "NaN-", "0.5"], pa.float64(), [None, 2.0**53, None, None, 0.5]),
    (pa.string(), ["0." + "0" * 60 + "1", "1e2", "1.20"], pa.decimal128(10, 2), [None, Decimal(100), Decimal("1.20")]),
    (pa.string(), ["12345678901234567890123", "1.5e20", "1.5"], pa.decimal128(38, 20), [None, None, Decimal("1.5")]),
    (pa.decimal128(38, 0), [Decimal(10**29 + 1), Decimal(5)], pa.decimal128(38, 10), [None, Decimal(5)]),
    (pa.float64(), [2.2250738585e-313, 1e-8], pa.decimal128(10, 2), [None, None]),
    (pa.list_(pa.int64()), [[1, BIG], None, [3]], pa.list_(pa.float64()), [None, None, [3.0]]),
    (pa.list_(pa.float64()), [[0.1], [0.25]], pa.list_(pa.decimal128(3, 1)), [[Decimal("0.1")], None]),
    (pa.list_(pa.string()), [["0x10"], ["+7"]], pa.list_(pa.int64()), [None, [7]]),
    (
        pa.map_(pa.string(), pa.int64()),
        [[("a", BIG)], None, [("b", 3)]],
        pa.map_(pa.string(), pa.float64()),
        [None, None, [("b", 3.0)]],
    ),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("1", 3)]], pa.map_(pa.int32(), pa.int32()), [None, [(1, 3)]]),
    (pa.decimal128(12, 10), [Decimal(0), Decimal("-1.2E-8")], pa.string(), ["0.0000000000", "-0.0000000120"]),
]


@pytest.mark.parametrize(("source", "values", "target", "expected"), NUMBERS)
def test_conversion_loses_no_digit(source: pa.DataType, values: list[Any], target: pa.DataType, expected: Any) -> None:
    """A number goes into a column that holds it, inside of lists and maps too; the others are named."""
    made, bad = convert(pa.array(values, source), target)
    assert bad is not None or target == pa.string()
    lost = [] if bad is None else bad.tolist()
    kept = [None if lost and lost[at] else value for at, value in enumerate(made.to_pylist())]
    assert kept == pa.array(expected, target).to_pylist()


@pytest.mark.parametrize("scale", [0, 1, 2, 10, 36])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_decimal_goes_into_every_scale_that_holds_it(scale: int, more: int) -> None:
    """A column of a larger scale takes just the decimals whose digits it has room for."""
    most = 10 ** (38 - more)
    units = [0, -1, 320, most - 1, 1 - most, *([most, -5 * most] if more else [])]
    values = pa.array([Decimal(f"{unit}E-{scale}") for unit in units], pa.decimal128(38, scale))
    made, bad = convert(values, pa.decimal128(38, scale + more))
    fits = [abs(unit) < most for unit in units]
    assert made.to_pylist() == [value if fit else None for value, fit in zip(values.to_pylist(), fits, strict=True)]
    assert all(fits) if bad is None else bad.tolist() == [not fit for fit in fits]


@pytest.mark.parametrize("precision", [9, 18, 20, 37, 38])
def test_a_decimal_beyond_its_columns_precision_is_a_fault(precision: int) -> None:
    """Numbers without schema have no more digits than their column, alone, in lists and in structs; neighbours stay."""
    kind = pa.decimal128(precision, 4)
    whole = "9" * (precision - 4)
    texts = [f"{whole}.9999", f"{whole}9", f"-{whole}0.5", f"-{whole}", f"1{whole}.25", "0.5"]
    exact = [Decimal(texts[0]), None, None, Decimal(texts[3]), None, Decimal("0.5")]
    for type_, form, inner in (
        (kind, "{}", lambda v: v),
        (pa.list_(kind), "[1,{}]", lambda v: v[1]),
        (pa.struct([("a", kind)]), '{{"a":{}}}', lambda v: v["a"]),
    ):
        messages = [f'{{"k":{n},"v":{form.format(text)}}}'.encode() for n, text in enumerate(texts)]
        outcome = decode(run(*messages), plan(append(0, {"k": pa.int64(), "v": type_})))
        assert sorted(dead(outcome)) == [1, 2, 4]
        assert {row["k"]: inner(row["v"]) for row in rows(outcome)} == {n: v for n, v in enumerate(exact) if v}


def test_a_decimal_is_one_text_whatever_its_size() -> None:
    """Ids of documents and texts of keys write no exponent: 0E-10 is zero with its ten digits."""
    values = [Decimal(0), Decimal("-0.0"), Decimal("1E-10"), Decimal("-1.5E-8"), Decimal("123456.5")]
    keys = pa.array(values, pa.decimal128(20, 10))
    texts = ["0.0000000000", "0.0000000000", "0.0000000001", "-0.0000000150", "123456.5000000000"]
    assert build_document_ids([keys]).to_pylist() == texts
    assert keys_to_text([keys]).to_pylist() == texts
    assert build_document_ids([pa.array(["a"] * 5), keys]).to_pylist() == [
        f"a-{text.replace('-', chr(92) + '-')}" for text in texts
    ]


def test_a_known_struct_of_nulls_is_no_null() -> None:
    """A struct whose fields are null in every event is there, in flat events and in both images, at any depth."""
    inner = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
    table = append(0, {"k": pa.int64(), "s": inner, "__deleted": pa.string()})
    given = [{"k": 1, "s": {"a": None, "b": {"c": None}}}, {"k": 2, "s": None}, {"k": 3, "s": {"a": None, "b": None}}]
    given.append({"k": 4, "s": {}})
    expected = [given[0]["s"], None, given[2]["s"], {"a": None, "b": None}]
    for events in (given, [_envelope("c", None, row) for row in given], [_envelope("d", row, None) for row in given]):
        outcome = decode(run(*events), plan(table))
        assert (outcome.needs, dead(outcome)) == ((), {})
        assert [row["s"] for row in rows(outcome)] == expected


WIDE = [
    "9" * 38,
    "-" + "9" * 38,
    "123456789012345678901234567890.12345678",
    "0." + "1" * 38,
    "1e22",
    "123456789012345680000",
]


@pytest.mark.parametrize("number", WIDE)
def test_a_variant_keeps_every_digit(number: str) -> None:
    """What was written as a variant is read back as the same number, as it is when rows are copied."""
    (text,) = decode_variants(encode_variants(pa.chunked_array([[f'{{"a":[{number}]}}']]))).to_pylist()
    assert json.loads(text, parse_float=Decimal, parse_int=Decimal) == {"a": [Decimal(number)]}


@pytest.mark.parametrize("number", ["9" * 39, "1" * 50, "1" * 5000, "1e400", "-1e999999999", "NaN", "-Infinity"])
def test_a_document_that_a_variant_cannot_hold_stays_text(number: str) -> None:
    """A number that a variant has no room for does not become another one: the document is a text there."""
    document = f'{{"a":{number}}}'
    (text,) = decode_variants(encode_variants(pa.chunked_array([[document]]))).to_pylist()
    assert json.loads(text) == document


def test_no_number_in_a_document_is_a_word() -> None:
    """NaN and the infinities have no form in JSON: in documents they are Java's words, not null."""
    column = pa.array([{"a": float("nan"), "b": [float("inf"), float("-inf")]}])
    assert json.loads(to_json_text(column, keep_nulls=True)[0].as_py()) == {"a": "NaN", "b": ["Infinity", "-Infinity"]}
