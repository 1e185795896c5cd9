"""events that name their tables -> those tables: a file of Iceberg Kafka Connect, its operations, keys and routes.

Three runs over the same topics: the first makes tables, the second meets known and new ones after a restart, the third
may neither make tables nor change them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record
from tests.runs.host import Host
from tests.runs.processes import Run, Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

TOPICS = ("route.events", "route.more")
FILE = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": ",".join(TOPICS),
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "table",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.tables.cdc-field": "op",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.table.lake.log.id-columns": "",
    "iceberg.table.lake.orders.write-mode": "position-delete",
    "iceberg.tables.default-partition-by": "bucket(id, 2)",
    "iceberg.tables.auto-create-props.write.parquet.compression-codec": "gzip",
    "iceberg.control.commit.interval-ms": "1000",
    "debezium.source.schema.history.internal.iceberg.table-name": "_history",
}
FIXED = {"iceberg.tables.auto-create-enabled": "false", "iceberg.tables.evolve-schema-enabled": "false"}


def _record(topic: str, offset: int, value: dict[str, Any] | bytes) -> Record:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(topic, 0, offset, None, raw, (), 1_700_000_000_000)


def _event(table: str, key: int, op: str, **more: Any) -> dict[str, Any]:
    return {"table": table, "id": key, "op": op, **more}


FIRST = [
    *(_event("Lake.Orders", key, "insert", amount=key) for key in range(10)),
    *(_event("lake.people", key, "I", name=f"n{key}") for key in range(5)),
    _event("lake.orders", 3, "Update", amount=33),
    _event("lake.orders", 4, "delete"),
    _event("lake.orders", 5, "truncate"),
    {"id": 1, "op": "c"},
    b'{"table": "lake.half',
    _event("lake.log", 1, "c", text="one"),
    _event("lake.log", 2, "zz", text="two"),
]
SECOND = [
    _event("lake.orders", 0, "d"),
    _event("lake.orders", 1, "u", amount=11, note="new column"),
    _event("other.fresh", 1, "c", x=1.5),
    _event("lake.people", 0, "index", name="again"),
    _event("lake.orders", 8, "u", amount="many"),
]
THIRD = [
    _event("lake.nowhere", 1, "c"),
    _event("lake.orders", 2, "u", amount="not a number", colour="red"),
    _event("lake.orders", 6, "u", amount="66"),
]


# Letters by a word of what they hold, as they are repaired; None: as they are.
REPAIRED: dict[str, dict[str, Any] | None] = {
    "truncate": _event("lake.orders", 5, "update", amount=55),
    '{"id": 1, "op": "c"}': _event("lake.orders", 1, "update", amount=-1),  # a later event has changed this one
    "lake.half": _event("lake.orders", 77, "create", amount=77),
    "zz": _event("lake.log", 2, "c", text="two"),
    "nowhere": None,
    "many": _event("lake.orders", 8, "u", amount=88),
}


@pytest.fixture(scope="module")
def space(make_workspace: MakeWorkspace) -> Workspace:
    """Where the sink works."""
    return make_workspace("routes", FILE)


@pytest.fixture(scope="module")
def runs(topics: Topics, space: Workspace, lake: OpenLake) -> tuple[list[Run], Lake, list[Record]]:
    """The three runs, the tables after them, and the dead letters."""
    done = []
    for number, (events, extra) in enumerate(((FIRST, {}), (SECOND, {}), (THIRD, FIXED))):
        # Events of one table come by one topic: between topics there is no order.
        records = [_record(TOPICS[b"people" in json.dumps(str(e)).encode()], i, e) for i, e in enumerate(events)]
        topics.replay(records, create=number == 0)
        done.append(space.run(extra))
    return done, lake(space), topics.read("routes-dead-letters")


def test_each_event_is_in_the_table_that_it_names(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """Inserts, updates and deletes by word end in the named tables, over restarts, keyed by id-columns."""
    done, tables, _ = runs
    assert [run.code for run in done] == [0, 0, 0], done[-1].text[-6000:]
    orders = {row["id"]: row["amount"] for row in tables.rows("orders", "lake")}
    assert orders == {1: 11, 2: None, 3: 33, 5: 5, 6: 66, 7: 7, 8: 8, 9: 9}
    people = {row["id"]: row["name"] for row in tables.rows("people", "lake")}
    assert people == {0: "again", **{key: f"n{key}" for key in range(1, 5)}}
    assert [(row["id"], row["x"]) for row in tables.rows("fresh", "other")] == [(1, 1.5)]


def test_schemas_are_kept(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """The history table has a row for every table that was made, and for the one that got a column."""
    noted = [json.loads(row["history_data"]) for row in runs[1].rows("_history")]
    assert sorted(row["table"] for row in noted) == [
        "lake.log",
        "lake.orders",
        "lake.orders",
        "lake.people",
        "other.fresh",
    ]
    newest = max((row for row in noted if row["table"] == "lake.orders"), key=lambda row: row["schema-id"])
    assert "note" in {field["name"] for field in newest["schema"]["fields"]}


def test_what_cannot_be_routed_or_named_is_dead(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """An unknown operation, no route field, a table that may not be made: one dead letter each, with its reason."""
    reasons = [dict(letter.headers)["__connect.errors.exception.message"] or b"" for letter in runs[2]]
    assert sorted(reason.split(b" ")[0] for reason in reasons) == [
        b"field",
        b"field",
        b"field",
        b"not",
        b"table",
        b"the",
    ]
    assert any(b"does not exist" in reason for reason in reasons)
    assert any(reason.startswith(b"field amount: ") for reason in reasons)


def test_drift_is_counted(runs: tuple[list[Run], Lake, list[Record]]) -> None:
    """A column that was added, and one that was left out, count as drift of their table; a lost value is counted."""
    _, second, third = runs[0]
    assert second.batches[-1]["iceberg_schema_drift_count"] == {"lake.orders": 1}
    assert third.batches[-1]["iceberg_schema_drift_count"] == {"lake.orders": 1}
    assert third.batches[-1]["nulled"] == 1


def test_status_tells_each_tables_newest_commit(
    runs: tuple[list[Run], Lake, list[Record]], space: Workspace, host: Host
) -> None:
    """`icebridge status --output json`: per table snapshot and time of the newest commit, lag, and schema drift."""
    told = json.loads(_said(host, "status", "--output", "json", str(space.file({}))))["tables"]
    assert told.keys() == {"lake.orders", "lake.people", "lake.log", "other.fresh"}
    orders = told["lake.orders"]
    assert orders["snapshot_id"] == int(runs[1].java("orders", "lake").currentSnapshot().snapshotId())
    assert {name: table["iceberg_schema_drift_count"] for name, table in told.items() if name != "lake.log"} == {
        "lake.orders": 1,
        "lake.people": 0,
        "other.fresh": 0,
    }
    assert {table["lag"] for table in told.values()} == {0}


def test_status_without_a_broker_tells_what_the_tables_say(
    runs: tuple[list[Run], Lake, list[Record]], space: Workspace, host: Host
) -> None:
    """Snapshots and stored offsets are shown at once, with one line that Kafka gives no answer in place of the lag."""
    file = str(space.file({"bootstrap.servers": "127.0.0.1:9"}))
    told = json.loads(_said(host, "status", "--output", "json", file))
    orders = told["tables"]["lake.orders"]
    assert orders["snapshot_id"] == int(runs[1].java("orders", "lake").currentSnapshot().snapshotId())
    assert {table["lag"] for table in told["tables"].values()} == {None}
    assert told["unanswered"].startswith("Kafka gave no answer")
    shown = _said(host, "offsets", "show", file)
    assert shown.count("Kafka gave no answer") == 1
    assert all(f"{topic}-0" in shown for topic in TOPICS)


def _said(host: Host, *arguments: str) -> str:
    done = host.call(*arguments)
    assert done.code == 0, done.log[-4000:] + done.out[-1000:]
    return done.out


def test_letters_are_listed_repaired_and_replayed_once(
    runs: tuple[list[Run], Lake, list[Record]], space: Workspace, host: Host, topics: Topics, tmp_path: Path
) -> None:
    """Letters of every class go through once repaired: later events keep their word, and nothing comes twice."""
    _, tables, letters = runs
    file = str(space.file({}))
    assert _said(host, "dlq", "list", file).count("offset") == len(letters) == len(REPAIRED)
    for letter in letters:
        name = f"{letter.partition}-{letter.offset}"
        _said(host, "dlq", "show", file, "--letter", name, "--save", str(tmp_path))
        assert (tmp_path / f"{name}.value").read_bytes() == letter.value
        (mended,) = [new for word, new in REPAIRED.items() if word.encode() in (letter.value or b"")]
        if mended is not None:
            (tmp_path / f"{name}.value").write_text(json.dumps(mended))
    before = {table: tables.summaries(table, "lake") for table in ("orders", "log")}
    assert "nothing was changed" in _said(host, "dlq", "replay", file, "--from", str(tmp_path))
    assert {table: tables.summaries(table, "lake") for table in before} == before
    assert "nowhere" not in tables.names("lake")
    told = _said(host, "dlq", "replay", file, "--from", str(tmp_path), "--execute")
    assert told.count("left out") == 1
    assert told.count("in its table") == len(REPAIRED) - 1
    assert "no dead letters" in _said(host, "dlq", "replay", file, "--from", str(tmp_path), "--execute")
    orders = {row["id"]: row["amount"] for row in tables.rows("orders", "lake")}
    assert (orders[5], orders[1], orders[77], orders[8], len(orders)) == (55, 11, 77, 88, 9)
    assert sorted(row["text"] for row in tables.rows("log", "lake")) == ["one", "two"]
    assert [row["id"] for row in tables.rows("nowhere", "lake")] == [1]
    marks = [
        record
        for record in topics.read("routes-dead-letters")
        if dict(record.headers).keys() == {"__icebridge.replayed"}
    ]
    assert len(marks) == len(REPAIRED)
    again = space.run()
    assert (again.code, again.total("events")) == (0, 0)
