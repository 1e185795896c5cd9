"""Attributes of Debezium's MBeans -> their series, by the names that its dashboards query (JMX exporter rules)."""

from __future__ import annotations

from connector.runtime.monitoring.prometheus.series import Series, declare

LABELS = ("plugin", "name", "context")
PLUGIN = "iceberg"
_PREFIX = "debezium_metrics_"

STREAMING = declare(
    _PREFIX,
    LABELS,
    {
        "Connected": "1 while the connector runs and its last look at the cluster was answered.",
        "MilliSecondsSinceLastEvent": "Time since the last event was processed (ms); -1 before the first.",
        "MilliSecondsBehindSource": "How old the newest event was when it was committed or published (ms).",
        **{
            f"MilliSecondsBehindSource{name}": f"{what} over the last minute (ms); -1 where nothing happened."
            for name, what in {
                "MinValue": "Its least value",
                "MaxValue": "Its greatest value",
                "AverageValue": "Its mean",
                "P50": "Its median",
                "P95": "Its 95th percentile",
                "P99": "Its 99th percentile",
            }.items()
        },
        "TotalNumberOfEventsSeen": "Events processed.",
        "TotalNumberOfCreateEventsSeen": "Events that create a row, those of snapshots among them.",
        "TotalNumberOfUpdateEventsSeen": "Events that update a row.",
        "TotalNumberOfDeleteEventsSeen": "Events that delete a row.",
        "NumberOfEventsFiltered": "Events without effect: not of a captured kind, or older than what the table holds.",
        "NumberOfEventsSkipped": "Snapshots of a source that were skipped, such as compactions.",
        "NumberOfUnchangedEventsSkipped": "Always 0: what skip.messages.without.change leaves out is not counted.",
        "NumberOfErroneousEvents": "Events that could not be processed (dead letters).",
        "NumberOfCommittedTransactions": "Batches committed (sink), snapshots published (source).",
        "QueueTotalCapacity": "Most events in a batch.",
        "QueueRemainingCapacity": "The same less the events of the batch that was committed last.",
        "MaxQueueSizeInBytes": "Most bytes in a batch.",
        "CurrentQueueSizeInBytes": "Bytes of the batch that was committed last.",
    },
)
SNAPSHOT = declare(
    _PREFIX,
    LABELS,
    {
        "TotalTableCount": "Tables of the initial snapshot.",
        "RemainingTableCount": "Tables whose initial snapshot is not complete.",
        "SnapshotRunning": "1 while an initial snapshot is read.",
        "SnapshotPaused": "1 while it is paused.",
        "SnapshotCompleted": "1 when the initial snapshots of all tables are complete.",
        "SnapshotAborted": "1 when the initial snapshot of a table ended with an error.",
        "SnapshotSkipped": "1 when no table needed one.",
        "SnapshotDurationInSeconds": "Seconds spent on initial snapshots.",
        "SnapshotPausedDurationInSeconds": "Seconds for which snapshots were paused by signals.",
    },
)
SNAPSHOT_EVENTS = ("TotalNumberOfEventsSeen", "NumberOfEventsSkipped", "MilliSecondsSinceLastEvent", "Connected")
"""Attributes of the streaming context that the snapshot context has as well."""
ROWS_SCANNED = Series(
    _PREFIX + "RowsScanned", "Rows of a table that its initial snapshot has published.", (*LABELS, "table")
)
SINK = declare(
    _PREFIX,
    (*LABELS, "task"),
    {
        "TotalNumberOfWrites": "Rows inserted or updated, before changes of one key are folded.",
        "TotalNumberOfDeletes": "Deletes: a delete event and the tombstone behind it are one.",
        "TotalNumberOfTruncates": "Truncates.",
        "TotalNumberOfFilteredEvents": "Events without effect.",
        "TotalNumberOfErrantRecords": "Dead letters.",
        "TotalNumberOfTablesCreated": "Tables, or indexes, created.",
        "TotalNumberOfTablesAltered": "Changes of their schemas.",
    },
)
