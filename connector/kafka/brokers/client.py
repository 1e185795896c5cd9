"""A topic-partition -> the broker that leads or holds it, and a connection to that. Mostly on executors.

A client is its thread's own: answers come in the order of questions. It lives as long as that thread, or until only
others were asked for some minutes: its settings hold certificates, and those that were replaced leave no connection
behind. A connection that fails is opened again.
"""

from __future__ import annotations

import threading
import time

import attrs

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.kafka.brokers.connection import BrokerConnection, UnresolvedHost
from connector.kafka.brokers.login import open_connection
from connector.kafka.protocol.error_codes import BROKER_REMEDY, is_authorization, is_transient, name_error
from connector.kafka.protocol.requests import UNKNOWN_EPOCH, WHOLE_TOPIC, ClusterMetadata, MetadataRequest
from connector.runtime.topic_partitions import TopicPartition

_NEARER_REPLICA_S = 300.0
"""How long a replica that a leader named is asked in its place (KIP-392), as Java's metadata.max.age.ms."""

UNUSED_S = 180.0
"""So long a cluster's connections are kept for who may ask again, whatever `connections.max.idle.ms` says."""

_LEADER_ALONE_S = 60.0
"""How long the leader is asked after a replica that it named was of no use: it would name the same one again."""


@attrs.frozen
class LeaderAddress:
    """Where the leader of a topic-partition listens, and its epoch."""

    host: HostPort
    epoch: int = UNKNOWN_EPOCH


