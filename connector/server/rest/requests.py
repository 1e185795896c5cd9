"""A request's body -> JSON of the shape that is asked for; bounded in size and time, and refused with 4xx."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from connector.server.errors import RestError

MAX_BODY_BYTES = 1024 * 1024
MAX_NAME = 200
BODY_TIMEOUT_S = 10.0
_TYPES = {"application/json", "application/*+json", "*/*"}


async def read_json(request: Request) -> Any:
    """Return a request's JSON body.

    Raises:
        RestError: 415 another type, 413 too large, 408 too slow, 400 no JSON.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in _TYPES:
        raise RestError(415, "HTTP 415 Unsupported Media Type")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await _read_body(request)
    except TimeoutError:
        raise RestError(408, "the request's body did not arrive in time") from None
    except ClientDisconnect:
        raise RestError(400, "the request's body is not complete") from None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RestError(400, f"the body is not JSON: {error}") from None


async def read_config(request: Request) -> dict[str, str]:
    """Return a body that is a connector's properties. Raises RestError as `read_json`, and 400 for another shape."""
    return check_config(await read_json(request))


def check_config(document: Any) -> dict[str, str]:
    """Return properties with every value as text, as Connect reads them; RestError 400 for another shape."""
    changes = check_changes(document)
    nulls = sorted(key for key, text in changes.items() if text is None)
    if nulls:
        raise RestError(400, f"the configuration has no value for {', '.join(nulls)}")
    return {key: text for key, text in changes.items() if text is not None}


def check_changes(document: Any) -> dict[str, str | None]:
    """The same where null is a value."""
    if not isinstance(document, dict):
        raise RestError(400, "the configuration is not a JSON object of properties")
    strange = sorted(key for key, value in document.items() if isinstance(value, dict | list))
    if strange:
        raise RestError(400, f"the configuration has values that are no text: {', '.join(strange)}")
    return {key: None if value is None else _to_text(value) for key, value in document.items()}


def check_text(what: str, value: Any) -> str:
    """Return a member of a body as text, empty where there is none; RestError 400 for an object or a list."""
    if isinstance(value, dict | list):
        raise RestError(400, f"{what} is no text")
    return "" if value is None else _to_text(value)


def check_name(name: str) -> None:
    """Raise RestError 400 for a name that no connector can have: it stands in paths of this interface."""
    if not name.strip():
        raise RestError(400, "the connector has no name")
    if len(name) > MAX_NAME or "/" in name or not name.isprintable():
        raise RestError(
            400, f"a connector's name has at most {MAX_NAME} characters, no / and no control characters; use another"
        )


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


async def _read_body(request: Request) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > MAX_BODY_BYTES:
        raise RestError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RestError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)
