"""Sockets to brokers: connect, log in, ask and answer; and who leads which topic-partition. On executors.

A client lives as long as its process and is used by one thread; a connection that fails is opened anew.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from functools import cache

import attrs

from connector.errors import FatalError, RetriableError
from connector.kafka.consumer import protocol, sasl, tls
from connector.kafka.consumer.protocol import ResponseReader
from connector.runtime.topic_partitions import TopicPartition

_CLIENT_ID = "icebridge"
_TIMEOUT_S = 10.0
_MAX_RESPONSE_BYTES = 1 << 30
_SIZE_FORMAT = struct.Struct(">i")
HostPort = tuple[str, int]


@attrs.frozen
class ClusterAddress:
    """Where a cluster is and how to log in: librdkafka's settings, hashable."""

    settings: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ClusterAddress:
        """Keep settings."""
        return cls(tuple(sorted(settings.items())))

    @property
    def hosts(self) -> list[HostPort]:
        """The brokers to begin with."""
        servers = dict(self.settings)["bootstrap.servers"]
        split = (server.strip().rpartition(":") for server in servers.split(","))
        return [(host.removeprefix("[").removesuffix("]").rpartition("://")[2], int(port)) for host, _, port in split]


class BrokerConnection:
    """One socket to one broker."""

    def __init__(self, host: HostPort, address: ClusterAddress) -> None:
        """Connect and log in. OSError when the broker is away; FatalError when it refuses us."""
        self._settings = dict(address.settings)
        self._number = self._answered = 0
        self._socket = socket.create_connection(host, _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        security_protocol = self._settings.get("security.protocol", "PLAINTEXT").upper()
        try:
            if security_protocol.endswith("SSL"):
                self._socket = tls.build_ssl_context(self._settings).wrap_socket(self._socket, server_hostname=host[0])
            if security_protocol.startswith("SASL"):
                self._login()
        except BaseException:
            self._socket.close()
            raise

    def send(self, kind: tuple[int, int], body: bytes) -> None:
        """Send a request; its answer is the next that `receive` gives."""
        self._number += 1
        self._socket.sendall(protocol.encode_request(kind, self._number, _CLIENT_ID, body))

    def receive(self) -> ResponseReader:
        """Wait for the answer to the oldest request. OSError when the connection ends."""
        (size,) = _SIZE_FORMAT.unpack(self._receive_exactly(_SIZE_FORMAT.size))
        if not _SIZE_FORMAT.size <= size <= _MAX_RESPONSE_BYTES:
            raise ConnectionError(f"an answer of {size} bytes; is this port a Kafka broker's, and the protocol right?")
        answer = ResponseReader(memoryview(self._receive_exactly(size)))
        self._answered += 1
        if answer.number("i") != self._answered:
            raise ConnectionError("an answer to another request")
        return answer

    def ask(self, kind: tuple[int, int], body: bytes) -> ResponseReader:
        """Send a request and wait for its answer."""
        self.send(kind, body)
        return self.receive()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _receive_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            got = self._socket.recv_into(view[at:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            at += got
        return data

    def _login(self) -> None:
        mechanism = self._settings["sasl.mechanisms"]
        answer = self.ask(protocol.SASL_HANDSHAKE, protocol.encode_text(mechanism))
        if answer.number("h"):
            raise FatalError(f"the broker does not take logins by {mechanism}")
        talk = sasl.start_exchange(mechanism, self._settings["sasl.username"], self._settings["sasl.password"])
        try:
            message = next(talk)
            while True:
                answer = self.ask(protocol.SASL_AUTHENTICATE, _SIZE_FORMAT.pack(len(message)) + message)
                if answer.number("h"):
                    raise FatalError(f"the broker refused the login by {mechanism}: {answer.text()}")
                answer.text()
                message = talk.send(answer.blob())
        except StopIteration:
            return
        except (sasl.LoginRefused, KeyError, ValueError, struct.error) as error:
            raise FatalError(f"login by {mechanism}: {error}") from error


class BrokerClient:
    """Connections to the brokers of one cluster, and the leaders of topic-partitions as last heard."""

    def __init__(self, address: ClusterAddress) -> None:
        """Nothing is opened before it is needed."""
        self._address = address
        self._open: dict[HostPort, BrokerConnection] = {}
        self._leaders: dict[TopicPartition, HostPort] = {}

    def leader(self, at: TopicPartition) -> HostPort:
        """Return the broker that leads a topic-partition.

        Raises:
            RetriableError: no broker can tell, or there is none now.
            FatalError: we may not know.
        """
        if at not in self._leaders:
            self._refresh_leaders([at[0]])
        if at not in self._leaders:
            raise RetriableError(f"{at[0]}-{at[1]} has no leader now")
        return self._leaders[at]

    def forget(self, at: TopicPartition) -> None:
        """Ask anew who leads it."""
        self._leaders.pop(at, None)

    def connection(self, host: HostPort) -> BrokerConnection:
        """Return the connection to a broker. OSError when it is away."""
        if host not in self._open:
            self._open[host] = BrokerConnection(host, self._address)
        return self._open[host]

    def drop(self, host: HostPort) -> None:
        """Close a connection that failed, or that holds an answer nobody waits for."""
        if host in self._open:
            self._open.pop(host).close()

    def _refresh_leaders(self, topics: Sequence[str]) -> None:
        reasons = []
        for host in dict.fromkeys([*self._open, *self._address.hosts]):
            try:
                answer = self.connection(host).ask(protocol.METADATA, protocol.encode_metadata_request(topics))
                found = protocol.parse_metadata(answer)
            except (OSError, struct.error) as error:
                self.drop(host)
                reasons.append(f"{host[0]}:{host[1]}: {error}")
                continue
            for at, (error_code, broker) in found.leaders.items():
                if error_code in _AUTHORIZATION_ERRORS:
                    raise FatalError(f"topic {at[0]}: not allowed to read it (Kafka's error {error_code})")
                if broker in found.brokers:
                    self._leaders[at] = found.brokers[broker]
            return
        raise RetriableError(f"no broker answers: {'; '.join(reasons)}")


_AUTHORIZATION_ERRORS = frozenset({29, 30, 31})


@cache
def broker_client_for(address: ClusterAddress) -> BrokerClient:
    """Return the process's connections to a cluster."""
    return BrokerClient(address)
