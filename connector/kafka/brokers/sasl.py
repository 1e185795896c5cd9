"""Logins of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677) as the messages that a client sends (pure)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping

_HASH_NAMES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SaslExchange = Generator[bytes, bytes, None]


class LoginRefused(ValueError):
    """The server's answer is not that of one that knows the password."""


def start_exchange(mechanism: str, settings: Mapping[str, str], nonce: str | None = None) -> SaslExchange:
    """Return the messages to send, each after the answer to the one before was sent in.

    Raises:
        LoginRefused: the server does not prove that it knows the password, or refuses ours.
        KeyError: a setting is missing.
    """
    user, password = settings["sasl.username"], settings["sasl.password"]
    if mechanism == "PLAIN":
        return _plain_messages(user, password)
    return _scram_messages(_HASH_NAMES[mechanism], user, password, nonce or secrets.token_urlsafe(24))


def _plain_messages(user: str, password: str) -> SaslExchange:
    yield f"\0{user}\0{password}".encode()


def _scram_messages(kind: str, user: str, password: str, nonce: str) -> SaslExchange:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    answer = yield f"n,,{first}".encode()
    given = _parse_fields(answer)
    if not given.get("r", "").startswith(nonce):
        raise LoginRefused("the server answered another login")
    salt, rounds = base64.b64decode(given["s"]), int(given["i"])
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, rounds)
    last = f"c=biws,r={given['r']}"
    signed = f"{first},{answer.decode()},{last}".encode()
    key = _hmac_digest(kind, salted, b"Client Key")
    stored = hashlib.new(kind, key).digest()
    proof = bytes(a ^ b for a, b in zip(key, _hmac_digest(kind, stored, signed), strict=True))
    answer = yield f"{last},p={base64.b64encode(proof).decode()}".encode()
    expected = _hmac_digest(kind, _hmac_digest(kind, salted, b"Server Key"), signed)
    if not hmac.compare_digest(base64.b64decode(_parse_fields(answer).get("v", "")), expected):
        raise LoginRefused("the server does not know the password, or refuses it")


def _parse_fields(answer: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in answer.decode().split(",") if "=" in part)


def _hmac_digest(kind: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, kind)
