"""Client settings -> what the brokers offer, or the one line that says why they cannot be read. On the driver.

Every bootstrap server is asked at the same time, and none is waited for longer than the others answer.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import attrs

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.kafka.brokers.login import open_connection
from connector.kafka.protocol.api_versions import OFFSET_FOR_LEADER_EPOCH, ApiVersions
from connector.kafka.protocol.requests import MetadataRequest

WITHIN_S = 2.0
"""So long bootstrap servers are waited for; a cluster that is slower is asked again by who retries."""


@attrs.frozen
class BrokersReport:
    """What the bootstrap servers said: versions in common, and what a person may want to know, a line each."""

    versions: ApiVersions
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The versions that will be spoken, in one line."""
        return ", ".join(f"{api.name} {version}" for api, version in self.versions.common.items())


@attrs.frozen
class _Answer:
    versions: ApiVersions
    brokers: Mapping[int, HostPort]


def check_brokers(settings: Mapping[str, str], within_s: float = WITHIN_S) -> BrokersReport:
    """Connect to the bootstrap servers, log in, and compare what they offer with what reading needs.

    Args:
        settings: librdkafka's settings of the consumer.
        within_s: how long answers are waited for.

    Raises:
        RetriableError: no bootstrap server answers; each is named with its reason.
        FatalError: one refuses our login, or offers no version that is known here; it is named.
    """
    setup = {"socket.connection.setup.timeout.ms": str(round(within_s * 1000)), "socket.timeout.ms": "5000"}
    address = ClusterAddress.of({**settings, **setup})
    pool = ThreadPoolExecutor(max(1, len(address.hosts)), "brokers")
    try:
        asked = {host: pool.submit(_ask, host, address) for host in address.hosts}
        wait(asked.values(), within_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    good, reasons = _sort_answers(asked, f"security.protocol={address.security_protocol}")
    if not good:
        raise RetriableError(f"no bootstrap server answers: {'; '.join(reasons)}")
    host, answer = next(iter(good.items()))
    notes = [*reasons, *_name_unresolved(host, answer.brokers), *_name_limits(answer.versions)]
    return BrokersReport(answer.versions, tuple(notes))


def _ask(host: HostPort, address: ClusterAddress) -> _Answer:
    connection = open_connection(host, address)
    try:
        return _Answer(connection.versions, connection.ask(MetadataRequest(None)).brokers)
    finally:
        connection.close()


def _sort_answers(
    asked: Mapping[HostPort, Future[_Answer]], protocol: str
) -> tuple[dict[HostPort, _Answer], list[str]]:
    good: dict[HostPort, _Answer] = {}
    reasons: list[str] = []
    for host, future in asked.items():
        if not future.done():
            reasons.append(f"{format_host(host)} does not answer in time by {protocol}")
            continue
        error = future.exception()
        if error is None:
            good[host] = future.result()
        elif isinstance(error, FatalError):
            raise error
        elif isinstance(error, OSError | ConnectorError):
            reasons.append(str(error) if host[0] in str(error) else f"{format_host(host)}: {error}")
        else:
            raise error
    return good, reasons


def _name_unresolved(host: HostPort, brokers: Mapping[int, HostPort]) -> Sequence[str]:
    """Name brokers that cannot be found by the names which the listener gives out."""
    notes = []
    for node, found in sorted(brokers.items()):
        try:
            socket.getaddrinfo(*found, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, OverflowError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            notes.append(
                f"broker {node} cannot be found: {format_host(host)} gives it out as {format_host(found)}, which does "
                f"not resolve here ({reason}); set advertised.listeners of the listener at that port"
            )
    return notes


def _name_limits(versions: ApiVersions) -> Sequence[str]:
    if versions.find(OFFSET_FOR_LEADER_EPOCH) is None:
        return ["the brokers cannot tell where a leader epoch ends: a log cut by an unclean election is not noticed"]
    return []
