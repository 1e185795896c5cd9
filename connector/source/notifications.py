"""Reports of snapshots -> notifications in Debezium's words: a topic, the log. A failure holds nothing up."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import attrs
import structlog

from connector.errors import ConnectorError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.runtime.monitoring.listeners import SnapshotListener, SnapshotReport
from connector.settings import SourceSettings
from connector.source.destinations.schema_subjects import SchemaSubjects
from serde.emit.notification import notification_key, notification_value
from serde.emit.side_topics import SideMessage

_SEND_S = 10.0
"""How long a notification is tried to deliver: the source waits meanwhile."""


def additional_data(report: SnapshotReport, connector: str) -> dict[str, str]:
    """Return what a notification says beside its type, by Debezium's names; all of it text."""
    data = {"connector_name": connector}
    if report.tables:
        data["data_collections"] = ",".join(report.tables)
    if report.stage == "IN_PROGRESS":
        data["current_collection_in_progress"] = report.table
        if report.chunks:
            data |= {"maximum_key": str(report.chunks), "last_processed_key": str(report.chunk)}
        data["total_rows_scanned"] = str(report.rows)
    if report.stage == "TABLE_SCAN_COMPLETED":
        data |= {"scanned_collection": report.table, "total_rows_scanned": str(report.rows)}
    if report.status:
        data["status"] = report.status
    return data


@attrs.define(eq=False)
class LogNotifications:
    """A `SnapshotListener` that logs."""

    connector: str

    def on_snapshot(self, report: SnapshotReport) -> None:
        """Log a notification."""
        structlog.get_logger().info(
            "notification",
            aggregate_type=report.aggregate,
            type=report.stage,
            id=report.id,
            additional_data=additional_data(report, self.connector),
        )


@attrs.define(eq=False)
class TopicNotifications:
    """A `SnapshotListener` that publishes to a topic of one partition, made before its first message.

    `send` publishes a key and a value to it.
    """

    connector: str
    send: Callable[[SideMessage, SideMessage], None]
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def on_snapshot(self, report: SnapshotReport) -> None:
        """Publish a notification; one that cannot be published is logged, and not tried again."""
        signal = report.id or uuid.uuid4().hex
        data = additional_data(report, self.connector)
        value = notification_value(signal, report.aggregate, report.stage, data, self.now_ms())
        try:
            self.send(notification_key(signal), value)
        except ConnectorError as error:
            structlog.get_logger().warning("notification not sent", type=report.stage, id=signal, reason=str(error))


def open_notifications(settings: SourceSettings) -> list[SnapshotListener]:
    """Return the listeners that the settings name; nothing is connected to yet."""
    notifications, connector = settings.notifications, settings.outgoing.prefix
    listeners: list[SnapshotListener] = [LogNotifications(connector)] if notifications.log else []
    if notifications.topic is not None:
        listeners.append(TopicNotifications(connector, _topic_sender(settings, notifications.topic)))
    return listeners


def _topic_sender(settings: SourceSettings, topic: str) -> Callable[[SideMessage, SideMessage], None]:
    subjects = SchemaSubjects(settings.outgoing)
    producer = MessageProducer(settings.kafka, KafkaAdmin(settings.kafka), _SEND_S)

    def send(key: SideMessage, value: SideMessage) -> None:
        producer.create(topic, settings.outgoing.creation.replication)
        producer.send(topic, [(subjects.message("key", topic, key), subjects.message("value", topic, value))])

    return send
