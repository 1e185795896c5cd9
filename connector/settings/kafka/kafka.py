"""properties -> KafkaSettings: brokers, topics, group and what the three kinds of Kafka client get.

Names: Kafka Connect's (`topics`, `topics.regex`, `consumer.override.*` ...), Debezium's (`topic.prefix` ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from connector.settings.configdef.option import Option, Prefix, format_names
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import SERVERS, TEXT, one_of
from connector.settings.kafka import client_overrides, java_producer, reading, security, stores, topics, transactions
from connector.settings.kafka.reading import ReadingSettings
from connector.settings.kafka.transactions import TransactionSettings

Scope = Literal["consumer", "producer", "admin"]

BOOTSTRAP_SERVERS = Option(
    name="bootstrap.servers",
    kind=SERVERS,
    default="",
    importance="high",
    doc="Kafka brokers to start from, as host:port, several separated by commas. Required.",
)
GROUP_ID = Option(
    name="group.id",
    kind=TEXT,
    default=None,
    importance="medium",
    doc="Consumer group that committed offsets are copied to, for lag tools; the sink itself resumes from Iceberg.",
    shown="connect-<name>",
    aliases=("consumer.override.group.id",),
)
AUTO_OFFSET_RESET = Option(
    name="consumer.override.auto.offset.reset",
    kind=one_of("earliest", "latest", any_case=True),
    default="earliest",
    importance="medium",
    doc="Where to begin on the first start, and in topics added to topics later; new topics of a regex: earliest.",
)
CONSUMER_SERVERS = Option(
    name="consumer.override.bootstrap.servers",
    kind=SERVERS,
    default="",
    importance="low",
    doc="Brokers to read from, if different from bootstrap.servers.",
    shown="<bootstrap.servers>",
)
SECURITY_PROTOCOL = Option(
    name="security.protocol",
    kind=one_of(*security.PROTOCOLS, any_case=True),
    default="PLAINTEXT",
    importance="medium",
    doc="Security protocol of all clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
)
SECURITY = (
    Prefix(
        name="sasl.",
        target="Kafka clients",
        importance="medium",
        doc="SASL settings of all clients, as in Java: sasl.mechanism (PLAIN, SCRAM-SHA-256 ...).",
    ),
    Prefix(
        name="ssl.",
        target="Kafka clients",
        importance="medium",
        doc="TLS settings of all clients, as in Java; stores of type JKS, PKCS12 or PEM.",
    ),
)
CONSUMER = Prefix(
    name="consumer.override.",
    target="Kafka consumer",
    importance="medium",
    doc="Consumer settings; fetch tasks use the security ones, isolation.level and max.partition.fetch.bytes.",
)
PRODUCER = Prefix(
    name="producer.override.",
    target="Kafka producer",
    importance="low",
    doc="Any setting of the producer that writes dead letters.",
)
ADMIN_OVERRIDE = Prefix(
    name="admin.override.",
    target="Kafka admin client",
    importance="low",
    doc="Any setting of the admin client, which looks up and creates topics.",
)
ADMIN = Prefix(name="admin.", target="Kafka admin client", importance="low", doc="The same as admin.override.*.")

OPTIONS: tuple[Option[object], ...] = (
    BOOTSTRAP_SERVERS,
    *topics.OPTIONS,
    *transactions.OPTIONS,
    GROUP_ID,
    AUTO_OFFSET_RESET,
    CONSUMER_SERVERS,
    SECURITY_PROTOCOL,
    *reading.OPTIONS,
)
PREFIXES = (*SECURITY, CONSUMER, PRODUCER, ADMIN_OVERRIDE, ADMIN)


@attrs.frozen
class KafkaSettings:
    """Where events come from, or go to (then no topics are named).

    Client settings are by Java's names, security keys of the top level included. `prefix` is Debezium's `topic.prefix`,
    where a sink names it.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    topics_regex: str | None
    group_id: str
    auto_offset_reset: str
    consumer: Mapping[str, str] = attrs.field(repr=format_names)
    producer: Mapping[str, str] = attrs.field(repr=format_names)
    admin: Mapping[str, str] = attrs.field(repr=format_names)
    transactions: TransactionSettings = TransactionSettings()
    reading: ReadingSettings = ReadingSettings()
    prefix: str = ""

    def takes(self, topic: str) -> bool:
        """Whether a topic is read: it is listed, or the expression matches its whole name, or it tells transactions."""
        if topic in self.topics or topic == self.transactions.topic:
            return True
        return self.topics_regex is not None and topics.matches(self.topics_regex, topic)

    def client(self, scope: Scope) -> dict[str, str]:
        """librdkafka's configuration of a client, bootstrap.servers and security included.

        JKS and PKCS12 stores are read here, again when their files have changed. ConfigError when that fails.
        """
        java = {"consumer": self.consumer, "producer": self.producer, "admin": self.admin}[scope]
        native = client_overrides.translate(java, scope).native
        return {"bootstrap.servers": self.bootstrap_servers} | stores.read_stores(native)


