"""properties -> ConnectionSettings and BulkSettings: how an OpenSearch cluster is reached and sent documents.

Names: Aiven's sink, where it has one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    TEXT,
    InvalidValue,
    ValueType,
    one_of,
    split_list,
    whole_number,
)


def _parse_urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.rstrip("/") for url in split_list(text))
    # At first: what is told of other faults shows the value, and with it a password.
    if any("@" in url for url in urls):
        raise InvalidValue("a URL has a user in it", "use connection.username and connection.password")
    if not urls or not all(_is_node(url) for url in urls):
        raise InvalidValue("{} is not a list of URLs", "write http://host:9200, several separated by commas")
    return urls


def _is_node(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and not parts.query


URL = Option(
    name="connection.url",
    kind=ValueType("list", _parse_urls),
    default=(),
    importance="high",
    doc="Nodes of the cluster as http://host:9200 or https://host:9200, several separated by commas. Required.",
)
USERNAME = Option(
    name="connection.username", kind=TEXT, default=None, importance="medium", doc="User for basic authentication."
)
PASSWORD = Option(
    name="connection.password",
    kind=TEXT,
    default=None,
    importance="medium",
    doc="The user's password; prefer ${env:NAME} or ${file:/path:key} to plain text.",
    secret=True,
)
CA = Option(
    name="connection.ssl.ca.location",
    kind=TEXT,
    default=None,
    importance="medium",
    doc="PEM file of the CAs that the nodes' certificates are checked against; not set: the system's.",
)
CERTIFICATE = Option(
    name="connection.ssl.certificate.location",
    kind=TEXT,
    default=None,
    importance="low",
    doc="PEM file of the client's own certificate.",
)
KEY = Option(
    name="connection.ssl.key.location",
    kind=TEXT,
    default=None,
    importance="low",
    doc="PEM file with the key of the client's certificate, if it is not in the same file.",
)
KEY_PASSWORD = Option(
    name="connection.ssl.key.password",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Password of the key, if it is encrypted; prefer ${env:NAME} or ${file:/path:key} to plain text.",
    secret=True,
)
TRUST_ALL = Option(
    name="trust.all.certificates",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Do not check the nodes' certificates; for tests only.",
    aliases=("connection.trust.all.certificates",),
)
REGION = Option(
    name="aws.region",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Sign every request for AWS (Signature Version 4) in this region, instead of basic authentication.",
)
ACCESS_KEY = Option(
    name="aws.access.key.id",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Access key that requests are signed with; else those of AWS's own chain (roles ...), with icebridge[aws].",
    aliases=("aws.access_key_id",),
)
SECRET_KEY = Option(
    name="aws.secret.access.key",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Secret of the access key; prefer ${env:NAME} or ${file:/path:key} to plain text.",
    secret=True,
    aliases=("aws.secret_access_key",),
)
SESSION_TOKEN = Option(
    name="aws.session.token",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Token of temporary credentials.",
    secret=True,
)
PROFILE = Option(
    name="aws.profile",
    kind=TEXT,
    default="",
    importance="low",
    doc="Profile of AWS's configuration files whose credentials sign requests; on every executor.",
)
ROLE = Option(
    name="aws.role.arn",
    kind=TEXT,
    default="",
    importance="low",
    doc="Role to assume (STS) for signing requests; its credentials are renewed.",
    aliases=("aws.sts.role.arn",),
)
AWS_SERVICE = Option(
    name="aws.service.name",
    kind=one_of("es", "aoss"),
    default="es",
    importance="low",
    doc="es for OpenSearch Service, aoss for OpenSearch Serverless.",
    aliases=("aws.service.signing.name",),
)
READ_TIMEOUT = Option(
    name="read.timeout.ms",
    kind=whole_number(1, 2**31 - 1),
    default=60_000,
    importance="low",
    doc="Response timeout in milliseconds, also for bulk requests.",
)
COMPRESSION = Option(
    name="connection.compression",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Compress requests with gzip: worthwhile on a slow network only.",
)
BATCH_SIZE = Option(
    name="batch.size",
    kind=whole_number(1, 1_000_000),
    default=2_000,
    importance="medium",
    doc="Maximum documents per bulk request.",
    aliases=("bulk.max.operations.size",),
)
BULK_BYTES = Option(
    name="bulk.size.bytes",
    kind=whole_number(1, 2**31 - 1),
    default=5 * 1024**2,
    importance="medium",
    doc="Maximum bytes per bulk request; a larger document is sent alone.",
    aliases=("bulk.max.size",),
)
IN_FLIGHT = Option(
    name="max.in.flight.requests",
    kind=whole_number(1, 1_000),
    default=3,
    importance="medium",
    doc="Maximum concurrent bulk requests per task.",
    aliases=("bulk.max.concurrent.requests",),
)
RETRIES = Option(
    name="max.retries",
    kind=whole_number(0, 1_000_000),
    default=8,
    importance="low",
    doc="Retries of documents that a busy node rejected; after that the whole batch is retried.",
)
BACKOFF = Option(
    name="retry.backoff.ms",
    kind=whole_number(1, 2**31 - 1),
    default=100,
    importance="low",
    doc="Delay before the first retry (ms); each further delay is up to twice as long.",
)
CONNECTION_OPTIONS: tuple[Option[object], ...] = (
    URL,
    USERNAME,
    PASSWORD,
    CA,
    CERTIFICATE,
    KEY,
    KEY_PASSWORD,
    TRUST_ALL,
    REGION,
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    PROFILE,
    ROLE,
    AWS_SERVICE,
    READ_TIMEOUT,
    COMPRESSION,
)
BULK_OPTIONS: tuple[Option[object], ...] = (BATCH_SIZE, BULK_BYTES, IN_FLIGHT, RETRIES, BACKOFF)


@attrs.frozen
class AwsSettings:
    """What requests are signed with for AWS; without keys, those of AWS's own chain, of a profile or role if named."""

    region: str
    access_key: str = ""
    secret_key: str = attrs.field(default="", repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)
    service: str = AWS_SERVICE.default
    profile: str = ""
    role: str = ""


