"""What librdkafka raises -> one of our errors, by what the caller does next: try again, or stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from connector.errors import FatalError, RetriableError
from connector.kafka.protocol.error_codes import is_transient

NO_CLIENT = "the Kafka client cannot be made"

_KERBEROS_REMEDY = (
    "the wheels of confluent-kafka have no Kerberos: install librdkafka with libsasl2, then "
    "pip install --no-binary confluent-kafka confluent-kafka"
)

_OWN = (
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._DESTROY_BROKER,  # noqa: SLF001 - these two: the address that was asked is no broker's any more
    KafkaError._UNKNOWN_BROKER,  # noqa: SLF001
    KafkaError._FAIL,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._WAIT_CACHE,  # noqa: SLF001 - nobody has told yet what the topics are
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._NOENT,  # noqa: SLF001 - no topic-partition that was asked for has a leader now
    KafkaError._WAIT_COORD,  # noqa: SLF001 - nobody keeps the group's offsets now
    KafkaError._PURGE_QUEUE,  # noqa: SLF001 - these two: we gave a message up, for it to be sent again
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
)
_NO_LEADER = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
"""What brokers say of a topic that was made just now, and of one whose leader moves."""

_UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_TRANSIENT = frozenset((*_OWN, *_NO_LEADER, KafkaError.REQUEST_TIMED_OUT, KafkaError._UNKNOWN_PARTITION))  # noqa: SLF001


@contextmanager
def map_kafka_errors(doing: str) -> Iterator[None]:
    """Raise ours instead of librdkafka's errors.

    Raises:
        RetriableError: the broker is away or says that a later try may succeed.
        FatalError: everything else (authorisation, faulty names).
    """
    try:
        yield
    except KafkaException as error:
        fault = error.args[0]
        text = f"{doing}: {error_text(fault)}"
        if "GSSAPI" in text or "sasl.kerberos" in text:
            text = f"{text}; {_KERBEROS_REMEDY}"
        raise RetriableError(text) if is_transient_error(fault) else FatalError(text) from error


def is_transient_error(fault: object) -> bool:
    """Return whether a later try may succeed."""
    if not isinstance(fault, KafkaError):
        return False
    # librdkafka calls few of the brokers' own errors retriable: not those of a leader that has just moved.
    return fault.retriable() or fault.code() in _TRANSIENT or (fault.code() > 0 and is_transient(fault.code()))


def is_unauthorized(fault: object) -> bool:
    """Return whether rights are missing."""
    return isinstance(fault, KafkaError) and fault.code() in _UNAUTHORIZED


def error_text(fault: object) -> str:
    """Return the text of what a client's error has with it."""
    return fault.str() if isinstance(fault, KafkaError) else str(fault)
