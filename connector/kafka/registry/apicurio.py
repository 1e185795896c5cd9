"""schema id -> writer schema: Apicurio's own API, asked once per id and process. On executors.

Source: Apicurio Registry 2.6, "Core Registry API v2": ids/globalIds/{id}, ids/contentIds/{id}, their references.
"""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import orjson

from connector.errors import FatalError
from connector.kafka.registry.known_schemas import KnownSchemas, check_presence
from connector.kafka.registry.refusals import NO_REGISTRY, find_reason, refusal_error
from connector.kafka.registry.unanswered import unanswered_error
from connector.kafka.tokens.oauth import ClientCredentials, fetch_token, forget_token
from connector.settings.converters.apicurio import ApicurioSettings
from serde.wire_format import SchemaTexts, UnknownSchema

TIMEOUT_S = 10.0
_MAX_DEPTH = 100
_REFUSAL_BYTES = 1 << 16
_UNAUTHORIZED = 401
_DEFAULT_GROUP = "default"
"""The group of what was registered in none: references name it by null."""


class ApicurioRegistry:
    """One registry with its settings."""

    def __init__(self, settings: ApicurioSettings) -> None:
        """Prepare; nothing is asked yet."""
        self._settings = settings
        self._schemas = KnownSchemas()
        endpoint, client, secret = settings.token_endpoint, settings.client_id, settings.client_secret
        self._client = None if endpoint is None else ClientCredentials(endpoint, client, secret, settings.scope)

    def fetch_schema(self, number: int, schema_type: str) -> SchemaTexts:  # noqa: ARG002 - its answer tells no type
        """Return the texts of a schema: those it refers to, in order, then its own.

        Raises:
            UnknownSchema: the registry has no schema of this id.
            RetriableError: it is away or busy.
            FatalError: it lets us not in, or refuses the question.
        """
        return self._schemas.fetch(number, partial(self._request, number), self._check_presence)

    def ping(self) -> None:
        """Ask the registry for what it is.

        Raises:
            RetriableError: it is away or busy.
            FatalError: it does not let us in, or is no registry.
        """
        try:
            self._ask("system/info")
        except UnknownSchema as unknown:
            raise FatalError(f"registry {self._where()}: {NO_REGISTRY}") from unknown

    def _check_presence(self, _: UnknownSchema) -> None:
        """Raise RetriableError where another than the registry says that a schema is not there."""
        check_presence(self._where(), partial(self._ask, "system/info"))

    def _where(self) -> str:
        return self._settings.url.rpartition("@")[2]

    def _request(self, number: int) -> SchemaTexts:
        path = f"ids/{self._settings.use_id}s/{number}"
        own = self._ask(path).decode()
        return tuple(dict.fromkeys([*self._iter_references(f"{path}/references", 0), own]))

    def _iter_references(self, path: str, depth: int) -> Iterator[str]:
        """Texts of the schemas that one refers to, each after those that it refers to itself."""
        if depth > _MAX_DEPTH:
            raise UnknownSchema("its references have no end")
        for one in self._references(path):
            parts = (one.get("groupId") or _DEFAULT_GROUP, one.get("artifactId"), one.get("version"))
            group, artifact, version = (urllib.parse.quote(str(part), safe="") for part in parts)
            place = f"groups/{group}/artifacts/{artifact}/versions/{version}"
            yield from self._iter_references(f"{place}/references", depth + 1)
            yield self._ask(place if "/registry/v2" in self._settings.url else f"{place}/content").decode()

    def _references(self, path: str) -> list[dict[str, Any]]:
        try:
            found = orjson.loads(self._ask(path) or b"[]")
        except (UnknownSchema, orjson.JSONDecodeError):
            # Older registries know no references.
            return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def _login(self) -> str | None:
        settings = self._settings
        if self._client is not None:
            return f"Bearer {fetch_token(self._client).text}"
        if settings.user is None:
            return None
        login = f"{settings.user}:{settings.password or ''}".encode()
        return f"Basic {base64.b64encode(login).decode()}"

    def _ask(self, path: str, *, again: bool = False) -> bytes:
        # The settings take URLs of http and https only.
        request = urllib.request.Request(f"{self._settings.url}/{path}")  # noqa: S310
        if (login := self._login()) is not None:
            request.add_header("Authorization", login)
        where = f"{self._where()}: asking for {path}"
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == _UNAUTHORIZED and self._client is not None and not again:
                # The token may have been revoked since it was asked for.
                forget_token(self._client)
                return self._ask(path, again=True)
            reason = find_reason(error.code, _read_refusal(error))
            raise refusal_error(where, error.code, reason, "apicurio.auth") from error
        except (OSError, http.client.HTTPException) as error:
            raise unanswered_error(f"registry {where}", error) from error


def _read_refusal(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_REFUSAL_BYTES)
    except (OSError, http.client.HTTPException):
        return b""  # the status says enough


@lru_cache(maxsize=16)
def apicurio_registry_for(settings: ApicurioSettings) -> ApicurioRegistry:
    """Return the registry of these settings, one per process."""
    return ApicurioRegistry(settings)
