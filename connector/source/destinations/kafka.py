"""Changes of one snapshot -> Kafka records, transaction and schema events, in topics; acknowledged when it returns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs
import structlog
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.kafka.spark_producer import publish_records
from connector.runtime.retry import call_with_retries
from connector.settings import SourceSettings
from connector.source.destination import CapturedTable, PublishTarget, drop_skipped
from connector.source.destinations.schema_subjects import SchemaSubjects
from connector.source.envelope import column_records
from connector.source.envelope.column_records import EventSerializers
from connector.source.envelope.event_format import EventFormat, build_event_format
from connector.source.envelope.json_records import to_json_records
from connector.source.envelope.record_keys import column_at, events_per_change, key_struct, record_key
from connector.source.envelope.row_schema import check_columns, describe_row
from connector.source.envelope.transaction_order import number_changes
from serde.emit.schema_change import schema_change, schema_change_key
from serde.emit.side_topics import (
    SideMessage,
    heartbeat,
    heartbeat_key,
    transaction_begin,
    transaction_end,
    transaction_key,
)

_EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's JSON has milliseconds by default: rows that differ in less would have no order between them."""


@attrs.define(eq=False)
class KafkaPublisher:
    """A `ChangePublisher` of Debezium events; creates topics and registers schemas before their first event."""

    settings: SourceSettings
    cluster: KafkaAdmin
    producer: MessageProducer
    subjects: SchemaSubjects
    _created: set[str] = attrs.field(factory=set)

    def target(self, table: str) -> PublishTarget:
        """Return the topic of a table."""
        return PublishTarget("topic", self.settings.outgoing.topic(table))

    def check_columns(self, table: CapturedTable) -> None:
        """Check that every column has a Debezium type and a field name of its own.

        Raises:
            FatalError: one has not.
        """
        check_columns(table.name, table.row, self.settings.outgoing.modes)

    def check_target(self, table: CapturedTable, target_id: str) -> None:
        """Check nothing: which records a topic keeps is up to its retention."""

    def target_id(self, table: CapturedTable) -> str:  # noqa: ARG002 - topics have none
        """Return nothing: no topic is told from a later one of its name."""
        return ""

    def schema_changed(self, table: CapturedTable, *, created: bool) -> None:
        """Publish a schema change event."""
        wire = self._event_format(table)
        keys = [] if wire.key is None else [member.name for member in wire.key.record.members]
        value = schema_change(wire.origin, describe_row(table.schema.document), keys, creates=created)
        self._send_message(self.settings.outgoing.prefix, schema_change_key(wire.origin.database), value)

    def publish(self, changes: DataFrame, table: CapturedTable) -> Mapping[str, int]:
        """Publish the events of changes, between BEGIN and END where transaction metadata is configured.

        A change of key is two events, a delete and a create.

        Raises:
            RetriableError: cluster, registry or store are away; some events may be published, a retry gives the same.
            FatalError: an event or its schema was refused, or a file cannot be read.
        """
        wire, reads = self._event_format(table), table.is_read
        self._create_topic(wire)
        serializers = self.subjects.serializers(wire)
        if not wire.ordered:
            return self._publish_records(changes, wire, serializers, reads=reads)
        kept = drop_skipped(changes, wire.skipped)
        with number_changes(kept, order_columns(wire), partition_columns(wire), events_per_change(wire)) as numbered:
            self._send_boundary(wire, begins=True, count=numbered.count)
            counts = self._publish_records(numbered.changes, wire, serializers, reads=reads)
            self._send_boundary(wire, begins=False, count=numbered.count)
            return counts

    def _publish_records(
        self, changes: DataFrame, wire: EventFormat, serializers: EventSerializers, *, reads: bool
    ) -> dict[str, int]:
        records = to_kafka_records(changes, wire, serializers, reads=reads)
        try:
            return publish_records(records, wire.topic, self.settings.kafka, "r" if reads else "cud")
        except RetriableError:
            self._created.discard(wire.topic)  # the topic may have been deleted meanwhile
            raise

    def heartbeat(self, ts_ms: int) -> None:
        """Publish a heartbeat."""
        outgoing = self.settings.outgoing
        self._send_message(outgoing.heartbeat_topic, heartbeat_key(outgoing.prefix), heartbeat(ts_ms))

    def _event_format(self, table: CapturedTable) -> EventFormat:
        return build_event_format(
            self.settings,
            table.name,
            table.schema.document,
            table.row,
            table.key,
            table.snapshot,
            marker=table.marker,
        )

    def _send_message(self, topic: str, key: SideMessage, value: SideMessage) -> None:
        """Publish one message to a topic of one partition."""
        record = self.subjects.message("key", topic, key), self.subjects.message("value", topic, value)
        self.producer.create(topic, self.settings.outgoing.creation.replication)
        self.producer.send(topic, [record])

    def _send_boundary(self, wire: EventFormat, *, begins: bool, count: int) -> None:
        """Publish BEGIN or END of a snapshot as a transaction; a snapshot without events has none."""
        if not count:
            return
        origin = wire.origin
        ts_ms = origin.times()["ts_ms"]
        counts = {f"{origin.schema}.{origin.table}": count}
        value = (
            transaction_begin(wire.transaction, ts_ms) if begins else transaction_end(wire.transaction, ts_ms, counts)
        )
        self._send_message(self.settings.outgoing.transaction_topic, transaction_key(wire.transaction), value)

    def _create_topic(self, wire: EventFormat) -> None:
        if wire.topic in self._created:
            return
        creation, keyed = self.settings.outgoing.creation, wire.key is not None
        if not keyed and "compact" in creation.cleanup:
            structlog.get_logger().warning("a table without key has no compacted topic", topic=wire.topic)
        config = creation.settings(keyed=keyed)
        self.cluster.create(wire.topic, creation.partitions, creation.replication, config)
        self._created.add(wire.topic)


