"""changes of one snapshot + how they look -> everything that is published of them, acknowledged when it returns."""

from __future__ import annotations

import attrs
import structlog
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.kafka.spark_producer import publish_records
from connector.settings import SourceSettings
from connector.source.destinations.kafka_records import to_kafka_records
from connector.source.destinations.schema_subjects import SchemaSubjects
from connector.source.envelope.envelope import EventFormat, column_at, events_per_change
from connector.source.envelope.transaction_order import number_changes
from connector.source.table_format import TableFormat
from serde.emit.row_schema import RowStruct
from serde.emit.schema_change import schema_change, schema_change_key
from serde.emit.side_topics import (
    SideMessage,
    heartbeat,
    heartbeat_key,
    transaction_begin,
    transaction_end,
    transaction_key,
)


@attrs.define(eq=False)
class KafkaPublisher:
    """Publishes for one source; makes topics, and registers schemas, before their first event."""

    settings: SourceSettings
    cluster: KafkaAdmin
    messages: MessageProducer
    subjects: SchemaSubjects
    _made: set[str] = attrs.field(factory=set)

    def publish(self, changes: DataFrame, shape: TableFormat, *, reads: bool) -> None:
        """Publish changes of one snapshot, or rows of a full read.

        Raises:
            RetriableError: cluster, registry or store are away; some events may be out, a retry gives the same ones.
            FatalError: an event or its schema was refused, or a file cannot be read.
        """
        self._create_topic(shape.wire)
        wire = self.subjects.on(shape.wire)
        if not wire.ordered:
            publish_records(to_kafka_records(changes, wire, reads=reads), wire.topic, self.settings.kafka)
            return
        kept = changes.filter(~F.col("op").isin(*wire.skipped)) if wire.skipped else changes
        with number_changes(kept, order_columns(wire), partition_columns(wire), events_per_change(wire)) as found:
            self._send_boundary(wire, begins=True, count=found.count)
            publish_records(to_kafka_records(found.changes, wire, reads=reads), wire.topic, self.settings.kafka)
            self._send_boundary(wire, begins=False, count=found.count)

    def check(self, shape: TableFormat, place: str) -> None:
        """Nothing to look at: records that a topic loses are its retention's."""

    def note(self, shape: TableFormat) -> str:  # noqa: ARG002 - all topics are alike
        """Give nothing: there is nothing to note of a topic."""
        return ""

    def announce(self, shape: TableFormat, row: RowStruct, *, creates: bool) -> None:
        """Publish what a table looks like from this snapshot on."""
        wire = shape.wire
        keys = [] if wire.key is None else [member.name for member in wire.key.record.members]
        key, value = schema_change_key(wire.origin.database), schema_change(wire.origin, row, keys, creates=creates)
        self._send_message(self.settings.outgoing.prefix, key, value)

    def heartbeat(self, ts_ms: int) -> None:
        """Publish a heartbeat."""
        outgoing = self.settings.outgoing
        self._send_message(outgoing.heartbeat_topic, heartbeat_key(outgoing.prefix), heartbeat(ts_ms))

    def _send_message(self, topic: str, key: SideMessage, value: SideMessage) -> None:
        """Publish one message to a topic of one partition."""
        record = self.subjects.message("key", topic, key), self.subjects.message("value", topic, value)
        self.messages.create(topic, self.settings.outgoing.creation.replication)
        self.messages.send(topic, [record])

    def _send_boundary(self, wire: EventFormat, *, begins: bool, count: int) -> None:
        """Publish BEGIN or END of a snapshot as a transaction; a snapshot without events has none."""
        if not count:
            return
        origin = wire.origin
        ts_ms = origin.times()["ts_ms"]
        counts = {f"{origin.schema}.{origin.table}": count}
        made = (
            transaction_begin(wire.transaction, ts_ms) if begins else transaction_end(wire.transaction, ts_ms, counts)
        )
        self._send_message(self.settings.outgoing.transaction_topic, transaction_key(wire.transaction), made)

    def _create_topic(self, wire: EventFormat) -> None:
        if wire.topic in self._made:
            return
        creation, keyed = self.settings.outgoing.creation, wire.key is not None
        if not keyed and "compact" in creation.cleanup:
            structlog.get_logger().warning("a table without key has no compacted topic", topic=wire.topic)
        config = creation.settings(keyed=keyed)
        self.cluster.create(wire.topic, creation.partitions, creation.replication, config)
        self._made.add(wire.topic)


def partition_columns(wire: EventFormat) -> list[Column]:
    """Give what changes of one key have in common; everything where there is no key."""
    if wire.key is None:
        return order_columns(wire)
    if wire.by_row_id:
        return [F.col("row_id")]
    return [column_at(F.coalesce("after", "before"), path) for path in wire.key.paths]


def order_columns(wire: EventFormat) -> list[Column]:
    """Give the order of a snapshot's events, the same whenever they are computed: by key, deletes first, then all."""
    rank = F.when(F.col("op") == "d", 0).otherwise(1)
    whole = F.to_json(F.struct("before", "after"))
    return [*([] if wire.key is None else partition_columns(wire)), rank, whole]
