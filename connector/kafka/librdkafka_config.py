"""Client settings -> librdkafka's configuration, with a callback where tokens are ours to make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connector.kafka.tokens.msk import MskLogin, find_region, make_token
from connector.settings.kafka.security import MSK_PROFILE, MSK_ROLE

_QUIET = {"log_level": 2}
"""librdkafka's own log stays silent: what matters comes back as an error."""


def build_librdkafka_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what a client of confluent-kafka is made of."""
    config: dict[str, Any] = {**_QUIET, **settings}
    login = find_msk_login(config)
    if login is not None:
        config.pop(MSK_PROFILE), config.pop(MSK_ROLE)

        def fetch(_: str) -> tuple[str, float]:
            token = make_token(login)
            return token.text, token.expires_at

        config["oauth_cb"] = fetch
    return config


def find_msk_login(settings: Mapping[str, Any]) -> MskLogin | None:
    """Return how to log in to Amazon MSK by IAM, None where that is not asked for."""
    if MSK_ROLE not in settings:
        return None
    return MskLogin(find_region(settings["bootstrap.servers"]), settings[MSK_PROFILE], settings[MSK_ROLE])