def build(reader: ConfigReader, name: str, dead_letters: str) -> KafkaSettings:
    """Read the Kafka part; faults go to the reader."""
    servers = reader.get(BOOTSTRAP_SERVERS)
    consumer_servers = reader.get(CONSUMER_SERVERS)
    if not servers and reader.entry(BOOTSTRAP_SERVERS) is None:
        reader.add_missing(BOOTSTRAP_SERVERS.name, "is missing", "add it as host:port of a Kafka broker")
    transaction = transactions.build(reader)
    names, regex = topics.select_topics(reader, dead_letters)
    common = _read_security(reader)
    elsewhere = {"bootstrap.servers": consumer_servers} if consumer_servers else {}
    settings = KafkaSettings(
        bootstrap_servers=servers,
        topics=(*names, transaction.topic) if names and transaction.topic else names,
        topics_regex=regex,
        group_id=reader.get(GROUP_ID) or f"connect-{name}",
        auto_offset_reset=reader.get(AUTO_OFFSET_RESET),
        consumer=client_overrides.normalize_case(common | reader.under(CONSUMER) | elsewhere),
        producer=client_overrides.normalize_case(common | reader.under(PRODUCER)),
        admin=client_overrides.normalize_case(common | reader.under(ADMIN) | reader.under(ADMIN_OVERRIDE)),
        transactions=transaction,
        reading=reading.build(reader),
        prefix=reader.peek(topics.TOPIC_PREFIX) or "",
    )
    client_overrides.check(
        reader, {"consumer": settings.consumer, "producer": settings.producer, "admin": settings.admin}
    )
    return settings


def build_producing(reader: ConfigReader, *, needed: bool = True) -> KafkaSettings:
    """Read what a source needs to publish: brokers, producer and admin client; faults go to the reader."""
    servers = reader.get(BOOTSTRAP_SERVERS)
    if needed and not servers and reader.entry(BOOTSTRAP_SERVERS) is None:
        reader.add_missing(BOOTSTRAP_SERVERS.name, "is missing", "add it as host:port of a Kafka broker")
    common = _read_security(reader)
    settings = KafkaSettings(
        bootstrap_servers=servers,
        topics=(),
        topics_regex=None,
        group_id="",
        auto_offset_reset="earliest",
        consumer={},
        producer=client_overrides.normalize_case(common | reader.under(PRODUCER)),
        admin=client_overrides.normalize_case(common | reader.under(ADMIN) | reader.under(ADMIN_OVERRIDE)),
    )
    client_overrides.check(reader, {"admin": settings.admin})
    java_producer.check_producer(reader, settings.producer)
    return settings


def read_consumer(reader: ConfigReader, prefix: Prefix) -> dict[str, str]:
    """Read the settings of one more consumer: the security of all clients, and what the prefix has over it."""
    given = client_overrides.normalize_case(_read_security(reader) | reader.under(prefix))
    client_overrides.check(reader, {"consumer": given})
    return given


def _read_security(reader: ConfigReader) -> dict[str, str]:
    values = {prefix.name + key: text for prefix in SECURITY for key, text in reader.under(prefix).items()}
    protocol = reader.get(SECURITY_PROTOCOL)
    if protocol != SECURITY_PROTOCOL.default:
        values[SECURITY_PROTOCOL.name] = protocol
    return values
