"""An offset that a broker refuses, or whose leader changed -> whether its log still has it, as the leader says.

What the leader has removed, or lost, is an error that a person has to see: nothing is skipped. What only a broker on
its way in or out of leadership says is asked again. Source: KIP-320 for leader epochs.
"""

from __future__ import annotations

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.protocol.api_versions import OFFSET_FOR_LEADER_EPOCH
from connector.kafka.protocol.error_codes import BROKER_REMEDY, is_transient, name_error
from connector.kafka.protocol.requests import EpochEndRequest, ListOffsetsRequest
from connector.runtime.topic_partitions import TopicPartition

CONFIRM_S = 5.0
"""So long the leader has to say that its log ends too early before it is believed: it may have just begun to lead."""

_RESET = "icebridge offsets reset says how to continue"


def check_bounds(clients: BrokerClient, at: TopicPartition, offset: int, lasts_s: float) -> str:
    """Return why an offset that is called out of range may be there on another try.

    Raises:
        GapError: the leader's log begins behind it, or has ended in front of it for `CONFIRM_S`.
        FatalError: the leader never says where its log begins and ends.
    """
    try:
        oldest, end = _ask_bounds(clients, at)
    except (OSError, RetriableError) as failure:
        return f"the broker says that it is out of range, and nobody where the log begins: {failure}"
    return compare_bounds(at, offset, (oldest, end), lasts_s)


def check_end(clients: BrokerClient, at: TopicPartition, offset: int, end: int, lasts_s: float) -> str:
    """Return why a broker that has no records from `offset` on may have them on another try, up to `end`.

    Raises:
        GapError: the leader's log has begun behind the offset, or has ended in front of the end for `CONFIRM_S`.
        FatalError: the leader never says where its log begins and ends.
    """
    try:
        bounds = _ask_bounds(clients, at)
    except (OSError, RetriableError) as failure:
        return f"the broker has nothing there, and nobody says where the log ends: {failure}"
    return compare_end(at, (offset, end), bounds, lasts_s)


def compare_end(at: TopicPartition, wanted: tuple[int, int], bounds: tuple[int, int], lasts_s: float) -> str:
    """The same where the leader has told where its log begins and ends; `wanted` are offset and end.

    Some broker gave out the end that is wanted, as that of records which are safe: a log that ends earlier lost some.
    Of one that has no records there all the same nobody can tell why: nothing is passed over.
    """
    (offset, end), (oldest, newest) = wanted, bounds
    if oldest > offset:
        raise _removed_error(at, offset, oldest)
    if newest < end and lasts_s > CONFIRM_S:
        raise _lost_error(at, max(offset, newest), newest)
    return f"its leader sends no record batch there, though its log begins at offset {oldest} and ends at {newest}"


def compare_bounds(at: TopicPartition, offset: int, bounds: tuple[int, int], lasts_s: float) -> str:
    """Compare an offset that is called out of range with the bounds that the leader has told."""
    oldest, end = bounds
    if oldest > offset:
        raise _removed_error(at, offset, oldest)
    if end < offset and lasts_s > CONFIRM_S:
        raise _lost_error(at, offset, end)
    return f"the broker says that it is out of range, though the log begins at offset {oldest} and ends at {end}"


def _removed_error(at: TopicPartition, offset: int, oldest: int) -> GapError:
    place = f"{at[0]}-{at[1]} offset {offset}"
    return GapError(f"records are gone from Kafka before they were read: {place}; it begins at {oldest} now")


def _lost_error(at: TopicPartition, offset: int, end: int) -> GapError:
    return GapError(
        f"records are gone from Kafka that had been written: {at[0]}-{at[1]} offset {offset}; its leader's log ends at "
        f"{end} now, as after an unclean leader election, or when the topic was made again; {_RESET}"
    )


def _ask_bounds(clients: BrokerClient, at: TopicPartition) -> tuple[int, int]:
    bounds = []
    for latest in (False, True):
        host = clients.leader(at).host
        try:
            error, offset = clients.connection(host).ask(ListOffsetsRequest(at, latest=latest))
        except OSError:
            clients.drop(host)
            raise
        if error:
            clients.forget(at)
            if is_transient(error):
                raise RetriableError(name_error(error))
            place = f"{at[0]}-{at[1]}"
            raise FatalError(
                f"{place}: its leader does not say where its log begins and ends: {name_error(error)}; {BROKER_REMEDY}"
            )
        bounds.append(offset)
    return bounds[0], bounds[1]


def check_truncation(clients: BrokerClient, at: TopicPartition, offset: int, epoch: int) -> None:
    """Ask the leader where the records of an epoch end, of which the one in front of `offset` was the last read.

    Brokers that cannot tell, or do not let us ask, are not asked.

    Raises:
        GapError: they end in front of the offset: the log was cut, and records took the places of those that were read.
        RetriableError, OSError: the leader cannot tell now.
    """
    leader = clients.leader(at)
    try:
        connection = clients.connection(leader.host)
        if connection.versions.find(OFFSET_FOR_LEADER_EPOCH) is None:
            return
        found = connection.ask(EpochEndRequest(at, epoch, leader.epoch))
    except OSError:
        clients.drop(leader.host)
        raise
    if is_transient(found.error):
        clients.forget(at)
        raise RetriableError(name_error(found.error))
    if not found.error and 0 <= found.end < offset:
        raise GapError(
            f"{at[0]}-{at[1]} was read up to offset {offset}, but its leader has records of that time (leader epoch "
            f"{epoch}) up to {found.end} only: the log was cut by an unclean leader election, and what was written "
            f"since took the places of records that were read; {_RESET}"
        )
