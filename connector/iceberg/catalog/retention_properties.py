"""Properties of a table -> which snapshots, metadata files and data files of it may go, and by whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

EXPIRE_SNAPSHOTS_PROPERTY = "icebridge.expire-snapshots"
"""Table property: whether the sink expires old snapshots of the table."""
MAX_AGE_PROPERTY, MIN_SNAPSHOTS_PROPERTY = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
METADATA_CLEANUP_PROPERTY = "write.metadata.delete-after-commit.enabled"
METADATA_CLEANUP_PROPERTIES = {
    METADATA_CLEANUP_PROPERTY: "true",
    "write.metadata.previous-versions-max": "10",
}
"""Properties of tables that get a commit with every batch: metadata files of before go by themselves."""
CREATED_TABLE_PROPERTIES = {
    **METADATA_CLEANUP_PROPERTIES,
    EXPIRE_SNAPSHOTS_PROPERTY: "true",
    MAX_AGE_PROPERTY: str(600 * 1000),
    MIN_SNAPSHOTS_PROPERTY: "100",
}
"""What tables that the sink makes have, unless the settings say something else."""

DELETION_PROPERTY = "gc.enabled"
"""Table property: whether files may be deleted with snapshots; Iceberg's."""

METADATA_FILES, SNAPSHOTS = "metadata files", "snapshots"
"""What grows with every commit where nothing takes it away."""

EXPIRY_SLACK = 1.1
"""Expiring begins when the oldest is older than it may be by so much: several go at once."""


def is_on(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Tell what a table's property says, as Iceberg reads it: in any case, and whatever is not `true` is off."""
    return properties.get(name, str(default)).lower() == "true"


def may_delete_files(properties: Mapping[str, str]) -> bool:
    """Tell by a table's properties whether its files may be deleted."""
    return is_on(properties, DELETION_PROPERTY, default=True)


@attrs.frozen
class SnapshotRetention:
    """Which snapshots of a table are kept: those younger than an age, and the newest few whatever their age."""

    age_ms: int
    least: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> SnapshotRetention | None:
        """Read a table's properties; None where snapshots are not ours to expire."""
        if not is_on(properties, EXPIRE_SNAPSHOTS_PROPERTY) or not may_delete_files(properties):
            return None
        try:
            return SnapshotRetention(
                int(properties.get(MAX_AGE_PROPERTY, CREATED_TABLE_PROPERTIES[MAX_AGE_PROPERTY])),
                max(1, int(properties.get(MIN_SNAPSHOTS_PROPERTY, CREATED_TABLE_PROPERTIES[MIN_SNAPSHOTS_PROPERTY]))),
            )
        except ValueError:
            return None

    def is_due(self, count: int, oldest_ms: int, now_ms: int, slack: float = EXPIRY_SLACK) -> bool:
        """Tell whether some of `count` snapshots, the oldest of that time, may go."""
        return count > self.least * slack and now_ms - oldest_ms > self.age_ms * slack


def is_kept_small(properties: Mapping[str, str]) -> bool:
    """Tell by a table's properties whether it is the sink's to keep small: it has created it, and nobody objected.

    Where no files may be deleted nothing of it expires; its files are merged all the same.
    """
    return is_on(properties, EXPIRE_SNAPSHOTS_PROPERTY)


def find_growth(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Name what of a table grows with every commit, by its properties, unless other maintenance takes it away."""
    metadata = is_on(properties, METADATA_CLEANUP_PROPERTY)
    snapshots = SnapshotRetention.of(properties) is not None
    return (*(() if metadata else (METADATA_FILES,)), *(() if snapshots else (SNAPSHOTS,)))
