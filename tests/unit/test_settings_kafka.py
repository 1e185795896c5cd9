"""properties -> topics and Kafka clients: derived expressions and the translation to librdkafka."""

from __future__ import annotations

import re

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from connector.errors import ConfigError
from connector.settings import KafkaSettings, load
from connector.settings.kafka.jaas import parse_login
from connector.settings.kafka.kafka import Scope

BASE = {"bootstrap.servers": "localhost:9092", "debezium.sink.iceberg.warehouse": "/w"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al" password="p\\"w;=";'
OAUTH = "o.a.k.OAuthBearerLoginModule required clientId='me' clientSecret='0auth-pw';"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='al' password=pw ;"


def kafka(given: dict[str, str]) -> KafkaSettings:
    """Kafka settings of one topic and these keys."""
    return load([], {"topics": "t"} | BASE | given, {}).kafka


def derived(given: dict[str, str]) -> re.Pattern[str]:
    """The expression made from the topic prefix testc and these keys."""
    expression = load([], BASE | {"debezium.source.topic.prefix": "testc"} | given, {}).kafka.topics_regex
    assert expression is not None
    return re.compile(expression)


def test_topics_come_before_the_prefix() -> None:
    """The prefix counts only when neither topics nor topics.regex is given."""
    prefix = {"debezium.source.topic.prefix": "p"}
    named = kafka(prefix | {"topics": "a, b"})
    matched = load([], BASE | prefix | {"topics.regex": "x.*"}, {}).kafka
    assert (named.topics, named.topics_regex) == (("a", "b"), None)
    assert (matched.topics, matched.topics_regex) == ((), "x.*")


@pytest.mark.parametrize(
    ("given", "read", "left"),
    [
        ({"topics": "late.a,x.t"}, ["late.a", "x.t"], ["late-a", "my.late.a", "late.archive", "x.tr", "ax.t", "late"]),
        ({"topics": "a-b_c.d"}, ["a-b_c.d"], ["lake.default.a-b_c.d", "a-b_cxd"]),
        ({"topics.regex": "a|b.*"}, ["a", "b", "b.c"], ["ab", "xb", "a.b", "icebridge-dlq-a"]),
        ({"topics.regex": "(?i)shop[.]A|^b$"}, ["shop.a", "SHOP.A", "B"], ["shop.a.b", "xb", "b.c"]),
        ({"topics.regex": "(?<env>dev|prod)\\..+"}, ["dev.a", "prod.b"], ["dev.", "xdev.a", "dev"]),
        ({"topics.regex": "_.*|a"}, ["_own", "a"], ["__consumer_offsets", "__transaction_state"]),
        ({"topics": "__consumer_offsets"}, ["__consumer_offsets"], ["__consumer_offsets2"]),
    ],
)
def test_whole_names_are_what_was_asked_for(given: dict[str, str], read: list[str], left: list[str]) -> None:
    """A listed name is that name alone; an expression is matched against whole names, and never means Kafka's own."""
    found = load([], BASE | {"name": "n", "errors.deadletterqueue.topic.name": "dead"} | given, {}).kafka
    assert [name for name in (*read, *left) if found.takes(name)] == read


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]+", "[[a]b]", "(", "a(?i)b"])
def test_what_python_reads_otherwise_is_refused(pattern: str) -> None:
    """An expression of Java that Python reads as another, or not at all, selects no wrong topics: it is a fault."""
    with pytest.raises(ConfigError, match="not a regular expression"):
        load([], BASE | {"topics.regex": pattern}, {})


@pytest.mark.parametrize("key", ["debezium.source.database.server.name", "database.server.name"])
def test_old_names_of_the_prefix(key: str) -> None:
    """Debezium's former name of the topic prefix is understood."""
    expression = load([], BASE | {key: "s"}, {}).kafka.topics_regex
    assert re.fullmatch(expression or "", "s.db.t")


@pytest.mark.parametrize(
    "topic", ["testc.inventory.customers", "testc.db.transaction", "testc.transactions", "testc.messages"]
)
def test_prefix_reads_table_topics(topic: str) -> None:
    """Every topic that begins with the prefix and its delimiter is read."""
    assert derived({}).fullmatch(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "testc",
        "testc.transaction",
        "testc.message",
        "__debezium-heartbeat.testc",
        "testcx.inventory.customers",
        "testc.",
        "testc.dead",
        "testc.history",
        "testc.signal",
        "testc.notes",
        "testc.hb.testc",
    ],
)
def test_prefix_leaves_side_topics(topic: str) -> None:
    """Topics that hold no rows, and the sink's own dead letters, are not read."""
    side = {
        "errors.deadletterqueue.topic.name": "testc.dead",
        "debezium.source.schema.history.internal.kafka.topic": "testc.history",
        "debezium.source.signal.kafka.topic": "testc.signal",
        "debezium.source.notification.sink.topic.name": "testc.notes",
        "debezium.source.topic.heartbeat.prefix": "testc.hb",
    }
    assert not derived(side).fullmatch(topic)


