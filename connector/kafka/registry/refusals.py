"""A status by which a registry refuses -> one of our errors: the same for all kinds of registries over HTTP (pure).

Of the answer its code and the name of the error are told: its texts stay out, as they may quote what was asked.
"""

from __future__ import annotations

import re

import orjson

from connector.errors import ConnectorError, FatalError, RetriableError
from serde.wire_format import UnknownSchema

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 401, 403, 404, 409, 422
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
NO_REGISTRY = "nothing is there; check its URL, and what stands before it"
"""It has none of what each registry has (status 404)."""
_LOGIN = "; check its {login} settings, and this user's rights"
_HINTS = {
    _UNAUTHORIZED: _LOGIN,
    _FORBIDDEN: _LOGIN,
    _CONFLICT: "; the table's schema now is not compatible with the ones registered there: relax the subject's "
    "compatibility (PUT /config/<subject>), or leave the column that changed out of the events",
    _UNPROCESSABLE: "; the registry does not take it",
}
_NAME = re.compile(r"[A-Za-z][\w.$]{0,99}")


def refusal_error(doing: str, status: int, reason: str, login: str) -> ConnectorError | UnknownSchema:
    """Return our error for a refusal.

    Args:
        doing: where the registry is, and what it was asked.
        status: HTTP's.
        reason: as `find_reason` or `format_reason` gives it.
        login: the family of options that say who asks.
    """
    if status == _NOT_FOUND:
        return UnknownSchema("the registry does not have it")
    text = f"registry {doing}: status {status}{reason}"
    if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
        return RetriableError(text)
    return FatalError(text + _HINTS.get(status, "").format(login=login))


def find_reason(status: int, body: bytes) -> str:
    """Return the name and code of an error in parentheses, as far as an answer has them and they say more."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(fields, dict):
        return ""
    name, code = fields.get("name"), fields.get("error_code")
    is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return format_reason(status, code if isinstance(code, int) else None, name if is_name else None)


def format_reason(status: int, code: int | None, name: str | None = None) -> str:
    """Return the name and code of an error in parentheses, as far as there are such and they say more."""
    told = [] if name is None else [name]
    told += [] if code in (None, status) else [f"error {code}"]
    return f" ({', '.join(told)})" if told else ""
