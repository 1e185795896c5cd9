"""Kafka Connect's MBeans -> their series, by both names in use: those of Strimzi's rules and those of Confluent's.

Strimzi leaves `-metrics` out of a group's name, Confluent keeps it: `kafka_connect_sink_task_<attribute>` and
`kafka_connect_sink_task_metrics_<attribute>`. There are few of them, so both are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connector.runtime.monitoring.prometheus.series import MetricSample, Series, declare

TASK = ("connector", "task")
_BATCH = {
    "offset_commit_avg_time_ms": "Mean time of a commit over the last minute (ms).",
    "offset_commit_max_time_ms": "Longest commit of the last minute (ms).",
    "batch_size_avg": "Mean number of records in a batch over the last minute.",
    "batch_size_max": "Largest batch of the last minute.",
    "running_ratio": "1 while the task runs.",
    "pause_ratio": "1 while it is paused.",
}
_SINK = {
    "put_batch_avg_time_ms": "Mean time of a batch over the last minute (ms).",
    "put_batch_max_time_ms": "Longest batch of the last minute (ms).",
    "sink_record_read_total": "Records read from Kafka.",
    "sink_record_read_rate": "Records read per second, over the last minute.",
    "sink_record_send_total": "Records written to tables or indexes.",
    "sink_record_send_rate": "Records written per second, over the last minute.",
    "sink_record_lag_max": "Most records that wait in one topic-partition.",
    "offset_commit_completion_total": "Batches committed.",
    "offset_commit_seq_no": "Number of the last batch.",
    "partition_count": "Topic-partitions that are read.",
}
_SOURCE = {
    "source_record_poll_total": "Changes read from tables.",
    "source_record_poll_rate": "Changes read per second, over the last minute.",
    "source_record_write_total": "Changes published.",
    "source_record_write_rate": "Changes published per second, over the last minute.",
    "poll_batch_avg_time_ms": "Mean time of a step over the last minute (ms).",
    "poll_batch_max_time_ms": "Longest step of the last minute (ms).",
}
_ERRORS = {
    "total_record_failures": "Records that could not be processed.",
    "total_record_errors": "The same.",
    "total_records_skipped": "Records that were set aside as dead letters.",
    "total_retries": "Always 0: retries are of batches, not of records.",
    "total_errors_logged": "Dead letters; the first of each batch are logged.",
    "deadletterqueue_produce_requests": "Dead letters written.",
    "deadletterqueue_produce_failures": "Always 0: a dead letter that cannot be written ends the batch.",
    "last_error_timestamp": "When the last batch with dead letters was committed (ms since 1970).",
}
_WORKER = {
    "connector_count": "Connectors in this process.",
    "task_count": "Their tasks.",
    "connector_startup_attempts_total": "Starts of connectors.",
    "connector_startup_failure_total": "Starts that failed.",
    "connector_startup_success_total": "Starts that succeeded.",
}
TASK_STATES = ("running", "paused", "failed", "unassigned", "destroyed", "restarting", "total")
_WORKER_CONNECTOR = {f"connector_{state}_task_count": f"Tasks of a connector: {state}." for state in TASK_STATES}
_GROUPS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "sink_task": (TASK, _SINK),
    "source_task": (TASK, _SOURCE),
    "connector_task": (TASK, _BATCH),
    "task_error": (TASK, _ERRORS),
    "worker": ((), _WORKER),
    "worker_connector": (("connector",), _WORKER_CONNECTOR),
}
_STRIMZI = {"worker_connector": "worker"}
_CONFLUENT = {"worker": "connect_worker", "worker_connector": "connect_worker"}
SERIES: Mapping[str, tuple[dict[str, Series], ...]] = {
    group: (
        declare(f"kafka_connect_{_STRIMZI.get(group, group)}_", labels, docs),
        declare(f"kafka_connect_{_CONFLUENT.get(group, group)}_metrics_", labels, docs),
        *((declare("kafka_connect_worker_metrics_", labels, docs),) if group in _CONFLUENT else ()),
    )
    for group, (labels, docs) in _GROUPS.items()
}
"""By group; the last of a worker's are of Debezium's example, whose rules have a third name for them."""
CONNECTOR_STATUS = Series(
    "kafka_connect_connector_status", "1 for the state in which a task is.", ("connector", "task", "status")
)
TASK_STATUS = Series(
    "kafka_connect_connector_task_status", "The same, by its newer name.", ("connector", "task", "status")
)
CLIENTS = {
    "kafka_connect_metrics_incoming_byte_rate": Series(
        "kafka_connect_metrics_incoming_byte_rate",
        "Bytes read from Kafka per second, over the last minute.",
        ("client",),
    ),
    "kafka_connect_metrics_outgoing_byte_rate": Series(
        "kafka_connect_metrics_outgoing_byte_rate",
        "Bytes written to Kafka per second, over the last minute.",
        ("client",),
    ),
    "kafka_consumer_incoming_byte_total": Series(
        "kafka_consumer_incoming_byte_total", "Bytes of record batches read from Kafka, packed.", ("clientid",)
    ),
    "kafka_producer_outgoing_byte_total": Series(
        "kafka_producer_outgoing_byte_total", "Bytes written to Kafka; 0 where they are not counted.", ("clientid",)
    ),
    "kafka_consumer_connection_count": Series(
        "kafka_consumer_connection_count", "Connections that read: 1 while a sink runs.", ("clientid",)
    ),
    "kafka_producer_connection_count": Series(
        "kafka_producer_connection_count", "Connections that write: 1 while a source runs.", ("clientid",)
    ),
}


def connect_samples(group: str, labels: tuple[str, ...], values: Mapping[str, float]) -> Iterator[MetricSample]:
    """Return values of a group, by attribute, under all its names."""
    for named in SERIES[group]:
        for name, value in values.items():
            yield named[name].at(value, *labels)


def client_samples(client: str, values: Mapping[str, float]) -> Iterator[MetricSample]:
    """Return values of a connector's clients, by full name."""
    for name, value in values.items():
        yield CLIENTS[name].at(value, client)
