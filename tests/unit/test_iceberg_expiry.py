"""Which snapshots of a table that the sink made are kept: by its properties, whoever set them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import structlog

from connector.errors import ConfigError
from connector.iceberg.catalog.retention_properties import (
    CREATED_TABLE_PROPERTIES,
    EXPIRE_SNAPSHOTS_PROPERTY,
    MAX_AGE_PROPERTY,
    METADATA_CLEANUP_PROPERTIES,
    METADATA_CLEANUP_PROPERTY,
    MIN_SNAPSHOTS_PROPERTY,
    SnapshotRetention,
    find_growth,
    is_kept_small,
)
from connector.settings import load
from connector.settings.iceberg.maintenance.back_pressure import BackPressureSettings
from connector.settings.iceberg.maintenance.policies import ExpiryPolicy, MaintenancePolicy, MaintenanceSettings
from connector.sink.destinations.iceberg import back_pressure, committer
from connector.sink.destinations.iceberg.back_pressure import BackPressure
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.destination import _warn_of_growth
from connector.sink.destinations.iceberg.maintenance import expires_by_task
from connector.sink.destinations.iceberg.tables import needed_snapshots
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize(
    "properties",
    [
        {},
        METADATA_CLEANUP_PROPERTIES,
        {**CREATED_TABLE_PROPERTIES, EXPIRE_SNAPSHOTS_PROPERTY: "false"},
        {**CREATED_TABLE_PROPERTIES, "gc.enabled": "false"},
        {**CREATED_TABLE_PROPERTIES, "gc.enabled": "FALSE"},
        {MAX_AGE_PROPERTY: "1"},
        {**CREATED_TABLE_PROPERTIES, MAX_AGE_PROPERTY: "an hour"},
    ],
)
def test_other_tables_keep_their_snapshots(properties: dict[str, str]) -> None:
    """Tables of others, those whose property says so, and what cannot be understood are left alone."""
    assert SnapshotRetention.of(properties) is None


def test_everything_is_needed_while_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the offsets of sources cannot be read nothing expires, which is told now and then, not at each commit."""
    asked: list[Any] = []

    def fail(*arguments: object) -> int:
        asked.append(arguments[1])
        raise ConfigError("there is no table ns.mistyped")

    file = tmp_path / "sink.properties"
    offsets = "iceberg.maintenance.expire-snapshots.offset-tables=ns.mistyped"
    file.write_text(
        f"bootstrap.servers=h:1\ntopics=t\ndebezium.sink.iceberg.type=hadoop\ndebezium.sink.iceberg.warehouse=/w\n{offsets}\n"
    )
    tables = IcebergTables(load([file]), Mock())
    tables._known["t"] = Mock()
    monkeypatch.setattr(needed_snapshots, "find_needed_since_ms", fail)
    with structlog.testing.capture_logs() as lines:
        assert [tables.needed_since_ms("t") for _ in range(3)] == [0, 0, 0]
    assert [line["event"] for line in lines] == ["snapshot expiry is postponed"]
    assert [names[1:] for names in asked] == [("ns.mistyped",)]


@pytest.mark.parametrize(
    ("properties", "grows"),
    [
        (CREATED_TABLE_PROPERTIES, ()),
        ({}, ("metadata files", "snapshots")),
        (METADATA_CLEANUP_PROPERTIES, ("snapshots",)),
        ({**CREATED_TABLE_PROPERTIES, EXPIRE_SNAPSHOTS_PROPERTY: "false"}, ("snapshots",)),
        ({EXPIRE_SNAPSHOTS_PROPERTY: "true"}, ("metadata files",)),
    ],
)
def test_what_grows_is_told(properties: dict[str, str], grows: tuple[str, ...]) -> None:
    """A table says by its properties what each commit leaves behind."""
    assert find_growth(properties) == grows


def test_tables_that_nothing_maintains_are_named_once() -> None:
    """One line at the start, with what grows of the first ten; none where all have the properties."""

    def target(name: str, properties: dict[str, str]) -> Any:
        return SimpleNamespace(table=SimpleNamespace(name=name), layout=SimpleNamespace(properties=properties))

    others = [target(f"d.t{number:02}", METADATA_CLEANUP_PROPERTIES) for number in range(12)]
    with structlog.testing.capture_logs() as lines:
        _warn_of_growth({"own": target("d.own", CREATED_TABLE_PROPERTIES)}, MaintenanceSettings())
        own = target("d.own", CREATED_TABLE_PROPERTIES)
        _warn_of_growth({one.table.name: one for one in (own, *others)}, MaintenanceSettings())
    (line,) = lines
    assert line["tables"] == {f"d.t{number:02}": "snapshots" for number in range(10)}
    assert line["count"] == 12


@pytest.mark.parametrize(
    ("properties", "policy", "named"),
    [
        ({}, MaintenancePolicy(), "metadata files, snapshots"),
        ({}, MaintenancePolicy(enabled="true"), None),
        ({EXPIRE_SNAPSHOTS_PROPERTY: "true"}, MaintenancePolicy(), "metadata files"),
        ({METADATA_CLEANUP_PROPERTY: "false"}, MaintenancePolicy(enabled="true"), "metadata files"),
        ({}, MaintenancePolicy(enabled="true", expire=ExpiryPolicy(enabled=False)), "metadata files, snapshots"),
        ({"gc.enabled": "false"}, MaintenancePolicy(enabled="true"), "metadata files, snapshots"),
        (CREATED_TABLE_PROPERTIES, MaintenancePolicy(expire=ExpiryPolicy(enabled=False)), "snapshots"),
    ],
)
def test_tables_that_the_sink_maintains_are_not_named(
    properties: dict[str, str], policy: MaintenancePolicy, named: str | None
) -> None:
    """A table whose snapshots the sink expires is not named, but for what its properties keep; others are."""
    target: Any = SimpleNamespace(table=SimpleNamespace(name="d.t"), layout=SimpleNamespace(properties=properties))
    with structlog.testing.capture_logs() as lines:
        _warn_of_growth({"t": target}, MaintenanceSettings(policies={"t": policy}))
    assert [line["tables"] for line in lines] == ([] if named is None else [{"d.t": named}])


