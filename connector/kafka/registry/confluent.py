"""schema id <-> writer schema: the schema registry, asked once per id and process. On executors and on the driver.

The client is confluent-kafka's; a schema that others refer to comes with them, theirs first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from connector.errors import FatalError
from connector.kafka.registry.known_schemas import KnownSchemas, check_presence
from connector.kafka.registry.refusals import NO_REGISTRY, format_reason, refusal_error
from connector.kafka.registry.unanswered import unanswered_error
from connector.settings.converters.schema_registry import RegistrySettings
from serde.frames import MAX_NUMBER, format_id
from serde.wire_format import SchemaTexts, UnknownSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

REGISTRY_TIMEOUT_S = 10.0
_DEFAULT_SCHEMA_TYPE = "AVRO"
"""What the registry means where it tells no type."""
_MAX_SCHEMA_ID = 2**31 - 1
_NO_CODE = -1
"""The client's code for an answer that has none."""
_ABSENCE_CODES = frozenset({40401, 40402, 40403})
"""The registry's own numbers for a subject, a version or a schema that it does not have."""
_MAX_RETRIES, _RETRY_WAIT_MS, _MAX_RETRY_WAIT_MS = 2, 200, 2000


class SchemaRegistry:
    """One registry with its settings."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Prepare; nothing is asked yet."""
        # Its imports (an HTTP client, OAuth) cost 0.3 s, which only Avro should pay.
        from confluent_kafka.schema_registry import SchemaRegistryClient

        client_settings = dict(settings.client)
        self._where = ", ".join(url.rpartition("@")[2] for url in client_settings["url"].split(","))
        self._client = SchemaRegistryClient(
            {
                **client_settings,
                "timeout": REGISTRY_TIMEOUT_S,
                "max.retries": _MAX_RETRIES,
                "retries.wait.ms": _RETRY_WAIT_MS,
                "retries.max.wait.ms": _MAX_RETRY_WAIT_MS,
            }
        )
        self._login = "bearer.auth" if "bearer.auth.credentials.source" in client_settings else "basic.auth"
        self._schemas = KnownSchemas()

    def fetch_schema(self, number: int, schema_type: str) -> SchemaTexts:
        """Return the texts of a schema: those it refers to, in order, then its own.

        Raises:
            UnknownSchema: the registry has no schema of this id and type.
            RetriableError: it is away or busy.
            FatalError: it lets us not in, or refuses the question.
        """
        if _MAX_SCHEMA_ID < number <= MAX_NUMBER:
            raise UnknownSchema("no registry has ids as great as this")
        ask = partial(self._request, number, schema_type)
        return self._schemas.fetch((schema_type, number), ask, self._check_presence)

    def schema_id(self, subject: str, text: str, schema_type: str, *, register: bool) -> int:
        """Return the id of a schema under a subject, registered if it is not there and `register` says so.

        Raises:
            RetriableError: the registry is away or busy.
            FatalError: it refuses the schema (another than the subject's compatibility allows), or does not have it.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, schema_type)
        doing = f"registering a schema under {subject}" if register else f"asking for a schema of {subject}"
        try:
            with self._map_errors(doing):
                if register:
                    return int(self._client.register_schema(subject, schema))
                return int(self._client.lookup_schema(subject, schema).schema_id)
        except UnknownSchema as unknown:
            todo = "register it, or set auto.register.schemas=true" if not register else "check the registry's URL"
            raise FatalError(f"registry {self._where}: {doing}: it is not there; {todo}") from unknown

    def ping(self) -> None:
        """Ask the registry for its configuration.

        Raises:
            RetriableError: it is away or busy.
            FatalError: it does not let us in, or is no registry.
        """
        try:
            self._request_configuration()
        except UnknownSchema as unknown:
            raise FatalError(f"registry {self._where}: {NO_REGISTRY}") from unknown

    def _check_presence(self, unknown: UnknownSchema) -> None:
        """Raise RetriableError where another than the registry says that a schema is not there."""
        refusal = unknown.__cause__
        if refusal is None or getattr(refusal, "error_code", None) in _ABSENCE_CODES:
            # It has one, of another type; or it says in its own words that it has none.
            return
        check_presence(self._where, self._request_configuration)

    def _request_configuration(self) -> None:
        with self._map_errors("asking for its configuration"):
            self._client.get_config()

    def _request(self, number: int, schema_type: str) -> SchemaTexts:
        with self._map_errors(f"asking for schema id {format_id(number)}"):
            schema = self._get_schema(number)
            found = schema.schema_type or _DEFAULT_SCHEMA_TYPE
            if found != schema_type:
                raise UnknownSchema(f"the registry has a schema of type {found} there, not {schema_type.capitalize()}")
            return tuple(dict.fromkeys([*self._iter_references(schema), schema.schema_str or ""]))

    def _get_schema(self, number: int) -> Schema:
        """Return the schema of an id, or of a GUID as a number (Platform 8)."""
        if number <= _MAX_SCHEMA_ID:
            return self._client.get_schema(number)
        return self._client.get_schema_by_guid(format_id(number))

    def _iter_references(self, schema: Schema) -> Iterator[str]:
        """Texts of the schemas that this one refers to, each after those that it refers to itself."""
        for reference in schema.references or ():
            found = self._client.get_version(reference.subject, reference.version).schema
            yield from self._iter_references(found)
            yield found.schema_str

    @contextmanager
    def _map_errors(self, doing: str) -> Iterator[None]:
        """Raise ours instead of the client's errors; messages of the registry itself stay out, they may quote."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            status, code = error.http_status_code, error.error_code
            reason = format_reason(status, None if code == _NO_CODE else code)
            raise refusal_error(f"{self._where}: {doing}", status, reason, self._login) from error
        except (UnknownSchema, RecursionError):
            raise
        except Exception as error:
            # What the HTTP client raises has no base class that would not change with it.
            raise unanswered_error(f"registry {self._where}: {doing}", error) from error


@lru_cache(maxsize=16)
def schema_registry_for(settings: RegistrySettings) -> SchemaRegistry:
    """Return the registry of these settings, one per process."""
    return SchemaRegistry(settings)
