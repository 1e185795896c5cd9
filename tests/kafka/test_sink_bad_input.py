"""records that cannot be used -> the dead letter topic, with everything needed to mend them; or a clear stop.

Header names: Kafka Connect's dead letter queue reporter (`__connect.errors.*`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.processes import Run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

SECRET = "s3cret-content"
HEADERS = (("trace", b"\x00\x01"), ("empty", None))
KEY = {"type": "struct", "optional": False, "fields": [{"type": "int32", "optional": False, "field": "id"}]}
DECIMAL = {
    "type": "bytes",
    "optional": True,
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "4"},
}
VALUE = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
        {"type": "int32", "optional": True, "field": "n"},
        {**DECIMAL, "field": "price"},
        {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "day"},
        {"type": "string", "optional": True, "field": "__op"},
        {"type": "string", "optional": True, "field": "__deleted"},
        {"type": "int64", "optional": True, "field": "__source_ts_ns"},
    ],
}


def _key(payload: Any) -> bytes:
    return _compact({"schema": KEY, "payload": payload})


def _compact(document: Any) -> bytes:
    """As Kafka Connect writes JSON: without spaces."""
    return json.dumps(document, separators=(",", ":")).encode()


def _value(key: int, **fields: Any) -> bytes:
    row = {"id": key, "name": SECRET, "n": key, "price": "AQ==", "__op": "c", "__deleted": "false"}
    return _compact({"schema": VALUE, "payload": {**row, "__source_ts_ns": 1_000 + key, **fields}})


def _ambiguous(key: int) -> bytes:
    """A row with a column `x.y` beside a struct `x` that has a field `y`."""
    number = {"type": "int32", "optional": True}
    within = {"type": "struct", "optional": True, "fields": [{**number, "field": "y"}], "field": "x"}
    document = json.loads(_value(key, x={"y": 1}, **{"x.y": 2}))
    document["schema"]["fields"] += [within, {**number, "field": "x.y"}]
    return _compact(document)


def _spaced(document: bytes) -> bytes:
    return json.dumps(json.loads(document), indent=1).encode()


# What is wrong -> (key, value).
BAD: dict[str, tuple[bytes | None, bytes]] = {
    "bytes that are no text": (_key({"id": 1}), b"\xff\xfe\x00" + SECRET.encode()),
    "half a document": (_key({"id": 1}), _value(1)[:-20]),
    "a list for a row": (_key({"id": 1}), b"[1, 2]"),
    "text for a row": (_key({"id": 1}), json.dumps(SECRET).encode()),
    "text for a number": (_key({"id": 1}), _value(1, n=SECRET)),
    "a list for text": (_key({"id": 1}), _value(1, name=[SECRET])),
    "a number beyond int32": (_key({"id": 1}), _value(1, n=2**40)),
    "a decimal beyond its precision": (_key({"id": 1}), _value(1, price="f////w==")),
    "no base64": (_key({"id": 1}), _value(1, price="%%%")),
    "the word for no number in a decimal": (_key({"id": 1}), _value(1, price="NaN")),
    "the word for less than all in a decimal": (_key({"id": 1}), _value(1, price="-Infinity")),
    "no number in a decimal": (_key({"id": 1}), _value(1, price=float("nan"))),
    "a date beyond the year 9999": (_key({"id": 1}), _value(1, day=2932897)),
    "a date before the year 1": (_key({"id": 1}), _value(1, day=-719163)),
    "text that is no UTF-8": (_key({"id": 1}), _value(1).replace(SECRET.encode(), b"s3cret-\xc3\x28")),
    "a document of depth 1000": (_key({"id": 1}), b'{"a":' * 1000 + b"1" + b"}" * 1000),
    "a row of depth 1000": (_key({"id": 1}), _value(1).replace(f'"{SECRET}"'.encode(), b"[" * 1000 + b"]" * 1000)),
    "a column with the name of a field within another": (_key({"id": 1}), _ambiguous(1)),
    "no key": (None, _value(1)),
    "a key that is no text": (b"\xff\x00", _value(1)),
    "a key without its field": (_key({"other": 1}), _value(1)),
    "a key of null": (_key({"id": None}), _value(1)),
}
GOOD = range(100, 140)
# A floating point number identifies no row: there can be no keyed table for these events.
HOMELESS = "bad.public.homeless"
# Values of 20 MB, which is far more than the dead letter topic takes: one good, one bad.
HUGE, HUGE_TEXT = "bad.public.huge", SECRET * (20_000_000 // len(SECRET))
OTHERS = ("homeless", "homeless", "a record without key, alone in its partition", "a huge one")


def _records(topic: str, values: Sequence[tuple[bytes | None, bytes]]) -> list[Record]:
    return [Record(topic, 0, i, key, value, HEADERS, 1_700_000_000_000) for i, (key, value) in enumerate(values)]


@pytest.fixture(scope="module")
def mixed(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> tuple[Run, Lake, list[Record]]:
    """Good records with every kind of bad one between them, through one run."""
    good = [(_key({"id": k}), _value(k)) for k in GOOD]
    # Not every producer leaves out the spaces.
    good[-1] = (_spaced(good[-1][0]), _spaced(good[-1][1]))
    lonely = Record("bad.public.t", 1, 0, None, _value(2), HEADERS)
    topics.replay([*_records("bad.public.t", [*good[:20], *BAD.values(), *good[20:]]), lonely])
    topics.replay(_records(HOMELESS, [(b'{"id": 1.5}', b'{"id": 1.5, "__op": "c"}')] * 2))
    topics.create({HUGE: 1}, {"max.message.bytes": "40000000"})
    huge = [(_key({"id": 1}), _value(1, name=HUGE_TEXT)), (_key({"id": 2}), _value(2, n=HUGE_TEXT))]
    topics.replay(_records(HUGE, huge), create=False)
    space = make_workspace("bad", {"topics": f"bad.public.t,{HOMELESS},{HUGE}"})
    run = space.run()
    return run, lake(space), topics.read("bad-dead-letters")


def _errors(run: Run) -> str:
    return "\n".join(json.dumps(line) for line in run.lines if line.get("level") == "error")


def _headers(letter: Record) -> dict[str, bytes | None]:
    return dict(letter.headers)


def _letter(letters: list[Record], what: str) -> Record:
    offset = str(20 + list(BAD).index(what)).encode()
    at = {"__connect.errors.topic": b"bad.public.t", "__connect.errors.partition": b"0"}
    at["__connect.errors.offset"] = offset
    return next(r for r in letters if at.items() <= _headers(r).items())


def test_the_batch_goes_on(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """Bad records cost no good one: every good row is in the table, and nothing else."""
    run, tables, _ = mixed
    assert run.code == 0, run.text[-6000:]
    assert sorted(r["id"] for r in tables.many("bad_public_t")) == list(GOOD)


def test_each_bad_record_is_one_dead_letter(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """There is one dead letter per bad record, and the log counts them."""
    run, _, letters = mixed
    assert len(letters) == len(BAD) + len(OTHERS)
    assert run.total("dead_letters") == len(BAD) + len(OTHERS)


@pytest.mark.parametrize("what", BAD)
def test_a_dead_letter_is_the_record_and_its_story(mixed: tuple[Run, Lake, list[Record]], what: str) -> None:
    """A dead letter has the record's key, value and headers, where it stood, and the reason without its content."""
    letter = _letter(mixed[2], what)
    headers = _headers(letter)
    assert (letter.key, letter.value) == BAD[what]
    assert letter.headers[: len(HEADERS)] == HEADERS
    assert headers["__connect.errors.topic"] == b"bad.public.t"
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.connector.name"] == b"bad"
    assert headers["__connect.errors.stage"] in {b"KEY_CONVERTER", b"VALUE_CONVERTER", b"ROUTING", b"TASK_PUT"}
    assert headers["__connect.errors.class.name"]
    assert headers["__connect.errors.exception.class.name"]
    message = headers["__connect.errors.exception.message"]
    assert message
    assert SECRET.encode() not in message