def test_a_heartbeat_topic_that_is_named_whole_is_not_read() -> None:
    """The whole name of the heartbeat topic wins over its prefix, as in Debezium."""
    pattern = derived({"debezium.source.topic.heartbeat.name": "testc.beat"})
    assert not pattern.fullmatch("testc.beat")
    assert pattern.fullmatch("testc.inventory.beat")


def test_prefix_with_own_delimiter_and_transaction_topic() -> None:
    """Debezium's delimiter and the name of its transaction topic are followed."""
    pattern = derived({"debezium.source.topic.delimiter": "-", "debezium.source.topic.transaction": "tx"})
    topics = ["testc-a-b", "testc-transaction", "testc-tx", "testc.a.b"]
    assert [bool(pattern.fullmatch(topic)) for topic in topics] == [True, True, False, False]


def test_prefix_is_taken_literally() -> None:
    """A dot in the prefix is a dot."""
    assert not derived({"debezium.source.topic.prefix": "a.b"}).fullmatch("axb.c.d")


def test_expression_must_not_match_dead_letters() -> None:
    """An expression that would read the dead letters is refused."""
    with pytest.raises(ConfigError, match=r"topics\.regex: matches the dead letter topic 'x-dead-letters'"):
        load([], BASE | {"name": "x", "topics.regex": ".*"}, {})


def test_names_follow_the_sinks_name() -> None:
    """Group and dead letter topic are named after the sink unless they are given."""
    settings = load([], BASE | {"topics": "t", "name": "s1"}, {})
    assert (settings.kafka.group_id, settings.errors.topic) == ("connect-s1", "s1-dead-letters")
    assert kafka({"consumer.override.group.id": "g"}).group_id == "g"


def test_scopes() -> None:
    """Overrides go to their client only, security of the top level to all, admin.override wins over admin."""
    settings = kafka(
        {
            "security.protocol": "SSL",
            "ssl.protocol": "TLSv1.3",
            "consumer.override.ssl.protocol": "TLSv1.2",
            "consumer.override.bootstrap.servers": "c:1",
            "admin.client.id": "a",
            "admin.override.client.id": "b",
            "admin.retries": "1",
        }
    )
    common = {"security.protocol": "SSL", "ssl.protocol": "TLSv1.3"}
    assert settings.consumer == common | {"ssl.protocol": "TLSv1.2", "bootstrap.servers": "c:1"}
    assert settings.producer == common
    assert settings.admin == common | {"client.id": "b", "retries": "1"}
    assert settings.client("consumer")["bootstrap.servers"] == "c:1"
    assert settings.client("producer") == {"bootstrap.servers": "localhost:9092", "security.protocol": "SSL"}


def test_java_only_keys_of_librdkafka_clients_are_noted() -> None:
    """A key that only the Java client has is noted, and of the consumer's what the tasks that read do not heed."""
    given = {"producer.override.buffer.memory": "1", "consumer.override.max.poll.records": "1"}
    assert load([], BASE | {"topics": "t"} | given, {}).notes == (
        "these keys of a Java client have no effect on the producer client: buffer.memory",
        "these consumer settings have no effect on the tasks that read records: max.poll.records",
    )


