"""A cluster that gives no more rights than the documentation asks for -> what works, and what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from connector.demo.servers.kafka_broker import KafkaBroker
from connector.demo.servers.ports import LOOPBACK, free_ports
from connector.errors import FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.producer import MessageProducer
from connector.settings import KafkaSettings
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.thorough]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} username="limited" password="let me in";',
}
RIGHTS = {
    "t": (AclOperation.READ, AclOperation.DESCRIBE),
    "letters": (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE),
    "out": (AclOperation.WRITE, AclOperation.DESCRIBE),
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker for its owner, and for a user who may do no more than work with three topics that are there."""
    own, controller, port = free_ports(3)
    listeners = f"PLAINTEXT://{LOOPBACK}:{own},CONTROLLER://{LOOPBACK}:{controller},GUARDED://{LOOPBACK}:{port}"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f'{PLAIN} user_limited="let me in";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    home = tmp_path_factory.mktemp("limited")
    with KafkaBroker(home, port=own, properties=properties, short_lived=True) as broker:
        for topic in (*RIGHTS, "secret"):
            broker.create_topic(topic, 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                "User:limited",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for topic, operations in RIGHTS.items()
            for operation in operations
        ]
        for future in admin.create_acls(bindings).values():
            future.result(30)
        yield broker.bootstrap_servers, f"{LOOPBACK}:{port}"


def _settings(server: str) -> KafkaSettings:
    return KafkaSettings(server, ("t",), None, "g", "earliest", LOGIN, LOGIN, LOGIN)


def test_a_source_needs_no_right_to_create_its_topics(limited: tuple[str, str]) -> None:
    """Messages go to topics that are there; of one that is missing the right is named that it takes."""
    kafka = _settings(limited[1])
    cluster = KafkaAdmin(kafka)
    assert cluster.id()
    producer = MessageProducer(kafka, cluster)
    producer.create("out", 1)
    producer.send("out", [(b"k", b"v")])
    assert [record.value for record in Topics(limited[0]).read("out")] == [b"v"]
    with pytest.raises(
        FatalError, match="topic missing is not there, or may not be seen, and this user may not create it"
    ):
        producer.create("missing", 1)


def test_topics_that_may_not_be_seen_are_told(limited: tuple[str, str]) -> None:
    """A list of topics has those that the user may see; one that is asked for by name is refused with its name."""
    cluster = KafkaAdmin(_settings(limited[1]))
    assert cluster.names() == set(RIGHTS)
    with pytest.raises(FatalError, match="topic secret: this user may not see whether it is there; give it DESCRIBE"):
        cluster.topics(["secret"])
    listed = attrs.evolve(_settings(limited[1]), topics=("t", "secret"))
    with pytest.raises(FatalError, match="topic secret: "):
        KafkaAdmin(listed).select_topics()


@pytest.mark.spark
def test_a_sink_reads_with_the_rights_on_its_topics(
    limited: tuple[str, str], plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """It needs READ and DESCRIBE on its topics, WRITE on that of dead letters, and of its group it says what lacks."""
    owner, server = limited
    value = {"id": 1, "__op": "c", "__deleted": "false"}
    good = Record("t", 0, 0, json.dumps({"id": 1}).encode(), json.dumps(value).encode())
    Topics(owner).replay([good, Record("t", 0, 1, b"{", b"{")], create=False)
    extra = {
        "bootstrap.servers": server,
        "topics": "t",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        **LOGIN,
    }
    sink = InProcessSink(spark, plain_workspace("limited", extra))
    with capture_logs() as lines:
        (report,) = sink.run()
    assert (report.metrics.events, report.dead_letters, len(sink.lake.many("t"))) == (2, 1, 1)
    assert any("group connect-limited could not follow: " in line["event"] for line in lines), lines
    assert len(Topics(owner).read("letters")) == 1