@attrs.frozen
class ConnectionSettings:
    """How to reach a cluster; travels to the tasks. No representation shows a password."""

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    trust_all: bool = False
    aws: AwsSettings | None = None
    read_timeout_ms: int = READ_TIMEOUT.default
    compression: bool = False


@attrs.frozen
class BulkSettings:
    """How documents are sent."""

    max_documents: int = BATCH_SIZE.default
    max_bytes: int = BULK_BYTES.default
    in_flight: int = IN_FLIGHT.default
    retries: int = RETRIES.default
    backoff_ms: int = BACKOFF.default


def build_connection(reader: ConfigReader) -> ConnectionSettings:
    """Read how the cluster is reached; faults go to the reader."""
    if reader.entry(URL) is None:
        reader.add_missing(URL.name, "is missing", "add it as http://host:9200 of an OpenSearch node")
    username, password = reader.get(USERNAME), reader.get(PASSWORD)
    given = [entry for option in (USERNAME, PASSWORD) if (entry := reader.entry(option))]
    if len(given) == 1:
        reader.add_fault(given[0], "is given alone", f"give both {USERNAME.name} and {PASSWORD.name}")
    key = reader.entry(KEY) or reader.entry(KEY_PASSWORD)
    if key and reader.get(CERTIFICATE) is None:
        reader.add_fault(key, f"{CERTIFICATE.name} is missing", "add the certificate that the key belongs to")
    return ConnectionSettings(
        urls=reader.get(URL),
        username=username,
        password=password,
        ca=reader.get(CA),
        certificate=reader.get(CERTIFICATE),
        key=reader.get(KEY),
        key_password=reader.get(KEY_PASSWORD),
        trust_all=reader.get(TRUST_ALL),
        aws=_read_aws(reader),
        read_timeout_ms=reader.get(READ_TIMEOUT),
        compression=reader.get(COMPRESSION),
    )


def build_bulk(reader: ConfigReader) -> BulkSettings:
    """Read how documents are sent; faults go to the reader."""
    return BulkSettings(
        max_documents=reader.get(BATCH_SIZE),
        max_bytes=reader.get(BULK_BYTES),
        in_flight=reader.get(IN_FLIGHT),
        retries=reader.get(RETRIES),
        backoff_ms=reader.get(BACKOFF),
    )


def _read_aws(reader: ConfigReader) -> AwsSettings | None:
    region, entry = reader.get(REGION), reader.entry(REGION)
    access, secret = reader.get(ACCESS_KEY), reader.get(SECRET_KEY)
    named = reader.entry(PROFILE) or reader.entry(ROLE)
    if region is None or entry is None:
        signing = named or reader.entry(ACCESS_KEY) or reader.entry(SECRET_KEY)
        if signing:
            reader.add_fault(signing, f"has no effect without {REGION.name}", f"add {REGION.name}")
        return None
    if (reader.entry(ACCESS_KEY) is None) != (reader.entry(SECRET_KEY) is None):
        reader.add_fault(
            entry, "is given with half of a key", f"give {ACCESS_KEY.name} and {SECRET_KEY.name}, or neither"
        )
    if named and access is not None:
        reader.add_fault(named, f"{ACCESS_KEY.name} is given too", "keep one of them")
    if reader.entry(USERNAME):
        reader.add_fault(entry, f"{USERNAME.name} is given too", "keep one of them")
    keys = (access or "", secret or "", reader.get(SESSION_TOKEN))
    return AwsSettings(region, *keys, reader.get(AWS_SERVICE), reader.get(PROFILE), reader.get(ROLE))
