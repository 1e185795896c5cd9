"""Client settings -> librdkafka's configuration, with a callback where tokens are ours to make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connector.kafka.tokens.msk import MskLogin, find_region, make_token
from connector.settings.kafka.security import MSK_PROFILE, MSK_ROLE

_BOUNDS = {
    "delivery.timeout.ms": (1, 2**31 - 1),
    "fetch.wait.max.ms": (0, 300_000),
    "linger.ms": (0, 900_000),
    "max.in.flight.requests.per.connection": (1, 5),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "request.timeout.ms": (1, 900_000),
    "retries": (1, 2**31 - 1),
    "retry.backoff.max.ms": (1, 300_000),
    "retry.backoff.ms": (1, 300_000),
    "socket.connection.setup.timeout.ms": (1_000, 2**31 - 1),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "batch.size": (1, 2**31 - 1),
    "connections.max.idle.ms": (10_000, 2**31 - 1),
    "transaction.timeout.ms": (1_000, 2**31 - 1),
}
"""What librdkafka takes; of what Java takes beyond that it gets the nearest."""

_PAUSES = (("reconnect", 100, 10_000), ("retry", 100, 1_000))
"""Kinds of pauses, with librdkafka's own first and greatest."""

_NEVER_IDLE = "0"
_QUIET = {"log_level": 2}
"""librdkafka's own log stays silent: what matters comes back as an error."""


def build_librdkafka_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what a client of confluent-kafka is made of."""
    config: dict[str, Any] = {**_QUIET, **{name: _fit(name, text) for name, text in settings.items()}}
    for kind, first, most in _PAUSES:
        # As in Java the greatest pause is the only one, where the first is greater still.
        if int(config.get(f"{kind}.backoff.ms", first)) > int(limit := config.get(f"{kind}.backoff.max.ms", most)):
            config[f"{kind}.backoff.ms"] = limit
    login = find_msk_login(config)
    if login is not None:
        config.pop(MSK_PROFILE), config.pop(MSK_ROLE)

        def fetch(_: str) -> tuple[str, float]:
            token = make_token(login)
            return token.text, token.expires_at

        config["oauth_cb"] = fetch
    return config


def _fit(name: str, text: str) -> str:
    if name not in _BOUNDS:
        return text
    number, (least, most) = int(text), _BOUNDS[name]
    if name == "connections.max.idle.ms" and number < 0:
        return _NEVER_IDLE
    return str(min(max(number, least), most))


def find_msk_login(settings: Mapping[str, Any]) -> MskLogin | None:
    """Return how to log in to Amazon MSK by IAM, None where that is not asked for."""
    if MSK_ROLE not in settings:
        return None
    return MskLogin(find_region(settings["bootstrap.servers"]), settings[MSK_PROFILE], settings[MSK_ROLE])
