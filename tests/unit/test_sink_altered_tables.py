"""A table that others alter while the sink runs: batches get it as it is now, without another start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from connector.iceberg.commit.commit import CommittedSnapshot
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.settings import load
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from tests.unit.sink_plans import layout

BASE = {"bootstrap.servers": "h:1", "topics.regex": "x.*", "debezium.sink.iceberg.warehouse": "/w"}
DONE = CommittedSnapshot(2, 2, 1, 0, LastCommit(KafkaOffsets("c"), "ours", 2))


@pytest.mark.parametrize(("then", "refreshed"), [((0, 1, 0, 7), []), ((0, 2, 0, 7), [True]), ((0, 1, 0, 8), [True])])
def test_the_next_batch_gets_an_altered_table(
    monkeypatch: pytest.MonkeyPatch, then: tuple[int, ...], refreshed: list[bool]
) -> None:
    """Another partition spec, sort order or property counts from the batch after the next commit on."""
    catalog = Mock()
    catalog.full_name.side_effect = lambda name: f"default.{name}"
    tables = IcebergTables(load([], BASE, {}), catalog)
    java = SimpleNamespace(snapshot=lambda _: SimpleNamespace(parentId=lambda: 1))
    table: Any = SimpleNamespace(name="default.t", java=java, shape=then, renew_layout=lambda one: one)
    mode, bounds = "equality-delete", KeyBounds.nothing()
    target = TargetTable(table, layout({"id": pa.int64()}, ("id",)), mode, bounds, LastCommit(), 1, (0, 1, 0, 7))
    tables._known["t"] = target
    seen = list[bool]()
    monkeypatch.setattr(tables, "refresh", lambda _, *, alone: seen.append(alone))
    tables.plan("t", 0, {})
    assert not seen, "looked at before anything was committed"
    tables.record_commit("t", [], DONE)
    tables.plan("t", 0, {})
    assert seen == refreshed
