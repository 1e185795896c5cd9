"""A broker that takes logins by Kerberos alone -> every client of a sink and of a source gets in, by a key table.

The key distribution centre is Debian's; confluent-kafka is built with libsasl2, as its wheels are not: so the commands
run in processes that have that one on their path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from attrs import evolve, frozen
from pyiceberg.catalog.sql import SqlCatalog

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.runtime.jvm.gateway import JAVA_OPTIONS
from tests.clients.topics import Topics
from tests.harness.paths import PROJECT
from tests.interop.kerberos import REALM, Kdc
from tests.interop.kerberos_client import build_client
from tests.model.events import Database, row
from tests.runs.processes import SHORT_LIVED, Workspace, workspace

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
HOST = "localhost"
"""Service principals have names of hosts, not addresses."""


@frozen
class Guarded:
    """A broker with a plain port for the tests and a guarded one, and the client's key table."""

    topics: Topics
    servers: str
    config: Path
    keytab: Path

    def settings(self, principal: str = "icebridge") -> dict[str, str]:
        """What a connector is told, as any client of Java's."""
        login = f"useKeyTab=true storeKey=true keyTab='{self.keytab}' principal='{principal}@{REALM}'"
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{MODULE} required {login};",
            JAVA_OPTIONS: f"{SHORT_LIVED} -Djava.security.krb5.conf={self.config}",
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The centre, the broker beside it, and the clients' environment."""
    client, own, port = build_client(), *free_ports(2)
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        service, keytab = kdc.add_principal(f"kafka/{HOST}"), kdc.add_principal("icebridge")
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
        properties = broker_properties(own, port, service)
        with KafkaBroker(tmp_path_factory.mktemp("guarded"), own, properties=properties) as broker:
            patch.delenv("JAVA_TOOL_OPTIONS")
            for name, value in {**kdc.environment, "PYTHONPATH": f"{client}{os.pathsep}{PROJECT}"}.items():
                patch.setenv(name, value)
            patch.setenv("COLUMNS", "300")
            yield Guarded(Topics(broker.bootstrap_servers), f"{HOST}:{port}", kdc.config, keytab)


def broker_properties(own: int, port: int, service: Path) -> dict[str, str]:
    """A plain listener, and one that takes Kerberos and nothing else."""
    (controller,) = free_ports(1)
    shared = f"PLAINTEXT://{LOOPBACK}:{own},CONTROLLER://{LOOPBACK}:{controller}"
    login = f'useKeyTab=true storeKey=true keyTab="{service}" principal="kafka/{HOST}@{REALM}"'
    return {
        "listeners": f"{shared},KERBEROS://{LOOPBACK}:{port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{own},KERBEROS://{HOST}:{port}",
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f"{MODULE} required {login};",
    }


def make_space(guarded: Guarded, home: Path, name: str, extra: Mapping[str, str] | None = None) -> Workspace:
    """A sink of one topic behind the guarded port."""
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dead"}
    more = {"topics": f"{name}.public.t", **dead, "errors.deadletterqueue.topic.replication.factor": "1"}
    return workspace(home, name, guarded.servers, {**guarded.settings(), **more, **(extra or {})})


def test_a_sink_and_a_source(guarded: Guarded, tmp_path: Path) -> None:
    """Readers, admin client, dead letters, consumer group, Spark's own client and its producer: all of them log in."""
    table = Database("kerberos.public.t", 2)
    table.transaction(*(("c", row(number, "one")) for number in range(50)))
    guarded.topics.replay([*table.log, evolve(table.log[-1], value=b"{no json")])
    space = make_space(guarded, tmp_path, "kerberos")
    ran = space.start({}, "--once").wait(240)
    assert ran.code == 0, ran.text[-6000:]
    assert (ran.total("events"), ran.total("dead_letters")) == (51, 1)
    assert "read by librdkafka: the native reader has no logins by GSSAPI" in ran.text
    lake = SqlCatalog(space.name, uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=str(space.warehouse))
    (name,) = [found for found in lake.list_tables("default") if found[1].startswith("kerberos")]
    assert sorted(lake.load_table(name).scan().to_arrow()["id"].to_pylist()) == list(range(50))
    assert [record.value for record in guarded.topics.read("kerberos-dead")] == [b"{no json"]
    told = say(space, "status", "--output", "json")
    assert [one["lag"] for one in json.loads(told[told.index("{\n") :])["tables"].values()] == [0]
    assert "offset" in say(space, "dlq list")
    assert "read by librdkafka" in say(space, "validate", "--connect")
    assert "everything is there" in say(space, "doctor")
    given = {key: text for key, text in space.properties.items() if not key.startswith(FOR_SINKS)}
    own = {"connector.class": "IcebergSource", "topic.prefix": "out", "table.include.list": r"default\.kerberos.*"}
    source = Workspace(space.home, space.name, {**given, **own})
    published = source.start({"name": "kerberos-source"}, "--once").wait(240)
    assert published.code == 0, published.text[-6000:]
    records = guarded.topics.read(f"out.default.{name[1]}")
    assert len(records) == 50


FOR_SINKS = ("topics", "debezium.sink.type", "errors.", "iceberg.")


def say(space: Workspace, command: str, *arguments: str) -> str:
    """Return what a command prints."""
    done = space.start({}, *arguments, command=command).wait(120)
    assert done.code == 0, done.text[-6000:]
    return done.text


def test_the_native_reader_says_that_it_has_no_such_login(guarded: Guarded, tmp_path: Path) -> None:
    """Who insists on it is told at the start, and nothing is read."""
    guarded.topics.create({"native.public.t": 1})
    ran = make_space(guarded, tmp_path, "native", {"consumer.reader": "native"}).start({}, "--once").wait(120)
    assert ran.code == 1
    assert "GSSAPI" in ran.lines[-1]["faults"][0]


def test_a_principal_that_nobody_knows(guarded: Guarded, tmp_path: Path) -> None:
    """The start ends, and says whose login failed."""
    guarded.topics.create({"unknown.public.t": 1})
    extra = {**guarded.settings("nobody"), "errors.retry.timeout": "10000"}
    ran = make_space(guarded, tmp_path, "unknown", extra).start({}, "--once").wait(120)
    assert ran.code == 1
    assert "nobody@" in ran.text, ran.text[-6000:]
