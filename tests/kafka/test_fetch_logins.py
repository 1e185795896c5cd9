"""A broker that takes tokens of an OpenID Connect provider, and certificates of JKS stores: both readers get in."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka import Producer
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.errors import FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.consumer.readers import with_reader
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind
from tests.harness.paths import PROJECT

pytestmark = [pytest.mark.kafka, pytest.mark.thorough, pytest.mark.timeout(300)]
STORES = PROJECT / "tests" / "fixtures" / "stores"
BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
SECRET = "of the client"


@frozen
class Guarded:
    """Where the broker listens for tokens and for certificates, and the provider."""

    tokens: str
    certificates: str
    provider: str


class Provider:
    """An OpenID Connect provider: a token endpoint, and the key that its tokens are signed by."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                pair = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                good = pair == f"reader:{SECRET}"
                self._answer(200 if good else 401, {"access_token": provider.token("reader"), "expires_in": 300})

            def do_GET(self) -> None:
                self._answer(200, {"keys": [provider.public_key()]})

            def _answer(self, status: int, told: dict[str, Any]) -> None:
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def token(self, subject: str) -> str:
        """A token of five minutes, signed."""
        now = int(time.time())
        claims = {"sub": subject, "iat": now, "exp": now + 300, "scope": "kafka", "iss": self.url}
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        signed = ".".join(coded(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{coded(signature)}"

    def public_key(self) -> dict[str, str]:
        """The key as brokers ask for it."""
        numbers = self._key.public_key().public_numbers()
        parts = {"n": numbers.n, "e": numbers.e}
        numbered = {name: coded(value.to_bytes((value.bit_length() + 7) // 8, "big")) for name, value in parts.items()}
        return {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", **numbered}


def coded(data: bytes) -> str:
    """Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker with a plain port, one for tokens, and one for certificates; t-0 has one record."""
    provider = Provider()
    own, controller, tokens, certificates = free_ports(4)
    names = {"PLAINTEXT": own, "CONTROLLER": controller, "TOKENS": tokens, "CERTIFICATES": certificates}
    listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in names.items())
    oauth = "org.apache.kafka.common.security.oauthbearer"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT,CERTIFICATES:SSL"
        ),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
        "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": (
            f"{oauth}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.certificates.ssl.keystore.type": "JKS",
        "listener.name.certificates.ssl.keystore.location": str(STORES / "key.jks"),
        "listener.name.certificates.ssl.keystore.password": "storepass",
        "listener.name.certificates.ssl.key.password": "keypass1",
        "listener.name.certificates.ssl.truststore.type": "JKS",
        "listener.name.certificates.ssl.truststore.location": str(STORES / "trust.jks"),
        "listener.name.certificates.ssl.truststore.password": "storepass",
        "listener.name.certificates.ssl.client.auth": "required",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        with KafkaBroker(tmp_path_factory.mktemp("guarded"), port=own, properties=properties) as broker:
            broker.create_topic("t", 1)
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("t", b"v", b"k")
            assert producer.flush(30) == 0
            yield Guarded(f"{LOOPBACK}:{tokens}", f"{LOOPBACK}:{certificates}", provider.url)
    provider.close()


def settings(servers: str, java: dict[str, str], kind: ReaderKind) -> KafkaSettings:
    """The same settings for every client."""
    return with_reader(KafkaSettings(servers, ("t",), None, "g", "earliest", java, java, java), kind)


def by_token(guarded: Guarded, kind: ReaderKind, secret: str = SECRET) -> KafkaSettings:
    """A login by a token."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    java = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{guarded.provider}/token",
        "sasl.jaas.config": f'{module} required clientId="reader" clientSecret="{secret}" scope="kafka";',
    }
    return settings(guarded.tokens, java, kind)


def by_certificate(guarded: Guarded, kind: ReaderKind) -> KafkaSettings:
    """Mutual TLS by JKS stores, as Java's clients take them."""
    java = {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.location": str(STORES / "trust.jks"),
        "ssl.truststore.password": "storepass",
        "ssl.keystore.location": str(STORES / "key.jks"),
        "ssl.keystore.password": "storepass",
        "ssl.key.password": "keypass1",
    }
    return settings(guarded.certificates, java, kind)


def check(kafka: KafkaSettings) -> None:
    """Tasks read the record, and the admin client sees the topic."""
    chunks = list(assign_ranges(kafka, {("t", 0): 0}, {("t", 0): 1}, 1).all_records())
    assert [chunk.value.to_pylist() for chunk in chunks] == [[b"v"]]
    assert KafkaAdmin(kafka).fetch_end_offsets([("t", 0)]) == {("t", 0): 1}
    assert check_reader(kafka).kafka.reading.reader == kafka.reading.reader


@pytest.mark.parametrize("kind", BOTH)
def test_tokens_of_a_provider_log_in(guarded: Guarded, kind: ReaderKind) -> None:
    """The broker checks the token's signature by the provider's key; both readers and the admin client get in."""
    check(by_token(guarded, kind))


def test_a_wrong_secret_is_refused_by_the_provider(guarded: Guarded) -> None:
    """The provider's refusal is told, and the secret is not."""
    with pytest.raises(FatalError, match="refuses the client reader: 401") as told:
        check(by_token(guarded, "native", "wrong one"))
    assert "wrong one" not in str(told.value)


@pytest.mark.parametrize("kind", BOTH)
def test_mutual_tls_by_jks_stores(guarded: Guarded, kind: ReaderKind) -> None:
    """The stores are those of Java's clients; the broker asks for the certificate in them."""
    check(by_certificate(guarded, kind))
