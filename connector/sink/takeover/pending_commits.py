"""a cluster, tables -> whether Iceberg Kafka Connect has written rows that it has not committed. On the driver.

Its workers commit their group's offsets together with the events that name their files; its coordinator commits these
files to the tables later (Apache Iceberg, `Worker`, `Coordinator`). Offsets that are taken over in between leave their
rows out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

import attrs

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog.catalog import Catalog, names_in_settings
from connector.iceberg.commit.last_commit import snapshot_summary
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer_group import ConsumerGroup
from connector.kafka.record_lookup import RecordReader
from connector.runtime.retry import call_with_retries
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings, SinkSettings
from connector.settings.iceberg.iceberg_kafka_connect import ControlTopic
from connector.sink.takeover.control_events import (
    PlacedData,
    TableName,
    UnreadableEvent,
    WrittenData,
    parse_stored_offsets,
    parse_written_data,
    select_pending,
)

_RECORDS, _BYTES = 500, 8 << 20
"""The most of a topic-partition that is held at once."""


def check_pending_commits(settings: SinkSettings, catalog: Catalog) -> tuple[str, ...]:
    """Check that the tables have all that workers of Iceberg Kafka Connect wrote; nothing is asked for another's file.

    Cost: the control topic is read from where the coordinator's group stands.

    Returns:
        Notes: what could not be looked at, and need not be.

    Raises:
        FatalError: rows are written that no table has, or the control topic, or an event of its own, cannot be read.
        RetriableError: the cluster is away, or a transaction of a worker stayed open.
    """
    control = settings.control
    if control is None:
        return ()
    kafka = attrs.evolve(settings.kafka, consumer={**settings.kafka.consumer, "isolation.level": "read_committed"})
    starts = call_with_retries(lambda: _find_starts(kafka, control), settings.errors)
    if starts is None:
        return (f"there is no control topic {control.name}: whether group {control.group} left commits is not known",)
    look = _Look(kafka, control)
    mine = [one for one in look.read(starts.offsets) if one.written.group == control.group]
    tables = {one.written.table for one in mine}
    stored = {name: _stored_offsets(settings, catalog, control, name) for name in tables}
    pending = select_pending(mine, control.group, stored)
    if pending:
        _refuse(control, pending, starts)
    if look.unreadable:
        return (f"{look.unreadable} records of control topic {control.name} are no events, and were passed over",)
    return ()


@attrs.frozen
class _Starts:
    """Where to begin in the control topic, and in which of its partitions the coordinator ever stood."""

    offsets: Mapping[TopicPartition, int]
    coordinated: frozenset[TopicPartition]


def _find_starts(kafka: KafkaSettings, control: ControlTopic) -> _Starts | None:
    """Return where the control topic is to be read from: partitions with nothing more are left out; None: no topic.

    Raises:
        RetriableError: the cluster is away, or events are in an open transaction, which hides those behind it.
    """
    admin = KafkaAdmin(kafka)
    topic = admin.topics([control.name]).get(control.name)
    if topic is None:
        return None
    at = [(control.name, partition) for partition in range(topic.partitions)]
    committed = _fetch_committed(kafka, f"{control.group}-coord", at)
    oldest, ends, log_ends = admin.fetch_beginning_offsets(at), admin.fetch_end_offsets(at), admin.fetch_log_ends(at)
    for place in at:
        if ends[place] < log_ends[place]:
            raise RetriableError(
                f"control topic {control.name}-{place[1]} has an open transaction at offset {ends[place]}; stop the "
                "old connector, and wait until the brokers have ended its transactions (transaction.timeout.ms)"
            )
    begins = {place: max(committed.get(place, 0), oldest[place]) for place in at}
    return _Starts({place: o for place, o in begins.items() if o < ends[place]}, frozenset(committed))


def _fetch_committed(kafka: KafkaSettings, group: str, at: list[TopicPartition]) -> dict[TopicPartition, int]:
    coordinator = ConsumerGroup(attrs.evolve(kafka, group_id=group))
    try:
        return coordinator.fetch_committed(at)
    finally:
        coordinator.close()


class _Look:
    """Reads a control topic once; `unreadable` counts what is no event."""

    def __init__(self, kafka: KafkaSettings, control: ControlTopic) -> None:
        self._kafka, self._control = kafka, control
        self.unreadable = 0

    def read(self, starts: Mapping[TopicPartition, int]) -> Iterator[PlacedData]:
        """Return what is written, of all groups."""
        waiting = dict(starts)
        with RecordReader(self._kafka) as reader:
            while waiting:
                for at, found in reader.read_from(waiting, _RECORDS, _BYTES).items():
                    for record in found:
                        written = self._parse(at, record.offset(), record.value())
                        if written is not None:
                            yield PlacedData(at, record.offset(), written)
                    if found:
                        waiting[at] = found[-1].offset() + 1
                    else:
                        del waiting[at]

    def _parse(self, at: TopicPartition, offset: int, value: bytes | None) -> WrittenData | None:
        try:
            return parse_written_data(value)
        except UnreadableEvent as error:
            # Nothing else tells whose it is, and one of the connector's own may name files.
            if self._control.group.encode() in (value or b""):
                raise FatalError(
                    f"{at[0]}-{at[1]} offset {offset} is an event of group {self._control.group} that cannot be read: "
                    f"{error}; start the old connector again until it has committed, stop it, and take its offsets "
                    "over then"
                ) from error
            self.unreadable += 1
            return None


def _stored_offsets(settings: SinkSettings, catalog: Catalog, control: ControlTopic, name: TableName) -> dict[int, int]:
    """Return what the newest snapshot by that connector says; nothing where the table is gone, or has none by it."""
    namespace, own = name
    table = catalog.find(namespace, own)
    if table is None:
        return {}
    table.follow(settings.table.writes.branch_of(*names_in_settings(catalog, table.name)))
    for snapshot in table.ancestors():
        found = parse_stored_offsets(snapshot_summary(snapshot), control.name, control.group)
        if found is not None:
            return found
    return {}


def _refuse(control: ControlTopic, pending: list[PlacedData], starts: _Starts) -> NoReturn:
    first, rows = pending[0], sum(one.written.rows for one in pending)
    tables = ", ".join(sorted({".".join((*one.written.table[0], one.written.table[1])) for one in pending}))
    where = f"{control.name}-{first.at[1]} offset {first.offset}"
    if all(one.at in starts.coordinated for one in pending):
        raise FatalError(
            f"group {control.group} has read {rows} rows that are not in {tables} yet: the old connector wrote them "
            f"(control topic, {where}) and has not committed them; start it again until it has committed (one "
            "iceberg.control.commit.interval-ms without new events), stop it, and take its offsets over then"
        )
    # Its coordinator begins at the end of the topic where its group has no offset.
    raise FatalError(
        f"group {control.group} has read {rows} rows that are not in {tables}: the old connector wrote them (control "
        f"topic, {where}) and would pass them over; set group {control.group}-coord to that offset "
        "(kafka-consumer-groups --reset-offsets), start the old connector until it has committed, stop it, and take "
        "its offsets over then"
    )
