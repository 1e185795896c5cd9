"""Rows whose keys, of any type, change, told in odd ways -> what is left out is taken from the very row, or stays."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.histories.keyed_events import KeyedEvents, Row
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

Rows = list[dict[str, Any]]
Apply = Callable[..., Rows]
UNSENT = {"big": PLACEHOLDER}


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _struct(**kinds: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in kinds.items()]}


def _connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1, **more}


_DECIMAL = _connect(
    "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2", "connect.decimal.precision": "10"}
)
_UUID = _connect("string", "io.debezium.data.Uuid")

KEYS: dict[str, tuple[dict[str, dict[str, Any]], Callable[[int], Row]]] = {
    "decimal": ({"id": _DECIMAL}, lambda i: {"id": _base64((i * 100 + 7).to_bytes(4, "big"))}),
    "uuid": ({"id": _UUID}, lambda i: {"id": f"00000000-0000-0000-0000-00000000000{i}"}),
    "binary": ({"id": {"type": "bytes"}}, lambda i: {"id": _base64(bytes([0, i, 255]))}),
    "timestamp": (
        {"id": _connect("int64", "io.debezium.time.MicroTimestamp")},
        lambda i: {"id": 1_600_000_000_000_001 + i},
    ),
    "zoned timestamp": (
        {"id": _connect("string", "io.debezium.time.ZonedTimestamp")},
        lambda i: {"id": f"2024-01-0{i + 1}T00:00:00.000001Z"},
    ),
    "date": ({"id": _connect("int32", "io.debezium.time.Date")}, lambda i: {"id": 19000 + i}),
    "time": ({"id": _connect("int64", "io.debezium.time.MicroTime")}, lambda i: {"id": 3_600_000_000 + i}),
    "small number": ({"id": {"type": "int16"}}, lambda i: {"id": i}),
    "several": (
        {"a": _UUID, "B": _DECIMAL, "c": {"type": "string"}},
        lambda i: {
            "a": "00000000-0000-0000-0000-000000000001",
            "B": _base64((i * 100 + 7).to_bytes(4, "big")),
            "c": "xy"[i % 2],
        },
    ),
    "struct": ({"s": _struct(p="int32", q="string")}, lambda i: {"s": {"p": i, "q": "z"}}),
}
_OPTIONAL = {"optional": True}
_COLUMNS: tuple[Row, ...] = (
    {"field": "big", "type": "string", **_OPTIONAL},
    {"field": "data", "type": "bytes", **_OPTIONAL},
    {"field": "parts", "type": "array", "items": {"type": "string", **_OPTIONAL}, **_OPTIONAL},
)


def _values(text: str) -> dict[str, Any]:
    return {"big": text, "data": _base64(text.encode()), "parts": [text]}


@pytest.fixture
def apply(topics: Topics, spark: SparkSession, plain_workspace: MakeWorkspace) -> Apply:
    """Have a sink read events up to one end after the other; what its table has then."""

    def run(events: KeyedEvents, ends: Sequence[int], **properties: str) -> Rows:
        options = {"topics": events.topic, "debezium.sink.iceberg.upsert-keep-deletes": "false", **properties}
        sink = InProcessSink(spark, plain_workspace(events.topic, options))
        sink.take_in(topics, events.log, (*ends, len(events.log)))
        return sink.lake.rows(events.topic)

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_types_take_values_along(kind: str, apply: Apply) -> None:
    """A key is given on to another row in the batch in which its first row, whose change came before, gets it back."""
    kinds, key = KEYS[kind]
    events = KeyedEvents(
        f"moved_{kind.replace(' ', '_')}", _COLUMNS, [{"field": name, **one} for name, one in kinds.items()]
    )
    for i, text in enumerate("ABD"):
        events.put(key(i), "c", _values(text))
    first = len(events.log)
    events.move(key(0), key(3), _values(PLACEHOLDER))
    end = len(events.log)
    events.send_again(first)
    events.move(key(3), key(0), _values(PLACEHOLDER))
    events.move(key(1), key(3), _values(PLACEHOLDER))
    events.put(key(2), "u", _values(PLACEHOLDER))
    # Equality deletes take no key within a struct.
    rows = apply(events, [end], **{"debezium.sink.iceberg.write-mode": "position-delete"} if kind == "struct" else {})
    found = sorted((row["big"], bytes(row["data"]), tuple(row["parts"])) for row in rows)
    assert found == [(text, text.encode(), (text,)) for text in "ABD"]


def test_a_row_that_the_table_lacks_takes_no_value_of_a_deleted_one(apply: Apply) -> None:
    """The update's own row never came, and its key was another's: a change of another row's key makes no difference."""
    events = KeyedEvents("moved_lacking")
    for key, text in ((1, "A"), (5, "E"), (8, "H")):
        events.put({"id": key}, "c", {"big": text})
    created = len(events.log)
    events.put({"id": 1}, "d")
    deleted = len(events.log)
    events.put({"id": 1}, "u", UNSENT)
    events.move({"id": 5}, {"id": 6}, UNSENT)
    rows = apply(events, [created, deleted])
    assert {row["id"]: row["big"] for row in rows} == {1: PLACEHOLDER, 6: "E", 8: "H"}


