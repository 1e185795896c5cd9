"""schema version -> writer schema: the AWS Glue schema registry, asked once per version and process. On executors.

Source: AWS Glue API, GetSchemaVersion. The client is AWS's own, an extra: `pip install 'icebridge[aws]'`.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Any

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.known_schemas import KnownSchemas
from connector.kafka.registry.unanswered import unanswered_error
from connector.runtime.aws_credentials import is_aws_busy
from connector.settings.converters.glue import GlueSettings
from serde.wire_format import SchemaTexts, UnknownSchema

TIMEOUT_S = 10.0

_UNKNOWN = frozenset({"EntityNotFoundException", "InvalidInputException"})


class GlueRegistry:
    """One registry with its settings."""

    def __init__(self, settings: GlueSettings) -> None:
        """Prepare; nothing is asked yet."""
        self._settings = settings
        self._schemas = KnownSchemas()

    def fetch_schema(self, number: int, schema_type: str) -> SchemaTexts:
        """Return the text of a schema version, whose id is the number of its uuid.

        Raises:
            UnknownSchema: the registry has no schema version of this id and type.
            RetriableError: it is away or busy.
            FatalError: it lets us not in, or there are no credentials.
        """
        return self._schemas.fetch((schema_type, number), lambda: self._ask(number, schema_type))

    def ping(self) -> None:
        """Ask the registry for a version that nobody has.

        Raises:
            RetriableError: it is away or busy.
            FatalError: it does not let us in.
        """
        try:
            self._ask(0, "")
        except UnknownSchema:
            return

    def _ask(self, number: int, schema_type: str) -> SchemaTexts:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        version = str(uuid.UUID(int=number))
        where = f"AWS Glue's registry in {self._settings.region}: asking for schema version {version}"
        try:
            answer = self._client().get_schema_version(SchemaVersionId=version)
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise FatalError(f"{where}: no credentials; give them as AWS's clients find them") from error
        except ClientError as error:
            raise _map_error(where, error.response) from error
        except BotoCoreError as error:
            raise unanswered_error(where, error) from error
        found = str(answer.get("DataFormat", ""))
        if found != schema_type:
            raise UnknownSchema(f"the registry has a schema of type {found} there, not {schema_type.capitalize()}")
        return (str(answer["SchemaDefinition"]),)

    def _client(self) -> Any:
        """A client of Glue; made again for each version, of which there are few, so that a role is never too old."""
        from botocore.config import Config
        from botocore.session import Session

        # A session of its own: the default one is not for several threads.
        session, settings, own = Session(), self._settings, {}
        config = Config(connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries={"total_max_attempts": 3})
        if settings.role is not None:
            sts = session.create_client("sts", region_name=settings.region, config=config)
            credentials = sts.assume_role(RoleArn=settings.role, RoleSessionName=settings.session)["Credentials"]
            names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            keys = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
            own = {key: credentials[name] for key, name in zip(keys, names, strict=True)}
        return session.create_client(
            "glue", region_name=settings.region, endpoint_url=settings.endpoint, config=config, **own
        )


def _map_error(where: str, response: dict[str, Any]) -> Exception:
    """Ours for an answer of AWS; its message stays out, it may quote."""
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _UNKNOWN:
        return UnknownSchema("the registry does not have it")
    if is_aws_busy(response):
        return RetriableError(f"{where}: {code or status}")
    hint = "; check its credentials and rights (glue:GetSchemaVersion)" if "Denied" in code or "Token" in code else ""
    return FatalError(f"{where}: {code or status}{hint}")


@lru_cache(maxsize=16)
def glue_registry_for(settings: GlueSettings) -> GlueRegistry:
    """Return the registry of these settings, one per process."""
    return GlueRegistry(settings)
