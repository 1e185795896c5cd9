"""text of a property -> typed value: the kinds of value an option can have.

A kind reads the trimmed text and raises `Unfit` with what is wrong and what to do. The text itself is never part of
the message: the caller puts it in place of `{}` unless it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from connector.settings.configdef import regexps
from connector.settings.iceberg import partition_spec, sort_order

T_co = TypeVar("T_co", covariant=True)
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SERVER = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}")


class Unfit(ValueError):
    """A text that is no value of its kind: `what` (holds `{}` for the text) and `todo`."""

    def __init__(self, what: str, todo: str) -> None:
        """Keep both parts."""
        super().__init__(what, todo)
        self.what = what
        self.todo = todo


@attrs.frozen
class Kind(Generic[T_co]):
    """A named way to read a text; `read` raises `Unfit`."""

    name: str
    read: Callable[[str], T_co]


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Unfit("{} is not a boolean", "write true or false")
    return text.lower() == "true"


def whole_number(minimum: int, maximum: int = 2**63 - 1) -> Kind[int]:
    """A whole number between both bounds, both included."""

    def read(text: str) -> int:
        try:
            number = int(text) if text.isascii() and "_" not in text else None
        except ValueError:
            number = None
        if number is None:
            raise Unfit("{} is not a whole number", f"write digits only, from {minimum}")
        if not minimum <= number <= maximum:
            raise Unfit(f"{{}} is outside {minimum} to {maximum}", "write a number in that range")
        return number

    return Kind("int" if maximum < 2**31 else "long", read)


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise Unfit("{} is not a ratio", "write a number from 0 to 1, such as 0.1")
    return number


def split(text: str) -> tuple[str, ...]:
    """Items of a comma separated list, trimmed, empty ones left out."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


def one_of(*choices: str, any_case: bool = False) -> Kind[str]:
    """One of the given words, as written there; read in any case where Kafka's clients do so."""
    known = {choice.lower() if any_case else choice: choice for choice in choices}

    def read(text: str) -> str:
        found = known.get(text.lower() if any_case else text)
        if found is None:
            raise Unfit("{} is not known", f"write {' or '.join(choices)}")
        return found

    return Kind("string", read)


def _topic(text: str) -> str:
    if not TOPIC.fullmatch(text) or text in {".", ".."}:
        raise Unfit("{} cannot be (part of) a topic name", "use letters, digits, '.', '_' and '-', at most 249 of them")
    return text


def topic_name(text: str) -> str:
    """A text as the name of a topic: what Kafka does not allow becomes `_`, as in Debezium."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def _delimiter(text: str) -> str:
    if not TOPIC.fullmatch(text):
        raise Unfit("{} cannot be part of a topic name", "use '.', '_' or '-'")
    return text


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(_topic(item) for item in split(text))
    if not topics:
        raise Unfit("{} holds no topic", "name the topics, separated by commas")
    return topics


def _servers(text: str) -> str:
    servers = split(text)
    if not servers or not all(SERVER.fullmatch(server) for server in servers):
        raise Unfit("{} is not a list of brokers", "write host:port, several separated by commas")
    return ",".join(servers)


def _pattern(text: str) -> str:
    try:
        regexps.compiled(text)
    except ValueError:
        raise Unfit("{} is not a regular expression", "write one that Java and Python both read") from None
    return text


def _patterns(text: str) -> tuple[str, ...]:
    """Comma separated expressions; a comma inside one is written `\\,` (Debezium's rule)."""
    found = tuple(item for part in re.split(r"(?<!\\),", text) if (item := part.strip().replace("\\,", ",")))
    for item in found:
        _pattern(item)
    return found


def _key_columns(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for item in (part.strip() for part in text.split(";") if part.strip()):
        tables, colon, columns = item.rpartition(":")
        if not colon or not tables.strip() or not split(columns):
            raise Unfit("{} does not name key columns", "write namespace.table:column1,column2;other.table:column")
        found.append((_pattern(tables.strip()), split(columns)))
    return tuple(found)


def _partition_terms(text: str) -> tuple[str, ...]:
    return _terms(text, partition_spec.parse, "{} is not a list of partition terms", partition_spec.HINT)


def _sort_terms(text: str) -> tuple[str, ...]:
    return _terms(text, sort_order.parse, "{} is not a list of sort terms", sort_order.HINT)


def _terms(text: str, parse: Callable[[str], object], what: str, hint: str) -> tuple[str, ...]:
    terms = partition_spec.split_terms(text)
    for term in terms:
        try:
            parse(term)
        except ValueError as wrong:
            raise Unfit(f"{what} ({wrong})", hint) from None
    return terms


TEXT: Kind[str] = Kind("string", str)
BOOLEAN: Kind[bool] = Kind("boolean", _boolean)
RATIO: Kind[float] = Kind("double", _share)
LIST: Kind[tuple[str, ...]] = Kind("list", split)
TOPIC_NAME: Kind[str] = Kind("string", _topic)
TOPIC_DELIMITER: Kind[str] = Kind("string", _delimiter)
TOPIC_NAMES: Kind[tuple[str, ...]] = Kind("list", _topics)
SERVERS: Kind[str] = Kind("list", _servers)
PATTERN: Kind[str] = Kind("regex", _pattern)
PATTERNS: Kind[tuple[str, ...]] = Kind("list of regex", _patterns)
KEY_COLUMNS: Kind[tuple[tuple[str, tuple[str, ...]], ...]] = Kind("list", _key_columns)
PARTITION_TERMS: Kind[tuple[str, ...]] = Kind("list", _partition_terms)
SORT_TERMS: Kind[tuple[str, ...]] = Kind("list", _sort_terms)
