"""properties -> which topics are read: by name, by expression, or by Debezium's topic prefix.

Debezium's side topics (Debezium documentation, "Topic names", "Transaction metadata", "Heartbeat") hold no rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from connector.settings.configdef import regexps, value_types
from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import PATTERN, TOPIC_NAME, TOPIC_NAMES

TOPICS = Option(
    name="topics",
    kind=TOPIC_NAMES,
    default=(),
    importance="high",
    doc="Topics to read, separated by commas.",
)
TOPICS_REGEX = Option(
    name="topics.regex",
    kind=PATTERN,
    default=None,
    importance="high",
    doc="Regular expression for topics to read, matched against the whole name; instead of topics.",
)
TOPIC_PREFIX = Option(
    name="debezium.source.topic.prefix",
    kind=TOPIC_NAME,
    default=None,
    importance="high",
    doc="Debezium's topic prefix. Without topics and topics.regex, all table topics under it are read.",
    aliases=("debezium.source.database.server.name", "database.server.name"),
)
TOPIC_DELIMITER = Option(
    name="debezium.source.topic.delimiter",
    kind=value_types.TOPIC_DELIMITER,
    default=".",
    importance="low",
    doc="Delimiter between the parts of Debezium's topic names.",
)
TOPIC_TRANSACTION = Option(
    name="debezium.source.topic.transaction",
    kind=TOPIC_NAME,
    default="transaction",
    importance="low",
    doc="Last part of Debezium's transaction topic, which is not read.",
)
HEARTBEAT_PREFIX = Option(
    name="debezium.source.topic.heartbeat.prefix",
    kind=TOPIC_NAME,
    default="__debezium-heartbeat",
    importance="low",
    doc="First part of Debezium's heartbeat topic, which is not read.",
)
HEARTBEAT_TOPIC = Option(
    name="debezium.source.topic.heartbeat.name",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Debezium's heartbeat topic by its whole name, which is not read; wins over the prefix.",
)
HISTORY_TOPIC = Option(
    name="debezium.source.schema.history.internal.kafka.topic",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Debezium's schema history topic, which is not read.",
)
SIGNAL_TOPIC = Option(
    name="debezium.source.signal.kafka.topic",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Debezium's signal topic, which is not read.",
)
NOTIFICATION_TOPIC = Option(
    name="debezium.source.notification.sink.topic.name",
    kind=TOPIC_NAME,
    default=None,
    importance="low",
    doc="Debezium's notification topic, which is not read.",
)
INTERNAL = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Kafka's own topics: no expression means them, as with a Java consumer."""

OPTIONS: tuple[Option[object], ...] = (
    TOPICS,
    TOPICS_REGEX,
    TOPIC_PREFIX,
    TOPIC_DELIMITER,
    TOPIC_TRANSACTION,
    HEARTBEAT_PREFIX,
    HEARTBEAT_TOPIC,
    HISTORY_TOPIC,
    SIGNAL_TOPIC,
    NOTIFICATION_TOPIC,
)


def select_topics(reader: ConfigReader, dead_letters: str) -> tuple[tuple[str, ...], str | None]:
    """The names, or the expression, of the topics to read; faults go to the reader."""
    _check_selection(reader)
    _check_dead_letters(reader, dead_letters)
    names, regex = reader.get(TOPICS), reader.get(TOPICS_REGEX)
    if not reader.entry(TOPICS) and not reader.entry(TOPICS_REGEX):
        prefix = reader.get(TOPIC_PREFIX)
        names, regex = (), prefix and _derive_regex(reader, prefix, dead_letters)
    return names, regex


def _derive_regex(reader: ConfigReader, prefix: str, dead_letters: str) -> str:
    start = prefix + reader.get(TOPIC_DELIMITER)
    named = (HISTORY_TOPIC, SIGNAL_TOPIC, NOTIFICATION_TOPIC)
    side = [
        start + reader.get(TOPIC_TRANSACTION),
        start + "message",
        reader.get(HEARTBEAT_TOPIC) or f"{reader.get(HEARTBEAT_PREFIX)}.{prefix}",
        dead_letters,
        *(topic for option in named if (topic := reader.get(option))),
    ]
    return table_topics_regex(start, side)


def _check_selection(reader: ConfigReader) -> None:
    by_name, by_regex = reader.entry(TOPICS), reader.entry(TOPICS_REGEX)
    if by_name and by_regex:
        reader.add_fault(by_regex, "topics is given too", "keep one of them")
    if not by_name and not by_regex and reader.entry(TOPIC_PREFIX) is None:
        reader.add_missing(
            TOPICS.name, "is missing", "name the topics, or give topics.regex or debezium.source.topic.prefix"
        )


def _check_dead_letters(reader: ConfigReader, dead_letters: str) -> None:
    by_name, by_regex = reader.entry(TOPICS), reader.entry(TOPICS_REGEX)
    if by_name and dead_letters in reader.get(TOPICS):
        reader.add_fault(by_name, "names the dead letter topic: dead letters would be read again", "remove it")
    pattern = reader.get(TOPICS_REGEX)
    if by_regex and pattern and matches(pattern, dead_letters):
        what = f"matches the dead letter topic '{dead_letters}': dead letters would be read again"
        reader.add_fault(by_regex, what, "narrow the expression or set errors.deadletterqueue.topic.name")


def table_topics_regex(start: str, side_topics: Iterable[str]) -> str:
    """Expression of all topics that begin with `start` (prefix and delimiter) and are none of `side_topics`.

    The schema change topic is the prefix alone and the heartbeat topic begins otherwise, unless configured so: neither
    matches.
    """
    inside = sorted({topic.removeprefix(start) for topic in side_topics if topic.startswith(start)})
    excluded = "|".join(re.escape(rest) for rest in inside)
    return rf"{re.escape(start)}(?!(?:{excluded})$).+" if inside else rf"{re.escape(start)}.+"


def matches(pattern: str, topic: str) -> bool:
    """Whether an expression means a topic: the whole name has to match, as with a Java consumer."""
    return topic not in INTERNAL and regexps.compile_java(pattern).fullmatch(topic) is not None
