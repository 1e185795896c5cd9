"""properties -> SearchSettings: the OpenSearch sink. Names: Aiven's sink, where it has one.

A file is that sink's when `debezium.sink.type` is opensearch, or `connector.class` names Aiven's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    LIST,
    TEXT,
    InvalidValue,
    ValueType,
    one_of,
    split_list,
    whole_number,
)
from connector.settings.opensearch import data_streams as series

AIVEN_CLASS = "OpensearchSinkConnector"


def _parse_urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.rstrip("/") for url in split_list(text))
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        raise InvalidValue("{} is not a list of URLs", "write http://host:9200, several separated by commas")
    if any("@" in url for url in urls):
        raise InvalidValue("a URL has a user in it", "use connection.username and connection.password")
    return urls


def _parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple(tuple(part.strip() for part in item.split(":", 1)) for item in split_list(text))
    if any(len(pair) != 2 or not all(pair) for pair in pairs):  # noqa: PLR2004
        raise InvalidValue("{} is not a list of pairs", "write topic:index, several separated by commas")
    return cast("tuple[tuple[str, str], ...]", pairs)


def _parse_metadata(text: str) -> tuple[str, ...]:
    known = ("iceberg_operation", "iceberg_table_name", "iceberg_snapshot_id", "document_id", "bulk_action")
    if not set(split_list(text)) <= set(known):
        raise InvalidValue("{} holds an unknown field", f"write some of {', '.join(known)}")
    return split_list(text)


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
TRUST_ALL = Option(
    name="trust.all.certificates",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Do not check the nodes' certificates; for tests only.",
)
REGION = Option(
    name="aws.region",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Sign every request for AWS (Signature Version 4) in this region, instead of basic authentication.",
)
ACCESS_KEY = Option(
    name="aws.access.key.id", kind=TEXT, default=None, importance="low", doc="Access key that requests are signed with."
)
SECRET_KEY = Option(
    name="aws.secret.access.key",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Secret of the access key; prefer ${env:NAME} or ${file:/path:key} to plain text.",
    secret=True,
)
SESSION_TOKEN = Option(
    name="aws.session.token",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Token of temporary credentials.",
    secret=True,
)
AWS_SERVICE = Option(
    name="aws.service.name",
    kind=one_of("es", "aoss"),
    default="es",
    importance="low",
    doc="es for OpenSearch Service, aoss for OpenSearch Serverless.",
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
)
BULK_BYTES = Option(
    name="bulk.size.bytes",
    kind=whole_number(1, 2**31 - 1),
    default=5 * 1024**2,
    importance="medium",
    doc="Maximum bytes per bulk request; a larger document is sent alone.",
)
IN_FLIGHT = Option(
    name="max.in.flight.requests",
    kind=whole_number(1, 1_000),
    default=3,
    importance="medium",
    doc="Maximum concurrent bulk requests per task.",
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
KEY_IGNORE = Option(
    name="key.ignore",
    kind=BOOLEAN,
    default=False,
    importance="high",
    doc="Ignore record keys: every event becomes its own document.",
)
TOPIC_KEY_IGNORE = Option(
    name="topic.key.ignore", kind=LIST, default=(), importance="low", doc="Topics for which key.ignore is true."
)
SCHEMA_IGNORE = Option(
    name="schema.ignore",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Create no mapping: leave it to dynamic mapping or to your index template.",
)
TOPIC_SCHEMA_IGNORE = Option(
    name="topic.schema.ignore", kind=LIST, default=(), importance="low", doc="Topics for which schema.ignore is true."
)
WRITE_METHOD = Option(
    name="index.write.method",
    kind=one_of("insert", "upsert"),
    default="insert",
    importance="medium",
    doc="insert replaces documents whole, guarded by versions; upsert sets only the fields that an event has.",
)
NULL_VALUES = Option(
    name="behavior.on.null.values",
    kind=one_of("ignore", "delete", "fail"),
    default="delete",
    importance="medium",
    doc="What a tombstone does: delete its document, ignore it, or fail.",
)
MALFORMED = Option(
    name="behavior.on.malformed.documents",
    kind=one_of("report", "ignore", "warn", "fail"),
    default="report",
    importance="medium",
    doc="If the index rejects a document: report makes its record a dead letter; ignore and warn drop it.",
)
CONFLICT = Option(
    name="behavior.on.version.conflict",
    kind=one_of("ignore", "warn", "fail"),
    default="ignore",
    importance="low",
    doc="If a change is older than the indexed document it is dropped; warn also logs it, fail stops instead.",
)
INDEX_MAP = Option(
    name="topic.to.existing.resource.mapping",
    kind=ValueType("list", _parse_pairs),
    default=(),
    importance="medium",
    doc="Existing indexes or aliases, as topic:index pairs; other indexes are named after their topic.",
    aliases=("topic.index.map",),
)
GC_DELETES = Option(
    name="index.gc_deletes",
    kind=TEXT,
    default="1h",
    importance="low",
    doc="How long new indexes keep versions of deleted documents, so that an older change cannot re-create them.",
)
METADATA = Option(
    name="iceberg.metadata.fields",
    kind=ValueType("list", _parse_metadata),
    default=(),
    importance="low",
    doc="Added fields: iceberg_operation, iceberg_table_name, iceberg_snapshot_id, document_id, bulk_action.",
)
OPTIONS: tuple[Option[object], ...] = (
    URL,
    USERNAME,
    PASSWORD,
    CA,
    CERTIFICATE,
    KEY,
    TRUST_ALL,
    REGION,
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    AWS_SERVICE,
    READ_TIMEOUT,
    COMPRESSION,
    BATCH_SIZE,
    BULK_BYTES,
    IN_FLIGHT,
    RETRIES,
    BACKOFF,
    KEY_IGNORE,
    TOPIC_KEY_IGNORE,
    SCHEMA_IGNORE,
    TOPIC_SCHEMA_IGNORE,
    WRITE_METHOD,
    NULL_VALUES,
    MALFORMED,
    CONFLICT,
    INDEX_MAP,
    GC_DELETES,
    *series.OPTIONS,
)
SOURCE_OPTIONS: tuple[Option[object], ...] = (
    *(URL, USERNAME, PASSWORD, CA, CERTIFICATE, KEY, TRUST_ALL, READ_TIMEOUT, COMPRESSION),
    *(REGION, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, AWS_SERVICE),
    *(BATCH_SIZE, BULK_BYTES, IN_FLIGHT, RETRIES, BACKOFF, SCHEMA_IGNORE, MALFORMED, CONFLICT, GC_DELETES, METADATA),
)
"""Those of a source that writes documents itself, and METADATA, which only it has."""


@attrs.frozen
class AwsSettings:
    """What requests are signed with for AWS."""

    region: str
    access_key: str
    secret_key: str = attrs.field(repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)
    service: str = AWS_SERVICE.default


@attrs.frozen
class ConnectionSettings:
    """How to reach a cluster; travels to the tasks. No representation shows the password."""

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
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


@attrs.frozen
class OpenSearchSettings:
    """What documents look like, and where they go."""

    connection: ConnectionSettings
    bulk: BulkSettings
    key_ignore: bool
    topic_key_ignore: tuple[str, ...]
    schema_ignore: bool
    topic_schema_ignore: tuple[str, ...]
    partial: bool
    null_values: Literal["ignore", "delete", "fail"]
    malformed: Literal["report", "ignore", "warn", "fail"]
    conflict: Literal["ignore", "warn", "fail"]
    existing: Mapping[str, str]
    gc_deletes: str = GC_DELETES.default
    metadata: tuple[str, ...] = ()
    series: series.DataStreamSettings = series.DataStreamSettings()


def is_opensearch_sink(entries: Mapping[str, Entry]) -> bool:
    """Whether a file was written for Aiven's sink."""
    named = entries.get("connector.class")
    return named is not None and named.text.strip().endswith(AIVEN_CLASS)


