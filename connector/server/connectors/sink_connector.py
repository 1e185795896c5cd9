"""Settings of a sink -> a connector of the server: its thread, metrics, looks at cluster and catalog, offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import KafkaAdmin
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.prometheus.maintenance_metrics import MaintenanceMetrics
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.runtime.monitoring.prometheus.sink_metrics import SinkMetrics
from connector.runtime.monitoring.sink_progress import SinkStatusLine
from connector.runtime.topic_partitions import TopicPartition
from connector.server.connectors.live_connector import LiveConnector, OpenSession
from connector.server.connectors.port import Check, ConnectorOffset, Kind
from connector.server.errors import RestError
from connector.server.recent import RecentActivity
from connector.settings import SinkSettings
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.offset_reset import merge_offsets, open_state, replace_offsets
from connector.sink.runner import SinkMonitor, live_sink

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


class SinkConnector(LiveConnector):
    """A `Connector` that is a sink."""

    kind: Kind = "sink"

    def __init__(
        self,
        settings: SinkSettings,
        config: Mapping[str, str],
        lifecycle: Lifecycle,
        open_session: OpenSession | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            settings: of the sink.
            config: the properties that they were read from.
            lifecycle: what is asked of it.
            open_session: gives a Spark session with its catalog; None where somebody else runs the sink.
        """
        super().__init__(
            settings.name, lifecycle, settings.kafka, settings.catalog, settings.table.offsets_table, open_session
        )
        self.config, self._settings = config, settings
        batch = settings.batch
        server = settings.kafka.prefix or settings.name
        self._metrics = SinkMetrics(settings.name, server, max_events=batch.max_events, max_bytes=batch.max_bytes)
        self._maintenance = MaintenanceMetrics(settings.name)
        self._recent = RecentActivity()

    @property
    def metrics(self) -> Sequence[MetricSource]:
        """Its metrics."""
        return (self._metrics, self._maintenance)

    @property
    def monitor(self) -> SinkMonitor:
        """Who hears of its batches."""
        return SinkMonitor(
            self.lifecycle,
            (self._metrics, self._recent),
            self._keep_session,
            self._metrics.begin,
            (self._maintenance,),
            lambda: self._metrics.connected,
        )

    def checks(self) -> list[Check]:
        """Return what readiness depends on."""
        lag, batches = self._metrics.lag, self._metrics.batches
        caught_up = self.lifecycle.state == "RUNNING" and bool(lag) and not any(lag.values())
        first = Check(f"{self.name}-first-batch", batches > 0 or caught_up, {"batches": batches})
        return [self._broker.check, self._catalog_probe.check, first]

    def topics(self) -> list[str]:
        """Return the topics that are read."""
        return sorted({topic for topic, _ in self._metrics.read})

    def overview(self) -> dict[str, Any]:
        """Return what the page shows."""
        by_topic: dict[str, int] = {}
        for (topic, _), count in self._metrics.lag.items():
            by_topic[topic] = by_topic.get(topic, 0) + count
        return {
            "lag": by_topic,
            "tables": self._metrics.tables(),
            "files": self._maintenance.tables(),
            "recent": self._recent.last(),
            "per_minute": self._recent.per_minute(),
            "dead_letters": self._recent.dead_letters(),
            "last_dead_letters": self._recent.last_dead_letters(),
            "dead_letter_topic": self._settings.errors.topic,
            "snapshots": {},
        }

    def sample(self) -> None:
        """Look at the cluster and the catalog."""
        self._metrics.observe_ends(self._broker.look(self._read_ends), is_running=self.lifecycle.state == "RUNNING")
        self._catalog_probe.look(self._read_catalog)

    def offsets(self) -> list[ConnectorOffset]:
        """Read the stored offsets."""
        stored = OffsetsTable(self._open_catalog(), self._settings.table.offsets_table, self.name)
        position = stored.position or KafkaOffsets()
        return [
            ConnectorOffset({_TOPIC: topic, _PARTITION: partition}, {_OFFSET: offset})
            for (topic, partition), offset in sorted(position.offsets.items())
        ]

    def alter_offsets(self, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Store other offsets; what is forgotten begins with the oldest record again."""
        wanted = None if offsets is None else dict(map(parse_offset, offsets))
        cluster_state = inspect_cluster(KafkaAdmin(self._settings.kafka))
        check_offsets(wanted or {}, cluster_state)
        stored, targets = open_state(self._session(), self._settings)
        before = KafkaOffsets() if wanted is None else stored.position or KafkaOffsets()
        oldest = cluster_state.beginnings
        asked = dict.fromkeys(oldest) if wanted is None else wanted
        fresh = {at: oldest[at] if offset is None else offset for at, offset in asked.items()}
        unread = {at: offset for at, offset in oldest.items() if at not in before.offsets}
        try:
            position = merge_offsets(before, cluster_state, {**unread, **fresh}, ())
        except ConfigError as error:
            raise RestError(400, str(error)) from error
        topics = () if wanted is None else tuple({topic for topic, _ in wanted})
        replace_offsets(self._settings, stored, targets, cluster_state, position, moved=fresh, topics=topics)

    def _live(self) -> None:
        monitor = self.monitor
        monitor = attrs.evolve(monitor, listeners=(SinkStatusLine(terminal=False), *monitor.listeners))
        live_sink(self._session, self._settings, monitor, survives=True)

    def _open_catalog(self) -> Catalog:
        return Catalog(self._session(), self._settings.catalog, self._settings.errors)

    def _read_ends(self) -> dict[TopicPartition, int]:
        admin = self._open_admin()
        if self.cluster_id is None:
            self.cluster_id = admin.id()
        return admin.fetch_end_offsets(self._metrics.read or admin.select_partitions())


def parse_offset(given: ConnectorOffset) -> tuple[TopicPartition, int | None]:
    """Read an offset as Connect writes those of sinks; RestError 400 with Connect's words for any other."""
    partition = given.partition
    if _TOPIC not in partition or _PARTITION not in partition:
        raise RestError(
            400, f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
        )
    if not isinstance(partition[_TOPIC], str):
        raise RestError(400, "Kafka topic names must be valid strings and may not be null")
    if partition[_PARTITION] is None:
        raise RestError(400, "Kafka partitions must be valid numbers and may not be null")
    at = partition[_TOPIC], _parse_number("partition", partition[_PARTITION])
    if given.offset is None:
        return at, None
    if _OFFSET not in given.offset:
        raise RestError(400, f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'")
    return at, _parse_number("offset", given.offset[_OFFSET])


def check_offsets(wanted: Mapping[TopicPartition, int | None], cluster_state: ClusterState) -> None:
    """Raise RestError 400 for offsets that the connector's topics do not have (pure).

    Those of transactions that are open are there: a sink begins behind them, once they have ended.
    """
    unknown = ", ".join(
        f"{topic}-{partition}" for topic, partition in sorted(wanted.keys() - cluster_state.ends.keys())
    )
    if unknown:
        raise RestError(400, f"these topic-partitions are not read by this connector: {unknown}")
    ends = {**cluster_state.ends, **cluster_state.log_ends}
    bounds = {at: (cluster_state.beginnings[at], ends[at]) for at in wanted}
    outside = {
        at: bounds[at]
        for at, offset in sorted(wanted.items())
        if offset is not None and not bounds[at][0] <= offset <= bounds[at][1]
    }
    if outside:
        holds = ", ".join(f"{topic}-{partition} ({a} to {b})" for (topic, partition), (a, b) in outside.items())
        raise RestError(400, f"these topic-partitions hold other offsets: {holds}")


def _parse_number(what: str, value: object) -> int:
    """Read a number, also as text."""
    if _NUMBER.fullmatch(text := str(value)):
        return int(text)
    raise RestError(
        400,
        f"Failed to parse the following Kafka {what} value in the provided offsets: '{value}'. "
        f"{what.capitalize()} values for sink connectors need to be integers.",
    )
