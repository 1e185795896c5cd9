"""A table's properties + the policy of expiry -> the properties by which its snapshots expire with commits. Pure.

Both say what is kept, and the greater is: what a policy keeps for less the task of maintenance expires, which regards
more than commits do.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.iceberg.catalog.retention_properties import (
    EXPIRE_SNAPSHOTS_PROPERTY,
    MAX_AGE_PROPERTY,
    MIN_SNAPSHOTS_PROPERTY,
    SnapshotRetention,
)
from connector.settings.iceberg.maintenance.policies import ExpiryPolicy

_MS = 1000


def apply_policy(properties: Mapping[str, str], policy: ExpiryPolicy) -> Mapping[str, str]:
    """Return properties of a table that keep what the policy keeps, too; all snapshots where expiry is disabled."""
    keeping = SnapshotRetention.of(properties)
    if keeping is None:
        return properties
    if not policy.enabled:
        return {**properties, EXPIRE_SNAPSHOTS_PROPERTY: "false"}
    kept = {
        MAX_AGE_PROPERTY: str(max(keeping.age_ms, policy.age_s * _MS)),
        MIN_SNAPSHOTS_PROPERTY: str(max(keeping.least, policy.retain_last)),
    }
    return {**properties, **kept}
