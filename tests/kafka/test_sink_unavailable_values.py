"""updates without their TOASTed values -> tables that keep what they hold; placeholders never overwrite a value."""

from __future__ import annotations

import base64
import json
from datetime import time
from typing import Any

import attrs
import pytest

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.tiers import tiered
from tests.model import recordings
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

CODES = [ord(letter) for letter in PLACEHOLDER]
FIELDS = [
    {"type": "string", "optional": False, "field": "id", "name": "io.debezium.data.Uuid"},
    {"type": "string", "optional": True, "field": "a.b"},
    {"type": "bytes", "optional": True, "field": "bin"},
    {"type": "array", "items": {"type": "int32", "optional": True}, "optional": True, "field": "ints"},
    {"type": "int32", "optional": True, "field": "n"},
    {"type": "int64", "optional": True, "field": "at", "name": "io.debezium.time.MicroTime"},
    {"type": "string", "optional": True, "field": "__op"},
    {"type": "int64", "optional": True, "field": "__source_ts_ns"},
]
WORD = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


def _key(number: int) -> dict[str, Any]:
    return {"id": f"00000000-0000-0000-0000-{number:012d}"}


def _record(number: int, now: int, op: str, **fields: Any) -> Record:
    row = {
        **_key(number),
        "a.b": f"text {number}",
        "bin": "AQI=",
        "ints": [number, None],
        "n": now,
        "at": now,
        **fields,
    }
    value = {"schema": {"type": "struct", "fields": FIELDS}, "payload": {**row, "__op": op, "__source_ts_ns": now}}
    key = {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": _key(number)}
    return Record("unsent", 0, 0, _dump(key), _dump(value))


def _dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def test_unsent_values_are_kept(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Unsent values come from the batch itself, later from the table; what was sent wins. Files are written anew."""
    unsent = {"a.b": PLACEHOLDER, "bin": WORD, "ints": CODES}
    first = [_record(n, n, "c") for n in range(1, 7)]
    topics.replay([*first, _record(1, 11, "u", **unsent), _record(2, 12, "u", **{**unsent, "a.b": "sent"})])
    copying = {"debezium.sink.iceberg.write-mode": "copy-on-write"}
    extra = {"topics": "unsent", "debezium.sink.iceberg.upsert-keep-deletes": "false", **copying}
    space = make_workspace("unsent", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    later = [_record(n, 20 + n, "u", **unsent) for n in (1, 3, 4)]
    topics.replay([*later, _record(4, 30, "u", **{**unsent, "bin": None}), _record(5, 31, "u")], create=False)
    again = space.run()
    assert again.code == 0, again.text[-6000:]
    rows = {r["id"][-1]: r for r in lake(space).rows("unsent")}
    found = {key: (r["a.b"], r["bin"], r["ints"], r["n"]) for key, r in rows.items()}
    whole = b"\x01\x02"
    assert found == {
        "1": ("text 1", whole, [1, None], 21),
        "2": ("sent", whole, [2, None], 12),
        "3": ("text 3", whole, [3, None], 23),
        "4": ("text 4", None, [4, None], 30),
        "5": ("text 5", whole, [5, None], 31),
        "6": ("text 6", whole, [6, None], 6),
    }


UNSENT = {"a.b": PLACEHOLDER, "bin": WORD, "ints": CODES}
INVENTED = {"a.b": "", "bin": "", "ints": []}
GONE = {"a.b": None, "bin": None, "ints": None, "n": None, "at": None}


def _moved(header: str, number: int, record: Record) -> Record:
    return attrs.evolve(record, headers=((f"__debezium.{header}", _dump(_key(number))),))


def _tombstone(number: int) -> Record:
    return attrs.evolve(_record(number, 0, "d"), value=None)


# In batches of three records: an old key goes before its new one comes, and after it.
BATCHES = (
    (_record(1, 1, "c"), _record(2, 2, "c"), _record(3, 3, "c")),
    (_moved("oldkey", 2, _record(20, 20, "c", **UNSENT)), _record(3, 23, "u", **UNSENT), _record(4, 24, "c")),
    (_record(1, 31, "d", **GONE), _record(2, 20, "d", **GONE), _record(20, 32, "u", **UNSENT)),
    (_moved("oldkey", 1, _record(10, 31, "c", **UNSENT)), _record(10, 42, "u", **UNSENT), _record(5, 43, "c")),
    (_record(7, 44, "c"), _record(8, 45, "c"), _record(9, 46, "c")),
    (_record(7, 47, "d", **GONE), _record(7, 48, "c", **{"a.b": "of another"}), _record(9, 49, "u", **UNSENT)),
    (_moved("oldkey", 7, _record(70, 47, "c", **UNSENT)), _record(9, 50, "u", **UNSENT), _record(8, 50, "u")),
    (_tombstone(4), _record(6, 51, "c", **{**UNSENT, "bin": "AQI=", "ints": None}), _record(3, 52, "u", **UNSENT)),
)


WAYS = {
    "hard": ("false", "equality-delete"),
    "soft": ("true", "equality-delete"),
    "soft by position": ("true", "position-delete"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", tiered(WAYS, ["soft by position"]))
def test_values_survive_batches(way: str, topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """With a time column beside lists, whatever batch an old key's delete comes in, every value that was sent stays."""
    keep, mode = WAYS[way]
    name = f"batches_{keep}_{mode.replace('-', '_')}"
    topics.replay(attrs.evolve(r, topic=name) for batch in BATCHES for r in batch)
    extra = {"topics": name, "debezium.sink.iceberg.upsert-keep-deletes": keep, "debezium.sink.batch.max-events": "3"}
    extra["debezium.sink.iceberg.write-mode"] = mode
    space = make_workspace(name, extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    assert (len(run.batches), run.total("dead_letters")) == (len(BATCHES), 0)
    rows = {int(r["id"].rpartition("-")[2]): r for r in lake(space).rows(name)}
    live = {key: r for key, r in rows.items() if r.get("__deleted") != "true"}
    found = {key: (r["a.b"], r["bin"], r["ints"], r["n"], _micros(r["at"])) for key, r in live.items()}
    whole = b"\x01\x02"
    assert found == {
        3: ("text 3", whole, [3, None], 52, 52),
        5: ("text 5", whole, [5, None], 43, 43),
        6: (PLACEHOLDER, whole, None, 51, 51),  # a row that truly holds that text
        10: ("text 1", whole, [1, None], 42, 42),
        20: ("text 2", whole, [2, None], 32, 32),
        7: ("of another", whole, [7, None], 48, 48),
        8: ("text 8", whole, [8, None], 50, 50),
        9: ("text 9", whole, [9, None], 50, 50),
        70: ("text 7", whole, [7, None], 47, 47),
    }
    assert set(rows) - set(live) == ({1, 2, 4} if keep == "true" else set())
    if keep == "true":
        # What only a tombstone says goodbye to keeps the row that the table had.
        assert (rows[4]["a.b"], rows[4]["ints"], _micros(rows[4]["at"])) == ("text 4", [4, None], 24)


def test_an_old_key_that_is_given_anew_tells_its_own_rows(
    topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """A row whose key changed takes what its own row had along, not what later rows of the old key have."""
    topics.replay([attrs.evolve(_record(n, n, "c"), topic="reused") for n in (1, 2, 3)])
    extra = {"topics": "reused", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("reused", extra)
    assert (run := space.run()).code == 0, run.text[-6000:]
    moves = (
        _record(1, 11, "u", **{**UNSENT, "a.b": "later 1"}),
        *(_record(1, 12, "d", **GONE), _moved("oldkey", 1, _record(10, 12, "c", **UNSENT)), _record(1, 13, "c")),
        *(_record(2, 14, "d", **INVENTED), _moved("oldkey", 2, _record(20, 14, "c", **UNSENT))),
        _record(2, 15, "c", **{"a.b": "new 2", "ints": [7]}),
        *(_record(2, 16, "d", **GONE), _moved("oldkey", 2, _record(21, 16, "c", **UNSENT))),
        *(_tombstone(2), _record(2, 17, "c", **{"a.b": "newest 2"}), _record(3, 18, "d", **GONE)),
        _moved("oldkey", 3, _record(30, 18, "c", **UNSENT)),
    )
    topics.replay([attrs.evolve(one, topic="reused") for one in moves], create=False)
    again = space.run()
    assert (again.code, again.total("dead_letters")) == (0, 0), again.text[-6000:]
    found = {int(r["id"].rpartition("-")[2]): (r["a.b"], r["ints"], r["n"]) for r in lake(space).rows("reused")}
    assert found == {
        1: ("text 1", [1, None], 13),
        2: ("newest 2", [2, None], 17),
        10: ("later 1", [1, None], 12),
        20: ("text 2", [2, None], 14),
        21: ("new 2", [7], 16),
        30: ("text 3", [3, None], 18),
    }


def _micros(at: time) -> int:
    return at.microsecond


@pytest.mark.parametrize("variant", tiered(["json_schema_envelope", "json_envelope"], ["json_envelope"]))
def test_a_changed_key_keeps_the_values(
    variant: str, topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """The recorded table ends in PostgreSQL's row, whose key was changed by an update that sent no large value."""
    # A topic of its own: other tests replay the recorded one.
    records = [attrs.evolve(r, topic=f"moved.{variant}.toasty") for r in recordings.load(variant, "toasty")]
    topics.replay(records)
    extra = {"topics": records[0].topic, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace(f"toasty_{variant}", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    (row,) = lake(space).rows(records[0].topic.replace(".", "_"))
    (state,) = recordings.state("toasty")
    plain = ("id", "small", "big", "bigtags", "bigints")
    assert {name: row[name] for name in plain} == {name: state[name] for name in plain}
    assert json.loads(row["bigjson"]) == state["bigjson"]
    binary = row["bigbin"] if isinstance(row["bigbin"], bytes) else base64.b64decode(row["bigbin"])
    assert binary == bytes.fromhex(state["bigbin"][2:])
