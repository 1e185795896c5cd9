"""Messages whose last fields are taken over by their layout -> what the column reader makes of the whole messages."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde.byte_windows import ByteWindows
from serde.formats import make_deserializer
from serde.json.columns import column_reader, trailer_reader
from serde.json.columns.trailer_layout import read_members
from serde.messages import DecodedMessages
from tests.harness.rounds import draws

SYNTAX = [*b'{}[]:,"\\ \n\tnulltrue0123456789eE+-./', 0, 0x1F, 0x7F, 0x80, 0xC3, 0xED, 0xFF]
BYTES = b'0019998-"\\\\,:{}[]aZz \x1f\x7f\x80.+eE#]~['
CHANGES = ["put", "cut", "set", "set", "twice", "field", "swap", "digit", "digit", "digit"]
WANTED = frozenset({"op", "source.ts_ms", "source.db", "source.file", "ts_ms", "transaction", "source.none"})
IMAGES = ("before", "after")


def _row(chance: random.Random) -> dict[str, Any]:
    note = chance.choice([None, "", "x" * chance.randrange(30), 'a "b" \\ \n é', ',"source":{"ts_ms":1}}'])
    return {"id": chance.randrange(10 ** chance.randrange(1, 8)), "price": chance.random(), "note": note}


def _one_of(chance: random.Random, odd: float, usual: Any, *others: Any) -> Any:
    """The usual value, and another with this probability."""
    return chance.choice(others) if chance.random() < odd else usual


def _postgres(chance: random.Random, odd: float) -> dict[str, Any]:
    lsn = _one_of(chance, odd, 10**8, 10**9, 10**18) + chance.randrange(10**6)
    source = {
        "version": "3.7.0.Final",
        "connector": "postgresql",
        "ts_ms": 1_790_000_000_000 + chance.randrange(10**6),
        "snapshot": _one_of(chance, odd, "false", "last"),
        "db": "shop",
        "sequence": f'["{lsn}","{lsn + 1}"]',
        "ts_ns": _one_of(chance, odd / 4, 1_790_000_000_000_000_000, 9_100_000_000_000_000_000) + chance.randrange(9),
        "table": _one_of(chance, odd, "orders", "ORDERS", "lines_", "lines!", "é"),
        "txId": chance.randrange(100, 10 ** (3 + (chance.random() < odd))),
        "lsn": _one_of(chance, odd, 1, -1) * lsn,
        "xmin": None,
    }
    transaction = {"id": f"{lsn}:1", "total_order": chance.randrange(20)} if chance.random() < odd else None
    return {
        "before": None,
        "after": _row(chance),
        "source": source,
        "transaction": transaction,
        "op": chance.choice("cur"),
        "ts_ms": 1_790_000_000_000 + chance.randrange(10**6),
    }


def _mysql(chance: random.Random, odd: float) -> dict[str, Any]:
    file, pos = f"bin.{chance.randrange(3):06d}", chance.randrange(10**4, 10**5) // _one_of(chance, odd, 1, 10, 10**5)
    query = _one_of(chance, odd, None, "select 1", "a\\b", "a\nb")
    source = {"name": "server", "db": "a/b", "file": file, "pos": pos, "row": chance.randrange(9), "query": query}
    source |= {"gtid": None, "thread": 2_147_483_000 + chance.randrange(1_000)}
    made = {"before": _row(chance), "after": None, "source": source, "op": "d"}
    deep = {"a": {"b": chance.randrange(10), "c": True}} | _one_of(chance, odd / 4, {}, {"l": [1]}, {"d": {}})
    return made | {"ts_ms": 10**6 + chance.randrange(10**6), "deep": deep}


def _mixed(chance: random.Random, odd: float) -> dict[str, Any]:
    """Creates, and deletes with their image; seldom an update with both, or neither."""
    made, row = _postgres(chance, odd / 4), _row(chance)
    images = _one_of(chance, 0.3, (None, row), (row, None))
    before, after = _one_of(chance, odd / 16, images, (row, row), (None, None), ({}, None), (None, {}))
    return made | {"before": before, "after": after}


def _flat(chance: random.Random, odd: float) -> dict[str, Any]:
    time = 1_790_000_000_000_000_000 + chance.randrange(10**6)
    more = {"active": chance.random() < 0.5, "kind": chance.choice("abc"), "__source_ts_ns": time, "__db": "shop"}
    told = {"__table": "orders of the shop", "__deleted": _one_of(chance, odd, "false", "true", None)}
    return _row(chance) | more | told


FORMS: dict[str, Callable[[random.Random, float], dict[str, Any]]] = {
    "postgres": _postgres,
    "mysql": _mysql,
    "mixed": _mixed,
    "flat": _flat,
}


def _messages(chance: random.Random, form: str, count: int, odd: float) -> list[bytes]:
    made = (FORMS[form](chance, odd) for _ in range(count))
    return [json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode() for one in made]


def _spoilt(chance: random.Random, text: bytes) -> bytes:
    """Change a message in one to three places, those near its end more often."""
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text) + 1) if chance.random() < 0.3 else chance.randrange(len(text) // 3, len(text))
        byte, form = (
            bytes([chance.choice(SYNTAX)]),
            chance.choice(["put", "cut", "set", "set", "twice", "field", "swap"]),
        )
        if form == "field":
            name = chance.choice([b'"op":"x",', b'"source":{},', b'"ts_ms":1,', b'"__db":1,', b'"new":[1],', b" "])
            text = text[:1] + name + text[1:]
        elif form == "digit":
            # The length stays, so that the layout may be that of the others.
            first = chance.choice(list(re.finditer(rb":-?\d", text)) or [re.match(b"", text)])
            text = text[: first.end() - 1] + chance.choice([b"0", b"9", b"-", b'"', b"+"]) + text[first.end() :]
        elif form == "swap":
            word = chance.choice([b"null", b"007", b"-0", b"-5", b"9" * 19, b"1" * 20, b"1.0", b"1e3", b"true", b'"a"'])
            text = text[:at] + text[at:].replace(b":1", b":" + word, 1)
        else:
            behind = {"put": text[at:], "cut": text[at + 1 :], "set": text[at + 1 :], "twice": text[at:]}[form]
            text = text[:at] + {"cut": b"", "twice": text[: chance.randrange(9)]}.get(form, byte) + behind
    return text


def _block(chance: random.Random, bits: int = 64, *, flat: bool | None = None) -> bytes:
    """A schema of some of the fields, its whole numbers of any width."""
    number = {"type": f"int{chance.choice([bits, bits, 32, 16]) if flat is None else bits}", "optional": True}
    long, text = {"type": "int64", "optional": True}, {"type": "string", "optional": True}
    flag = {"type": "boolean", "optional": True}
    row = [{"field": "id", **long}, {"field": "price", "type": "double"}, {"field": "note", **text}]
    source = [{"field": name, **long} for name in ("ts_ms", "ts_ns", "lsn")] + [{"field": "row", **number}]
    source += [{"field": name, **number} for name in ("pos", "txId", "thread")]
    source += [{"field": name, **text} for name in ("db", "table", "file", "sequence", "query")]
    order = [{"field": "id", **text}, {"field": "total_order", **number}]
    struct = {"type": "struct", "optional": True}
    envelope = [{"field": name, **struct, "fields": row} for name in IMAGES]
    envelope += [{"field": "source", **struct, "fields": source}, {"field": "transaction", **struct, "fields": order}]
    envelope += [{"field": "op", **text}, {"field": "ts_ms", **long}]
    rows = [*row, {"field": "active", **flag}, {"field": "__source_ts_ns", **long}, {"field": "__db", **text}]
    fields = chance.choice([envelope, envelope, rows]) if flat is None else rows if flat else envelope
    return json.dumps({"type": "struct", "fields": fields}).encode()


def _read(messages: list[bytes], fmt: Any, wanted: frozenset[str] | None, rows: int, monkeypatch: Any) -> Any:
    monkeypatch.setattr(trailer_reader, "_MIN_ROWS", rows)
    reader = make_deserializer(fmt, wanted)
    read: list[DecodedMessages] = []
    for _ in range(2):  # layouts are kept
        read.append(reader.decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER"))
    return read


def _tell(outcome: DecodedMessages) -> Any:
    blocks = [(block.rows.tolist(), str(block.fields.type), block.fields.to_pylist()) for block in outcome.blocks]
    return repr(blocks), outcome.tombstones.tolist(), [(fault.row, fault.reason) for fault in outcome.faults]


def _wanted_values(value: Any, path: str = "") -> Any:
    """What is asked for of an event; the images are always."""
    if path in (*WANTED, *IMAGES):
        return value
    if not isinstance(value, dict):
        return None
    return {name: _wanted_values(child, f"{path}.{name}" if path else name) for name, child in value.items()}


@pytest.mark.parametrize("fmt", ["json", "auto", "json-schema"])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_message_is_does_not_depend_on_how_its_last_fields_are_read(
    form: str, fmt: str, monkeypatch: Any
) -> None:
    """Good and spoilt messages side by side become the very rows and faults that they become when read as a whole."""
    for seed in range(draws(40)):
        chance = random.Random(f"{form} {fmt} {seed}")
        texts = _messages(chance, form, 40, chance.choice([0.0, 0.1, 0.5]))
        if fmt == "json-schema":
            block = _block(chance)
            texts = [b'{"schema":' + block + b',"payload":' + text + b"}" for text in texts]
        share = chance.choice([0.0, 0.1, 0.5])
        texts = [_spoilt(chance, text) if chance.random() < share else text for text in texts]
        whole, some = (_read(texts, fmt, None, rows, monkeypatch) for rows in (1 << 60, 1))
        assert [_tell(one) for one in some] == [_tell(one) for one in whole], seed


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("form", FORMS)
def test_no_byte_that_changes_goes_unseen(form: str, bits: int, monkeypatch: Any) -> None:
    """Each byte of the last fields, set to another in a message of its own, has the effect that a parser gives it."""
    chance = random.Random(f"{form} {bits}")
    schema = _block(random.Random(0), bits, flat=form == "flat")
    head = b'{"schema":' + schema + b',"payload":'
    good = _messages(chance, form, 60, 0.0)
    for _ in range(draws(10) // 2):
        changed = []
        for place, text in enumerate(_messages(chance, form, 500, 0.0)):
            at = max(len(text) - 1 - place, 1)
            changed.append(text[:at] + bytes([chance.choice(BYTES)]) + text[at + 1 :])
        told = []
        for rows in (1 << 60, 1):
            monkeypatch.setattr(trailer_reader, "_MIN_ROWS", rows)
            reader = make_deserializer("json-schema")
            for texts in (good, changed):
                messages = pa.array([head + text + b"}" for text in texts], pa.binary())
                told.append(_tell(reader.decode(messages, "VALUE_CONVERTER")))
        assert told[:2] == told[2:]


@pytest.mark.parametrize(
    ("front", "behind"),
    [(b"{" + b" " * 9, b""), (b"{", b""), (b'{"a":1,', b""), (b'{"a":1', b',"x":1,"x":2'), (b'{"\\u0061":1', b"")],
)
def test_what_is_in_front_has_to_be_fields(front: bytes, behind: bytes, monkeypatch: Any) -> None:
    """Messages that are no JSON in front of their last fields, or have a field twice, are what a parser says."""
    fields = b',"source":{"connector":"postgresql","ts_ms":1790000000000,"table":"orders"},"op":"c"'
    good = [b'{"a":%d' % number + fields + b"}" for number in range(300)]
    odd = [front + fields + behind + b"}"] * 300
    told = []
    for rows in (1 << 60, 1):
        monkeypatch.setattr(trailer_reader, "_MIN_ROWS", rows)
        reader = make_deserializer("json")
        for texts in (good, odd, [*good[:20], *odd[:20]]):
            told.append(_tell(reader.decode(pa.array(texts, pa.binary()), "VALUE_CONVERTER")))
    assert told[:3] == told[3:]


@pytest.mark.parametrize("form", ["postgres", "mysql"])
def test_values_that_nobody_asked_for_are_left_out_of_envelopes_only(form: str, monkeypatch: Any) -> None:
    """What is wanted of the envelopes is what is read of them without layouts."""
    chance = random.Random(form)
    texts = _messages(chance, form, 60, 0.1)
    whole, some = (_read(texts, "json", WANTED, rows, monkeypatch)[1].blocks for rows in (1 << 60, 1))
    assert len(whole) == len(some) == 1
    assert whole[0].rows.tolist() == some[0].rows.tolist()
    expected = [_pruned(_wanted_values(row)) for row in whole[0].fields.to_pylist()]
    assert [_pruned(_wanted_values(row)) for row in some[0].fields.to_pylist()] == expected


@pytest.mark.parametrize("schemas", [False, True], ids=["bare", "schemas"])
@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_images_are_wanted_where_all_values_have_one_width(op: str, schemas: bool) -> None:
    """Of rows of numbers of as many digits each the images are among the last fields that messages are alike in."""
    source = b'"source":{"connector":"postgresql","ts_ms":1790000000000,"table":"orders","lsn":%d}'
    around = source + b',"transaction":null,"op":"%s","ts_ms":1790000000001'
    row, price = b'{"id":%d,"note":"abc"}', b'{"field": "price", "type": "double"}, '
    texts, told = [], _block(random.Random(0), flat=False).replace(price, b"")
    for number in range(1000, 1600):
        image = row % number
        before, after = {"c": (b"null", image), "u": (image, image), "d": (image, b"null")}[op]
        text = b'{"before":' + before + b',"after":' + after + b"," + around % (number, op.encode()) + b"}"
        texts.append(b'{"schema":' + told + b',"payload":' + text + b"}" if schemas else text)
    for wanted in (WANTED, frozenset({"op", "source.lsn"})):
        reader = make_deserializer("auto", wanted)
        for _ in range(2):  # layouts are kept
            (block_read,) = reader.decode(pa.array(texts, pa.binary()), "VALUE_CONVERTER").blocks
            rows = [each.get("before" if op == "d" else "after") for each in block_read.fields.to_pylist()]
            assert rows == [{"id": number, "note": "abc"} for number in range(1000, 1600)]


def _pruned(value: Any) -> Any:
    """Without what is null."""
    if not isinstance(value, dict):
        return value
    return {name: made for name, child in value.items() if (made := _pruned(child)) not in (None, {})}


@pytest.mark.parametrize(
    "image",
    [
        b'{"a":1}',
        b'{"a":1}{"a":2}',
        b'{"a":1} {"a":2}',
        b'{"a":1}\n{"a":2}',
        b'{"a":1},{"a":2}',
        b'{"a":1},"after":{"a":2}',
        b'{"a":1},"before":{"a":2}',
        b'{"a":1},"more":{}',
        b'{"a":1',
        b'{"a":{"b":1}',
        b'{"a":1}}',
        b'{"a":"}"}',
        b'{"a":"},\\"after\\":{"}',
        b'{"a":"\n"}',
        b"{}",
        b"{",
        b"}",
        b"",
        b" {}",
        b"{} ",
    ],
)
@pytest.mark.parametrize("form", [b'{"before":null,"after":%s', b'{"before":%s,"after":null'])
@pytest.mark.parametrize("few", [1, 300])
def test_an_image_alone_is_one_object(image: bytes, form: bytes, few: int, monkeypatch: Any) -> None:
    """What stands in the place of the one image of an envelope is what a parser makes of the whole message."""
    fields = b',"source":{"connector":"postgresql","ts_ms":1790000000000,"table":"orders"},"op":"c"}'
    good = [b'{"before":null,"after":{"a":%d}' % number + fields for number in range(300)]
    gone = [b'{"before":{"a":%d},"after":null' % number + fields for number in range(300)]
    odd = [form % image + fields] * few
    told = []
    for rows in (1 << 60, 1):
        monkeypatch.setattr(trailer_reader, "_MIN_ROWS", rows)
        reader = make_deserializer("json")
        for texts in (good, [*good, *gone], [*good, *odd, *gone], odd):
            told.append(_tell(reader.decode(pa.array(texts, pa.binary()), "VALUE_CONVERTER")))
    assert told[:4] == told[4:]


def test_images_alone_are_met(monkeypatch: Any) -> None:
    """Of envelopes with one image nothing else is parsed where most are such, whether they are creates or deletes."""
    read: list[pa.StructType] = []
    usual = column_reader._parse
    monkeypatch.setattr(
        column_reader, "_parse", lambda lines, kind, *, strict: read.append(kind) or usual(lines, kind, strict=strict)
    )
    chance = random.Random(5)
    texts = _messages(chance, "mixed", 600, 0.0)
    block = make_deserializer("json").decode(pa.array(texts, pa.binary()), "VALUE_CONVERTER").blocks[0]
    assert [kind.names for kind in read] == [["id", "price", "note"]]
    assert [{name: row[name] for name in IMAGES} for row in block.fields.to_pylist()] == [
        {name: row[name] for name in IMAGES} for row in map(json.loads, texts)
    ]


def test_layouts_are_met() -> None:
    """Envelopes of one connector are read by few layouts, from the source's fields on."""
    chance = random.Random(5)
    texts = _messages(chance, "postgres", 300, 0.01)
    reader: Any = make_deserializer("json")
    assert not reader.decode(pa.array(texts, pa.binary()), "VALUE_CONVERTER").faults
    families = [family for known in reader.events._trailers._known.values() for family in known.all]
    assert {family.names for family in families} == {("source", "transaction", "op", "ts_ms")}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b'{"a":1,"b":{"c":[1,{"d":2}],"e":"x,y"},"f":{}}', ["a", "b", "f"]),
        (b'{"a":1,"a":2}', []),
        (b'{"a":{"b":1,"b":2}}', []),
        (b'{"a": 1}', []),
        (b'{"a":1}{"b":2}', []),
        (b"[1]", []),
        (b'{"a":01}', []),
        (b'{"\\"":"}{"}', ['\\"']),
    ],
)
def test_fields_of_a_message(text: bytes, names: list[str]) -> None:
    """Fields are found where a message is one object, written without blanks and no name twice."""
    assert [member.name for member in read_members(text)] == names


@pytest.mark.parametrize("gap", [b"", b" ", b", more"])
def test_lines_with_another_last_byte(gap: bytes) -> None:
    """Windows become lines whose last byte is another one, with and without room behind them."""
    texts = [b'{"a":1,', b'{"b":[2,3],', b'{"c":4,']
    data = pa.py_buffer(gap.join(texts) + gap)
    starts = np.cumsum([0, *(len(text) + len(gap) for text in texts[:-1])])
    windows = ByteWindows(data, starts, starts + np.array([len(text) for text in texts]))
    assert windows.lines(0, 3, ord("}")).to_pybytes() == b'{"a":1}\n{"b":[2,3]}\n{"c":4}'
    assert windows.lines(1, 2, ord("}")).to_pybytes() == b'{"b":[2,3]}'
    assert windows.lines(0, 2).to_pybytes() == b'{"a":1,\n{"b":[2,3],'
    assert data.to_pybytes() == gap.join(texts) + gap
