"""Truststores -> whether every client believes a broker: what passes in Java passes here."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from connector.errors import ConnectorError, FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.brokers import tls
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient
from connector.settings import KafkaSettings
from tests.model.certificates import HOST, CertificateChain
from tests.servers.brokers import Brokers, Log
from tests.unit.test_kafka_readers import OFFERED


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> CertificateChain:
    """A server's certificate that another authority than a root has signed."""
    return CertificateChain.make(tmp_path_factory.mktemp("chain"))


@pytest.fixture
def cluster(chain: CertificateChain) -> Iterator[Brokers]:
    """A broker that shows the certificate, and that of its authority."""
    made = Brokers(OFFERED)
    made.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.tls.load_cert_chain(chain.shown)
    made.advertised[1] = (HOST, made.port())
    made.logs["t", 0] = Log()
    with made:
        yield made


def settings(cluster: Brokers, trust: Mapping[str, str]) -> KafkaSettings:
    """Clients that trust whom a Java client would."""
    java = {"security.protocol": "SSL"} | {f"ssl.truststore.{name}": text for name, text in trust.items()}
    servers = f"{HOST}:{cluster.port()}"
    return KafkaSettings(servers, ("t",), None, "g", "earliest", java, java, java)


def by_ours(kafka: KafkaSettings) -> set[str]:
    """Topics that our own protocol sees."""
    found = BrokerClient(ClusterAddress.of(kafka.client("consumer"))).refresh("t")
    return {topic for topic, _ in found.leaders}


def by_librdkafka(kafka: KafkaSettings) -> set[str]:
    """Topics that librdkafka sees."""
    return KafkaAdmin(kafka, 3.0).names()


@pytest.mark.parametrize("see", [by_ours, by_librdkafka])
@pytest.mark.parametrize("form", ["file", "text", "store", "both", "root"])
def test_an_authority_is_trusted_whoever_signed_it(
    cluster: Brokers, chain: CertificateChain, form: str, see: type
) -> None:
    """A truststore with the authority that signed the broker's certificate is enough: Java looks for no root above."""
    both = chain.root.read_text() + chain.middle.read_text()
    trust = {
        "file": {"type": "PEM", "location": str(chain.middle)},
        "text": {"type": "PEM", "certificates": chain.middle.read_text()},
        "store": {"type": "PKCS12", "location": str(chain.store), "password": chain.password},
        "both": {"type": "PEM", "certificates": both},
        "root": {"type": "PEM", "location": str(chain.root)},
    }
    assert see(settings(cluster, trust[form])) == {"t"}


@pytest.mark.parametrize("see", [by_ours, by_librdkafka])
def test_the_brokers_certificate_alone_is_not_enough(cluster: Brokers, chain: CertificateChain, see: type) -> None:
    """librdkafka cannot be told to trust it, so that neither client does: a start says so at once."""
    with pytest.raises(ConnectorError):
        see(settings(cluster, {"type": "PEM", "location": str(chain.own)}))


def test_another_authority_is_not_trusted(cluster: Brokers, tmp_path: Path) -> None:
    """One of the same name, and with another key."""
    other = CertificateChain.make(tmp_path)
    with pytest.raises(FatalError, match="its certificate is not accepted"):
        by_ours(settings(cluster, {"type": "PEM", "location": str(other.middle)}))


def test_every_python_asks_the_same_of_certificates(chain: CertificateChain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 asks more of them, and less, than those before it, Java and librdkafka do."""
    usual = ssl.create_default_context

    def later(**given: object) -> ssl.SSLContext:
        made = usual(**given)  # type: ignore[arg-type]
        made.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return made

    monkeypatch.setattr(ssl, "create_default_context", later)
    flags = tls.build_ssl_context({"ssl.ca.location": str(chain.middle)}).verify_flags
    assert not flags & (ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN)
