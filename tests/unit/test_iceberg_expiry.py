"""Which snapshots of a table that the sink made are kept: by its properties, whoever set them."""

from __future__ import annotations

import pytest

from connector.iceberg.commit.snapshot_expiry import (
    CREATED_TABLE_PROPERTIES,
    EXPIRE_SNAPSHOTS_PROPERTY,
    MAX_AGE_PROPERTY,
    METADATA_CLEANUP_PROPERTIES,
    MIN_SNAPSHOTS_PROPERTY,
    SnapshotRetention,
    find_growth,
)

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize(
    "properties",
    [
        {},
        METADATA_CLEANUP_PROPERTIES,
        {**CREATED_TABLE_PROPERTIES, EXPIRE_SNAPSHOTS_PROPERTY: "false"},
        {**CREATED_TABLE_PROPERTIES, "gc.enabled": "false"},
        {MAX_AGE_PROPERTY: "1"},
        {**CREATED_TABLE_PROPERTIES, MAX_AGE_PROPERTY: "an hour"},
    ],
)
def test_other_tables_keep_their_snapshots(properties: dict[str, str]) -> None:
    """Tables of others, those whose property says so, and what cannot be understood are left alone."""
    assert SnapshotRetention.of(properties) is None


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


def test_old_snapshots_go_in_portions() -> None:
    """None goes that is young, or among the newest; and not each commit expires one."""
    keeping = SnapshotRetention.of({**CREATED_TABLE_PROPERTIES, MIN_SNAPSHOTS_PROPERTY: "100"})
    assert keeping == SnapshotRetention(HOUR_MS, 100)
    assert not keeping.is_due(100, 0, 9 * HOUR_MS)
    assert not keeping.is_due(4000, 0, HOUR_MS + 1)
    assert keeping.is_due(4000, 0, 2 * HOUR_MS)
