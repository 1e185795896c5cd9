"""An offset -> the bytes of the record batch that holds it, whatever they are, for its dead letter. On the driver."""

from __future__ import annotations

import struct

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient, broker_client_for
from connector.kafka.protocol.error_codes import is_transient, name_error
from connector.kafka.protocol.fetch import FetchRequest
from connector.kafka.protocol.requests import READ_UNCOMMITTED
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings

_LENGTH = struct.Struct(">qi")


def fetch_raw_batch(kafka: KafkaSettings, at: TopicPartition, offset: int) -> bytes:
    """Return a record batch as it is in the log, its header included.

    Raises:
        RetriableError: the brokers are away.
        FatalError: they refuse to give it.
    """
    clients = broker_client_for(ClusterAddress.of(kafka.client("consumer")))
    try:
        return _fetch(clients, at, offset)
    except OSError as error:
        clients.forget(at)
        raise RetriableError(f"{at[0]}-{at[1]} offset {offset}: {error}") from error


def _fetch(clients: BrokerClient, at: TopicPartition, offset: int) -> bytes:
    host = clients.leader(at).host
    try:
        answer = clients.connection(host).ask(FetchRequest(at, offset, READ_UNCOMMITTED))
    except OSError:
        clients.drop(host)
        raise
    found = answer.partition
    code = answer.error or (found.error if found else 0)
    if code or found is None or len(found.data) < _LENGTH.size:
        clients.forget(at)
        kind = RetriableError if code == 0 or is_transient(code) else FatalError
        raise kind(f"{at[0]}-{at[1]} offset {offset} is not given: {name_error(code)}")
    _, length = _LENGTH.unpack_from(found.data)
    return bytes(found.data[: _LENGTH.size + max(length, 0)])
