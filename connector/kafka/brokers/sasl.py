"""Client settings -> SASL messages of a login: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

OAUTHBEARER asks a token of its provider first; the others are pure.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping

from connector.kafka.librdkafka_config import find_msk_login
from connector.kafka.tokens.msk import forget_keys, make_token
from connector.kafka.tokens.oauth import ClientCredentials, fetch_token, forget_token

_HASH_NAMES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = frozenset({"PLAIN", "OAUTHBEARER", *_HASH_NAMES})
"""Those that are known here."""

_MIN_ROUNDS, _MAX_ROUNDS = 4096, 1_000_000
"""Rounds of a password's hash: fewer would let who poses as the broker guess it (RFC 7677, and Kafka's own least).

Kafka's own most is 16,384: no server is to keep us busy for hours.
"""

_REASON_CHARS = 200

SaslExchange = Generator[bytes, bytes, None]


class LoginRefused(ValueError):
    """The server's answer is not that of one that knows the password."""


def knows_login(settings: Mapping[str, str]) -> bool:
    """Return whether no login is asked for, or one of these."""
    needs_login = settings.get("security.protocol", "").upper().startswith("SASL")
    return not needs_login or settings.get("sasl.mechanisms", "") in MECHANISMS


def forget_credentials(settings: Mapping[str, str]) -> bool:
    """Drop the token that brokers refuse before its time is over, or the keys that it was signed by, as revoked ones.

    Returns:
        Whether the next login shows another one: those by passwords show the same again.
    """
    if settings.get("sasl.mechanisms") != "OAUTHBEARER":
        return False
    login = find_msk_login(settings)
    if login is not None:
        forget_keys(login)
    else:
        forget_token(_read_credentials(settings))
    return True


def start_exchange(mechanism: str, settings: Mapping[str, str], nonce: str | None = None) -> SaslExchange:
    """Return the messages to send, each after the answer to the one before was sent in.

    Raises:
        LoginRefused: the server does not prove that it knows the password, or refuses ours.
        RetriableError, FatalError: no token is to be had.
        KeyError: a setting is missing.
    """
    if mechanism == "OAUTHBEARER":
        return _bearer_messages(_find_token(settings), settings.get("sasl.oauthbearer.extensions", ""))
    user, password = settings["sasl.username"], settings["sasl.password"]
    if mechanism == "PLAIN":
        return _plain_messages(user, password)
    return _scram_messages(_HASH_NAMES[mechanism], user, password, nonce or secrets.token_urlsafe(24))


def _find_token(settings: Mapping[str, str]) -> str:
    login = find_msk_login(settings)
    if login is not None:
        return make_token(login).text
    return fetch_token(_read_credentials(settings)).text


def _read_credentials(settings: Mapping[str, str]) -> ClientCredentials:
    return ClientCredentials(
        endpoint=settings["sasl.oauthbearer.token.endpoint.url"],
        client_id=settings["sasl.oauthbearer.client.id"],
        client_secret=settings["sasl.oauthbearer.client.secret"],
        scope=settings.get("sasl.oauthbearer.scope", ""),
    )


def _bearer_messages(token: str, extensions: str) -> SaslExchange:
    pairs = [f"auth=Bearer {token}", *filter(None, extensions.split(","))]
    answer = yield ("n,,\x01" + "".join(f"{pair}\x01" for pair in pairs) + "\x01").encode()
    if answer:
        raise LoginRefused(f"the broker refuses the token: {answer[:_REASON_CHARS].decode(errors='replace')}")


def _plain_messages(user: str, password: str) -> SaslExchange:
    yield f"\0{user}\0{password}".encode()


def _scram_messages(kind: str, user: str, password: str, nonce: str) -> SaslExchange:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    answer = yield f"n,,{first}".encode()
    fields = _parse_fields(answer)
    if "m" in fields:
        raise LoginRefused("the server asks for an extension of SCRAM, of which none is known here")
    if not fields.get("r", "").startswith(nonce):
        raise LoginRefused("the server answered another login")
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    if not _MIN_ROUNDS <= rounds <= _MAX_ROUNDS:
        raise LoginRefused(
            f"the server asks for {rounds} rounds of hashing; {_MIN_ROUNDS} to {_MAX_ROUNDS} are done: make the user "
            "anew with as many (kafka-configs, iterations)"
        )
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, rounds)
    last = f"c=biws,r={fields['r']}"
    signed = f"{first},{answer.decode()},{last}".encode()
    key = _hmac_digest(kind, salted, b"Client Key")
    stored = hashlib.new(kind, key).digest()
    proof = bytes(a ^ b for a, b in zip(key, _hmac_digest(kind, stored, signed), strict=True))
    answer = yield f"{last},p={base64.b64encode(proof).decode()}".encode()
    expected = _hmac_digest(kind, _hmac_digest(kind, salted, b"Server Key"), signed)
    if not hmac.compare_digest(base64.b64decode(_parse_fields(answer).get("v", "")), expected):
        raise LoginRefused("the server does not know the password, or refuses it")


def _parse_fields(answer: bytes) -> dict[str, str]:
    fields = dict(part.split("=", 1) for part in answer.decode().split(",") if "=" in part)
    if "e" in fields:
        raise LoginRefused(f"the server says: {fields['e'][:_REASON_CHARS]}")
    return fields


def _hmac_digest(kind: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, kind)
