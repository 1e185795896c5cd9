"""Calls to a cluster without one: errors by what is to be done, certificates, AWS signatures, no secret shown."""

from __future__ import annotations

import calendar
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import NameOID
from opensearchpy.exceptions import (
    AuthenticationException,
    AuthorizationException,
    ConnectionTimeout,
    RequestError,
    TransportError,
)
from opensearchpy.exceptions import ConnectionError as NoConnection
from urllib3 import HTTPConnectionPool

from connector.errors import ConfigError, FatalError, RetriableError
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.opensearch.sigv4 import RequestSigner
from connector.runtime.aws_credentials import AwsCredentials
from connector.settings import SinkSettings, load
from connector.settings.opensearch.connection import AwsSettings, BulkSettings, ConnectionSettings
from connector.settings.opensearch.documents import OpenSearchSettings

FILE = """\
bootstrap.servers=localhost:9092
topics=t
connector.class=io.aiven.kafka.connect.opensearch.OpensearchSinkConnector
connection.url=https://a:9200,https://b:9200
debezium.sink.iceberg.warehouse=warehouse
"""

FLOOD = (
    "index [t] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has "
    "read-only-allow-delete block];"
)
NO_INDEX = "blocked by: [FORBIDDEN/10/cluster create-index blocked (api)];"
FIELDS = "Limit of total fields [1000] has been exceeded"
NO_RIGHT = "no permissions for [indices:admin/create] and User [name=loader, backend_roles=[]]"
READ_ONLY = "index [t] blocked by: [FORBIDDEN/5/index read-only (api)];"
NO_LEADER = "blocked by: [SERVICE_UNAVAILABLE/2/no cluster-manager];"


def _block(kind: str, status: int, reason: str) -> TransportError:
    body = {"error": {"root_cause": [{"type": kind, "reason": reason}], "type": kind, "reason": reason}}
    return TransportError(status, kind, {**body, "status": status})


@pytest.mark.parametrize(
    ("error", "wanted", "text"),
    [
        (NoConnection("N/A", "h:1: refused", OSError()), RetriableError, "answer .ConnectionError: h:1: refused"),
        (ConnectionTimeout("TIMEOUT", "slow", OSError()), RetriableError, "does not answer .ConnectionTimeout: slow"),
        (TransportError(429, "rejected_execution_exception", {}), RetriableError, "busy"),
        (TransportError(503, "x", {}), RetriableError, "busy"),
        (TransportError(408, "<html>Request Timeout</html>", {}), RetriableError, "busy"),
        (AuthenticationException(401, "x", {}), FatalError, "check connection.username"),
        (AuthorizationException(403, "security_exception", {}), FatalError, "rights"),
        (AuthorizationException(403, "x", {}), FatalError, "rights"),
        (_block("security_exception", 403, NO_RIGHT), FatalError, "403: no permissions for .indices:ad"),
        (AuthorizationException(403, "x", {"Message": "not authorized: es:ESHttpPut"}), FatalError, "ESHttpPut.; che"),
        (AuthenticationException(401, "Unauthorized", "Unauthorized"), FatalError, "status 401.; check"),
        (AuthorizationException(403, '{"Message":"User: anonymous is not authorized"}', {}), FatalError, "rights"),
        (_block("cluster_block_exception", 403, FLOOD), RetriableError, "flood-stage watermark, index has .*free disk"),
        (_block("cluster_block_exception", 429, FLOOD), RetriableError, "flood-stage watermark, index has .*free disk"),
        (_block("index_create_block_exception", 403, NO_INDEX), RetriableError, r"create-index.*watermark\.high"),
        (_block("cluster_block_exception", 403, READ_ONLY), RetriableError, "set by hand"),
        (_block("cluster_block_exception", 503, NO_LEADER), RetriableError, "is busy"),
        (RequestError(400, "x", {"error": {"reason": "because"}}), FatalError, "because"),
        (_block("index_not_found_exception", 404, "no such index [t]"), RetriableError, "or OpenSearch has just star"),
        (_block("illegal_argument_exception", 400, FIELDS), FatalError, "more fields; raise its .*index template"),
        (NoConnection("N/A", "[SSL: CERTIFICATE_VERIFY_FAILED]", OSError()), FatalError, "ssl.ca.location"),
        (
            NoConnection("N/A", "[SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch, not valid for 'h'", OSError()),
            FatalError,
            "not valid for 'h'.; name the nodes in connection.url as",
        ),
        (NoConnection("N/A", "CERTIFICATE_VERIFY_FAILED: certificate has expired", OSError()), FatalError, "renew"),
    ],
)
def test_errors_are_classed_by_what_to_do(error: Exception, wanted: type[Exception], text: str) -> None:
    """Away, busy and blocked (a full disk) are tried again; no rights and refusals stop with what to do."""
    with pytest.raises(wanted, match=text), map_opensearch_errors("asking"):
        raise error