def test_old_snapshots_go_in_portions() -> None:
    """None goes that is young, or among the newest; and not each commit expires one."""
    keeping = SnapshotRetention.of({**CREATED_TABLE_PROPERTIES, MAX_AGE_PROPERTY: str(HOUR_MS)})
    assert keeping == SnapshotRetention(HOUR_MS, 100)
    # Iceberg keeps one at least, and refuses to be told less.
    few = SnapshotRetention.of({**CREATED_TABLE_PROPERTIES, MIN_SNAPSHOTS_PROPERTY: "0"})
    assert few is not None and few.least == 1
    assert not keeping.is_due(100, 0, 9 * HOUR_MS)
    assert not keeping.is_due(4000, 0, HOUR_MS + 1)
    assert keeping.is_due(4000, 0, 2 * HOUR_MS)


def test_a_sink_that_waits_expires_what_goes_with_its_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above its limit of snapshots a table of its own loses those that its properties do not keep, without slack; one
    below the limit is not touched.
    """
    snapshots = {"many": 9, "few": 2}

    def expire(table: Any, properties: Any, needed_since_ms: Any, *, slack: float) -> bool:
        assert (properties, needed_since_ms(), slack) == (CREATED_TABLE_PROPERTIES, 7, 1)
        snapshots[table.name] = 3
        return True

    def target(name: str) -> Any:
        table = Mock(branch="main")
        table.name = name
        table.java.operations.return_value.current.return_value.snapshots.return_value.size = lambda: snapshots[name]
        table.java.snapshot.return_value.summary.return_value = {}
        return SimpleNamespace(table=table, layout=SimpleNamespace(properties=CREATED_TABLE_PROPERTIES))

    tables = MagicMock(label=str, needed_since_ms=lambda _: 7, retention=lambda _: CREATED_TABLE_PROPERTIES)
    tables.__iter__.side_effect = lambda: iter(snapshots)
    tables.__getitem__.side_effect = target
    monkeypatch.setattr(back_pressure, "expire_snapshots", expire)
    assert BackPressure(tables, BackPressureSettings(max_snapshots=3)).find_reason() is None
    assert snapshots == {"many": 3, "few": 2}
    keeping = SnapshotRetention.of(CREATED_TABLE_PROPERTIES)
    assert keeping is not None
    assert keeping.is_due(101, 0, keeping.age_ms + 1, 1) and not keeping.is_due(101, 0, keeping.age_ms + 1)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, SnapshotRetention(600_000, 100)),
        ({"max-snapshot-age-seconds": "604800"}, SnapshotRetention(604_800_000, 100)),
        ({"retain-last": "5000"}, SnapshotRetention(600_000, 5_000)),
        ({"max-snapshot-age-seconds": "60", "retain-last": "1"}, SnapshotRetention(600_000, 100)),
        ({"enabled": "false"}, None),
    ],
)
def test_commits_expire_no_snapshot_that_the_options_keep(
    options: dict[str, str], kept: SnapshotRetention | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Age, number and `enabled` of the task `expire` hold for what expires with a sink's commits, too, where they keep
    more than the table's properties.
    """
    own = {f"iceberg.table.t.maintenance.expire-snapshots.{name}": value for name, value in options.items()}
    given = {"topics": "t", "bootstrap.servers": "h:1", "debezium.sink.iceberg.warehouse": "/w"}
    found = list[SnapshotRetention | None]()

    def expire(_: Any, properties: Any, *__: Any) -> None:
        found.append(SnapshotRetention.of(properties))

    monkeypatch.setattr(committer, "expire_snapshots", expire)
    tables = IcebergTables(load([], {**given, **own}, {}), Mock(full_name="default.{}".format))
    layout: Any = SimpleNamespace(properties=CREATED_TABLE_PROPERTIES)
    tables._known["t"] = Mock(layout=layout)
    IcebergCommitter(Mock(), tables, "s")._note_commit("t", [], Mock())
    assert found == [kept]


@pytest.mark.parametrize(
    ("properties", "is_maintained", "by_task"),
    [
        ({}, True, False),
        ({"gc.enabled": "false"}, True, True),
        ({MAX_AGE_PROPERTY: "an hour"}, True, True),
        ({EXPIRE_SNAPSHOTS_PROPERTY: "false"}, False, False),
    ],
)
def test_a_table_whose_snapshots_do_not_expire_with_commits_is_maintained(
    properties: dict[str, str], is_maintained: bool, by_task: bool
) -> None:
    """Files of a table that the sink created are merged also where none may be deleted, or nobody can read for how long
    snapshots are kept; expiry is then the task's, which leaves the former alone.
    """
    table = {**CREATED_TABLE_PROPERTIES, **properties}
    assert MaintenancePolicy().covers(is_own=is_kept_small(table)) == is_maintained
    assert expires_by_task(MaintenancePolicy(), table) == by_task
