"""Requests -> those that may come in: of this host's pages and tools, of allowed origins, with the right login.

A browser tells by `Origin` which page a request comes from; a page of another site may not steer connectors. On
loopback the name of the host is looked at as well: a foreign name that was made to point here is another site.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import attrs
import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

_UNAUTHORIZED, _FORBIDDEN = 401, 403


@attrs.frozen
class AccessRules:
    """Who may come in: `origins` other than our own, `user_info` (`user:password`), and whether only this host can."""

    origins: Collection[str] = ()
    user_info: str | None = attrs.field(default=None, repr=False)
    is_loopback: bool = True

    def refusal(self, host: str, origin: str | None) -> str | None:
        """Return the reason why a request may not come in from where it does, None where it may. Pure."""
        name = _split(f"//{host}").hostname
        if self.is_loopback and not is_loopback(name or ""):
            return "requests for another host are refused"
        if origin is not None and not self._is_allowed(host, origin):
            return "requests of pages of another origin are refused; see access.control.allow.origin"
        return None

    def takes(self, authorization: str | None) -> bool:
        """Tell whether a login is the right one, or none is asked for. Pure."""
        return self.user_info is None or _is_login(authorization, self.user_info)

    def _is_allowed(self, host: str, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins or _split(origin).netloc.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Tell whether a host is this one by any name that it alone has: nobody can make others point here."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    """Split a URL that a client sent; one that is none has no parts."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _is_login(authorization: str | None, user_info: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    try:
        login = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(login, user_info.encode())


class OriginMiddleware:
    """Answers requests that may not come in from where they do; the others continue."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        """Guard an application."""
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            headers = _read_headers(scope)
            reason = self._rules.refusal(headers.get("host", ""), headers.get("origin"))
            if reason is not None:
                await _refuse(send, _FORBIDDEN, reason)
                return
        await self._app(scope, receive, send)


class LoginMiddleware:
    """Answers requests without the right login; the others continue."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        """Guard an application."""
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not self._rules.takes(_read_headers(scope).get("authorization")):
            challenge = (b"www-authenticate", b'Basic realm="icebridge"')
            await _refuse(send, _UNAUTHORIZED, "User cannot access the resource.", challenge)
            return
        await self._app(scope, receive, send)


def _read_headers(scope: Scope) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}


async def _refuse(send: Send, status: int, message: str, *more: tuple[bytes, bytes]) -> None:
    """Answer with Connect's error JSON."""
    body = orjson.dumps({"error_code": status, "message": message})
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
