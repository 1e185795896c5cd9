"""One broker's address -> a socket that is logged in; requests -> their responses, in order."""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

import numpy as np

from connector.errors import FatalError
from connector.kafka.brokers import tls
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.kafka.protocol.api_versions import (
    API_VERSIONS,
    FETCH,
    ApiVersions,
    ApiVersionsRequest,
    UnsupportedApiVersions,
)
from connector.kafka.protocol.primitives import ResponseReader, encode_request
from connector.kafka.protocol.requests import Request

T = TypeVar("T")

_MAX_RESPONSE_BYTES, _MAX_VERSIONS_BYTES = 1 << 30, 1 << 16
_MAX_FIELDS_BYTES = 1 << 25
"""What is no records becomes objects, many times as large: answers of a topic with 100,000 partitions have 5 MB."""

_SLOWEST_BYTES_S = 1 << 14
"""Who sends less in a second has the time of an answer that does not come: a byte now and then holds nobody up."""

_SIZE_FORMAT = struct.Struct(">i")
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
"""Seconds, and probes: middle boxes see that a connection lives, and a broker that is gone is noticed."""

_REFUSALS = (
    *("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED"),
    *("UNSUPPORTED_CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED"),
)
"""What brokers say in TLS of a client's certificate, or of none."""

UPGRADE_REMEDY = "Kafka 2.1 and later can be read, and services that offer as much"


class UnsupportedBroker(FatalError):
    """A broker that offers no version of a request that is known here; the message names request and versions.

    `offered` is what it does offer: oldest and newest version by the request's key.
    """

    def __init__(self, message: str, offered: Mapping[int, tuple[int, int]] | None = None) -> None:
        super().__init__(message)
        self.offered = offered or {}


