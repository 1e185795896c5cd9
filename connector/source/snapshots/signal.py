"""The text of a signal -> what it asks for, in Debezium's words (pure).

A signal is `{"id", "type", "data"}`; `data` is an object, or its JSON as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse

from connector.settings.configdef import regexps

_MAX_BYTES = 1024**2
_MAX_NAMES = 1000
_MAX_ID, _MAX_FILTER = 1000, 10_000
"""In characters: both are stored with the source's offsets as long as a snapshot waits."""
_DEEPEST = 100
"""Brackets within each other at most: what reads a filter, here and in Spark, goes down as deep."""
_SELECT = re.compile(r"\s*select\s+\*\s+from\s+\S+\s+where\s+(?P<filter>.+?)\s*;?\s*", re.IGNORECASE | re.DOTALL)
"""Debezium has the filter of a blocking snapshot as a whole query."""


class InvalidSignal(ValueError):
    """Why a signal cannot be followed; never shows its content."""


class SnapshotKind(StrEnum):
    """Whether changes of a table go on while it is read."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


@attrs.frozen
class SignalText:
    """A signal as it came."""

    id: str
    type: str
    data: Any = None


@attrs.frozen
class ExecuteSnapshot:
    """Read tables whose names match; `conditions` are pairs of an expression for names and a filter for rows."""

    id: str
    collections: tuple[str, ...]
    kind: SnapshotKind = SnapshotKind.INCREMENTAL
    conditions: tuple[tuple[str, str], ...] = ()

    def filter_of(self, table: str) -> str:
        """Return the filter of a table's rows, empty for all of them."""
        return next((text for pattern, text in self.conditions if matches(pattern, table)), "")


@attrs.frozen
class StopSnapshot:
    """Give up snapshots: of tables whose names match (none named: all), of one kind (None: of both)."""

    id: str
    collections: tuple[str, ...] = ()
    kind: SnapshotKind | None = None


@attrs.frozen
class PauseSnapshot:
    """Hold incremental snapshots up."""

    id: str


@attrs.frozen
class ResumeSnapshot:
    """Let incremental snapshots go on."""

    id: str


@attrs.frozen
class LogMessage:
    """Log a message; `{}` in it stands for the source's offsets."""

    id: str
    message: str


Signal = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage


def matches(pattern: str, table: str) -> bool:
    """Whether a table's name with namespace matches a whole expression, in any case of letters, as in Debezium.

    By RE2, in time that grows with the name alone: Python's and Java's engines may take for ever for some expressions,
    and whoever can send a signal may write one. It has no look-arounds and no references to groups.

    Raises:
        ValueError: it is no such expression.
    """
    is_match = pc.match_substring_regex(pa.scalar(table), rf"\A(?:{pattern})\z", ignore_case=True)
    return bool(is_match.as_py())


def read_document(text: str | bytes, fallback_id: str) -> SignalText:
    """Read a signal's JSON; one without id gets the fallback.

    Raises:
        InvalidSignal: it is no JSON object of a signal.
    """
    if len(text) > _MAX_BYTES:
        raise InvalidSignal(f"it is longer than {_MAX_BYTES} bytes")
    try:
        document = orjson.loads(text)
    except ValueError:
        raise InvalidSignal("it is no JSON") from None
    return read_fields(document, fallback_id)


def read_fields(document: object, fallback_id: str) -> SignalText:
    """Read a signal's parsed JSON, as `read_document` does."""
    if not isinstance(document, Mapping):
        raise InvalidSignal('it is no object with "id", "type" and "data"')
    kind, signal_id = document.get("type"), document.get("id")
    if not isinstance(kind, str) or not kind:
        raise InvalidSignal('it has no text "type"')
    if signal_id is not None and not isinstance(signal_id, str):
        raise InvalidSignal('its "id" is no text')
    if signal_id is not None and len(signal_id) > _MAX_ID:
        raise InvalidSignal(f'its "id" is longer than {_MAX_ID} characters')
    return SignalText(signal_id or fallback_id, kind, document.get("data"))


def parse_signal(text: SignalText) -> Signal:
    """Return what a signal asks for.

    Raises:
        InvalidSignal: its type is unknown, or its data does not fit it; or it is one of Debezium's that has no meaning
            for an Iceberg table.
    """
    if text.type == "schema-changes":
        # Debezium takes a table's columns from it where the schemas that it remembers are lost or wrong.
        raise InvalidSignal(
            "schema-changes has no effect here: it repairs the schemas that a connector keeps of a database's tables, "
            "and an Iceberg source keeps none: each snapshot has its own; change the table (ALTER TABLE)"
        )
    reader = _READERS.get(text.type)
    if reader is None:
        raise InvalidSignal(f"its type is none of {', '.join(_READERS)}")
    return reader(text.id, _read_data(text.data))