def open_kafka_publisher(settings: SourceSettings) -> KafkaPublisher:
    """Open a publisher to the cluster of the settings.

    Raises:
        RetriableError: it is away.
    """
    cluster = KafkaAdmin(settings.kafka)
    call_with_retries(cluster.id, settings.errors)
    producer = MessageProducer(settings.kafka, cluster)
    return KafkaPublisher(settings, cluster, producer, SchemaSubjects(settings.outgoing))


def to_kafka_records(changes: DataFrame, wire: EventFormat, serializers: EventSerializers, *, reads: bool) -> DataFrame:
    """Return the Kafka records: columns `key`, `value` (text, bytes or null) and, where keys change, `headers`.

    `op` beside them is the operation of the event, null for a tombstone.

    Args:
        changes: `op`, `before`, `after`, `row_id`, and `total_order` if the wire is `ordered`.
        wire: what the events look like.
        serializers: how keys and values become messages.
        reads: all rows are `r`: then every row is one record.
    """
    key = None if wire.key is None else serializers.key
    changes = changes if reads else drop_skipped(changes, wire.skipped)
    if serializers.value is not None:
        return column_records.to_column_records(changes, wire, serializers.value, key, reads=reads)
    if key is None:
        return to_json_records(changes, wire, partial(record_key, wire), reads=reads)
    records = to_json_records(changes, wire, partial(key_struct, wire), reads=reads)
    return column_records.with_serialized_keys(records, key)


def partition_columns(wire: EventFormat) -> list[Column]:
    """Return what changes of one key have in common; everything where there is no key."""
    if wire.key is None:
        return order_columns(wire)
    if wire.key.is_row_id:
        return [F.col("row_id")]
    return [column_at(F.coalesce("after", "before"), path) for path in wire.key.paths]


def order_columns(wire: EventFormat) -> list[Column]:
    """Return the order of a snapshot's events, the same whenever they are computed: by key, deletes first, then all."""
    rank = F.when(F.col("op") == "d", 0).otherwise(1)
    whole = F.to_json(F.struct("before", "after"), _EXACT_TIMES)
    return [*([] if wire.key is None else partition_columns(wire)), rank, whole]
