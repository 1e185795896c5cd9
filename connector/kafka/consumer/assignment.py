"""A batch's offsets -> what its tasks read: a share of the offset ranges each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import broker_client_for
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.fetcher import FetchSettings, fetch_records
from connector.kafka.consumer.librdkafka_reader import read_range
from connector.kafka.consumer.offset_ranges import OffsetRange, assign_to_tasks
from connector.kafka.consumer.readers import LIBRDKAFKA, NATIVE, choose_isolation, choose_reader
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind

EVENTS_PER_TASK = 20_000
"""Below this many events a further task costs more than it gains."""

TASKS_PER_CORE = 2
MAX_EVENTS_PER_TASK = 250_000

MIXED_FETCH_BYTES = 40 * 1024**2
"""A fetch of a topic whose records are of many tables: what is done per table and fetch is done less often."""


@attrs.frozen
class PartitionAssignment:
    """Offset ranges of a cluster by task; small enough to go with every task."""

    address: ClusterAddress
    how: FetchSettings
    shares: tuple[tuple[OffsetRange, ...], ...]
    reader: ReaderKind = NATIVE

    def chunks(self, task: int, meter: FetchMeter | None = None) -> Iterator[ConsumerRecords]:
        """Return the records of one task's share, on an executor; `meter` counts what it takes.

        In place of a record batch that cannot be read comes a chunk that says so (`ConsumerRecords.unreadable`).

        Raises:
            RetriableError, GapError, FatalError: see `consumer.fetcher.fetch_records`.
        """
        for wanted in self.shares[task]:
            if self.reader == LIBRDKAFKA:
                yield from read_range(self.address, wanted, self.how, meter)
            else:
                yield from fetch_records(broker_client_for(self.address), wanted, self.how, meter)

    def all_records(self) -> Iterator[ConsumerRecords]:
        """Return the records of all shares, one after the other, as `chunks` does."""
        for task in range(len(self.shares)):
            yield from self.chunks(task)


def assign_ranges(
    kafka: KafkaSettings,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    cores: int,
    *,
    mixed: bool = False,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> PartitionAssignment:
    """Deal the offsets from `start` up to, not including, `end` out to tasks; `mixed` records are of many tables.

    A topic-partition without a start is new: it is read from offset 0, and is a gap error if that is gone. `epochs` are
    the leader epochs of the records in front of the starts, where they are known.
    """
    known = epochs or {}
    ranges = [OffsetRange(*at, start.get(at, 0), last, known.get(at, -1)) for at, last in sorted(end.items())]
    java = kafka.consumer
    how = FetchSettings(isolation=choose_isolation(kafka))
    if mixed:
        how = attrs.evolve(how, partition_bytes=MIXED_FETCH_BYTES)
    how = attrs.evolve(how, max_unpacked_bytes=kafka.reading.max_unpacked_bytes)
    native = kafka.client("consumer")
    address = ClusterAddress.of(native)
    # A broker that waits for records as long as we wait for the broker would be cut off, and asked again, for ever.
    longest_ms = round(address.seconds("socket.timeout.ms") * 1000) // 2
    wait_ms = int(java.get("fetch.max.wait.ms", how.max_wait_ms))
    how = attrs.evolve(how, max_wait_ms=min(wait_ms, longest_ms))
    if "max.partition.fetch.bytes" in java:
        how = attrs.evolve(how, partition_bytes=int(java["max.partition.fetch.bytes"]))
    dealt = assign_to_tasks(ranges, count_tasks(sum(map(len, ranges)), cores))
    return PartitionAssignment(address, how, tuple(dealt), choose_reader(kafka, native).kind)


def count_tasks(events: int, cores: int) -> int:
    """Return how many tasks read so many events at most."""
    wanted = math.ceil(events / EVENTS_PER_TASK)
    return max(1, min(wanted, max(TASKS_PER_CORE * cores, math.ceil(events / MAX_EVENTS_PER_TASK))))
