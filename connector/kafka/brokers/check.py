"""Client settings -> what the brokers offer, or the one line that says why they cannot be read. On the driver.

Every bootstrap server is asked at the same time, in a thread that keeps no process alive: none is waited for beyond
the time there is, nor are name servers. The first refusal ends it; once one has answered, the others have little time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial

import attrs

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.kafka.brokers.login import open_connection
from connector.kafka.protocol.api_versions import OFFSET_FOR_LEADER_EPOCH, ApiVersions
from connector.kafka.protocol.requests import MetadataRequest
from connector.runtime.lifecycle import start_call

OTHERS_WITHIN_S = 2.0
"""So long bootstrap servers are waited for while another one has answered: what they say is a note."""

_RESOLVED_WITHIN_S = 1.0
"""So long name servers are waited for, within that time: what they say is a note."""


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


def check_brokers(settings: Mapping[str, str], within_s: float | None = None) -> BrokersReport:
    """Connect to the bootstrap servers, log in, and compare what they offer with what reading needs.

    Args:
        settings: librdkafka's settings of the consumer.
        within_s: how long the first answer is waited for; by default as long as reading waits for a broker to connect
            and log in (`socket.connection.setup.timeout.ms`).

    Raises:
        RetriableError: no bootstrap server answers; each is named with its reason.
        FatalError: one refuses our login, or offers no version that is known here; it is named.
    """
    address = ClusterAddress.of(settings)
    within_s = address.seconds("socket.connection.setup.timeout.ms") if within_s is None else within_s
    deadline = time.monotonic() + within_s
    answers = {host: start_call(partial(_ask, host, address), "broker") for host in address.hosts}
    _await_answers(list(answers.values()), within_s)
    good, reasons = _sort_answers(answers, f"security.protocol={address.security_protocol}")
    if not good:
        raise RetriableError(f"no bootstrap server answers: {'; '.join(reasons)}")
    host, answer = next(iter(good.items()))
    left_s = min(max(deadline - time.monotonic(), 0.0), _RESOLVED_WITHIN_S)
    notes = [*reasons, *_name_unresolved(host, answer.brokers, left_s), *_name_limits(answer.versions)]
    return BrokersReport(answer.versions, tuple(notes))


def _await_answers(answers: Sequence[Future[_Answer]], within_s: float) -> None:
    """Wait for all answers: no longer than there is time, than until one refuses us, nor long for further ones."""
    began, waiting, answered = time.monotonic(), set(answers), False
    while waiting:
        limit_s = min(within_s, OTHERS_WITHIN_S) if answered else within_s
        done, waiting = wait(waiting, max(began + limit_s - time.monotonic(), 0.0), FIRST_COMPLETED)
        if not done or any(isinstance(one.exception(), FatalError) for one in done):
            return
        answered = answered or any(one.exception() is None for one in done)


def _ask(host: HostPort, address: ClusterAddress) -> _Answer:
    connection = open_connection(host, address)
    try:
        return _Answer(connection.versions, connection.ask(MetadataRequest(None)).brokers)
    finally:
        connection.close()


def _sort_answers(
    answers: Mapping[HostPort, Future[_Answer]], protocol: str
) -> tuple[dict[HostPort, _Answer], list[str]]:
    good: dict[HostPort, _Answer] = {}
    reasons: list[str] = []
    for host, future in answers.items():
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


def _name_unresolved(host: HostPort, brokers: Mapping[int, HostPort], within_s: float) -> Sequence[str]:
    """Name brokers that cannot be found by the names which the listener gives out, as far as that is known in time."""
    looked = {node: start_call(partial(_find_fault, brokers[node]), "resolve") for node in sorted(brokers)}
    wait(looked.values(), within_s)
    return [
        f"broker {node} cannot be found: {format_host(host)} gives it out as {format_host(brokers[node])}, which does "
        f"not resolve here ({fault}); set advertised.listeners of the listener at that port"
        for node, found in looked.items()
        if found.done() and (fault := found.result())
    ]


def _find_fault(host: HostPort) -> str:
    """Return why a name does not resolve; empty where it does."""
    try:
        socket.getaddrinfo(*host, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError, ValueError) as error:
        return str(error.strerror if isinstance(error, OSError) else error)
    return ""


def _name_limits(versions: ApiVersions) -> Sequence[str]:
    if versions.find(OFFSET_FOR_LEADER_EPOCH) is None:
        return ["the brokers cannot tell where a leader epoch ends: a log cut by an unclean election is not noticed"]
    return []
