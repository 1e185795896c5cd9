"""A place in a topic-partition -> the records from there on, a few, by our own protocol. On the driver.

Record batches that cannot be read are passed over: who reads the whole range tells of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.backoff import pause_s
from connector.kafka.consumer.raw_batches import fetch_partition
from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.record_batches import (
    END_OF_OFFSETS,
    bound_last,
    check_leaps,
    drop_aborted,
    parse_batches,
)
from connector.kafka.consumer.records.record_columns import RecordColumns
from connector.kafka.consumer.records.unreadable_records import BATCH_REMEDY, UnreadableRecords
from connector.kafka.protocol.fetch import FetchedPartition, FetchRequest
from connector.kafka.protocol.requests import READ_COMMITTED
from connector.runtime.topic_partitions import TopicPartition

_FETCH_BYTES = 1 << 20
_EMPTY_FETCH_MS = 10
"""So long a broker waits for more at the end of a log."""


def read_forward(
    address: ClusterAddress,
    at: TopicPartition,
    start: int,
    *,
    timeout_s: float,
    max_unpacked_bytes: int,
    one: bool,
    isolation: int = READ_COMMITTED,
) -> Iterator[RecordColumns]:
    """Return records from an offset on, a fetch at a time, up to the end of the log.

    Args:
        address: the cluster.
        at: the topic-partition.
        start: the first offset.
        timeout_s: how long brokers that are away are waited for, from here on.
        max_unpacked_bytes: the most that a batch may unpack to.
        one: a fetch brings one batch, as no more than a record is wanted.
        isolation: whether only committed records are.

    Raises:
        RetriableError: the brokers stayed away.
        FatalError: they refuse to give the records, or nobody can tell where a batch ends.
    """
    deadline, size = time.monotonic() + timeout_s, 1 if one else _FETCH_BYTES
    while True:
        request = FetchRequest(at, start, isolation, max_wait_ms=_EMPTY_FETCH_MS, max_bytes=size)
        fetched = _fetch(address, request, deadline)
        try:
            listed = parse_batches(fetched.data)
            if listed.is_open and size < _FETCH_BYTES:
                size = _FETCH_BYTES
                continue
            listed = bound_last(listed, fetched.high_watermark)
            check_leaps(listed, start, fetched.high_watermark)
            kept = drop_aborted(listed, fetched.aborted, fetched.data)
        except UnreadableRecords as error:
            raise FatalError(f"{at[0]}-{at[1]} from offset {start}: {error}; {BATCH_REMEDY}") from error
        if not len(listed) or listed.last[-1] < start:
            return
        for some in read_batches(kept, fetched.data, start, END_OF_OFFSETS, max_unpacked_bytes):
            if isinstance(some, RecordColumns):
                yield some
        start = int(listed.last[-1]) + 1
        if start > END_OF_OFFSETS:
            return


def _fetch(address: ClusterAddress, request: FetchRequest, deadline: float) -> FetchedPartition:
    failures = 0
    while True:
        try:
            return fetch_partition(address, request)
        except RetriableError:
            failures += 1
            if time.monotonic() > deadline:
                raise
        time.sleep(pause_s(failures, address.seconds("retry.backoff.ms"), address.seconds("retry.backoff.max.ms")))
