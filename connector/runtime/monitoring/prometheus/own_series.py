"""What neither Debezium nor Kafka Connect has a name for -> series of our own."""

from __future__ import annotations

from collections.abc import Mapping

from connector.runtime.monitoring.prometheus.series import Series

_C = ("connector",)
_T = ("connector", "table")

COMMIT_SECONDS = Series(
    "icebridge_commit_seconds_total", "Seconds of commits, all tables of a batch together.", _C, "counter"
)
COMMITS = Series("icebridge_commits_total", "Batches committed.", _C, "counter")
LAST_COMMIT_SECONDS = Series("icebridge_last_commit_seconds", "Seconds that the last commit took.", _C, "gauge")
LAST_COMMIT_TIME = Series("icebridge_last_commit_timestamp_seconds", "When it ended (seconds since 1970).", _C, "gauge")
BATCH_SECONDS = Series("icebridge_batch_seconds_total", "Seconds of batches, from plan to commit.", _C, "counter")
FETCH_SECONDS = Series(
    "icebridge_fetch_seconds_total", "Seconds of fetching from Kafka, summed over tasks.", _C, "counter"
)
DECODE_SECONDS = Series(
    "icebridge_decode_seconds_total", "Seconds of decoding and converting, summed over tasks.", _C, "counter"
)
FETCHES = Series("icebridge_fetches_total", "Answers with records from brokers.", _C, "counter")
FETCH_BYTES = Series(
    "icebridge_fetch_bytes_total", "Bytes of record batches as they came over the network, packed.", _C, "counter"
)
FETCH_RATE = Series(
    "icebridge_fetch_bytes_per_second", "The same per second, over the last minute of batches.", _C, "gauge"
)
FETCH_WAIT = Series(
    "icebridge_fetch_wait_seconds_total", "Seconds that tasks waited for brokers, summed over tasks.", _C, "counter"
)
FETCH_THROTTLE = Series(
    "icebridge_fetch_throttle_seconds_total", "Seconds that quotas of brokers made tasks wait.", _C, "counter"
)
FETCH_RETRIES = Series("icebridge_fetch_retries_total", "Fetches that failed and were sent again.", _C, "counter")
FETCH_READER = Series(
    "icebridge_fetch_batches_total",
    "Batches, by the reader of records that they used.",
    ("connector", "reader"),
    "counter",
)
EVENTS = Series("icebridge_events_total", "Events read.", _C, "counter")
EVENT_BYTES = Series("icebridge_event_bytes_total", "Bytes of their keys and values.", _C, "counter")
DATA_FILES = Series("icebridge_data_files_total", "Data files committed.", _T, "counter")
DELETE_FILES = Series("icebridge_delete_files_total", "Delete files committed.", _T, "counter")
TABLE_COMMITS = Series("icebridge_table_commits_total", "Commits of a table.", _T, "counter")
OFFSET_LAG = Series(
    "icebridge_offset_lag", "Records of a topic that are not read yet.", ("connector", "topic"), "gauge"
)
TABLE_LAG_SECONDS = Series(
    "icebridge_table_lag_seconds",
    "Age of the newest event in a table while records of its topics wait, or how long these have waited at most, if "
    "that is less; 0 when none wait. Of a source's table: how long its oldest unpublished snapshot waits.",
    _T,
    "gauge",
)
NEWEST_EVENT = Series(
    "icebridge_newest_event_timestamp_seconds",
    "Time of a table's newest event, by the clock of its source.",
    _T,
    "gauge",
)
SCHEMA_DRIFT = Series(
    "iceberg_schema_drift_count", "Fields in which events and table have differed since the start.", _T, "gauge"
)
SCHEMA_DRIFT_AGAIN = Series("icebridge_schema_drift_count", "The same, by a name as that of the others.", _T, "gauge")
LATE = Series("icebridge_late_events_total", "Keys whose change was older than what the table holds.", _C, "counter")
DEAD_LETTERS = Series(
    "icebridge_dead_letters_total", "Dead letters, by the stage that failed.", ("connector", "stage"), "counter"
)
NULLED = Series("icebridge_nulled_values_total", "Values that became null: they could not be converted.", _C, "counter")
STEPS = Series("icebridge_source_steps_total", "Steps of a source.", ("connector", "table", "step"), "counter")
STEP_SECONDS = Series(
    "icebridge_source_step_seconds_total", "Seconds of these steps.", ("connector", "table", "step"), "counter"
)
CHANGES = Series("icebridge_source_changes_total", "Changes published.", ("connector", "table", "operation"), "counter")
TABLE_STOPPED = Series(
    "icebridge_source_table_stopped",
    "1 for a source's table that an error stopped while the others continue, else 0.",
    _T,
    "gauge",
)
SNAPSHOT_PARTS = Series("icebridge_snapshot_parts", "Parts of a table's initial snapshot.", _T, "gauge")
SNAPSHOT_PARTS_DONE = Series("icebridge_snapshot_parts_done", "Parts of it that are published.", _T, "gauge")
_M = ("connector", "table", "task")
MAINTENANCE_RUNS = Series(
    "icebridge_maintenance_runs_total",
    "Tasks of maintenance in the sink: done, failed, or lost (another writer was faster each time).",
    (*_M, "result"),
    "counter",
)
MAINTENANCE_SECONDS = Series("icebridge_maintenance_seconds_total", "Seconds of these tasks.", _M, "counter")
MAINTENANCE_LAST_SECONDS = Series(
    "icebridge_maintenance_seconds", "Seconds that such a task took the last time, however it ended.", _M, "gauge"
)
MAINTENANCE_BYTES = Series(
    "icebridge_maintenance_bytes_rewritten_total", "Bytes of files that these tasks wrote.", _M, "counter"
)
MAINTENANCE_FILES = Series(
    "icebridge_maintenance_files_removed_total",
    "Files that a task took out of the table, or deleted: data, equality_delete, position_delete (with deletion "
    "vectors that expired), manifest, manifest_list, orphan. Deletion vectors that go with their data files are not "
    "counted.",
    (*_M, "kind"),
    "counter",
)
MAINTENANCE_CONFLICTS = Series(
    "icebridge_maintenance_conflicts_total", "Tasks that lost against other writers.", _M, "counter"
)
MAINTENANCE_TIME = Series(
    "icebridge_maintenance_last_success_timestamp_seconds",
    "When a task was done last (seconds since 1970).",
    _M,
    "gauge",
)
TABLE_FIGURES: Mapping[str, Series] = {
    name: Series(f"icebridge_table_{name}", doc, _T, "gauge")
    for name, doc in {
        "data_files": "Data files of a table, by the last look of the sink's maintenance.",
        "small_files": "Those below the size from which on maintenance does not merge them, when it last counted them: "
        "after it converted deletes or merged files. None before.",
        "equality_delete_files": "Files of equality deletes, by the last look; none as long as nobody has counted "
        "them.",
        "position_delete_files": "Files of position deletes, in the same way.",
        "deletion_vectors": "Deletion vectors, in the same way.",
        "snapshots": "Snapshots, by the last look.",
        "metadata_files": "Metadata files that the newest one lists, with itself, by the last look: at most one more "
        "than `write.metadata.previous-versions-max`.",
        "orphan_bytes": "Bytes of the files that the last look for orphans found, deleted since. None before.",
        "size_bytes": "Bytes of data files and delete files, by the last look.",
        "delete_files": "Delete files of all kinds, by the last look.",
        "equality_deletes": "Equality deletes that readers still have to apply, by the last look.",
        "position_deletes": "Deletes by position, those of deletion vectors among them, by the last look.",
    }.items()
}
ALL = (*(value for value in list(globals().values()) if isinstance(value, Series)), *TABLE_FIGURES.values())
