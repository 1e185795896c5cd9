"""Commands that only show what they would do -> tables and stored offsets as they were."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import attrs
import pyarrow as pa
import pytest

from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.settings import load
from connector.sink import factory, offset_reset
from connector.sink.destinations import context
from connector.sink.destinations.context import DestinationContext, open_deleted_keys
from connector.sink.destinations.iceberg import destination
from connector.sink.destinations.iceberg.tables import iceberg_tables
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.microbatch.start_offsets import ClusterState
from tests.unit.sink_plans import layout

pytestmark = pytest.mark.unit

BASE = {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
HARD = {**BASE, "debezium.sink.iceberg.upsert-keep-deletes": "false"}


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A catalog with one table, of a key, which an upsert sink writes equality deletes to."""
    monkeypatch.setattr(iceberg_tables, "read_key_bounds", lambda *_: KeyBounds())
    monkeypatch.setattr(IcebergTables, "_find_last_commit", lambda *_: LastCommit())
    made, table = Mock(), Mock(format_version=2, snapshot_id=None, shape=())
    table.name = "default.t"
    made.full_name.side_effect = lambda name: f"default.{name}"
    table.layout.return_value = layout({"id": pa.int64()}, ("id",))
    made.load.return_value = table
    return made


def _context(catalog: Mock, *, is_dry: bool) -> DestinationContext:
    offsets: Any = Mock(tables={})
    return DestinationContext(Mock(), load([], HARD, {}), catalog, offsets, ["t"], is_dry=is_dry)


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_replay_that_is_only_shown_changes_no_table(
    catalog: Mock, monkeypatch: pytest.MonkeyPatch, *, is_dry: bool
) -> None:
    """Opened for a dry run a table gets no partition spec for deletes, and deletes that others removed stay removed."""
    guard = Mock()
    monkeypatch.setattr(destination, "DeleteGuard", guard)
    monkeypatch.setattr(destination, "open_deleted_keys", lambda _: None)
    monkeypatch.setattr(destination, "_open_maintenance", lambda *_: None)
    destination.open_destination(attrs.evolve(_context(catalog, is_dry=is_dry), settings=load([], BASE, {})))
    assert catalog.ensure_delete_spec.called is not is_dry
    assert guard.called is not is_dry


def test_a_reset_of_offsets_changes_no_table(catalog: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each table stands is read, and no more."""
    monkeypatch.setattr(offset_reset, "Catalog", lambda *_: catalog)
    monkeypatch.setattr(offset_reset, "OffsetsTable", Mock())
    _, tables = offset_reset.open_state(Mock(), load([], BASE, {}))
    assert tables.find_existing(["t"]) == ["t"]
    assert not catalog.ensure_delete_spec.called


@pytest.mark.parametrize(("is_dry", "made"), [(True, 0), (False, 1)])
def test_a_dry_run_makes_no_table_of_deleted_keys(
    catalog: Mock, monkeypatch: pytest.MonkeyPatch, *, is_dry: bool, made: int
) -> None:
    """One that is not there holds nothing to look at."""
    opened = Mock()
    monkeypatch.setattr(context, "DeletedKeysTable", opened)
    catalog.load.return_value = None
    open_deleted_keys(_context(catalog, is_dry=is_dry))
    assert opened.call_count == made
    catalog.load.return_value = Mock()
    open_deleted_keys(_context(catalog, is_dry=is_dry))
    assert opened.call_count == made + 1


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_dry_run_stores_no_start(*, is_dry: bool) -> None:
    """A sink that never ran is still one that never ran."""
    offsets: Any = Mock(position=None, tables={})
    here: Any = Mock(stored_offsets=dict)
    cluster = ClusterState("c", {}, {}, {})
    factory._find_start(load([], BASE, {}), here, offsets, cluster, is_dry=is_dry)
    assert offsets.save.called is not is_dry
