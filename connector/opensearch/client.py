"""Settings -> calls to an OpenSearch cluster, whose errors are ours. On the driver and in tasks.

One client per process and settings: its connections are shared by the threads that send.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import orjson
from opensearchpy import JSONSerializer, OpenSearch, Urllib3HttpConnection
from opensearchpy.exceptions import (
    ConnectionError as NoConnection,
)
from opensearchpy.exceptions import (
    ConnectionTimeout,
    OpenSearchException,
    SerializationError,
    TransportError,
)

from connector.errors import FatalError, RetriableError
from connector.opensearch.cluster_blocks import BLOCK_REMEDY, NO_INDEX, is_cluster_block
from connector.opensearch.sigv4 import RequestSigner
from connector.runtime.aws_credentials import AwsCredentials, AwsIdentity, find_credentials
from connector.settings.opensearch.connection import AwsSettings, ConnectionSettings

_MAX_CONNECTIONS = 16
_MAX_REASON_CHARS, _MAX_KIND_CHARS = 300, 100
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_FIELD_LIMIT = "Limit of total fields"
_UNKNOWN_AUTHORITY = "name their authority in connection.ssl.ca.location"
_CERTIFICATE_REMEDIES = {
    "mismatch": "name the nodes in connection.url as their certificates do",
    "has expired": "renew them",
}
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


class _OrjsonSerializer(JSONSerializer):
    """Reads answers with orjson: those of bulk requests are large."""

    def loads(self, s: str | bytes) -> Any:
        """Read an answer."""
        try:
            return orjson.loads(s)
        except ValueError as error:
            raise SerializationError(s, error) from error


@contextmanager
def map_opensearch_errors(doing: str) -> Iterator[None]:
    """Raise ours instead of the client's errors; an answer's own text stays out, it may quote a document.

    Raises:
        RetriableError: the cluster is away, busy, or blocked (its disk is full).
        FatalError: it does not let us in, or refuses the request.
    """
    try:
        yield
    except (NoConnection, ConnectionTimeout) as error:
        # What the connection says names hosts and ports, and nothing of a document.
        reason = str(error.error)[:_MAX_REASON_CHARS]
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            todo = next((todo for words, todo in _CERTIFICATE_REMEDIES.items() if words in reason), _UNKNOWN_AUTHORITY)
            raise FatalError(f"{doing}: the nodes' certificates are not trusted ({reason}); {todo}") from error
        raise RetriableError(
            f"{doing}: the OpenSearch cluster does not answer ({type(error).__name__}: {reason})"
        ) from error
    except TransportError as error:
        raise to_connector_error(doing, error) from error
    except OpenSearchException as error:
        raise FatalError(f"{doing}: {type(error).__name__}") from error


def to_connector_error(doing: str, error: TransportError) -> RetriableError | FatalError:
    """Return our error for an answer that is one."""
    status, kind = error.status_code, error.error
    if is_cluster_block(status, kind):
        reason = _index_error_reason(error.info)
        return RetriableError(f"{doing}: OpenSearch is blocked (status {status}, {kind}{reason}); {BLOCK_REMEDY}")
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        return FatalError(
            f"{doing}: OpenSearch refuses the login (status {status}{_right_error_reason(error.info)}); check "
            "connection.username, connection.password, or the certificate, and the user's rights on the indexes"
        )
    # What stands before the cluster answers by a page of HTML.
    kind = " ".join(str(kind).split())[:_MAX_KIND_CHARS]
    if status in _TRANSIENT_STATUSES:
        return RetriableError(f"{doing}: OpenSearch is busy (status {status}, {kind})")
    if kind == NO_INDEX:
        # A cluster that has just started answers so, too: whether the index is gone is told by the next look-up.
        return RetriableError(f"{doing}: there is no such index, or OpenSearch has just started (status {status})")
    if _FIELD_LIMIT in str(error.info):
        return FatalError(
            f"{doing}: the index takes no more fields; raise its "
            "index.mapping.total_fields.limit (of a new one by an index template), leave columns out "
            "(debezium.sink.iceberg.excluded-columns), or set schema.ignore=true"
        )
    return FatalError(
        f"{doing}: OpenSearch refuses it (status {status}, {kind}{_index_error_reason(error.info)}); its reason "
        "says what to change: the index, its template, or the settings of the connection"
    )


def to_lookup_error(doing: str, error: Mapping[str, Any]) -> RetriableError | FatalError:
    """Return our error for one document of a look-up that is answered by an error: such an item has no status."""
    kind = error.get("type")
    if kind == "security_exception":
        return to_connector_error(doing, TransportError(_FORBIDDEN, kind, {"error": error}))
    return RetriableError(f"{doing}: OpenSearch cannot look for now ({kind}: {error.get('reason', '')})")


def _right_error_reason(info: Any) -> str:
    """The reason of a refusal: which right is missing, and whom; AWS has it under another name."""
    reason = _index_error_reason(info)
    if not reason and isinstance(info, Mapping):
        reason = next((f": {info[name]}" for name in ("Message", "message") if name in info), "")
    return reason[:_MAX_REASON_CHARS]


def _index_error_reason(info: Any) -> str:
    """The reason of an answer about an index; those about documents never come here."""
    reported = info.get("error") if isinstance(info, Mapping) else None
    return f": {reported['reason']}" if isinstance(reported, Mapping) and "reason" in reported else ""


@lru_cache(maxsize=16)
def opensearch_client(settings: ConnectionSettings) -> OpenSearch:
    """Return the client of these settings, one per process; nothing is asked yet.

    Raises:
        FatalError: a certificate cannot be read.
    """
    secure = any(url.startswith("https:") for url in settings.urls)
    return OpenSearch(
        list(settings.urls),
        connection_class=Urllib3HttpConnection,
        http_auth=_build_signer(settings),
        headers=_build_login(settings),
        ssl_context=_build_ssl_context(settings) if secure else None,
        http_compress=settings.compression,
        pool_maxsize=_MAX_CONNECTIONS,
        serializer=_OrjsonSerializer(),
        timeout=settings.read_timeout_ms / 1000,
        # Whether to try again is decided where the documents are known.
        max_retries=0,
    )


def _build_signer(settings: ConnectionSettings) -> RequestSigner | None:
    aws = settings.aws
    return None if aws is None else RequestSigner(aws.region, partial(_find_credentials, aws), aws.service)


def _build_login(settings: ConnectionSettings) -> dict[str, str]:
    """Return the header of basic authentication: in UTF-8, as OpenSearch reads it (the client would write Latin-1)."""
    if settings.aws is not None or settings.username is None:
        return {}
    login = b64encode(f"{settings.username}:{settings.password}".encode()).decode()
    return {"authorization": f"Basic {login}"}


def _find_credentials(aws: AwsSettings) -> AwsCredentials:
    """Return the keys of the settings, else those that the machine has, as AWS's libraries find them."""
    if aws.access_key and aws.secret_key:
        return AwsCredentials(aws.access_key, aws.secret_key, aws.session_token or "")
    return find_credentials(AwsIdentity(aws.profile, aws.role, aws.region), "aws.region")


def _build_ssl_context(settings: ConnectionSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.certificate is not None:
            # Without a password OpenSSL asks for that of an encrypted key at the terminal, and waits.
            context.load_cert_chain(settings.certificate, settings.key, settings.key_password or "")
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (settings.ca, settings.certificate, settings.key)))
        raise FatalError(
            f"the certificates cannot be read ({files}): {error}; give PEM files that this user may read, "
            "and the password of an encrypted key (connection.ssl.*)"
        ) from error
    if settings.trust_all:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
