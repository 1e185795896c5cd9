"""Client credentials -> an access token of an OpenID Connect provider, kept until it is nearly over. On every process.

Source: RFC 6749, "Client Credentials Grant"; as Java's OAuthBearerLoginCallbackHandler and librdkafka's oidc ask.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request

import attrs
import orjson

from connector.errors import FatalError, RetriableError
from connector.redaction import MASK

_TIMEOUT_S = 10.0
_LIFETIME_SHARE = 0.8
_DEFAULT_LIFETIME_S = 300.0
_SERVER_ERROR, _BUSY = 500, frozenset({408, 425, 429})
_REFUSAL_BYTES, _REASON_CHARS = 1 << 16, 300
"""So much is read of an answer that refuses, and so much of its reason is told."""


@attrs.frozen
class AccessToken:
    """A token, and until when it may be used (seconds since 1970)."""

    text: str = attrs.field(repr=False)
    expires_at: float


@attrs.frozen
class ClientCredentials:
    """Who asks, and where."""

    endpoint: str
    client_id: str
    client_secret: str = attrs.field(repr=False)
    scope: str = ""


_tokens: dict[ClientCredentials, tuple[AccessToken, float]] = {}
"""The process's tokens, and when each has to be renewed: all connections of a client share one."""


def fetch_token(credentials: ClientCredentials) -> AccessToken:
    """Return a token that lasts; it is asked for again when four fifths of its time are over.

    Raises:
        RetriableError: the provider is away.
        FatalError: it refuses; the message has its status and reason, and never the secret.
    """
    token, renew_at = _tokens.get(credentials, (None, 0.0))
    if token is None or time.time() >= renew_at:
        now = time.time()
        token = _ask(credentials, now)
        _tokens[credentials] = token, now + (token.expires_at - now) * _LIFETIME_SHARE
    return token


def forget_token(credentials: ClientCredentials) -> None:
    """Ask for another token next time: brokers refuse this one, which may have been revoked."""
    _tokens.pop(credentials, None)


def _ask(credentials: ClientCredentials, now: float) -> AccessToken:
    form = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    basic = f"Basic {_basic_login(credentials)}"
    headers = {"Authorization": basic, "Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the option is read
        credentials.endpoint, urllib.parse.urlencode(form).encode(), {**headers, "Accept": "application/json"}
    )
    place, said = f"the token endpoint {credentials.endpoint}", b""
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            said = answer.read()
        answer_fields = orjson.loads(said)
        lifetime_s = float(answer_fields.get("expires_in", _DEFAULT_LIFETIME_S))
        return AccessToken(str(answer_fields["access_token"]), now + lifetime_s)
    except urllib.error.HTTPError as error:
        kind = RetriableError if error.code >= _SERVER_ERROR or error.code in _BUSY else FatalError
        reason = _read_reason(_read_refusal(error), credentials)
        raise kind(f"{place} refuses the client {credentials.client_id}: {error.code} {error.reason}{reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise RetriableError(f"{place} is away: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        reason = _read_reason(said, credentials)
        raise FatalError(f"{place} gives no access token{reason}; is it an OpenID Connect provider's?") from error


def _read_refusal(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_REFUSAL_BYTES)
    except (OSError, http.client.HTTPException):
        return b""  # the status says enough


def _read_reason(said: bytes, credentials: ClientCredentials) -> str:
    """Return what a provider says of a refusal, behind ": ", as one line; empty where it gives no reason (RFC 6749).

    A provider may repeat what it was sent: the secret is left out, however it is written.
    """
    try:
        fields = orjson.loads(said)
        told = [fields[name] for name in ("error", "error_description") if isinstance(fields.get(name), str)]
    except (ValueError, AttributeError):
        return ""
    text = ": ".join(filter(None, told))
    secret = credentials.client_secret
    for form in {secret, urllib.parse.quote(secret), urllib.parse.quote_plus(secret), _basic_login(credentials)}:
        text = text.replace(form, MASK) if form else text
    text = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:_REASON_CHARS]
    return f": {text}" if text else ""


def _basic_login(credentials: ClientCredentials) -> str:
    return base64.b64encode(f"{credentials.client_id}:{credentials.client_secret}".encode()).decode()
