"""Java's stores, as keytool makes them -> PEM that every client takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from connector.errors import ConfigError
from connector.kafka.brokers.tls import build_ssl_context
from connector.settings import load
from connector.settings.kafka import stores as key_stores
from tests.harness.paths import PROJECT

STORES = PROJECT / "tests" / "fixtures" / "stores"
BASE = {"bootstrap.servers": "localhost:9092", "debezium.sink.iceberg.warehouse": "/w", "topics": "t"}


def client(given: dict[str, str]) -> dict[str, str]:
    """What the consumer is made of."""
    return load([], BASE | {"security.protocol": "SSL"} | given, {}).kafka.client("consumer")


def stores(kind: str, trust: Path = STORES, password: str = "storepass") -> dict[str, str]:
    """Java's settings of both stores; PKCS12's key has no password of its own."""
    ends = {"JKS": "jks", "PKCS12": "p12"}[kind]
    made = {}
    for name, file in (("truststore", trust / f"trust.{ends}"), ("keystore", STORES / f"key.{ends}")):
        made |= {f"ssl.{name}.type": kind, f"ssl.{name}.location": str(file), f"ssl.{name}.password": password}
    return made | ({"ssl.key.password": "keypass1"} if kind == "JKS" else {})


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_become_pem(kind: str) -> None:
    """The trusted certificate and the key with its own are those of the store, and make a TLS context."""
    settings = client(stores(kind))
    (trusted,), (own,) = (
        x509.load_pem_x509_certificates(settings[name].encode()) for name in ("ssl.ca.pem", "ssl.certificate.pem")
    )
    assert trusted == own
    key = load_pem_private_key(settings["ssl.key.pem"].encode(), None)
    assert key.public_key() == own.public_key()
    assert not any("icebridge" in name or "password" in name for name in settings)
    assert build_ssl_context(settings).cert_store_stats()["x509"] == 1


def test_a_store_is_told_by_its_bytes() -> None:
    """Java writes PKCS12 where it is told JKS, and reads it: so do we."""
    given = {**stores("PKCS12"), "ssl.truststore.type": "JKS", "ssl.keystore.type": "JKS"}
    assert client(given)["ssl.ca.pem"] == client(stores("PKCS12"))["ssl.ca.pem"]


def test_a_changed_store_is_read_anew(tmp_path: Path) -> None:
    """A file that is replaced while the sink runs counts from the next client on."""
    shutil.copy(STORES / "trust.jks", tmp_path / "trust.jks")
    before = client(stores("JKS", tmp_path))["ssl.ca.pem"]
    shutil.copy(STORES / "trust.p12", tmp_path / "trust.jks")
    assert client(stores("JKS", tmp_path))["ssl.ca.pem"] != before


def test_a_store_that_is_being_written_is_the_one_before(tmp_path: Path) -> None:
    """A half of a file, or none, ends no sink that runs: what follows it is read."""
    store, given = tmp_path / "trust.jks", stores("JKS", tmp_path)
    shutil.copy(STORES / "trust.jks", store)
    before = client(given)["ssl.ca.pem"]
    store.write_bytes((STORES / "trust.p12").read_bytes()[:300])
    assert client(given)["ssl.ca.pem"] == before
    store.unlink()
    assert client(given)["ssl.ca.pem"] == before
    shutil.copy(STORES / "trust.p12", store)
    assert client(given)["ssl.ca.pem"] != before


def test_a_store_that_was_locked_in_an_unknown_way_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one that is none is."""

    def refuse(*_: object) -> None:
        raise UnsupportedAlgorithm("RC5")

    monkeypatch.setattr(key_stores, "load_pkcs12", refuse)
    shutil.copy(STORES / "trust.p12", tmp_path / "trust.p12")
    with pytest.raises(ConfigError, match=r"trust\.p12 cannot be read: RC5"):
        client({**stores("PKCS12", tmp_path), "ssl.keystore.location": ""})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (stores("JKS", password="not-the-one"), r"trust.jks cannot be read: the password does not fit"),
        (stores("PKCS12", password="not-the-one"), r"trust.p12 cannot be read: "),
        (
            {**stores("JKS"), "ssl.key.password": "not-the-one"},
            r"key.jks cannot be read: the key's password does not fit",
        ),
        (stores("JKS", STORES / "no"), r"ssl.truststore.location: .*trust.jks cannot be read: No such file"),
        ({"ssl.truststore.location": str(STORES / "README.md")}, r"README.md cannot be read"),
        ({"ssl.keystore.location": str(STORES / "trust.jks")}, r"trust.jks holds no key"),
    ],
    ids=["jks password", "p12 password", "key password", "no file", "no store", "no key"],
)
def test_a_store_that_cannot_be_read_is_named(given: dict[str, str], reason: str) -> None:
    """The option and the file are told, and why; passwords never are."""
    with pytest.raises(ConfigError, match=reason) as raised:
        client(given)
    assert not any(secret in str(raised.value) for secret in ("storepass", "not-the-one", "keypass1"))
