"""properties -> EventSettings: how events are read, and what their rows are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import LIST, PATTERN, TEXT, InvalidValue, ValueType, one_of
from connector.settings.converters import message_format
from connector.settings.converters.message_format import AnyRegistry
from serde.connect.text_columns import DECIMAL_OPTION, TEMPORAL_OPTION, WITH_NANOSECONDS
from serde.events.images.unavailable_value import PLACEHOLDER, parse_placeholder

_UNWRAP = re.compile(r"((?:debezium\.)?transforms)\.([^.]+)\.type")
_DROPPED_FIELDS = re.compile(r"(?:debezium\.)?transforms\.[^.]+\.drop\.fields\.header\.name")


def _parse_placeholder(text: str) -> str:
    try:
        word = parse_placeholder(text)
    except ValueError:
        raise InvalidValue("{} has no UTF-8 text after hex:", "write two hexadecimal digits per byte") from None
    if not word:
        raise InvalidValue("{} is empty", "write the word, or leave the option out")
    return word


ADD_FIELDS = Option(
    name="debezium.transforms.unwrap.add.fields",
    kind=LIST,
    default=("op", "table", "source.ts_ns", "db", "ts_ms"),
    importance="medium",
    doc="Envelope fields to add as columns to those of the row.",
    aliases=("transforms.unwrap.add.fields",),
    empty=True,
)
ADD_FIELDS_PREFIX = Option(
    name="debezium.transforms.unwrap.add.fields.prefix",
    kind=TEXT,
    default="__",
    importance="low",
    doc="Prefix of the column names of add.fields.",
    aliases=("transforms.unwrap.add.fields.prefix",),
    empty=True,
)
TEMPORAL_AS_TEXT = Option(
    name=TEMPORAL_OPTION,
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns, or schema names of types, whose dates and times are stored as ISO 8601 text (infinity); * for all.",
)
DECIMAL_AS_TEXT = Option(
    name=DECIMAL_OPTION,
    kind=LIST,
    default=(),
    importance="low",
    doc="Columns whose decimals are stored as text; * for all. Decimals of more than 38 digits always are.",
)
DocumentMode = Literal["columns", "text"]
DOCUMENTS_AS = Option(
    name="debezium.sink.iceberg.documents-as",
    kind=one_of("columns", "text"),
    default="columns",
    importance="medium",
    doc="MongoDB's documents: a column per member, or whole in the column document; either takes partial updates.",
)
OUTBOX_TOPICS = Option(
    name="debezium.sink.iceberg.outbox-topics",
    kind=PATTERN,
    default="outbox.event.(.+)",
    importance="medium",
    doc="Topics of Debezium's outbox router, whose events are appended; group 1 is the aggregate type. Empty: none.",
    empty=True,
)
UNAVAILABLE_PLACEHOLDER = Option(
    name="unavailable.value.placeholder",
    kind=ValueType("string", _parse_placeholder),
    default=PLACEHOLDER,
    importance="low",
    doc="Debezium's word for values that it did not send, as the source connector has it; hex: before bytes.",
    aliases=("debezium.source.unavailable.value.placeholder",),
)
TypeChangeMode = Literal["dead-letter", "stop", "new-column"]
TYPE_CHANGES = Option(
    name="debezium.sink.iceberg.type-changes",
    kind=one_of("dead-letter", "stop", "new-column"),
    default="dead-letter",
    importance="medium",
    doc="If a source column gets another type: dead-letter values that do not fit, stop, or fill column a__<type>.",
)
OPTIONS: tuple[Option[object], ...] = (
    *message_format.OPTIONS,
    ADD_FIELDS,
    ADD_FIELDS_PREFIX,
    TEMPORAL_AS_TEXT,
    DECIMAL_AS_TEXT,
    DOCUMENTS_AS,
    OUTBOX_TOPICS,
    UNAVAILABLE_PLACEHOLDER,
    TYPE_CHANGES,
)


@attrs.frozen
class EventSettings:
    """Formats of key and value (names in `serde.formats`) with the registries that they need, and what an envelope adds
    to its row; `temporal_as_text` and `decimal_as_text` name columns, see `connect.text_columns`;
    `documents_as` says what MongoDB's become, `outbox_topics` (a Java pattern) which topics are the outbox router's,
    `placeholder` is the source's word for values that it did not send."""

    key_format: str
    value_format: str
    add_fields: tuple[str, ...]
    add_fields_prefix: str
    key_registry: AnyRegistry | None = None
    value_registry: AnyRegistry | None = None
    temporal_as_text: frozenset[str] = frozenset()
    decimal_as_text: frozenset[str] = frozenset()
    documents_as: DocumentMode = "columns"
    outbox_topics: str | None = None
    placeholder: str = PLACEHOLDER
    type_changes: TypeChangeMode = "dead-letter"


def build(reader: ConfigReader, *, nanoseconds: bool = False) -> EventSettings:
    """Read the events' part; faults go to the reader. `nanoseconds`: new tables have timestamps of these."""
    key, value = message_format.build(reader)
    _note_dropped_fields(reader)
    return EventSettings(
        key.name,
        value.name,
        reader.get(ADD_FIELDS),
        reader.get(ADD_FIELDS_PREFIX),
        key.registry,
        value.registry,
        frozenset(reader.get(TEMPORAL_AS_TEXT)) | ({WITH_NANOSECONDS} if nanoseconds else set()),
        frozenset(reader.get(DECIMAL_AS_TEXT)),
        "text" if reader.get(DOCUMENTS_AS) == "text" else "columns",
        reader.get(OUTBOX_TOPICS) or None,
        reader.get(UNAVAILABLE_PLACEHOLDER),
        next(mode for mode in get_args(TypeChangeMode) if mode == reader.get(TYPE_CHANGES)),
    )


def _note_dropped_fields(reader: ConfigReader) -> None:
    """Say what becomes of rows whose events leave out what did not change: nothing in an event tells that it does."""
    for entry in reader.entries.values():
        if _DROPPED_FIELDS.fullmatch(entry.key):
            reader.notes.append(
                f"{entry.key}: fields that the transform leaves out of an update become null in its row"
            )


def rename_unwrap(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries with the unwrap transform under its usual name, whatever a user called it.

    An entry keeps the key it was written with, for messages.
    """
    renamed: dict[str, str] = {}
    for key, entry in entries.items():
        match = _UNWRAP.fullmatch(key)
        if match and entry.text.endswith(".ExtractNewRecordState"):
            for option in ("add.fields", "add.fields.prefix"):
                renamed[f"{match[1]}.{match[2]}.{option}"] = f"{match[1]}.unwrap.{option}"
    return {renamed.get(key, key): entry for key, entry in entries.items()}