class BrokerClient:
    """Connections to the brokers of one cluster, and the leaders of topic-partitions as last heard."""

    def __init__(self, address: ClusterAddress) -> None:
        """Nothing is opened before it is needed."""
        self.address = address
        self._open: dict[HostPort, BrokerConnection] = {}
        self._leaders: dict[TopicPartition, LeaderAddress] = {}
        self._replicas: dict[TopicPartition, tuple[HostPort, float]] = {}
        self._leader_alone: dict[TopicPartition, float] = {}
        self._brokers: dict[int, HostPort] = {}
        self._advertised_by: dict[HostPort, str] = {}
        self._failed: dict[HostPort, float] = {}
        self._told_by: dict[TopicPartition, HostPort] = {}
        self._told_last: HostPort | None = None
        self._outdated: dict[HostPort, float] = {}

    def leader(self, at: TopicPartition) -> LeaderAddress:
        """Return the broker that leads a topic-partition.

        Raises:
            RetriableError: no broker can tell, or there is none now.
            FatalError: we may not know, or there never is one.
        """
        if at not in self._leaders:
            self._refresh_leaders(at)
        return self._leaders[at]

    def source(self, at: TopicPartition) -> HostPort:
        """Return the broker to read from: a nearer replica, if the leader named one, else the leader."""
        leader = self.leader(at).host
        host, until = self._replicas.get(at, (leader, 0.0))
        return host if time.monotonic() < until else leader

    def rack(self, at: TopicPartition) -> str:
        """Return where we are, for its leader to name a nearer replica; empty while that is of no use."""
        return "" if time.monotonic() < self._leader_alone.get(at, 0.0) else self.address.rack

    def prefer(self, at: TopicPartition, broker: int) -> None:
        """Read from this replica for a while; from the leader, if nobody knows it or it is that."""
        host = self._brokers.get(broker)
        if host is None or host == self.leader(at).host:
            self._leader_alone[at] = time.monotonic() + _LEADER_ALONE_S
        else:
            self._replicas[at] = host, time.monotonic() + _NEARER_REPLICA_S

    def forget(self, at: TopicPartition) -> None:
        """Ask again who leads it, another broker if there is one: who told it may be behind; read from the leader."""
        if self._leaders.pop(at, None) is not None:
            self._ask_later(self._told_by[at])
        if self._replicas.pop(at, None) is not None:
            self._leader_alone[at] = time.monotonic() + _LEADER_ALONE_S

    def connection(self, host: HostPort) -> BrokerConnection:
        """Return the connection to a broker. OSError when it is away; FatalError when it refuses us."""
        if host in self._open and self._open[host].is_stale:
            self.drop(host)
        if host not in self._open:
            try:
                self._open[host] = open_connection(host, self.address)
            except UnresolvedHost as error:
                raise UnresolvedHost(f"{error}{self._advertised_by.get(host, '')}") from error
            except OSError:
                self._failed[host] = time.monotonic()
                raise
            self._failed.pop(host, None)
        return self._open[host]

    def drop(self, host: HostPort) -> None:
        """Close a connection that failed, or that holds an answer nobody waits for."""
        if host in self._open:
            self._open.pop(host).close()

    def drop_stale(self) -> None:
        """Close connections that nobody used for long, or that have the login or certificate of before."""
        for host in [host for host, connection in self._open.items() if connection.is_stale]:
            self.drop(host)

    def __del__(self) -> None:
        """Hang up: nobody can ask any more."""
        for host in list(self._open):
            self.drop(host)

    def refresh(self, topic: str | None) -> ClusterMetadata:
        """Ask any broker who leads the partitions of a topic, or only where the brokers are.

        Raises:
            RetriableError: no broker answers; the message names each with its reason.
            FatalError: a broker refuses us, or cannot be read.
        """
        reasons = []
        # Those that failed last come last: one that accepts and says nothing costs a time-out.
        hosts = dict.fromkeys([*self._open, *self.address.hosts, *self._brokers.values()])
        for host in sorted(hosts, key=lambda one: (self._failed.get(one, 0.0), self._outdated.get(one, 0.0))):
            try:
                found = self.connection(host).ask(MetadataRequest(topic))
            except OSError as error:
                self.drop(host)
                reason = str(error)
                reasons.append(reason if host[0] in reason else f"{format_host(host)}: {reason}")
                continue
            self._brokers = dict(found.brokers)
            hint = f"; {format_host(host)} gives it out: advertised.listeners of the listener at that port says so"
            self._advertised_by |= dict.fromkeys(found.brokers.values(), hint)
            self._told_last = host
            self._told_by |= dict.fromkeys(found.leaders, host)
            return found
        raise RetriableError(f"no broker answers: {'; '.join(reasons)}")

    def _ask_later(self, host: HostPort | None) -> None:
        """Ask another broker next: one that the others have lost knows of no later leader, and does not say so."""
        if host is not None:
            self._outdated[host] = time.monotonic()

    def _refresh_leaders(self, wanted: TopicPartition) -> None:
        """Ask for the leaders of a topic. RetriableError and FatalError where that of `wanted` is not among them."""
        found = self.refresh(wanted[0])
        for at, leader in found.leaders.items():
            if leader.broker in found.brokers:
                self._leaders[at] = LeaderAddress(found.brokers[leader.broker], leader.epoch)
        if wanted not in self._leaders:
            self._ask_later(self._told_last)
            told = found.leaders.get((wanted[0], WHOLE_TOPIC)) or found.leaders.get(wanted)
            raise _leaderless_error(wanted, told.error if told else 0)


def _leaderless_error(at: TopicPartition, code: int) -> ConnectorError:
    place = f"{at[0]}-{at[1]}"
    if is_authorization(code):
        return FatalError(
            f"topic {at[0]}: not allowed to read it: {name_error(code)}; give this user READ and DESCRIBE on the topic "
            "(docs/security.md)"
        )
    if code and not is_transient(code):
        return FatalError(f"topic {at[0]} has no leader for {place}: {name_error(code)}; {BROKER_REMEDY}")
    return RetriableError(f"{place} has no leader now" + (f": {name_error(code)}" if code else ""))


class _ThreadClients(threading.local):
    """The clients of one thread, which go with it, and when each was last asked for."""

    def __init__(self) -> None:
        self.by_address: dict[ClusterAddress, tuple[BrokerClient, float]] = {}


_clients = _ThreadClients()


def broker_client_for(address: ClusterAddress) -> BrokerClient:
    """Return this thread's connections to a cluster; those to others are closed once they are stale, or unused."""
    known, now = _clients.by_address, time.monotonic()
    for other, (client, asked_at) in list(known.items()):
        client.drop_stale()
        if other != address and now - asked_at > UNUSED_S:
            del known[other]  # who still reads by it keeps it
    found = known[address][0] if address in known else BrokerClient(address)
    known[address] = found, now
    return found
