"""text of a property -> typed value: the kinds of value an option can have.

A kind reads the trimmed text and raises `InvalidValue` with what is wrong and what to do. The text itself is never
part of the message: the caller puts it in place of `{}` unless it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from connector.settings.configdef import regexps

T_co = TypeVar("T_co", covariant=True)
TOPIC_REGEX = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MAX_PORT = 65535
SERVER_REGEX = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}")


class InvalidValue(ValueError):
    """A text that is no value of its kind: `what` (holds `{}` for the text) and `todo`."""

    def __init__(self, what: str, todo: str) -> None:
        """Keep both parts."""
        super().__init__(what, todo)
        self.what = what
        self.todo = todo


@attrs.frozen
class ValueType(Generic[T_co]):
    """A named way to read a text; `read` raises `InvalidValue`."""

    name: str
    read: Callable[[str], T_co]


def _parse_boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidValue("{} is not a boolean", "write true or false")
    return text.lower() == "true"


def whole_number(minimum: int, maximum: int = 2**63 - 1) -> ValueType[int]:
    """A whole number between both bounds, both included."""

    def read(text: str) -> int:
        try:
            number = int(text) if text.isascii() and "_" not in text else None
        except ValueError:
            number = None
        if number is None:
            raise InvalidValue("{} is not a whole number", f"write digits only, from {minimum}")
        if not minimum <= number <= maximum:
            raise InvalidValue(f"{{}} is outside {minimum} to {maximum}", "write a number in that range")
        return number

    return ValueType("int" if maximum < 2**31 else "long", read)


def _parse_ratio(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise InvalidValue("{} is not a ratio", "write a number from 0 to 1, such as 0.1")
    return number


def _parse_positive_ratio(text: str) -> float:
    number = _parse_ratio(text)
    if not number:
        raise InvalidValue("{} is not above 0", "write a number above 0, up to 1, such as 0.3")
    return number


def split_list(text: str) -> tuple[str, ...]:
    """Items of a comma separated list, trimmed, empty ones left out."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


def one_of(*choices: str, any_case: bool = False) -> ValueType[str]:
    """One of the given words, as written there; read in any case where those whose option it is do so."""
    known = {choice.lower() if any_case else choice: choice for choice in choices}

    def read(text: str) -> str:
        choice = known.get(text.lower() if any_case else text)
        if choice is None:
            raise InvalidValue("{} is not known", f"write {' or '.join(choices)}")
        return choice

    return ValueType("string", read)


def _parse_topic(text: str) -> str:
    if not TOPIC_REGEX.fullmatch(text) or text in {".", ".."}:
        raise InvalidValue(
            "{} cannot be (part of) a topic name", "use letters, digits, '.', '_' and '-', at most 249 of them"
        )
    return text


def is_table_name(text: str) -> bool:
    """Tell whether a text is the name of a table, with a namespace or without."""
    return ":" not in text and all(part.strip() for part in text.split("."))


def _parse_table(text: str) -> str:
    if not all(part.strip() for part in text.split(".")):
        raise InvalidValue("{} has an empty part", "write table, or namespace.table")
    return text


def _parse_tables(text: str) -> tuple[str, ...]:
    return tuple(_parse_table(item) for item in split_list(text))


def topic_pairs(target: str, is_target: Callable[[str], bool] = bool) -> ValueType[tuple[tuple[str, str], ...]]:
    """Comma separated topic:target pairs, each topic once; `target` says in messages what topics go to."""

    def read(text: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for item in split_list(text):
            topic, colon, name = (part.strip() for part in item.partition(":"))
            if not (topic and colon and is_target(name)):
                raise InvalidValue("{} is not a list of pairs", f"write topic:{target}, several separated by commas")
            pairs.append((_parse_topic(topic), name))
        if len(dict(pairs)) < len(pairs):
            raise InvalidValue("{} holds a topic twice", f"give each topic one {target}")
        return tuple(pairs)

    return ValueType("list", read)


def to_topic_name(text: str) -> str:
    """A text as the name of a topic: what Kafka does not allow becomes `_`, as in Debezium."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def _parse_delimiter(text: str) -> str:
    if not TOPIC_REGEX.fullmatch(text):
        raise InvalidValue("{} cannot be part of a topic name", "use '.', '_' or '-'")
    return text


def _parse_topics(text: str) -> tuple[str, ...]:
    topics = tuple(_parse_topic(item) for item in split_list(text))
    if not topics:
        raise InvalidValue("{} holds no topic", "name the topics, separated by commas")
    return topics


def _parse_servers(text: str) -> str:
    servers = split_list(text)
    if not servers or not all(SERVER_REGEX.fullmatch(server) for server in servers):
        raise InvalidValue("{} is not a list of brokers", "write host:port, several separated by commas")
    if not all(0 < int(server.rpartition(":")[2]) <= _MAX_PORT for server in servers):
        raise InvalidValue("{} has a port out of range", f"write ports from 1 to {_MAX_PORT}")
    return ",".join(servers)


def _parse_pattern(text: str) -> str:
    try:
        regexps.compile_java(text)
    except ValueError:
        raise InvalidValue("{} is not a regular expression", "write one that Java and Python both read") from None
    return text


def _parse_patterns(text: str) -> tuple[str, ...]:
    """Comma separated expressions; a comma inside one is written `\\,` (Debezium's rule)."""
    patterns = tuple(item for part in re.split(r"(?<!\\),", text) if (item := part.strip().replace("\\,", ",")))
    for pattern in patterns:
        _parse_pattern(pattern)
    return patterns


def _parse_key_columns(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    keys = []
    for item in (part.strip() for part in text.split(";") if part.strip()):
        tables, colon, columns = item.rpartition(":")
        if not colon or not tables.strip() or not split_list(columns):
            raise InvalidValue(
                "{} does not name key columns", "write namespace.table:column1,column2;other.table:column"
            )
        keys.append((_parse_pattern(tables.strip()), split_list(columns)))
    return tuple(keys)


TEXT: ValueType[str] = ValueType("string", str)
BOOLEAN: ValueType[bool] = ValueType("boolean", _parse_boolean)
RATIO: ValueType[float] = ValueType("double", _parse_ratio)
POSITIVE_RATIO: ValueType[float] = ValueType("double", _parse_positive_ratio)
TABLE_NAME: ValueType[str] = ValueType("string", _parse_table)
TABLE_NAMES: ValueType[tuple[str, ...]] = ValueType("list", _parse_tables)
LIST: ValueType[tuple[str, ...]] = ValueType("list", split_list)
TOPIC_NAME: ValueType[str] = ValueType("string", _parse_topic)
TOPIC_DELIMITER: ValueType[str] = ValueType("string", _parse_delimiter)
TOPIC_NAMES: ValueType[tuple[str, ...]] = ValueType("list", _parse_topics)
SERVERS: ValueType[str] = ValueType("list", _parse_servers)
PATTERN: ValueType[str] = ValueType("regex", _parse_pattern)
PATTERNS: ValueType[tuple[str, ...]] = ValueType("list of regex", _parse_patterns)
KEY_COLUMNS: ValueType[tuple[tuple[str, tuple[str, ...]], ...]] = ValueType("list", _parse_key_columns)