@pytest.mark.parametrize("placed", tiered([True, False], [False]))
@pytest.mark.parametrize("mode", tiered(["equality-delete", "position-delete"], ["equality-delete"]))
def test_a_value_that_nobody_told_is_not_taken_from_the_next_row_of_the_old_key(
    mode: str, placed: bool, apply: Apply
) -> None:
    """The topic begins behind the value of a row; two rows change keys in one transaction, which is sent again."""
    name = f"moved_untold_{'placed' if placed else 'dated'}_{mode.replace('-', '_')}"
    events = KeyedEvents(name, step_ns=0, left_out=() if placed else ("__source_lsn",))
    events.put({"id": 1}, "u", UNSENT)
    events.put({"id": 2}, "u", UNSENT)
    moves = len(events.log)
    events.move({"id": 2}, {"id": 7}, UNSENT)
    events.move({"id": 1}, {"id": 2}, UNSENT)
    events.move({"id": 7}, {"id": 1}, {"big": "B"})
    end = len(events.log)
    events.send_again(moves)
    rows = apply(events, [end], **{"debezium.sink.iceberg.write-mode": mode})
    assert {row["id"]: row["big"] for row in rows} == {2: PLACEHOLDER, 1: "B"}


def test_a_row_that_had_the_new_key_in_the_same_transaction_gives_nothing(apply: Apply) -> None:
    """A batch ends within a transaction, behind a row whose key another one gets then: places tell the two apart."""
    events = KeyedEvents("moved_within_transaction", step_ns=0)
    events.put({"id": 1}, "c", {"big": "A"})
    events.put({"id": 2}, "c", {"big": "B"})
    end = len(events.log)
    events.put({"id": 2}, "d")
    events.move({"id": 1}, {"id": 2}, UNSENT)
    rows = apply(events, [end])
    assert {row["id"]: row["big"] for row in rows} == {2: "A"}


@pytest.mark.parametrize("mode", tiered(["equality-delete", "copy-on-write"], ["equality-delete"]))
def test_a_row_takes_what_the_table_has_of_it_where_a_batch_ends_within_a_repetition(mode: str, apply: Apply) -> None:
    """The batch has the change of key, and of what comes again an older change of the old key only."""
    events = KeyedEvents(f"moved_cut_{mode.replace('-', '_')}")
    events.put({"id": 4}, "c", {"big": "old"})
    create = len(events.log) - 1
    events.put({"id": 4}, "u", {"big": "new"})
    stored = len(events.log)
    events.move({"id": 4}, {"id": 1}, UNSENT)
    again = events.log[create]
    events.log.append(attrs.evolve(again, offset=len(events.log)))
    rows = apply(events, [stored, len(events.log)], **{"debezium.sink.iceberg.write-mode": mode})
    assert {row["id"]: row["big"] for row in rows} == {1: "new"}


HEADERS = {"bytes": b"\xff", "another column": b'{"other":1}', "null": b'{"id":null}'}


