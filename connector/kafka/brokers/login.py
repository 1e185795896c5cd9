"""A connection and its settings -> a connection that is logged in (SASL), where the security protocol asks for it."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping

from connector.errors import FatalError
from connector.kafka.brokers import sasl
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.kafka.brokers.connection import BrokerConnection
from connector.kafka.protocol.api_versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from connector.kafka.protocol.error_codes import LOGIN_REMEDY, name_error
from connector.kafka.protocol.requests import SaslAuthenticateRequest, SaslHandshakeRequest

_MAX_MESSAGE_BYTES = 1 << 20
_LIFETIME_SHARE = 0.85
"""A login is renewed, by a new connection, when so much of its time is over."""


class RefusedLogin(FatalError):
    """A broker does not take the password or token that it was shown."""


def open_connection(host: HostPort, address: ClusterAddress) -> BrokerConnection:
    """Connect, agree on versions and log in; by a fresh token where one that should last is refused, as revoked.

    Raises:
        OSError: the broker is away.
        FatalError: it refuses us, or cannot be read.
    """
    try:
        return _open_connection(host, address)
    except RefusedLogin:
        if not sasl.forget_credentials(address.by_name):
            raise
    return _open_connection(host, address)


def _open_connection(host: HostPort, address: ClusterAddress) -> BrokerConnection:
    connection = BrokerConnection(host, address)
    try:
        if address.security_protocol.startswith("SASL"):
            _log_in(connection, address.by_name)
        connection.use_request_timeout()
    except BaseException:
        connection.close()
        raise
    return connection


def _log_in(connection: BrokerConnection, settings: Mapping[str, str]) -> None:
    mechanism, broker = settings["sasl.mechanisms"], format_host(connection.host)
    if missing := connection.versions.name_missing([SASL_HANDSHAKE]):
        raise FatalError(f"login at broker {broker} by {mechanism}: {missing}; set consumer.reader=librdkafka")
    handshake = SaslHandshakeRequest(mechanism)
    error, mechanisms = connection.ask(handshake)
    if error:
        raise FatalError(
            f"broker {broker} does not take logins by {mechanism}; it takes {', '.join(mechanisms) or 'none'}"
        )
    # The oldest handshake is followed by bare messages, as Azure Event Hubs took them for long.
    framed = connection.find_version(handshake) >= 1 and connection.versions.find(SASL_AUTHENTICATE) is not None
    try:
        talk = sasl.start_exchange(mechanism, settings)
        message = next(talk)
        while True:
            message = talk.send(_exchange(connection, mechanism, message, framed=framed))
    except StopIteration:
        return
    except (sasl.LoginRefused, KeyError, ValueError, struct.error) as refused:
        raise RefusedLogin(f"login at broker {broker} by {mechanism}: {refused}; {LOGIN_REMEDY}") from refused


def _exchange(connection: BrokerConnection, mechanism: str, message: bytes, *, framed: bool) -> bytes:
    if not framed:
        connection.send_blob(message)
        return bytes(connection.receive_blob(_MAX_MESSAGE_BYTES))
    answer = connection.ask(SaslAuthenticateRequest(message))
    if answer.error:
        broker, reason = format_host(connection.host), answer.reason or name_error(answer.error)
        raise RefusedLogin(f"broker {broker} refused the login by {mechanism}: {reason}; {LOGIN_REMEDY}")
    if answer.lifetime_ms > 0:
        connection.expires_at = time.monotonic() + answer.lifetime_ms / 1000 * _LIFETIME_SHARE
    return answer.message
