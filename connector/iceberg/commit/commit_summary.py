"""Names of the snapshot summary properties that the connector writes -> whose commit a snapshot is (pure)."""

from __future__ import annotations

from collections.abc import Mapping

CONNECTOR_NAME = "icebridge.name"
COMMIT_ID = "icebridge.commit-id"
CLUSTER_ID = "icebridge.kafka.cluster-id"
TOPIC_IDS = "icebridge.kafka.topic-ids"
OFFSETS = "icebridge.kafka.offsets"
SCHEMA_DRIFT_COUNT = "icebridge.schema-drift-count"
"""In how many fields events and table have differed since the sink started."""
WATERMARKS = "icebridge.watermarks"
AFTER_DELETE = "icebridge.kafka.after-delete"
TRANSACTION = "icebridge.transaction"
TRUNCATES = "icebridge.truncates"
TRUNCATED = "icebridge.truncated"
TRUNCATED_AT = "icebridge.truncated-at"
"""What earlier versions wrote instead: the last truncate of a table with a single source."""

CREATED_BY = "icebridge.made-by"
"""The connector's name in commits that say nothing of where it stands: a truncate, and those to tables of its own."""

LOST_COMMIT_REMEDY = (
    "see `icebridge offsets show`; `icebridge offsets reset` with --to tables reads again what the table lost, with "
    "--to stored goes on without it"
)
"""What a person can do about a table that lost what the connector had written."""


REMOVED_EQUALITY_DELETES = "removed-equality-delete-files"
"""How many equality delete files a commit took away; Iceberg's."""
MANIFEST_REWRITE = "entries-processed"
"""What Iceberg says in the summary of a rewrite of manifests, which leaves all files as they are, and of no other."""


def is_icebridge_commit(summary: Mapping[str, str]) -> bool:
    """Tell by a snapshot's summary whether a connector of this program made it."""
    return CONNECTOR_NAME in summary or CREATED_BY in summary


def is_harmless_rewrite(summary: Mapping[str, str]) -> bool:
    """Tell of a `replace` snapshot whether it took nothing from deletes: one of this program's, or of manifests only.

    Others are looked at before anything of ours stands upon them (`guard.delete_guard`).
    """
    return is_icebridge_commit(summary) or MANIFEST_REWRITE in summary
