"""Clients that outlive their certificates or logins -> others in their place; what was replaced leaves nothing open."""

from __future__ import annotations

import os
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from connector.errors import FatalError
from connector.kafka import consumer_group, kept_client
from connector.kafka.brokers import client as broker_clients
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.client import BrokerClient, broker_client_for
from connector.kafka.brokers.tls import find_ssl_context
from connector.kafka.consumer import librdkafka_consumers
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.consumer_group import ConsumerGroup
from connector.kafka.kept_client import KeptClient
from connector.settings import KafkaSettings
from tests.harness.paths import PROJECT
from tests.servers.brokers import KAFKA_2_4, Brokers, Log

STORES = PROJECT / "tests" / "fixtures" / "stores"


def mutual(folder: Path) -> KafkaSettings:
    """Settings with Java's stores in a folder."""
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(folder / "trust.jks"),
        "ssl.truststore.password": "storepass",
        "ssl.endpoint.identification.algorithm": "",
    }
    return KafkaSettings("127.0.0.1:1", ("t",), None, "g", "earliest", java, java, java)


def wait_until(seen: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def replace(file: Path, by: Path) -> None:
    """Put another file in a file's place, at another time."""
    shutil.copy(by, file)
    later = time.time_ns() + 10**9
    os.utime(file, ns=(later, later))


def test_connections_of_a_replaced_certificate_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings hold certificates: those of before are another cluster's to a thread, which asks for it no more."""
    with Brokers(KAFKA_2_4) as cluster:
        cluster.logs["t", 0] = Log()
        before, now = (
            ClusterAddress.of({"bootstrap.servers": cluster.servers, "ssl.certificate.pem": pem}) for pem in "ab"
        )
        old = broker_client_for(before)
        old.leader(("t", 0))
        (connection,) = old._open.values()
        del old
        broker_client_for(now)
        assert connection._socket.fileno() != -1
        monkeypatch.setattr(broker_clients, "UNUSED_S", -1.0)
        broker_client_for(now)
        assert connection._socket.fileno() == -1


def test_idle_connections_are_closed_by_whoever_asks_next() -> None:
    """Not only by who needs that very broker again: a leader of before stays open no longer than it may be idle."""
    with Brokers(KAFKA_2_4) as cluster:
        cluster.logs["t", 0] = Log()
        given = {"bootstrap.servers": cluster.servers, "connections.max.idle.ms": "20"}
        client = broker_client_for(ClusterAddress.of(given))
        client.leader(("t", 0))
        (connection,) = client._open.values()
        time.sleep(0.05)
        broker_client_for(ClusterAddress.of({"bootstrap.servers": "other:1"}))
        assert connection._socket.fileno() == -1


def test_a_changed_file_of_certificates_is_read_and_half_a_one_is_not(tmp_path: Path) -> None:
    """PEM files are read where a connection is made; those of before count while the new ones cannot be used."""
    ca = tmp_path / "ca.pem"
    ca.write_text(mutual(STORES).client("consumer")["ssl.ca.pem"])
    address = ClusterAddress.of({"bootstrap.servers": "h:1", "ssl.ca.location": str(ca)})
    first = find_ssl_context(address)
    assert find_ssl_context(address) is first
    (tmp_path / "half").write_text("-----BEGIN CERTIFICATE-----\n")
    replace(ca, tmp_path / "half")
    assert find_ssl_context(address) is first
    (tmp_path / "other").write_text(mutual(STORES).client("consumer")["ssl.ca.pem"] + "\n")
    replace(ca, tmp_path / "other")
    assert find_ssl_context(address) is not first
    with pytest.raises(FatalError, match="cannot be used"):
        find_ssl_context(ClusterAddress.of({"bootstrap.servers": "h:1", "ssl.ca.location": str(tmp_path / "half")}))


def test_a_connection_is_as_old_as_its_certificates(tmp_path: Path) -> None:
    """It is opened anew once a file that its settings name has changed."""
    key_store = {"ssl.keystore.location": str(STORES / "key.jks"), "ssl.keystore.password": "storepass"}
    given = {**mutual(STORES).consumer, **key_store, "ssl.key.password": "keypass1"}
    pem = attrs.evolve(mutual(STORES), consumer=given).client("consumer")
    (tmp_path / "own.pem").write_text(pem["ssl.certificate.pem"] + pem["ssl.key.pem"])
    ca = tmp_path / "ca.pem"
    ca.write_text(pem["ssl.ca.pem"])
    with Brokers(KAFKA_2_4) as cluster:
        cluster.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        cluster.tls.load_cert_chain(tmp_path / "own.pem")
        named = {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
        named |= {"ssl.endpoint.identification.algorithm": "none"}
        client = BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **named}))
        host = cluster.advertised[1]
        first = client.connection(host)
        assert client.connection(host) is first
        (tmp_path / "other.pem").write_text(pem["ssl.ca.pem"] + "\n")
        replace(ca, tmp_path / "other.pem")
        assert client.connection(host) is not first
        assert first._socket.fileno() == -1