@pytest.mark.parametrize(
    ("mechanism", "login", "password"),
    [("PLAIN", PLAIN, 'p"w;='), ("SCRAM-SHA-256", SCRAM, "pw"), ("SCRAM-SHA-512", SCRAM, "pw")],
)
def test_sasl(mechanism: str, login: str, password: str) -> None:
    """PLAIN and SCRAM logins become user name and password; the Java form stays for Spark."""
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": login}
    settings = kafka(given)
    assert settings.client("consumer") == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": mechanism,
        "sasl.username": "al",
        "sasl.password": password,
    }
    assert settings.consumer == given


@pytest.mark.parametrize(
    ("given", "native"),
    [
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.type": "pem", "ssl.truststore.certificates": "CA"}, {"ssl.ca.pem": "CA"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.key.password": "x"},
            {"ssl.key.location": "/k.pem", "ssl.certificate.location": "/k.pem", "ssl.key.password": "x"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
            {"ssl.key.pem": "K", "ssl.certificate.pem": "C"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {"ssl.endpoint.identification.algorithm": "https"}),
    ],
)
def test_ssl(given: dict[str, str], native: dict[str, str]) -> None:
    """PEM stores and the host name check are translated."""
    client = kafka({"security.protocol": "SSL"} | given).client("admin")
    assert client == {"bootstrap.servers": "localhost:9092", "security.protocol": "SSL"} | native


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"ssl.truststore.location": "/t.bks", "ssl.truststore.type": "BCFKS"},
            "-X: ssl.truststore.location: is no store of type BCFKS; name a file of type JKS or PKCS12, or PEM",
        ),
        (
            {"producer.override.ssl.keystore.key": "K"},
            "-X: producer.override.ssl.keystore.key: is no store of type JKS; "
            "name a file of type JKS or PKCS12, or PEM",
        ),
        (
            {"security.protocol": "SASL_SSL"},
            "configuration: sasl.jaas.config: is missing; add the Krb5LoginModule with useKeyTab, keyTab and principal",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "NTLM"},
            "-X: sasl.mechanism: names an unknown mechanism; "
            "use PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER or AWS_MSK_IAM or GSSAPI",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH},
            "configuration: sasl.oauthbearer.token.endpoint.url: is no URL of a token endpoint; "
            "name the provider's, as https://...",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "configuration: sasl.jaas.config: is missing; add the PlainLoginModule with username and password",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "-X: sasl.jaas.config: does not fit PLAIN; use the PlainLoginModule with username and password",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN[:-1]},
            "-X: sasl.jaas.config: is not a JAAS entry that ends with ;; "
            'write <package>.PlainLoginModule required username="..." password="...";',
        ),
    ],
)
def test_untranslatable(given: dict[str, str], fault: str) -> None:
    """What librdkafka cannot be given is refused at start, once, under the key as it was given."""
    with pytest.raises(ConfigError) as caught:
        kafka(given)
    assert caught.value.faults == (fault,)


def test_librdkafka_takes_every_translated_key() -> None:
    """librdkafka knows every key of a full translation: its clients can be made."""
    shared = {
        "client.id": "x",
        "client.rack": "r",
        "client.dns.lookup": "use_all_dns_ips",
        "request.timeout.ms": "20000",
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "1000",
        "metadata.max.age.ms": "300000",
        "connections.max.idle.ms": "540000",
        "socket.connection.setup.timeout.ms": "10000",
        "send.buffer.bytes": "131072",
        "receive.buffer.bytes": "65536",
        "isolation.level": "read_committed",
        "fetch.max.wait.ms": "500",
        "fetch.min.bytes": "1",
        "session.timeout.ms": "45000",
        "acks": "all",
        "linger.ms": "5",
        "compression.type": "lz4",
        "max.request.size": "1048576",
        "delivery.timeout.ms": "120000",
    }
    security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    scopes = ("consumer", "producer", "admin")
    given = security | {f"{scope}.override.{key}": text for scope in scopes for key, text in shared.items()}
    settings = kafka(given | {"ssl.endpoint.identification.algorithm": ""})
    confluent_kafka.Consumer({**settings.client("consumer"), "group.id": "g"}).close()
    confluent_kafka.Producer(settings.client("producer"))
    AdminClient({**settings.client("admin")})
    assert settings.client("consumer")["socket.timeout.ms"] == "20000"
    assert settings.client("producer")["message.max.bytes"] == "1048576"


