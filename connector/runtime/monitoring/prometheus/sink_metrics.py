"""Reports of batches, and Kafka's end offsets -> the metrics of one sink."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.monitoring.prometheus import debezium_series as debezium
from connector.runtime.monitoring.prometheus import own_series as own
from connector.runtime.monitoring.prometheus.connect_series import client_samples, connect_samples
from connector.runtime.monitoring.prometheus.series import MetricSample
from connector.runtime.monitoring.prometheus.windows import Window
from connector.runtime.topic_partitions import TopicPartition
from serde.faults import Stage

TASK = "0"
STAGES = (*get_args(Stage), "KAFKA_CONSUME")
"""Where a record can fail. Each is counted from 0: a counter that appears with its first failures shows no increase."""


class SinkMetrics:
    """A `SinkListener` and a `MetricSource`; it costs some additions per batch.

    `connected` tells whether the sink ran, and the cluster answered, at the last look.
    """

    def __init__(
        self,
        connector: str,
        server: str,
        *,
        max_events: int,
        max_bytes: int,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin with nothing.

        Args:
            connector: its name.
            server: the name that Debezium's dashboards group by (`topic.prefix`).
            max_events: most events of a batch.
            max_bytes: most bytes of a batch.
            wall_clock: seconds since 1970.
        """
        self.connector, self._server, self._clock = connector, server, wall_clock
        self._max_events, self._max_bytes = max_events, max_bytes
        self._lock = threading.Lock()
        self._sum, self._last = TaskMetrics(), TaskMetrics()
        self._dead = self._commits = 0
        self._seconds = self._commit_seconds = self._last_commit_seconds = 0.0
        self._files: dict[str, Counter[str]] = {}
        self._stages = Counter(dict.fromkeys(STAGES, 0))
        self._drift: dict[str, int] = {}
        self._changed: Mapping[str, int] = {}
        self._schema_changes = Counter[str]()
        self._committed_at: float | None = None
        self._dead_at: float | None = None
        self._behind_ms = -1.0
        self._batch = -1
        self._read: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._looked_at = 0.0
        self._caught_up_at: dict[str, float] = {}
        self._newest_ms: dict[str, int] = {}
        self._topics: dict[str, set[str]] = {}
        self._readers = Counter[str]()
        self._window = Window()
        self.connected = False

    @property
    def batches(self) -> int:
        """How many batches were committed."""
        return self._commits

    @property
    def read(self) -> dict[TopicPartition, int]:
        """The offset after the last record of each topic-partition that was read."""
        with self._lock:
            return dict(self._read)

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of where a run begins; counts of tables that it creates begin again."""
        with self._lock:
            if any(offset < self._read.get(at, offset) for at, offset in offsets.items()):
                self._caught_up_at.clear()  # What is read again has waited for longer.
            self._read = dict(offsets)
            self._schema_changes.update(self._changed)
            self._changed = {}

    def observe_ends(self, ends: Mapping[TopicPartition, int] | None, *, is_running: bool = True) -> None:
        """Take note of the offsets after the last records; None where the cluster did not answer.

        A sink that does not run is not connected, whoever else looks at the cluster for it.
        """
        with self._lock:
            self.connected = is_running and ends is not None
            if ends is not None:
                self._ends, self._looked_at = dict(ends), self._clock()
                self._note_caught_up()

    def on_batch(self, report: BatchReport) -> None:
        """Count a batch that is committed."""
        metrics, now = report.metrics, self._clock()
        with self._lock:
            self._sum, self._last = self._sum + metrics, metrics
            self._dead += report.dead_letters
            self._commits += 1
            self._batch = report.batch
            self._seconds += report.seconds
            self._commit_seconds += report.commit_seconds
            self._last_commit_seconds = report.commit_seconds
            for table, counts in report.tables.items():
                self._files.setdefault(table, Counter()).update({**counts, "commits": 1})
            self._stages.update(report.stages)
            self._drift = {**self._drift, **report.drift}
            self._changed = report.schema_changes
            self._newest_ms.update(report.newest_ms)
            for table, topics in report.topics.items():
                self._topics.setdefault(table, set()).update(topics)
            self._read.update(report.end)
            self._note_caught_up()
            if metrics.events:
                self._committed_at = now
            if report.newest_ms:
                self._behind_ms = max(0.0, now * 1000 - max(report.newest_ms.values()))
            if report.dead_letters:
                self._dead_at = now
            self._window.add(
                seconds=report.seconds,
                records=metrics.events,
                size_bytes=metrics.size_bytes,
                commit_seconds=report.commit_seconds,
                fetched_bytes=metrics.fetch.size_bytes,
                behind_ms=self._behind_ms if report.newest_ms else None,
            )
            self._readers.update(metrics.fetch.readers)

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """How many records of each topic-partition wait, by the last look at the cluster.

        None of one of which nobody knows yet where it is read: before the first run, all of its log would count.
        """
        with self._lock:
            return {at: max(0, end - self._read[at]) for at, end in self._ends.items() if at in self._read}

    def _note_caught_up(self) -> None:
        """Note of topics of which nothing waits that all is read that there was at the last look."""
        behind = {at[0] for at, end in self._ends.items() if at not in self._read or end > self._read[at]}
        self._caught_up_at.update((topic, self._looked_at) for topic, _ in self._ends if topic not in behind)

    def tables(self) -> dict[str, dict[str, int]]:
        """Return counts of each table: commits, files, drift, and the time of its newest event (ms since 1970)."""
        with self._lock:
            return {
                table: {
                    **counts,
                    "drift": self._drift.get(table, 0),
                    "newest_event_ms": self._newest_ms.get(table, 0),
                }
                for table, counts in self._files.items()
            }

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""
        lag = self.lag
        with self._lock:
            yield from self._debezium()
            yield from self._connect(lag)
            yield from self._collect_own(lag)

    def _debezium(self) -> Iterator[MetricSample]:
        total, last, now = self._sum, self._last, self._clock()
        operations = total.operations
        ignored = total.ignored + total.late
        creates, updates = operations["c"] + operations["r"], operations["u"]
        labels = (debezium.PLUGIN, self._server, "streaming")
        values = {
            "Connected": float(self.connected),
            "MilliSecondsSinceLastEvent": -1.0 if self._committed_at is None else (now - self._committed_at) * 1000,
            "MilliSecondsBehindSource": self._behind_ms,
            **self._window.behind(),
            "TotalNumberOfEventsSeen": total.events,
            "TotalNumberOfCreateEventsSeen": creates,
            "TotalNumberOfUpdateEventsSeen": updates,
            "TotalNumberOfDeleteEventsSeen": operations["d"],
            "NumberOfEventsFiltered": ignored,
            "NumberOfEventsSkipped": 0,
            "NumberOfUnchangedEventsSkipped": 0,
            "NumberOfErroneousEvents": self._dead,
            "NumberOfCommittedTransactions": self._commits,
            "QueueTotalCapacity": self._max_events,
            "QueueRemainingCapacity": max(0, self._max_events - last.events),
            "MaxQueueSizeInBytes": self._max_bytes,
            "CurrentQueueSizeInBytes": last.size_bytes,
        }
        for name, value in values.items():
            yield debezium.STREAMING[name].at(value, *labels)
        changed = self._schema_changes + Counter(self._changed)
        sink = {
            "TotalNumberOfWrites": creates + updates,
            "TotalNumberOfDeletes": operations["d"] + total.lone_tombstones,
            "TotalNumberOfTruncates": total.truncates,
            "TotalNumberOfFilteredEvents": ignored,
            "TotalNumberOfErrantRecords": self._dead,
            "TotalNumberOfTablesCreated": changed["created"],
            "TotalNumberOfTablesAltered": changed["altered"],
        }
        for name, value in sink.items():
            yield debezium.SINK[name].at(value, debezium.PLUGIN, self._server, "sink", TASK)

    def _connect(self, lag: Mapping[TopicPartition, int]) -> Iterator[MetricSample]:
        labels, window, events = (self.connector, TASK), self._window, self._sum.events
        rate = window.rate(lambda one: one.records)
        sink = {
            "put_batch_avg_time_ms": window.average(lambda one: one.seconds * 1000),
            "put_batch_max_time_ms": window.maximum(lambda one: one.seconds * 1000),
            "sink_record_read_total": events,
            "sink_record_read_rate": rate,
            "sink_record_send_total": events - self._dead,
            "sink_record_send_rate": rate,
            "sink_record_lag_max": max(lag.values(), default=0),
            "offset_commit_completion_total": self._commits,
            "offset_commit_seq_no": self._batch,
            "partition_count": len(self._read),
        }
        yield from connect_samples("sink_task", labels, sink)
        task = {
            "offset_commit_avg_time_ms": window.average(lambda one: one.commit_seconds * 1000),
            "offset_commit_max_time_ms": window.maximum(lambda one: one.commit_seconds * 1000),
            "batch_size_avg": window.average(lambda one: one.records),
            "batch_size_max": window.maximum(lambda one: one.records),
        }
        yield from connect_samples("connector_task", labels, task)
        yield from self._connect_errors()
        yield from self._connect_clients()

    def _connect_errors(self) -> Iterator[MetricSample]:
        dead = float(self._dead)
        errors = {
            "total_record_failures": dead,
            "total_record_errors": dead,
            "total_records_skipped": dead,
            "total_retries": 0.0,
            "total_errors_logged": dead,
            "deadletterqueue_produce_requests": dead,
            "deadletterqueue_produce_failures": 0.0,
            "last_error_timestamp": 0.0 if self._dead_at is None else self._dead_at * 1000,
        }
        yield from connect_samples("task_error", (self.connector, TASK), errors)

    def _connect_clients(self) -> Iterator[MetricSample]:
        clients = {
            "kafka_connect_metrics_incoming_byte_rate": self._window.rate(lambda one: one.fetched_bytes),
            "kafka_connect_metrics_outgoing_byte_rate": 0.0,
            "kafka_consumer_incoming_byte_total": self._sum.fetch.size_bytes,
            "kafka_consumer_connection_count": float(self.connected),
            "kafka_producer_outgoing_byte_total": 0.0,
            "kafka_producer_connection_count": 0.0,
        }
        yield from client_samples(self.connector, clients)

    def _collect_own(self, lag: Mapping[TopicPartition, int]) -> Iterator[MetricSample]:
        name = self.connector
        yield from self._collect_totals()
        for reader, count in self._readers.items():
            yield own.FETCH_READER.at(count, name, reader)
        if self._committed_at is not None:
            yield own.LAST_COMMIT_TIME.at(self._committed_at, name)
        for table, counts in self._files.items():
            yield own.DATA_FILES.at(counts["data_files"], name, table)
            yield own.DELETE_FILES.at(counts["delete_files"], name, table)
            yield own.TABLE_COMMITS.at(counts["commits"], name, table)
            for series in (own.SCHEMA_DRIFT, own.SCHEMA_DRIFT_AGAIN):
                yield series.at(self._drift.get(table, 0), name, table)
        for stage, count in self._stages.items():
            yield own.DEAD_LETTERS.at(count, name, stage)
        yield from self._collect_lag(lag)

    def _collect_totals(self) -> Iterator[MetricSample]:
        total = self._sum
        totals = {
            own.COMMITS: self._commits,
            own.COMMIT_SECONDS: self._commit_seconds,
            own.LAST_COMMIT_SECONDS: self._last_commit_seconds,
            own.BATCH_SECONDS: self._seconds,
            own.FETCH_SECONDS: total.fetch_seconds,
            own.DECODE_SECONDS: total.decode_seconds,
            own.EVENTS: total.events,
            own.EVENT_BYTES: total.size_bytes,
            own.LATE: total.late,
            own.NULLED: total.nulled,
            own.FETCHES: total.fetch.fetches,
            own.FETCH_BYTES: total.fetch.size_bytes,
            own.FETCH_RATE: self._window.rate(lambda one: one.fetched_bytes),
            own.FETCH_WAIT: total.fetch.wait_ms / 1000,
            own.FETCH_THROTTLE: total.fetch.throttle_ms / 1000,
            own.FETCH_RETRIES: total.fetch.retries,
        }
        for series, value in totals.items():
            yield series.at(value, self.connector)

    def _collect_lag(self, lag: Mapping[TopicPartition, int]) -> Iterator[MetricSample]:
        name, by_topic = self.connector, Counter[str]()
        for (topic, _), count in lag.items():
            by_topic[topic] += count
        for topic, count in by_topic.items():
            yield own.OFFSET_LAG.at(count, name, topic)
        waiting, now = {topic for topic, count in by_topic.items() if count}, self._clock()
        for table, newest_ms in self._newest_ms.items():
            # Of a table that events name nobody knows which topics have more for it.
            behind = waiting & self._topics.get(table, waiting)
            # What waits came after its topic was read to its end: a table that was quiet for days is not days behind.
            waits_s = max((now - self._caught_up_at.get(topic, 0.0) for topic in behind), default=0.0)
            yield own.NEWEST_EVENT.at(newest_ms / 1000, name, table)
            yield own.TABLE_LAG_SECONDS.at(max(0.0, min(now - newest_ms / 1000, waits_s)), name, table)