@pytest.mark.parametrize("status", [404, 503])
def test_the_page_of_a_proxy_is_one_short_line(status: int) -> None:
    """What stands before a cluster answers by pages of HTML, of which an error has the beginning."""
    page = "<html>\r\n<head><title>503 Service Unavailable</title></head>\n" + "<!-- padding -->\n" * 100
    with pytest.raises((FatalError, RetriableError)) as caught, map_opensearch_errors("asking"):
        raise TransportError(status, page, page)
    told = str(caught.value)
    assert "<head><title>503 Service Unavailable" in told and len(told) < 300 and "\n" not in told


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A CA file that cannot be read stops the sink with its name."""
    settings = ConnectionSettings(("https://a:9200",), ca=str(tmp_path / "no.pem"))
    with pytest.raises(FatalError, match=r"no\.pem"):
        opensearch_client(settings)


def test_an_encrypted_key_is_read_by_its_password(tmp_path: Path) -> None:
    """With another password, or without one, it is an error: nothing waits for somebody who types it."""
    own = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, own.public_key(), 1, now, now + timedelta(days=1))
    (tmp_path / "c.pem").write_bytes(made.sign(own, hashes.SHA256()).public_bytes(Encoding.PEM))
    locked = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cret"))
    (tmp_path / "k.pem").write_bytes(locked)
    files = {"certificate": str(tmp_path / "c.pem"), "key": str(tmp_path / "k.pem")}
    assert opensearch_client(ConnectionSettings(("https://a:9200",), **files, key_password="s3cret"))
    for password in ("wrong", None):
        settings = ConnectionSettings(("https://a:9200",), **files, key_password=password)
        with pytest.raises(FatalError, match="the password of an encrypted key"):
            opensearch_client(settings)
        assert "wrong" not in repr(settings)


@pytest.mark.parametrize("trust_all", [False, True])
def test_a_client_of_https_warns_of_nothing(recwarn: pytest.WarningsRecorder, *, trust_all: bool) -> None:
    """Certificates are this program's own matter, and no setting of it is ignored."""
    opensearch_client(ConnectionSettings(("https://warns:9200",), trust_all=trust_all))
    assert not recwarn.list


