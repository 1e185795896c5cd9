"""Java's login settings -> what brokers and token endpoints are told, by both readers; secrets stay out of messages."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import define, field

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.brokers import sasl
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.consumer.readers import choose_reader, with_reader
from connector.kafka.librdkafka_config import build_librdkafka_config, find_msk_login
from connector.kafka.tokens import msk, oauth
from connector.kafka.tokens.msk import MskLogin
from connector.runtime import aws_credentials
from connector.runtime.aws_credentials import AwsCredentials, AwsIdentity
from connector.settings import KafkaSettings, load
from connector.settings.kafka.reading import ReaderKind
from tests.harness.http_server import serve_http
from tests.harness.paths import PROJECT
from tests.model.record_batches import Record, batch
from tests.servers.brokers import Brokers, Log

OFFERED = {0: (0, 7), 1: (4, 11), 2: (1, 5), 3: (1, 7), 17: (0, 1), 18: (0, 0), 36: (0, 1)}
BASE = {"debezium.sink.iceberg.warehouse": "/w", "topics": "t"}


@define
class TokenEndpoint:
    """A provider that hands one token out, and what it was asked."""

    url: str = ""
    status: int = 200
    asked: list[tuple[str, dict[str, list[str]]]] = field(factory=list)
    token: str = ""
    body: bytes | None = None
    """What it answers in place of a token."""


def unsigned_token(subject: str) -> str:
    """A token as librdkafka reads it: nobody checks its signature here."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + 3600})
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, "c2ln"])


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    """A token endpoint on loopback."""
    found = TokenEndpoint(token=unsigned_token("me"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            found.asked.append((self.headers["Authorization"], form))
            token = {"access_token": found.token, "expires_in": 3600, "token_type": "Bearer"}
            body = json.dumps(token).encode() if found.body is None else found.body
            self.send_response(found.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serve_http(Handler) as url:
        found.url = f"{url}/token"
        oauth._tokens.clear()
        yield found


def oauth_settings(servers: str, endpoint: TokenEndpoint) -> KafkaSettings:
    """As users of Confluent Cloud, Strimzi or Entra write it."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    login = f'{module} required clientId="me" clientSecret="my secret" scope="kafka" extension_logicalCluster="lkc-1";'
    given = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": handler,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.jaas.config": login,
    }
    return load([], BASE | given, {}).kafka


@pytest.mark.parametrize("kind", ["native", "librdkafka"])
def test_a_token_of_the_provider_logs_in(endpoint: TokenEndpoint, kind: ReaderKind) -> None:
    """The client's credentials are shown to the provider, and its token with the extensions to the broker."""
    with Brokers(OFFERED) as cluster:
        cluster.mechanism = "OAUTHBEARER"
        cluster.password = f"n,,\x01auth=Bearer {endpoint.token}\x01logicalCluster=lkc-1\x01\x01".encode()
        cluster.logs["t", 0] = Log()
        cluster.logs["t", 0].add(batch([Record(0, b"k", b"v")], 0, 0))
        kafka = with_reader(oauth_settings(cluster.servers, endpoint), kind)
        chunks = list(assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 1}, 1).all_records())
        assert [chunk.value.to_pylist() for chunk in chunks] == [[b"v"]]
    credentials, form = endpoint.asked[0]
    assert base64.b64decode(credentials.removeprefix("Basic ")) == b"me:my secret"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert choose_reader(oauth_settings("x:1", endpoint)).kind == "native"


@pytest.mark.parametrize("kind", ["native", "librdkafka"])
def test_a_revoked_token_is_replaced(endpoint: TokenEndpoint, kind: ReaderKind) -> None:
    """A token that should last, and that brokers refuse by now, is thrown away: the next login shows a fresh one."""
    with Brokers(OFFERED) as cluster:
        cluster.mechanism, cluster.password = "OAUTHBEARER", bearer(endpoint)
        log = cluster.logs["t", 0] = Log()
        log.add(batch([Record(0, b"k", b"v")], 0, 0))
        log.add(batch([Record(1, b"k", b"w")], 1, 1))
        kafka = with_reader(oauth_settings(cluster.servers, endpoint), kind)
        for offset, value in enumerate((b"v", b"w")):
            chunks = assign_ranges(kafka, {("t", 0): offset}, {("t", 0): offset + 1}, 1).all_records()
            assert [chunk.value.to_pylist() for chunk in chunks] == [[value]]
            endpoint.token = unsigned_token("me again")
            cluster.password = bearer(endpoint)
            cluster.cut()
    # Where librdkafka says nothing for long a second opinion has a token of its own.
    assert len(endpoint.asked) in ((2,) if kind == "native" else (2, 3))


@pytest.mark.parametrize("by_message", [False, True])
def test_a_fresh_token_that_is_refused_is_an_error(endpoint: TokenEndpoint, by_message: bool) -> None:
    """One is tried in place of the kept one, and then the broker's word counts."""
    with Brokers(OFFERED) as cluster:
        cluster.mechanism, cluster.password, cluster.refuses_by_message = "OAUTHBEARER", b"another", by_message
        client = BrokerClient(ClusterAddress.of(oauth_settings(cluster.servers, endpoint).client("consumer")))
        with pytest.raises(FatalError, match="invalid_token" if by_message else "refused the login by OAUTHBEARER"):
            client.connection(cluster.advertised[1])
        assert sum(one.api == 36 for one in cluster.asked) == 2
    assert len(endpoint.asked) == 2


def test_a_wrong_password_is_shown_once() -> None:
    """Nothing else could be shown a second time, and some servers count failures."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    with Brokers(OFFERED) as cluster:
        cluster.password = b"another"
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
        kafka = load([], BASE | {"bootstrap.servers": cluster.servers} | given, {}).kafka
        with pytest.raises(FatalError, match="refused the login by PLAIN"):
            BrokerClient(ClusterAddress.of(kafka.client("consumer"))).connection(cluster.advertised[1])
        assert sum(one.api == 36 for one in cluster.asked) == 1


def test_the_admin_client_replaces_a_revoked_token(endpoint: TokenEndpoint) -> None:
    """librdkafka would show it until most of its time is over: after a question without answer there is another one."""
    with Brokers(OFFERED) as cluster:
        cluster.mechanism, cluster.password = "OAUTHBEARER", bearer(endpoint)
        cluster.logs["t", 0] = Log()
        admin = KafkaAdmin(oauth_settings(cluster.servers, endpoint), 3.0)
        assert admin.names() == {"t"}
        endpoint.token = unsigned_token("me again")
        cluster.password = bearer(endpoint)
        cluster.cut()
        with pytest.raises(RetriableError):
            admin.names()
        assert admin.names() == {"t"}


def test_credentials_whose_signature_is_refused_are_looked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role's session may be revoked: the next token is signed by keys that are found again."""
    given = {**BASE, **MSK_LOGIN, "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}
    client, identity = load([], given, {}).kafka.client("consumer"), AwsIdentity(region="eu-west-1")
    holders = {identity: object()}
    monkeypatch.setattr(aws_credentials, "_holders", holders)
    assert sasl.forget_credentials(client)
    assert not holders
    assert not sasl.forget_credentials({**client, "sasl.mechanisms": "PLAIN"})


def bearer(endpoint: TokenEndpoint) -> bytes:
    """What a client shows that has the endpoint's token."""
    return f"n,,\x01auth=Bearer {endpoint.token}\x01logicalCluster=lkc-1\x01\x01".encode()


def test_a_token_is_kept_until_it_is_nearly_over(endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection shows the same token; a new one is asked for before it ends."""
    credentials = oauth.ClientCredentials(endpoint.url, "me", "my secret")
    first = oauth.fetch_token(credentials)
    assert oauth.fetch_token(credentials) == first
    assert len(endpoint.asked) == 1
    later = time.time() + 3000
    monkeypatch.setattr(oauth.time, "time", lambda: later)
    assert oauth.fetch_token(credentials).expires_at > first.expires_at
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(("status", "kind"), [(401, FatalError), (503, RetriableError), (429, RetriableError)])
def test_a_provider_that_refuses_is_named(endpoint: TokenEndpoint, status: int, kind: type[Exception]) -> None:
    """Endpoint, client and status are told, never the secret; one that is away is tried again."""
    endpoint.status = status
    with Brokers(OFFERED) as cluster, pytest.raises(kind, match=f"127.0.0.1.*refuses the client me: {status}") as told:
        cluster.mechanism = "OAUTHBEARER"
        client = BrokerClient(ClusterAddress.of(oauth_settings(cluster.servers, endpoint).client("consumer")))
        client.connection(cluster.advertised[1])
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("status", [401, 200])
def test_a_providers_reason_is_told(endpoint: TokenEndpoint, status: int) -> None:
    """`error` and `error_description` (RFC 6749) are, as one short line; nothing else of the answer, and no secret."""
    endpoint.status = status
    told = {"error": "invalid_client", "error_description": "AADSTS7000215: my%20secret\r\nmy secret is wrong\x1b[2J."}
    endpoint.body = json.dumps({**told, "hint": "private", "access": "x"}).encode()
    credentials = oauth.ClientCredentials(endpoint.url, "me", "my secret")
    with pytest.raises(FatalError) as error:
        oauth.fetch_token(credentials)
    assert "invalid_client: AADSTS7000215: *** *** is wrong" in str(error.value)
    assert not [part for part in ("secret", "private", "\n", "\x1b") if part in str(error.value)]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b"null", b'{"error": 5}', b'{"error": null}', b"\xff", b'{"error": {"a": "b"}}']
)
def test_a_provider_that_gives_no_reason_is_named(endpoint: TokenEndpoint, body: bytes) -> None:
    """A page, a list, numbers: the status alone is told."""
    endpoint.status, endpoint.body = 400, body
    with pytest.raises(FatalError, match=r"refuses the client me: 400 Bad Request$"):
        oauth.fetch_token(oauth.ClientCredentials(endpoint.url, "me", "my secret"))


def test_no_more_of_a_refusal_is_read_than_a_reason_takes(endpoint: TokenEndpoint) -> None:
    """A page without end, or a reason of a megabyte, fills no log."""
    endpoint.status, endpoint.body = 400, json.dumps({"error": "e", "error_description": "d" * 3000}).encode()
    with pytest.raises(FatalError) as error:
        oauth.fetch_token(oauth.ClientCredentials(endpoint.url, "me", "my secret"))
    assert len(str(error.value)) < 600


def test_what_is_no_provider_is_told() -> None:
    """An endpoint that nobody listens at is away, and so is one that hangs up in the middle, or speaks no HTTP."""
    with pytest.raises(RetriableError, match=r"the token endpoint http://127\.0\.0\.1:1/ is away"):
        oauth.fetch_token(oauth.ClientCredentials("http://127.0.0.1:1/", "me", "my secret"))
    for said in (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"who is there\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer(listening: socket.socket = listening, said: bytes = said) -> None:
                with listening.accept()[0] as one:
                    one.recv(4096)
                    one.sendall(said)

            threading.Thread(target=answer, daemon=True).start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            with pytest.raises(RetriableError, match="is away"):
                oauth.fetch_token(oauth.ClientCredentials(url, "me", "my secret"))


MSK = "b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098"
MSK_LOGIN = {
    "bootstrap.servers": MSK,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


RECORDED = json.loads((PROJECT / "tests" / "fixtures" / "msk_tokens.json").read_text())["tokens"]


@pytest.mark.parametrize("made", RECORDED, ids=[one["region"] for one in RECORDED])
def test_msk_tokens_are_those_of_awss_signer(made: dict[str, str]) -> None:
    """The signed request is, parameter for parameter, what AWS's own package for MSK makes of the same keys."""
    keys = AwsCredentials(made["access_key"], made["secret_key"], made["session_token"])
    token = msk.sign_token(keys, made["region"], 1_700_000_000.0)
    ours = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    theirs = urlsplit(made["url"])
    assert ours._replace(query="") == theirs._replace(query="")
    told, recorded = parse_qs(ours.query), parse_qs(theirs.query)
    assert told.pop("User-Agent") == ["icebridge"]
    assert recorded.pop("User-Agent") == ["aws-msk-iam-sasl-signer-python/1.0.2"]
    assert told == recorded


def test_msk_logins_are_tokens_in_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's mechanism is spoken as OAUTHBEARER, with a token per login; the region is in the brokers' names."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    given = {**BASE, **MSK_LOGIN, "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}
    kafka = load([], given, {}).kafka
    client = kafka.client("consumer")
    assert client["sasl.mechanisms"] == "OAUTHBEARER"
    assert find_msk_login(client) == MskLogin("eu-west-1")
    config = build_librdkafka_config(client)
    assert not [name for name in config if name.startswith("icebridge")]
    text, expires_at = config["oauth_cb"]("")
    assert b"Action=kafka-cluster%3AConnect" in base64.urlsafe_b64decode(text + "===")
    assert time.time() < expires_at <= time.time() + 900
    assert choose_reader(kafka).kind == "native"


def test_msk_logins_without_credentials_say_what_to_set() -> None:
    """Neither key nor botocore, or no region: what to do is told."""
    with pytest.raises(FatalError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install botocore"):
        aws_credentials._from_environ(AwsIdentity(), "AWS_MSK_IAM", {})
    with pytest.raises(FatalError, match="set AWS_REGION"):
        msk.find_region("broker:9098", {})
    assert msk.find_region("broker:9098", {"AWS_REGION": "us-east-2"}) == "us-east-2"
    assert msk.find_region("boot-x.c3.kafka-serverless.us-east-1.amazonaws.com:9098", {}) == "us-east-1"


def test_kerberos_is_for_librdkafka_that_has_it() -> None:
    """A keytab's login goes to the second reader; an installation without Kerberos says what to install."""
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab='/k' principal='me@R'"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{module};"}
    more = {"bootstrap.servers": "localhost:1", "sasl.kerberos.service.name": "kafka"}
    kafka = load([], BASE | given | more, {}).kafka
    assert (
        kafka.client("admin").items()
        >= {
            "sasl.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": "/k",
            "sasl.kerberos.principal": "me@R",
        }.items()
    )
    assert choose_reader(kafka).kind == "librdkafka"
    with pytest.raises(FatalError, match="--no-binary confluent-kafka"):
        KafkaAdmin(kafka)
    with pytest.raises(FatalError, match="--no-binary confluent-kafka"):
        check_reader(kafka)
