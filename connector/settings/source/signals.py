"""properties -> SignalSettings, NotificationSettings: where signals come from, and where news of snapshots goes.

Names and defaults: Debezium's (`signal.*`, `notification.*`, `incremental.snapshot.*`).
"""

from __future__ import annotations

from pathlib import Path

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    SERVERS,
    TEXT,
    TOPIC_NAME,
    InvalidValue,
    ValueType,
    is_table_name,
    one_of,
    split_list,
    whole_number,
)
from connector.settings.kafka.kafka import KafkaSettings, read_consumer
from connector.settings.source.event_output import TOPIC_PREFIX

_CHANNELS = ("source", "kafka", "file", "jmx", "in-process")
_NOTIFIED = ("sink", "log", "jmx")


def _words(*known: str) -> ValueType[tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        words = split_list(text)
        if not set(words) <= set(known):
            raise InvalidValue("{} names an unknown channel", f"write some of {', '.join(known)}, comma separated")
        return words

    return ValueType("list", read)


def _read_table(text: str) -> str:
    if "." not in text or not is_table_name(text):
        raise InvalidValue("{} is no table with its namespace", "write <namespace>.<table>, such as sales.signals")
    return text


CHANNELS = Option(
    name="signal.enabled.channels",
    kind=_words(*_CHANNELS),
    default=("source", "kafka"),
    importance="medium",
    doc="Where signals are read: source (an Iceberg table), kafka, file. A channel by default is read once its own "
    "options are set.",
)
POLL_INTERVAL = Option(
    name="signal.poll.interval.ms",
    kind=whole_number(1, 2**31 - 1),
    default=5000,
    importance="low",
    doc="Milliseconds between two looks for signals.",
)
TABLE = Option(
    name="signal.data.collection",
    kind=ValueType("string", _read_table),
    default=None,
    importance="medium",
    doc="Iceberg table of signals, <namespace>.<table>, with three text columns: id, type, data. Rows that are "
    "inserted are signals.",
)
TOPIC = Option(
    name="signal.kafka.topic",
    kind=TOPIC_NAME,
    default=None,
    importance="medium",
    doc="Topic of signals; its partition 0 is read, and records whose key is topic.prefix.",
    shown="<topic.prefix>-signal",
)
SERVERS_OPTION = Option(
    name="signal.kafka.bootstrap.servers",
    kind=SERVERS,
    default="",
    importance="low",
    doc="Brokers of the signal topic, if different from bootstrap.servers.",
    shown="<bootstrap.servers>",
)
GROUP = Option(
    name="signal.kafka.groupId",
    kind=TEXT,
    default="kafka-signal",
    importance="low",
    doc="Group id of the consumer of signals, for the broker's rights; offsets are stored with the source's.",
    aliases=("signal.kafka.group",),
)
POLL_TIMEOUT = Option(
    name="signal.kafka.poll.timeout.ms",
    kind=whole_number(0, 2**31 - 1),
    default=100,
    importance="low",
    doc="Milliseconds to wait for records that the broker says are there.",
)
START = Option(
    name="signal.consumer.auto.offset.reset",
    kind=one_of("earliest", "latest", any_case=True),
    default="earliest",
    importance="low",
    doc="Where to begin in the signal topic when no offset is stored.",
)
CONSUMER = Prefix(
    name="signal.consumer.",
    target="Kafka consumer",
    importance="low",
    doc="Any setting of the consumer of signals, security included.",
)
FILE = Option(
    name="signal.file",
    kind=TEXT,
    default="file-signals.txt",
    importance="low",
    doc="File of signals, one JSON document per line; it is taken away when it was read, as in Debezium.",
)
CHUNK_SIZE = Option(
    name="incremental.snapshot.chunk.size",
    kind=whole_number(1),
    default=100_000,
    importance="medium",
    doc="Approximate rows per chunk of a snapshot on demand, after which its progress is stored and changes have "
    "their turn; at least one file.",
)
NOTIFICATIONS = Option(
    name="notification.enabled.channels",
    kind=_words(*_NOTIFIED),
    default=(),
    importance="low",
    doc="Where the course of snapshots is told: sink (a topic), log.",
)
NOTIFICATION_TOPIC = Option(
    name="notification.sink.topic.name",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Topic of notifications; required for the channel sink.",
)
OPTIONS: tuple[Option[object], ...] = (
    CHANNELS,
    POLL_INTERVAL,
    TABLE,
    TOPIC,
    SERVERS_OPTION,
    GROUP,
    POLL_TIMEOUT,
    START,
    FILE,
    CHUNK_SIZE,
    NOTIFICATIONS,
    NOTIFICATION_TOPIC,
)
PREFIXES = (CONSUMER,)


@attrs.frozen
class KafkaSignals:
    """The topic of signals: `kafka` has its brokers and consumer, `from_beginning` is for the first start."""

    topic: str
    kafka: KafkaSettings
    poll_timeout_ms: int
    from_beginning: bool


@attrs.frozen
class SignalSettings:
    """The channels of signals; None: not read. `chunk_rows` is how many rows a chunk has, about."""

    table: str | None = None
    topic: KafkaSignals | None = None
    file: Path | None = None
    poll_interval_ms: int = 5000
    chunk_rows: int = 100_000


@attrs.frozen
class NotificationSettings:
    """The channels of notifications; `topic` is None where they go to none."""

    topic: str | None = None
    log: bool = False


def build(reader: ConfigReader, kafka: KafkaSettings) -> SignalSettings:
    """Read the part about signals; faults go to the reader. `kafka` are the brokers unless others are named."""
    channels, entry = reader.get(CHANNELS), reader.entry(CHANNELS)
    table = reader.get(TABLE)
    if entry and "source" in channels and "source" in (reader.text(entry) or "") and reader.entry(TABLE) is None:
        reader.add_fault(entry, "source has no table", f"set {TABLE.name} to the table of signals")
    if entry and "jmx" in channels:
        reader.notes.append(f"{entry.key}: jmx has no effect; use source, kafka, file or POST /api/signals")
    named = entry is not None or reader.entry(TOPIC) is not None or reader.entry(SERVERS_OPTION) is not None
    return SignalSettings(
        table=table if "source" in channels else None,
        topic=_build_topic(reader, kafka) if "kafka" in channels and named else None,
        file=Path(reader.get(FILE)) if "file" in channels else None,
        poll_interval_ms=reader.get(POLL_INTERVAL),
        chunk_rows=reader.get(CHUNK_SIZE),
    )


def build_notifications(reader: ConfigReader, kafka: KafkaSettings) -> NotificationSettings:
    """Read the part about notifications; faults go to the reader."""
    channels, entry = reader.get(NOTIFICATIONS), reader.entry(NOTIFICATIONS)
    topic = reader.get(NOTIFICATION_TOPIC)
    if entry and "sink" in channels and reader.entry(NOTIFICATION_TOPIC) is None:
        reader.add_fault(entry, "sink has no topic", f"set {NOTIFICATION_TOPIC.name}")
    if entry and "sink" in channels and not kafka.bootstrap_servers:
        reader.add_fault(entry, "sink has no brokers", "set bootstrap.servers, or use the channel log")
    if entry and "jmx" in channels:
        reader.notes.append(f"{entry.key}: jmx has no effect; use sink or log")
    return NotificationSettings(topic if "sink" in channels else None, "log" in channels)


def _build_topic(reader: ConfigReader, kafka: KafkaSettings) -> KafkaSignals:
    servers, entry = reader.get(SERVERS_OPTION) or kafka.bootstrap_servers, reader.entry(CHANNELS)
    if not servers and entry:
        reader.add_fault(entry, "kafka has no brokers", f"set {SERVERS_OPTION.name}")
    consumer = read_consumer(reader, CONSUMER)
    return KafkaSignals(
        topic=reader.get(TOPIC) or f"{reader.get(TOPIC_PREFIX)}-signal",
        kafka=attrs.evolve(kafka, bootstrap_servers=servers, group_id=reader.get(GROUP), consumer=consumer),
        poll_timeout_ms=reader.get(POLL_TIMEOUT),
        from_beginning=reader.get(START) == "earliest",
    )
