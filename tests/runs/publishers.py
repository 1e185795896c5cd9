"""Publishers for tests: one that keeps what it is given in memory, and the real ones without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from pyspark.sql import DataFrame

from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.settings import SourceSettings
from connector.source.destination import CapturedTable, ChangePublisher, PublishTarget
from connector.source.destinations.kafka import KafkaPublisher
from connector.source.destinations.opensearch import open_opensearch_publisher
from connector.source.destinations.schema_subjects import SchemaSubjects


@define
class InMemoryPublisher:
    """Keeps changes by table, schema changes and heartbeats."""

    name_target: Callable[[str], PublishTarget] = lambda table: PublishTarget("topic", table)
    changes: dict[str, list[Any]] = field(factory=dict)
    schemas: list[tuple[str, int, bool]] = field(factory=list)
    heartbeats: list[int] = field(factory=list)

    def target(self, table: str) -> PublishTarget:
        """The target that the test names."""
        return self.name_target(table)

    def check_columns(self, table: CapturedTable) -> None:
        """All columns will do."""

    def check_target(self, table: CapturedTable, target_id: str) -> None:
        """What is in memory stays there."""

    def target_id(self, table: CapturedTable) -> str:
        """Nothing to tell apart."""
        return ""

    def schema_changed(self, table: CapturedTable, *, created: bool) -> None:
        """Keep the table, its snapshot, and whether it is the first schema."""
        self.schemas.append((table.name, table.snapshot.snapshot_id, created))

    def publish(self, changes: DataFrame, table: CapturedTable) -> Mapping[str, int]:
        """Keep the rows."""
        rows = changes.collect()
        self.changes.setdefault(table.name, []).extend(rows)
        return dict(Counter(row.op for row in rows))

    def heartbeat(self, ts_ms: int) -> None:
        """Keep the time."""
        self.heartbeats.append(ts_ms)


def unconnected(settings: SourceSettings) -> ChangePublisher:
    """The publisher that the settings name; no server is asked until it publishes."""
    if settings.sink_type == "opensearch":
        return open_opensearch_publisher(settings)
    cluster = KafkaAdmin(settings.kafka)
    return KafkaPublisher(
        settings, cluster, MessageProducer(settings.kafka, cluster), SchemaSubjects(settings.outgoing)
    )