def parse_filter(text: str) -> BooleanExpression:
    """Read a filter: comparisons of columns with values, `in`, `like 'x%'`, `is null`, joined by and, or, not.

    Functions and queries are not taken: a signal may come from anybody who can write to a topic.

    Raises:
        InvalidSignal: it is something else.
    """
    if max(accumulate((letter == "(") - (letter == ")") for letter in text), default=0) > _DEEPEST:
        raise InvalidSignal(f"a filter has more than {_DEEPEST} brackets within each other")
    try:
        return parse(text)
    except Exception:  # noqa: BLE001 - the parser raises errors of its own and of others, which quote the text
        raise InvalidSignal(
            "a filter is not understood; write column = value, <, >, in (...), like 'x%', is null, with and, or, not"
        ) from None


def _read_data(data: object) -> Mapping[str, Any]:
    if isinstance(data, str | bytes):
        try:
            data = orjson.loads(data) if data.strip() else {}
        except ValueError:
            raise InvalidSignal('its "data" is no JSON') from None
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise InvalidSignal('its "data" is no object')
    return data


def _read_execute(signal: str, data: Mapping[str, Any]) -> ExecuteSnapshot:
    collections = _read_collections(data)
    if not collections:
        raise InvalidSignal('execute-snapshot names no table in "data-collections"')
    kind = _read_kind(data) or SnapshotKind.INCREMENTAL
    return ExecuteSnapshot(signal, collections, kind, tuple(_read_conditions(data)))


def _read_conditions(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Read `additional-conditions`, and `additional-condition` of older Debezium, which is for all tables."""
    listed = data.get("additional-conditions")
    single = data.get("additional-condition")
    conditions = [] if listed is None else listed
    if (
        not isinstance(conditions, Sequence)
        or isinstance(conditions, str)
        or not all(isinstance(c, Mapping) for c in conditions)
    ):
        raise InvalidSignal('"additional-conditions" is no list of objects')
    if len(conditions) > _MAX_NAMES:
        raise InvalidSignal(f'"additional-conditions" has more than {_MAX_NAMES} conditions')
    pairs = [(condition.get("data-collection"), condition.get("filter")) for condition in conditions]
    if single is not None:
        pairs.append((".*", single))
    return [(_read_pattern(pattern), _read_filter(text)) for pattern, text in pairs if text != ""]


def _read_filter(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidSignal('a condition has no text "filter"')
    query = _SELECT.fullmatch(text)
    condition = query["filter"] if query else text
    if len(condition) > _MAX_FILTER:
        raise InvalidSignal(f"a filter is longer than {_MAX_FILTER} characters")
    parse_filter(condition)
    return condition


def _read_stop(signal: str, data: Mapping[str, Any]) -> StopSnapshot:
    return StopSnapshot(signal, _read_collections(data), _read_kind(data))


def _read_log(signal: str, data: Mapping[str, Any]) -> LogMessage:
    message = data.get("message")
    if not isinstance(message, str):
        raise InvalidSignal('log has no text "message"')
    return LogMessage(signal, message)


def _read_kind(data: Mapping[str, Any]) -> SnapshotKind | None:
    kind = data.get("type")
    if kind is None:
        return None
    try:
        return SnapshotKind(str(kind).lower())
    except ValueError:
        raise InvalidSignal('its data\'s "type" is neither incremental nor blocking') from None


def _read_collections(data: Mapping[str, Any]) -> tuple[str, ...]:
    collections = data.get("data-collections")
    if collections is None:
        return ()
    if not isinstance(collections, Sequence) or isinstance(collections, str) or len(collections) > _MAX_NAMES:
        raise InvalidSignal(f'"data-collections" is no list of at most {_MAX_NAMES} names')
    return tuple(map(_read_pattern, collections))


def _read_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern.strip():
        raise InvalidSignal("the name of a table is no text")
    try:
        regexps.compile_java(pattern)
        matches(pattern.strip(), "")
    except ValueError:
        raise InvalidSignal("the name of a table is no regular expression, or one with look-arounds") from None
    return pattern.strip()


_READERS: Mapping[str, Callable[[str, Mapping[str, Any]], Signal]] = {
    "execute-snapshot": _read_execute,
    "stop-snapshot": _read_stop,
    "pause-snapshot": lambda signal, _: PauseSnapshot(signal),
    "resume-snapshot": lambda signal, _: ResumeSnapshot(signal),
    "log": _read_log,
}