@pytest.mark.parametrize(
    "text", ["", "a.B", 'a.B required username="x', "a.B required x=1", "a.B required; a.C required;"]
)
def test_broken_jaas(text: str) -> None:
    """A text that is not one complete JAAS entry is refused."""
    with pytest.raises(ValueError, match="JAAS"):
        parse_login(text)


LOGIN = {"sasl.mechanism": "plain", "sasl.jaas.config": PLAIN}


@pytest.mark.parametrize(
    ("scope", "prefix"),
    [
        ("consumer", "consumer.override."),
        ("producer", "producer.override."),
        ("admin", "admin.override."),
        ("admin", "admin."),
        ("consumer", ""),
    ],
)
@pytest.mark.parametrize("protocol", ["sasl_ssl", "Sasl_Plaintext"])
def test_protocol_and_mechanism_in_any_case(scope: Scope, prefix: str, protocol: str) -> None:
    """The protocol is read in any case, as Java's clients do, and the login is not lost; Java gets the words too."""
    settings = kafka({f"{prefix}{key}": text for key, text in {"security.protocol": protocol, **LOGIN}.items()})
    client = settings.client(scope)
    assert (client["security.protocol"], client["sasl.mechanisms"]) == (protocol.upper(), "PLAIN")
    assert client["sasl.password"] == 'p"w;='
    assert getattr(settings, scope)["security.protocol"] == protocol.upper()


def test_other_words_in_any_case() -> None:
    """Further words that Java's clients compare without case reach every client as it knows them."""
    given = {"isolation.level": "READ_COMMITTED", "ssl.endpoint.identification.algorithm": "HTTPS"}
    settings = kafka(
        {f"consumer.override.{key}": text for key, text in {**given, "auto.offset.reset": "Latest"}.items()}
    )
    assert settings.auto_offset_reset == "latest"
    assert settings.client("consumer")["ssl.endpoint.identification.algorithm"] == "https"
    assert settings.consumer["isolation.level"] == "read_committed"
    assert kafka({"producer.override.acks": "ALL"}).client("producer")["acks"] == "all"


@pytest.mark.parametrize("prefix", ["consumer.override.", "producer.override.", "admin."])
def test_an_unknown_protocol_is_a_fault(prefix: str) -> None:
    """A slip in the protocol does not become a connection without login."""
    with pytest.raises(ConfigError, match=r"security\.protocol: is not known; write PLAINTEXT or SSL"):
        kafka({f"{prefix}security.protocol": "SASL_SLL", **{f"{prefix}{key}": text for key, text in LOGIN.items()}})


@pytest.mark.parametrize(
    ("given", "note"),
    [
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
            "these keys have no effect with security.protocol=PLAINTEXT: sasl.jaas.config, sasl.mechanism",
        ),
        (
            {"security.protocol": "ssl", "sasl.mechanism": "PLAIN", "ssl.truststore.location": "/t"},
            "these keys have no effect with security.protocol=SSL: sasl.mechanism",
        ),
        (
            {"consumer.override.ssl.truststore.location": "/t"},
            "these keys have no effect with security.protocol=PLAINTEXT: ssl.truststore.location",
        ),
        (
            {"ssl.ca.location": "/c", "security.protocol": "SSL"},
            "ssl.ca.location is librdkafka's name and has no effect: write ssl.truststore.location, with "
            "ssl.truststore.type=PEM",
        ),
    ],
)
def test_security_that_secures_nothing_is_noted(given: dict[str, str], note: str) -> None:
    """A login beside the wrong protocol, or by the names of another client, is no silent promise."""
    assert load([], {"topics": "t"} | BASE | given, {}).notes == (note,)