@pytest.mark.parametrize("header", tiered(HEADERS, ["null"]))
def test_a_header_that_tells_no_key_leaves_the_placeholder(header: str, apply: Apply) -> None:
    """Not the value of the row that had the new key before."""
    events = KeyedEvents(f"moved_header_{header.replace(' ', '_')}")
    for key, text in ((1, "A"), (2, "B"), (7, "G")):
        events.put({"id": key}, "c", {"big": text})
    created = len(events.log)
    events.put({"id": 2}, "d")
    events.move({"id": 1}, {"id": 2}, UNSENT, HEADERS[header])
    events.move({"id": 7}, {"id": 8}, UNSENT)
    rows = apply(events, [created])
    assert {row["id"]: row["big"] for row in rows} == {2: PLACEHOLDER, 8: "G"}


def test_a_header_without_a_part_of_the_key_leaves_the_placeholder(apply: Apply) -> None:
    """Half an old key and half a new one are the key of a third row."""
    events = KeyedEvents("moved_part")
    for one, other, text in ((1, 1, "A"), (2, 2, "B"), (7, 7, "G"), (1, 2, "C")):
        events.put({"a": one, "b": other}, "c", {"big": text})
    created = len(events.log)
    events.put({"a": 2, "b": 2}, "d")
    events.move({"a": 1, "b": 1}, {"a": 2, "b": 2}, UNSENT, b'{"a":1,"b":null}')
    events.move({"a": 7, "b": 7}, {"a": 8, "b": 8}, UNSENT)
    rows = apply(events, [created])
    assert {(row["a"], row["b"]): row["big"] for row in rows} == {(2, 2): PLACEHOLDER, (8, 8): "G", (1, 2): "C"}


VERSIONS: dict[str, tuple[dict[str, Any], Callable[[int], Any]]] = {
    "text": ({"type": "string"}, lambda n: f"v{n}"),
    "date": (_connect("int32", "io.debezium.time.Date"), lambda n: 19000 + n),
}


@pytest.mark.parametrize("kind", tiered(VERSIONS, ["text"]))
def test_a_dedup_column_that_is_no_time_stops_nothing(kind: str, apply: Apply) -> None:
    """Deletes have hit rows of the table, which nothing else dates, and a key changes."""
    schema, version = VERSIONS[kind]
    fields = ({"field": "big", "type": "string", **_OPTIONAL}, {"field": "version", **schema, **_OPTIONAL})
    key_fields = [{"field": "id", "type": "int32"}]
    events = KeyedEvents(f"moved_versions_{kind}", fields, key_fields, left_out=["__source_ts_ns"])
    for key, text in ((1, "A"), (2, "B")):
        events.put({"id": key}, "c", {"big": text, "version": version(key)})
    created = len(events.log)
    events.put({"id": 2}, "d", {"version": version(3)})
    deleted = len(events.log)
    events.move({"id": 1}, {"id": 3}, {**UNSENT, "version": version(4)})
    rows = apply(events, [created, deleted], **{"debezium.sink.iceberg.upsert-dedup-column": "version"})
    assert {row["id"]: row["big"] for row in rows} == {3: "A"}


@pytest.mark.parametrize("earlier", tiered([True, False], [True]))
def test_events_without_operation_begin_a_row_behind_a_delete(earlier: bool, apply: Apply) -> None:
    """A key is given to another row in one batch; whether an earlier one had a change of key, too."""
    events = KeyedEvents(f"moved_untold_{earlier}".lower(), left_out=["__op"])
    for key, text in ((5, "E"), (9, "K")):
        events.put({"id": key}, "c", {"big": text})
    ends = [len(events.log)]
    if earlier:
        events.move({"id": 9}, {"id": 10}, UNSENT)
        ends.append(len(events.log))
    events.put({"id": 1}, "c", {"big": "other"})
    events.put({"id": 1}, "d")
    events.move({"id": 5}, {"id": 1}, UNSENT)
    rows = apply(events, ends)
    assert {row["id"]: row["big"] for row in rows} == {1: "E", 10 if earlier else 9: "K"}