@pytest.mark.parametrize("password", ["s3cret", "pässword", "p€ss:word", "пароль"])
def test_a_login_is_sent_in_utf_8(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    """Users and passwords of any characters are sent as OpenSearch's security reads them."""
    sent: list[dict[str, str]] = []

    def send(*_: object, headers: dict[str, str], **__: object) -> None:
        sent.append(headers)
        raise OSError

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", send)
    client = opensearch_client(ConnectionSettings(("http://a:9200",), username="jürgen", password=password))
    with pytest.raises(NoConnection):
        client.info()
    (login,) = (value for name, value in sent[0].items() if name.lower() == "authorization")
    assert b64decode(login.removeprefix("Basic ")).decode() == f"jürgen:{password}"


def test_a_signature_is_awss() -> None:
    """AWS's own example (test suite, get-vanilla) gets AWS's own signature, with the port of HTTPS or without."""
    at = calendar.timegm((2015, 8, 30, 12, 36, 0))
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    keys = AwsCredentials("AKIDEXAMPLE", secret)
    signer = RequestSigner("us-east-1", lambda: keys, "service", content=False, now=lambda: at)
    told = signer("GET", "https://example.amazonaws.com/", None)["Authorization"]
    assert told.endswith("Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")
    assert signer("GET", "https://example.amazonaws.com:443/", None)["Authorization"] == told
    assert signer("GET", "https://example.amazonaws.com:8443/", None)["host"] == "example.amazonaws.com:8443"
    assert secret not in repr(signer)


def _search_of(settings: SinkSettings) -> OpenSearchSettings:
    assert isinstance(settings.destination, OpenSearchSettings)
    return settings.destination


def test_a_file_of_aivens_sink(tmp_path: Path) -> None:
    """A file with that sink's class and names is the OpenSearch sink's; what only steers its buffers is noted."""
    file = tmp_path / "s.properties"
    file.write_text(FILE + "batch.size=100\nmax.in.flight.requests=2\nlinger.ms=5\nbehavior.on.null.values=ignore\n")
    settings = load([file], environ={})
    search = _search_of(settings)
    assert (search.bulk.max_documents, search.bulk.in_flight) == (100, 2)
    assert (search.null_values, settings.table.keep_deletes) == ("ignore", False)
    assert any("linger.ms" in note for note in settings.notes)


def test_every_key_of_aivens_sink_is_understood(tmp_path: Path) -> None:
    """Its documented keys with their defaults change nothing, and those of a login are read by their names there."""
    given = """\
connection.trust.all.certificates=true
aws.access_key_id=access
aws.secret_access_key=secret
aws.region=eu-west-1
aws.service.signing.name=aoss
aws.sts.role.session.name=n
aws.sts.role.session.duration=3600
connection.ssl.enabled.protocols=TLSv1.2,TLSv1.3
connection.ssl.endpoint.identification.algorithm=https
connection.ssl.truststore.type=JKS
key.ignore.id.strategy=topic.partition.offset
compact.map.entries=true
drop.invalid.message=false
routing.type=NONE
routing.type.record.value.path=
existing.resource.type=none
"""
    file = tmp_path / "s.properties"
    file.write_text(FILE + given)
    connection = _search_of(load([file], environ={})).connection
    assert connection.trust_all
    assert connection.aws == AwsSettings("eu-west-1", "access", "secret", service="aoss")


def test_a_secret_that_is_not_found_is_one_fault(tmp_path: Path) -> None:
    """It is not taken for one that was left out beside its user's name, or its key."""
    given = "connection.username=u\nconnection.password=${env:NONE}\n"
    file = tmp_path / "s.properties"
    file.write_text(FILE + given)
    with pytest.raises(ConfigError) as caught:
        load([file], environ={})
    assert [fault.partition(": ")[2] for fault in caught.value.faults] == [
        "connection.password: ${env:NONE} cannot be resolved: the environment has no such variable; "
        "provide it or correct the reference"
    ]


def test_options_of_tables_are_noted_where_there_are_indexes(tmp_path: Path) -> None:
    """A file of both kinds of sink runs, and says what of it does nothing; deleted keys are remembered for both."""
    given = "debezium.sink.iceberg.write-mode=copy-on-write\niceberg.maintenance.enabled=true\n"
    given += "iceberg.table.t.scd-type=2\ndeleted.keys.retention.ms=1\n"
    file = tmp_path / "s.properties"
    file.write_text(FILE + given)
    assert load([file], environ={}).notes == (
        "these options are of tables, and have no effect on indexes: debezium.sink.iceberg.write-mode, "
        "iceberg.maintenance.enabled, iceberg.table.t.scd-type",
    )


def test_a_file_of_aivens_sink_of_today(tmp_path: Path) -> None:
    """All keys that Aiven's later versions have beside are known, by which class ever the file names it."""
    file = tmp_path / "s.properties"
    file.write_text(
        FILE.replace("OpensearchSink", "OpenSearchSink")
        + "bulk.max.operations.size=100\nbulk.max.size=1000\nbulk.max.concurrent.requests=2\nkey.ignore=true\n"
        + "aws.region=eu-west-1\naws.access_key_id=a\naws.secret_access_key=s3cret\nkey.ignore.id.strategy=none\n"
        + "compact.map.entries=true\ndrop.invalid.message=false\n"
    )
    settings = load([file], environ={})
    search = _search_of(settings)
    assert search.bulk == BulkSettings(max_documents=100, max_bytes=1000, in_flight=2)
    assert search.connection.aws == AwsSettings("eu-west-1", "a", "s3cret")
    assert any("compact.map.entries, drop.invalid.message" in note for note in settings.notes)


def test_secrets_are_looked_up_and_never_shown(tmp_path: Path) -> None:
    """A password comes from a provider, and no representation has it."""
    file = tmp_path / "s.properties"
    file.write_text(FILE + "connection.username=u\nconnection.password=${env:PASS}\n")
    settings = load([file], environ={"PASS": "s3cret"})
    assert _search_of(settings).connection.password == "s3cret"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("connection.url=localhost", "is not a list of URLs"),
        ("connection.url=https://u:p@a:9200", "has a user in it"),
        ("connection.url=https://u:p/w@a:9200", "has a user in it"),
        ("connection.url=http://a:port", "is not a list of URLs"),
        ("connection.url=http://a:99999", "is not a list of URLs"),
        ("connection.url=http://[a", "is not a list of URLs"),
        ("connection.url=http://:9200", "is not a list of URLs"),
        ("connection.url=http://a:9200?pretty", "is not a list of URLs"),
        ("connection.password=x", "is given alone"),
        ("connection.ssl.key.location=k.pem", "connection.ssl.certificate.location is missing"),
        ("aws.region=eu-west-1\naws.access.key.id=a", "is given with half of a key"),
        ("aws.access_key_id=a\naws.secret_access_key=b", "has no effect without aws.region"),
        ("aws.sts.role.arn=a", "has no effect without aws.region"),
        ("aws.sts.role.external.id=a", "set aws.profile"),
        ("connection.ssl.truststore.location=/t.jks", "set connection.ssl.ca.location"),
        ("connection.ssl.keystore.location=/t.jks", "set connection.ssl.certificate.location"),
        ("compact.map.entries=false", "can only be true here"),
        ("routing.type=key", "can only be none here"),
        ("aws.region=eu-west-1\naws.access.key.id=a\naws.secret.access.key=b\naws.profile=p", "is given too"),
        ("data.stream.enabled=true", "set key.ignore=true"),
        ("topic.format=${topic}-${timestamp}", "set key.ignore=true"),
        ("topic.format=daily-${topic}", "write \\$"),
        ("topic.format=Daily-${topic}-${timestamp}", "small letters"),
        ("timestamp.format=YYYY", "write yyyy"),
        ("timestamp.format=yyyy", "has no effect here"),
        ("key.ignore=true\ndata.stream.enabled=true\nindex.write.method=upsert", "leave index.write.method out"),
        ("data.stream.prefix=logs", "set data.stream.enabled=true"),
        ("truncate.enabled=true\ndebezium.sink.iceberg.upsert-dedup-column=lsn", "documents have other versions"),
        ("truncate.enabled=true\ndebezium.sink.iceberg.upsert-keep-deletes=true", "keeps every document"),
        ("topic.index.map=a", "is not a list of pairs"),
        ("topic.index.map=t:shop-*", "is not a list of pairs"),
        ("topic.index.map=t:<shop-{now/d}>", "is not a list of pairs"),
        ("topic.index.map=t:_all", "is not a list of pairs"),
        ("key.ignore=true\nkey.ignore.id.strategy=record.key", "take key.ignore and topic.key.ignore out"),
    ],
)
def test_wrong_settings_say_what_to_do(tmp_path: Path, line: str, text: str) -> None:
    """Each wrong value of the connection is a fault with its place."""
    file = tmp_path / "s.properties"
    file.write_text(FILE.replace("connection.url", "#connection.url") if line.startswith("connection.url") else FILE)
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=text):
        load([file], environ={})


def test_options_of_another_sink_are_refused(tmp_path: Path) -> None:
    """An option of the OpenSearch sink in an Iceberg sink's file is a mistake, and says so."""
    file = tmp_path / "s.properties"
    file.write_text(
        "bootstrap.servers=a:1\ntopics=t\ndebezium.sink.iceberg.warehouse=w\nconnection.url=http://a:9200\n"
    )
    with pytest.raises(ConfigError, match=r"set debezium\.sink\.type=opensearch"):
        load([file], environ={})
