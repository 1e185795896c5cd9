"""a source table that was truncated -> soft deletes: a table that keeps its rows, marked deleted; whoever crashes when.

Each write mode, a table of two sources, and one with a column that Spark cannot read, in one sink.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME, CREATED_BY
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model.events import START_NS
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

MODES = {
    "by_key": {},
    "copied": {"write-mode": "copy-on-write"},
    "shared": {"write-mode": "position-delete"},
    "versions": {"scd-type": "2"},
    **({"by_place": {"write-mode": "position-delete"}, "timed": {}} if THOROUGH else {}),
}
MARKED = tuple(name for name in MODES if name != "versions")
_FIELDS = {"id": ("int64", None), "n": ("int64", None), "at": ("int64", "io.debezium.time.MicroTime")}
_SOURCE = {"name": "string", "db": "string", "schema": "string", "table": "string", "ts_ns": "int64"}
Row = dict[str, Any]


def _event(topic: str, second: int, op: str, key: int | None = None, n: int = 0) -> Record:
    """A change as Debezium has it; of the shared topic odd keys are of the table that is truncated."""
    table = "xy"[(key or 0) % 2 == 0 and key is not None] if topic.endswith("shared") else "x"
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": START_NS + second * 10**9 + 5}
    row: Row | None = None if key is None else {"id": key, "n": n}
    if row is not None and topic.endswith("timed"):
        row["at"] = 3_600_000_000 * key
    value: Row = {"before": None, "after": row, "source": source, "op": op}
    raw = None if key is None else json.dumps({"id": key}).encode()
    if not topic.endswith("timed"):
        return Record(topic, 0, 0, raw, json.dumps(value).encode())
    return Record(topic, 0, 0, raw, json.dumps({"schema": _schema(), "payload": value}).encode())


def _schema() -> Row:
    images = [
        {"type": kind, "optional": True, "field": name, **({"name": word} if word else {})}
        for name, (kind, word) in _FIELDS.items()
    ]
    told = [{"type": kind, "optional": True, "field": name} for name, kind in _SOURCE.items()]
    return {
        "type": "struct",
        "name": "t.Envelope",
        "fields": [
            *({"type": "struct", "optional": True, "field": side, "fields": images} for side in ("before", "after")),
            {"type": "struct", "optional": False, "field": "source", "fields": told},
            {"type": "string", "optional": False, "field": "op"},
        ],
    }


@contextmanager
def _killed(patch: pytest.MonkeyPatch, owner: type, name: str) -> Iterator[None]:
    """End the sink where it would call this."""

    def end(*_: object, **__: object) -> None:
        raise FatalError("killed here")

    with patch.context() as until:
        until.setattr(owner, name, end)
        with pytest.raises(FatalError, match="killed here"):
            yield


def _rows(sink: InProcessSink, topic: str) -> dict[int, tuple[int, bool]]:
    """Each key's value, and whether it is marked; a key has one row."""
    rows = sink.lake.rows(topic.replace(".", "_"))
    found = {row["id"]: (row["n"], row["__deleted"] == "true") for row in rows}
    assert len(found) == len(rows), f"{topic}: a key stands in two rows"
    if topic.endswith("timed"):
        assert all(row["at"].hour == row["id"] for row in rows)
    return found


def _marks(sink: InProcessSink, topic: str) -> int:
    """How many commits only marked rows."""
    summaries = sink.lake.summaries(topic.replace(".", "_"))
    return sum(CREATED_BY in summary and CONNECTOR_NAME not in summary for summary in summaries)


@pytest.mark.parametrize("version", tiered([2, 3], [2]))
def test_rows_of_a_truncate_stay_and_are_marked(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Those of earlier batches, and those that the truncate's own batch brought before it; what came after it is live.

    A process that is killed between the commits, or before it saves the offsets, leaves nothing that the next one does
    twice.
    """
    start = f"kept{version}"
    named = {name: f"{start}.{name}" for name in MODES}
    modes = {f"iceberg.table.{start}_{name}.{k}": v for name, told in MODES.items() for k, v in told.items()}
    fields = "debezium.transforms.unwrap.add.fields"
    told = {"topics.regex": rf"{start}\..*", "truncate.enabled": "true", fields: "op,source.ts_ns,table,db,schema"}
    told |= {"debezium.sink.iceberg.format-version": str(version)}
    sink = InProcessSink(spark, plain_workspace(start, {**told, **modes}))
    before = [(1, "c", 1, 10), (2, "c", 2, 20), (3, "c", 3, 30), (4, "c", 4, 40)]
    topics.replay(_event(topic, *told) for topic in named.values() for told in before)
    sink.run()
    behind: list[Any] = [(5, "u", 1, 11), (6, "c", 7, 70), (7, "t"), (8, "c", 2, 22), (9, "c", 5, 50)]
    topics.replay((_event(topic, *told) for topic in named.values() for told in behind), create=False)
    whole = {1: (11, True), 2: (22, False), 3: (30, True), 4: (40, True), 5: (50, False), 7: (70, True)}
    shared = {**whole, 4: (40, False)}

    with _killed(monkeypatch, IcebergCommitter, "_commit_table"):
        sink.run()
    early = {1: (10, True), 2: (20, True), 3: (30, True), 4: (40, True)}
    for name in MARKED:
        wanted = early if name != "shared" else {**early, 2: (20, False), 4: (40, False)}
        assert (_rows(sink, named[name]), _marks(sink, named[name])) == (wanted, 1), name
    with _killed(monkeypatch, OffsetsTable, "save"):
        sink.run()
    for _ in range(2):
        for name in MARKED:
            wanted = shared if name == "shared" else whole
            assert (_rows(sink, named[name]), _marks(sink, named[name])) == (wanted, 1), name
        assert sum(report.dead_letters for report in sink.run()) == 0
    history = sink.lake.rows(named["versions"].replace(".", "_"))
    held = {1: 11, 2: 22, 3: 30, 4: 40, 5: 50, 7: 70}
    assert {row["id"]: row["n"] for row in history if row["is_current"]} == held, "a history keeps its rows"

    # What comes again from before it stays marked, and the truncate itself takes nothing that came after it.
    again: list[Any] = [(3, "c", 3, 30), (6, "c", 7, 70), (7, "t"), (10, "c", 1, 12)]
    topics.replay((_event(topic, *told) for topic in named.values() for told in again), create=False)
    sink.run()
    for name in MARKED:
        assert _rows(sink, named[name]) == {**(shared if name == "shared" else whole), 1: (12, False)}, name
