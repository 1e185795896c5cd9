"""An offset -> the record batch that holds it: its bytes, whatever they are, or why it cannot be read.

The bytes are for its dead letter, on the driver; the reason is a second opinion where librdkafka gives up, in tasks.
"""

from __future__ import annotations

import struct

import attrs

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient, broker_client_for
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.record_batches import (
    RecordBatches,
    bound_last,
    check_leaps,
    drop_aborted,
    parse_batches,
)
from connector.kafka.consumer.records.unreadable_records import BATCH_REMEDY, UnreadableBatch, UnreadableRecords
from connector.kafka.protocol.error_codes import is_transient, name_error
from connector.kafka.protocol.fetch import FetchedPartition, FetchRequest
from connector.kafka.protocol.requests import READ_UNCOMMITTED
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings

_MORE_BYTES = 1 << 22
_LENGTH = struct.Struct(">qi")


def fetch_raw_batch(kafka: KafkaSettings, at: TopicPartition, offset: int) -> bytes:
    """Return a record batch as it is in the log, its header included.

    Raises:
        RetriableError: the brokers are away, or have nothing there now.
        FatalError: they refuse to give it.
    """
    data = fetch_partition(ClusterAddress.of(kafka.client("consumer")), FetchRequest(at, offset, READ_UNCOMMITTED)).data
    if len(data) < _LENGTH.size:
        raise RetriableError(f"{at[0]}-{at[1]} offset {offset}: the broker gives nothing")
    _, length = _LENGTH.unpack_from(data)
    return bytes(data[: _LENGTH.size + max(length, 0)])


def find_unreadable(
    address: ClusterAddress, wanted: OffsetRange, isolation: int, max_bytes: int, max_unpacked_bytes: int
) -> tuple[UnreadableBatch | None, bool]:
    """Return the first record batch from the start of a range on that cannot be read, and whether records precede it.

    None where all that one fetch gives can be read.

    Raises:
        RetriableError: the brokers are away.
        FatalError: they refuse to give it, or nobody can tell where a batch ends.
    """
    at = (wanted.topic, wanted.partition)
    fetched, listed = _fetch_batches(address, FetchRequest(at, wanted.start, isolation, max_bytes=max_bytes))
    try:
        batches = drop_aborted(listed, fetched.aborted, fetched.data)
    except UnreadableRecords as error:
        raise FatalError(f"{at[0]}-{at[1]} from offset {wanted.start}: {error}; {BATCH_REMEDY}") from error
    preceded = False
    for found in read_batches(batches, fetched.data, wanted.start, wanted.end, max_unpacked_bytes):
        if isinstance(found, UnreadableBatch):
            return found, preceded
        preceded = preceded or len(found.offset) > 0
    return None, preceded


def _fetch_batches(address: ClusterAddress, request: FetchRequest) -> tuple[FetchedPartition, RecordBatches]:
    """Fetch whole batches; more of them where only what is behind the last one tells where that ends."""
    fetched = fetch_partition(address, request)
    try:
        listed = parse_batches(fetched.data)
        if listed.is_open:
            request = attrs.evolve(request, max_bytes=len(fetched.data) + _MORE_BYTES)
            fetched = fetch_partition(address, request)
            listed = bound_last(parse_batches(fetched.data), fetched.high_watermark)
        check_leaps(listed, request.offset, fetched.high_watermark)
    except UnreadableRecords as error:
        raise FatalError(f"{request.at[0]}-{request.at[1]} from offset {request.offset}: {error}") from error
    return fetched, listed


def fetch_partition(address: ClusterAddress, request: FetchRequest) -> FetchedPartition:
    """Ask the leader once, and give what it sends, which may be nothing.

    Raises:
        RetriableError: the brokers are away, or another one leads now.
        FatalError: they refuse to give it.
    """
    clients = broker_client_for(address)
    try:
        return _ask(clients, request)
    except OSError as error:
        clients.forget(request.at)
        place = f"{request.at[0]}-{request.at[1]} offset {request.offset}"
        raise RetriableError(f"{place} cannot be fetched now: {error}") from error


def _ask(clients: BrokerClient, request: FetchRequest) -> FetchedPartition:
    host = clients.leader(request.at).host
    try:
        answer = clients.connection(host).ask(request)
    except OSError:
        clients.drop(host)
        raise
    found = answer.partition
    code = answer.error or (found.error if found else 0)
    if code or found is None:
        clients.forget(request.at)
        kind = RetriableError if code == 0 or is_transient(code) else FatalError
        raise kind(f"{request.at[0]}-{request.at[1]} offset {request.offset} is not given: {name_error(code)}")
    return found