@attrs.define
class Client:
    """What a client was made of, and whether it was closed."""

    config: dict[str, Any]
    closed: bool = False

    def close(self) -> None:
        self.closed = True

    def commit(self, **_: Any) -> None:
        """Take offsets."""


def keep(settings: dict[str, str], made: list[Client]) -> KeptClient[Client]:
    """Keep clients of these settings."""

    def make(config: dict[str, Any]) -> Client:
        if config.get("ssl.ca.pem") == "half":
            raise FatalError("no certificate")
        made.append(Client(config))
        return made[-1]

    return KeptClient(lambda: dict(settings), make, Client.close)


def test_a_client_is_made_anew_where_its_settings_changed() -> None:
    """What it is made of counts; the one before is closed, and stays where the new settings cannot be used."""
    settings, made = {"bootstrap.servers": "h:1", "ssl.ca.pem": "a"}, list[Client]()
    kept = keep(settings, made)
    first = kept.get()
    assert kept.get() is first
    settings["ssl.ca.pem"] = "half"
    assert kept.get() is first
    assert not kept.renew_login()
    settings["ssl.ca.pem"] = "b"
    second = kept.get()
    assert second is not first
    wait_until(lambda: first.closed)
    assert [one.config["ssl.ca.pem"] for one in made] == ["a", "b"]
    kept.close()
    assert second.closed


def test_a_client_with_tokens_is_made_anew_where_its_login_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would show the token that it has; of a login by password nothing would change."""
    made = list[Client]()
    monkeypatch.setattr(kept_client, "forget_credentials", lambda settings: settings["kind"] == "token")
    for kind, count in (("password", 1), ("token", 2)):
        made.clear()
        kept = keep({"bootstrap.servers": "h:1", "kind": kind}, made)
        kept.get()
        assert kept.renew_login() is (kind == "token")
        kept.get()
        assert len(made) == count


def test_the_group_follows_changed_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of the driver that lives as long as the sink takes the store of now, and leaves no other open."""
    made = list[Client]()

    def make(config: dict[str, Any]) -> Client:
        made.append(Client(config))
        return made[-1]

    monkeypatch.setattr(consumer_group, "Consumer", make)
    shutil.copy(STORES / "trust.jks", tmp_path / "trust.jks")
    group = ConsumerGroup(mutual(tmp_path))
    assert group.commit_offsets({("t", 0): 1}) is None
    replace(tmp_path / "trust.jks", STORES / "trust.p12")
    assert group.commit_offsets({("t", 0): 2}) is None
    assert len({one.config["ssl.ca.pem"] for one in made}) == 2
    wait_until(lambda: made[0].closed)
    group.close()
    assert made[1].closed


def test_consumers_of_replaced_certificates_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka's connections of before are closed too, but for those that a range is read by."""
    made = list[Client]()

    def make(_: FetchSettings, config: dict[str, Any]) -> Client:
        made.append(Client(config))
        return made[-1]

    monkeypatch.setattr(librdkafka_consumers, "_open_consumer", make)
    monkeypatch.setattr(librdkafka_consumers, "OpenConsumer", Client)
    monkeypatch.setattr(librdkafka_consumers, "_consumers", {})
    monkeypatch.setattr(librdkafka_consumers, "UNUSED_S", -1.0)
    before, now = (ClusterAddress.of({"bootstrap.servers": "h:1", "ssl.ca.pem": pem}) for pem in "ab")
    old = librdkafka_consumers.consumer_for(before, FetchSettings())
    old.client.get()
    old.users = 1
    librdkafka_consumers.consumer_for(now, FetchSettings())
    assert librdkafka_consumers.consumer_for(before, FetchSettings()) is old
    old.users = 0
    librdkafka_consumers.consumer_for(now, FetchSettings())
    assert librdkafka_consumers.consumer_for(before, FetchSettings()) is not old
    wait_until(lambda: made[0].closed)