class BrokerConnection:
    """A negotiated connection; use `open_connection`, which also logs in."""

    def __init__(self, host: HostPort, address: ClusterAddress) -> None:
        """Connect and agree on versions.

        Raises:
            OSError: the broker is away, or no Kafka broker, or silent; the message names it.
            UnsupportedBroker: nothing fits.
        """
        self.host, self._address = host, address
        self._number = self._answered = 0
        self._waiting = deque[object]()
        self._used_at = time.monotonic()
        self.expires_at = float("inf")
        self._tls: ssl.SSLContext | None = None
        self._socket = self._connect()
        self.versions = ApiVersions({}, {})
        try:
            self.versions = self._negotiate()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"BrokerConnection({format_host(self.host)})"

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for so long that somebody may have cut it, its login ends, or its certificate changed."""
        now, idle_s = time.monotonic(), self._address.seconds("connections.max.idle.ms")
        if self._tls is not None and self._tls is not tls.find_ssl_context(self._address):
            return True
        # As in Java a negative time is none.
        return 0 <= idle_s < now - self._used_at or now > self.expires_at

    def send(self, request: Request[T]) -> None:
        """Send a request; `receive` returns its response when it has those of the requests before.

        Raises:
            OSError: the connection failed.
            UnsupportedBroker: no version fits.
        """
        version = self.find_version(request)
        body = request.encode(version)
        self._number += 1
        self._used_at = time.monotonic()
        self._waiting.append(request)
        data = encode_request(request.api.key, version, self._number, self._address.client_id, body)
        with _name_host(self.host, self._hint):
            self._socket.sendall(data)

    def receive(self, request: Request[T]) -> T:
        """Wait for the response to the oldest request, which this is. OSError when the connection fails."""
        if not self._waiting or self._waiting.popleft() is not request:
            # Nobody may take the answer to another's question for the one to theirs.
            raise ConnectionError(f"{format_host(self.host)} was asked something else before")
        most = _MAX_RESPONSE_BYTES if request.api is FETCH else _MAX_FIELDS_BYTES
        answer = ResponseReader(self.receive_blob(most))
        self._answered += 1
        try:
            if answer.number("i") != self._answered:
                raise ConnectionError(f"{format_host(self.host)} answers another request")
            return request.parse(self.find_version(request), answer)
        except struct.error as error:
            raise ConnectionError(f"{format_host(self.host)} sends a response that is none: {error}") from error

    def ask(self, request: Request[T]) -> T:
        """Send a request and wait for its response."""
        self.send(request)
        return self.receive(request)

    def find_version(self, request: Request[T]) -> int:
        """Return the version that a request is written in."""
        version = self.versions.find(request.api)
        if version is None:
            raise UnsupportedBroker(self._explain(self.versions.name_missing([request.api])))
        return version

    def send_blob(self, data: bytes) -> None:
        """Send bytes behind their length, and nothing else: logins of the oldest kind are no requests."""
        with _name_host(self.host, self._hint):
            self._socket.sendall(_SIZE_FORMAT.pack(len(data)) + data)

    def receive_blob(self, most: int) -> memoryview:
        """Return the next bytes that come behind their length. OSError for more than `most`, or none in time."""
        (size,) = _SIZE_FORMAT.unpack(self._receive_exactly(_SIZE_FORMAT.size))
        if not 0 <= size <= most:
            raise ConnectionError(
                f"{format_host(self.host)} sends a response of {size} bytes; is this port a Kafka broker's, and "
                f"security.protocol={self._address.security_protocol} right?"
            )
        return self._receive_exactly(size)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def use_request_timeout(self) -> None:
        """From now on responses may take as long as `request.timeout.ms`; until then, as long as connecting may."""
        self._socket.settimeout(self._address.seconds("socket.timeout.ms"))

    def _connect(self) -> socket.socket:
        timeout_s = self._address.seconds("socket.connection.setup.timeout.ms")
        with _name_host(self.host):
            found = socket.create_connection(self.host, timeout_s)
        try:
            _set_options(found, self._address)
            if not self._address.security_protocol.endswith("SSL"):
                return found
            self._tls = tls.find_ssl_context(self._address)
            with _name_host(self.host, self._hint):
                return self._tls.wrap_socket(found, server_hostname=self.host[0])
        except BaseException:
            found.close()
            raise

    def _negotiate(self) -> ApiVersions:
        request = ApiVersionsRequest()
        self._number = 1
        head = encode_request(API_VERSIONS.key, API_VERSIONS.newest, 1, self._address.client_id, b"")
        with suppress(OSError):
            self._socket.sendall(head)  # who hangs up has said why, which is read
        try:
            answer = ResponseReader(self.receive_blob(_MAX_VERSIONS_BYTES))
            self._answered = answer.number("i")
            versions = request.parse(API_VERSIONS.newest, answer)
        except UnsupportedApiVersions as error:
            raise UnsupportedBroker(self._explain(str(error))) from error
        except struct.error as error:
            raise ConnectionError(f"{format_host(self.host)} does not answer as a Kafka broker does") from error
        if missing := versions.name_missing():
            raise UnsupportedBroker(self._explain(missing), versions.offered)
        return versions

    def _explain(self, missing: str) -> str:
        return f"broker {format_host(self.host)} cannot be read: {missing}; {UPGRADE_REMEDY}"

    @property
    def _hint(self) -> str:
        """What may be wrong as long as nothing has been answered."""
        return "" if self._answered else f"; is security.protocol={self._address.security_protocol} right?"

    def _receive_exactly(self, size: int) -> memoryview:
        # Of a fetch these are megabytes: no zero is written before them.
        try:
            view, at = np.empty(size, np.uint8).data, 0
        except MemoryError as error:
            raise ConnectionError(f"{format_host(self.host)}: no memory for a response of {size} bytes") from error
        began, limit_s = time.monotonic(), self._socket.gettimeout() or math.inf
        while at < size:
            try:
                got = self._socket.recv_into(view[at:])
            except TimeoutError as error:
                waited = self._socket.gettimeout() or 0.0
                raise TimeoutError(f"{format_host(self.host)} says nothing for {waited:.0f} s{self._hint}") from error
            except ssl.SSLError as error:
                raise _translate_tls_error(self.host, error, self._hint) from error
            except OSError as error:
                reason = error.strerror or error
                raise ConnectionError(f"{format_host(self.host)}: {reason}{self._hint}") from error
            if not got:
                raise ConnectionError(f"{format_host(self.host)} closed the connection{self._hint}")
            at += got
            if at < size and time.monotonic() - began > limit_s + at / _SLOWEST_BYTES_S:
                raise TimeoutError(
                    f"{format_host(self.host)} sends {at} of {size} bytes in {limit_s:.0f} s{self._hint}"
                )
        self._used_at = time.monotonic()
        return view


@contextmanager
def _name_host(host: HostPort, hint: str = "") -> Iterator[None]:
    """Name the broker in errors of its socket, which do not by themselves.

    Raises:
        OSError: in place of another.
        FatalError: one side does not take the other's certificate.
    """
    try:
        yield
    except socket.gaierror as error:
        raise UnresolvedHost(f"{format_host(host)}: the name does not resolve ({error.strerror})") from error
    # Before ValueError, which a refused certificate is too.
    except ssl.SSLError as error:
        raise _translate_tls_error(host, error, hint) from error
    except (UnicodeError, OverflowError, ValueError) as error:
        raise UnresolvedHost(f"{format_host(host)}: this is no address ({error})") from error
    except TimeoutError as error:
        raise TimeoutError(f"{format_host(host)} does not answer{hint}") from error
    except OSError as error:
        raise ConnectionError(f"{format_host(host)}: {error.strerror or error}{hint}") from error


def _translate_tls_error(host: HostPort, error: ssl.SSLError, hint: str) -> Exception:
    """Return FatalError where a certificate is refused, by us or by the broker, which no later try changes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return FatalError(
            f"broker {format_host(host)}: its certificate is not accepted: {error.verify_message}; "
            "ssl.truststore.location names whom to trust, and the certificate has to name the host "
            "(ssl.endpoint.identification.algorithm)"
        )
    reason = error.reason or str(error)
    if any(word in reason for word in _REFUSALS):
        return FatalError(
            f"broker {format_host(host)} does not take our certificate ({reason}); ssl.keystore.location names it"
        )
    return ConnectionError(f"{format_host(host)}: no TLS: {reason}{hint}")


class UnresolvedHost(OSError):
    """A host name that has no address here."""


def _set_options(found: socket.socket, address: ClusterAddress) -> None:
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, option in (("receive", socket.SO_RCVBUF), ("send", socket.SO_SNDBUF)):
        if (size := int(address.by_name[f"socket.{name}.buffer.bytes"])) > 0:
            found.setsockopt(socket.SOL_SOCKET, option, size)
