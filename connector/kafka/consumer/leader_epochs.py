"""Leader epochs that librdkafka hands on unlooked at -> whether they hold, by our own protocol."""

from __future__ import annotations

from connector.errors import FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import broker_client_for
from connector.kafka.brokers.sasl import knows_login
from connector.kafka.consumer.log_bounds import check_truncation
from connector.kafka.consumer.offset_ranges import OffsetRange


def check_epoch(address: ClusterAddress, wanted: OffsetRange) -> None:
    """Notice a log that was cut in front of a range: librdkafka does while it reads, not where it begins to.

    By our own protocol, so not where that has no login.

    Raises:
        RetriableError: no broker says where the epoch ends.
        GapError: the log was cut.
    """
    if wanted.epoch < 0 or not knows_login(address.by_name):
        return
    clients, at = broker_client_for(address), (wanted.topic, wanted.partition)
    clients.forget(at)
    try:
        if clients.leader(at).epoch > wanted.epoch:
            check_truncation(clients, at, wanted.start, wanted.epoch)
    except OSError as error:
        raise RetriableError(
            f"{at[0]}-{at[1]}: no broker says where leader epoch {wanted.epoch} ends: {error}"
        ) from error


def is_known_epoch(address: ClusterAddress, wanted: OffsetRange, epoch: int) -> bool:
    """Tell whether a record's leader epoch is none that its leader never had: no checksum covers it.

    By our own protocol; where that has no login, or no broker answers, it is believed, as librdkafka does.
    """
    if epoch <= wanted.epoch or not knows_login(address.by_name):
        return True
    clients, at = broker_client_for(address), (wanted.topic, wanted.partition)
    try:
        if epoch > clients.leader(at).epoch:
            clients.forget(at)
        return not 0 <= clients.leader(at).epoch < epoch
    except (OSError, RetriableError, FatalError):
        return True