def test_events_without_a_table_are_dead_letters(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """Events that can have no table go to the dead letters one and all, and the other topics go on."""
    homeless = [h for h in map(_headers, mixed[2]) if h["__connect.errors.topic"] == HOMELESS.encode()]
    assert [h["__connect.errors.offset"] for h in homeless] == [b"0", b"1"]
    assert all(h["__connect.errors.exception.message"] for h in homeless)
    assert mixed[1].names() == {"bad_public_t", "bad_public_huge"}


def test_a_huge_value_is_a_row_or_a_letter_without_it(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """A value of 20 MB is stored whole; one that cannot be used is a letter that says where it is and how large."""
    ((row),) = mixed[1].many("bad_public_huge")
    assert (row["id"], row["name"] == HUGE_TEXT) == (1, True)
    (letter,) = [r for r in mixed[2] if _headers(r)["__connect.errors.topic"] == HUGE.encode()]
    headers = _headers(letter)
    size = len(_value(2, n=HUGE_TEXT))
    assert (letter.key, letter.value) == (_key({"id": 2}), None)
    assert headers["__connect.errors.value.omitted"] == str(size).encode()
    assert headers["__connect.errors.offset"] == b"1"


def test_a_record_without_key_alone_in_its_partition_is_one_dead_letter(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """A record without key does not make its topic key-less, even where its partition holds nothing else."""
    lonely = [h for h in map(_headers, mixed[2]) if h["__connect.errors.partition"] == b"1"]
    assert [h["__connect.errors.topic"] for h in lonely] == [b"bad.public.t"]


def test_no_content_in_the_log(mixed: tuple[Run, Lake, list[Record]]) -> None:
    """What stands in rows, good or bad, stands nowhere in the log."""
    assert SECRET not in mixed[0].text


def test_too_many_dead_letters_stop_the_sink(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Beyond the limit the sink stops with exit code 1 and a word about it, and commits nothing of the batch.

    The other limits: `unit/test_sink_local.py`.
    """
    values = [(_key({"id": k}), _value(k)) for k in range(300)] + [(_key({"id": 1}), b"?")] * 6
    topics.replay(_records("limittotal.public.t", values))
    limit = {"errors.deadletterqueue.limit.total": "5"}
    space = make_workspace("limittotal", {"topics": "limittotal.public.t", **limit})
    run = space.run()
    assert run.code == 1
    assert run.batches == []
    assert "errors.deadletterqueue.limit.total" in _errors(run), run.text[-3000:]
    tables = lake(space)
    assert [s for t in tables.names() for s in tables.summaries(t)] == []


AWAY = {
    "broker": ({"bootstrap.servers": "127.0.0.1:9"}, "127.0.0.1:9"),
    "rest": ({"debezium.sink.iceberg.type": "rest", "debezium.sink.iceberg.uri": "http://127.0.0.1:9"}, "catalog"),
    "place": ({"table.location": "/proc/nowhere"}, "creating table default.awayplace_public_t"),
}


# A broker that is away is waited for 15 s, whatever the options say.
@pytest.mark.parametrize("kind", tiered(AWAY, ["rest"]))
def test_a_server_that_is_away_is_retried_then_named(topics: Topics, make_workspace: MakeWorkspace, kind: str) -> None:
    """A broker, catalog or place that cannot be had is tried again for the time set, then the sink names it."""
    away, word = AWAY[kind]
    topics.replay(_records(f"away{kind}.public.t", [(_key({"id": 1}), _value(1))]))
    space = make_workspace(f"away_{kind}", {"topics": f"away{kind}.public.t", "errors.retry.timeout": "2000", **away})
    start = time.monotonic()
    run = space.run()
    seconds = time.monotonic() - start
    assert run.code == 1
    assert seconds > 2
    assert word in _errors(run), run.text[-3000:]
    assert [f for f in space.warehouse.glob("**/*.parquet") if "_debezium_offset_storage" not in f.parts] == []