def build(reading: ConfigReader) -> OpenSearchSettings:
    """Read the OpenSearch part; faults go to the reading."""
    if reading.entry(URL) is None:
        reading.add_missing(URL.name, "is missing", "add it as http://host:9200 of an OpenSearch node")
    return OpenSearchSettings(
        connection=_read_connection(reading),
        bulk=BulkSettings(
            reading.get(BATCH_SIZE),
            reading.get(BULK_BYTES),
            reading.get(IN_FLIGHT),
            reading.get(RETRIES),
            reading.get(BACKOFF),
        ),
        key_ignore=reading.get(KEY_IGNORE),
        topic_key_ignore=reading.get(TOPIC_KEY_IGNORE),
        schema_ignore=reading.get(SCHEMA_IGNORE),
        topic_schema_ignore=reading.get(TOPIC_SCHEMA_IGNORE),
        partial=reading.get(WRITE_METHOD) == "upsert",
        null_values=cast("Literal['ignore', 'delete', 'fail']", reading.get(NULL_VALUES)),
        malformed=cast("Literal['report', 'ignore', 'warn', 'fail']", reading.get(MALFORMED)),
        conflict=cast("Literal['ignore', 'warn', 'fail']", reading.get(CONFLICT)),
        existing=dict(reading.get(INDEX_MAP)),
        gc_deletes=reading.get(GC_DELETES),
        metadata=reading.get(METADATA),
        series=series.build(reading),
    )


def _read_connection(reading: ConfigReader) -> ConnectionSettings:
    username, password = reading.get(USERNAME), reading.get(PASSWORD)
    entry = reading.entry(USERNAME) or reading.entry(PASSWORD)
    if entry and (username is None) != (password is None):
        reading.add_fault(entry, "stands alone", f"give {USERNAME.name} and {PASSWORD.name}")
    key = reading.entry(KEY)
    if key and reading.get(CERTIFICATE) is None:
        reading.add_fault(key, f"{CERTIFICATE.name} is missing", "add the certificate that the key belongs to")
    return ConnectionSettings(
        urls=reading.get(URL),
        username=username,
        password=password,
        ca=reading.get(CA),
        certificate=reading.get(CERTIFICATE),
        key=reading.get(KEY),
        trust_all=reading.get(TRUST_ALL),
        aws=_read_aws(reading),
        read_timeout_ms=reading.get(READ_TIMEOUT),
        compression=reading.get(COMPRESSION),
    )


def _read_aws(reading: ConfigReader) -> AwsSettings | None:
    region, entry = reading.get(REGION), reading.entry(REGION)
    access, secret = reading.get(ACCESS_KEY), reading.get(SECRET_KEY)
    if region is None or entry is None:
        return None
    if access is None or secret is None:
        reading.add_fault(entry, "stands alone", f"give {ACCESS_KEY.name} and {SECRET_KEY.name} too")
    if reading.entry(USERNAME):
        reading.add_fault(entry, f"{USERNAME.name} is given too", "keep one of them")
    return AwsSettings(region, access or "", secret or "", reading.get(SESSION_TOKEN), reading.get(AWS_SERVICE))


def check_absent(reading: ConfigReader) -> None:
    """Refuse options of the OpenSearch sink in another sink's file."""
    for option in OPTIONS:
        entry = reading.entry(option)
        if entry is not None:
            reading.add_fault(entry, "is an option of the OpenSearch sink", "set debezium.sink.type=opensearch")
