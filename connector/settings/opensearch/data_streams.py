"""properties -> DataStreamSettings: documents in indexes that follow each other, for events that are only added.

Names: Aiven's sink for data streams; TimestampRouter and MessageTimestampRouter for names with a time.
"""

from __future__ import annotations

import re
from typing import cast

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, LIST, TEXT, InvalidValue, ValueType


def _parse_name_format(text: str) -> str:
    if text == "${topic}":
        return text
    if text.count("${topic}") != 1 or text.count("${timestamp}") != 1:
        raise InvalidValue("{} does not have ${topic} and ${timestamp} once", "write ${topic}-${timestamp}")
    rest = text.replace("${topic}", "").replace("${timestamp}", "")
    if not re.fullmatch(r"[a-z0-9._-]*", rest):
        raise InvalidValue("{} cannot be the name of an index", "use small letters, digits, '.', '_' and '-'")
    return text


def _parse_timestamp_format(text: str) -> str:
    if not text or re.sub(r"yyyy|MM|dd|HH|[._-]", "", text):
        raise InvalidValue(
            "{} is not a format that is known here", "write yyyy, MM, dd and HH, with '.', '_' or '-' between"
        )
    return text


NAME_FORMAT = Option(
    name="topic.format",
    kind=ValueType("string", _parse_name_format),
    default="${topic}",
    importance="medium",
    doc="Index names: ${topic}-${timestamp} makes one index per day. For append-only events.",
    literal=True,
)
TIMESTAMP_FORMAT = Option(
    name="timestamp.format",
    kind=ValueType("string", _parse_timestamp_format),
    default="yyyyMMdd",
    importance="low",
    doc="Format of ${timestamp} in topic.format, in UTC: yyyy, MM, dd, HH, separated by '.', '_' or '-'.",
)
TIMESTAMP_FIELDS = Option(
    name="message.timestamp.keys",
    kind=LIST,
    default=(),
    importance="low",
    doc="Fields to take ${timestamp} from; the first with a value counts; none: the change's time at its source.",
)
STREAMS = Option(
    name="data.stream.enabled",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Write events to data streams, one per topic. For append-only events.",
)
STREAM_PREFIX = Option(
    name="data.stream.prefix",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Streams are named <prefix>-<topic>.",
)
STREAM_FIELD = Option(
    name="data.stream.timestamp.field",
    kind=TEXT,
    default="@timestamp",
    importance="low",
    doc="Field to take @timestamp from; with @timestamp, events without it get the change's time at its source.",
)
OPTIONS: tuple[Option[object], ...] = (
    NAME_FORMAT,
    TIMESTAMP_FORMAT,
    TIMESTAMP_FIELDS,
    STREAMS,
    STREAM_PREFIX,
    STREAM_FIELD,
)


@attrs.frozen
class DataStreamSettings:
    """Where documents go to indexes that follow each other: a data stream, or names with a time (`pattern`: of the
    name, and of the time)."""

    streams: bool = False
    prefix: str | None = None
    stream_field: str = STREAM_FIELD.default
    pattern: tuple[str, str] | None = None
    fields: tuple[str, ...] = ()


def build(reader: ConfigReader) -> DataStreamSettings:
    """Read what is given; faults go to the reader."""
    streams, name = reader.get(STREAMS), reader.get(NAME_FORMAT)
    dated = "${timestamp}" in name
    for option, on, needs in (
        (STREAM_PREFIX, streams, "data.stream.enabled=true"),
        (STREAM_FIELD, streams, "data.stream.enabled=true"),
        (TIMESTAMP_FORMAT, dated, "topic.format with ${timestamp}"),
        (TIMESTAMP_FIELDS, dated, "topic.format with ${timestamp}"),
    ):
        entry = reader.entry(cast("Option[object]", option))
        if entry is not None and not on and reader.get(cast("Option[object]", option)) != option.default:
            reader.add_fault(entry, "has no effect here", f"set {needs}, or take it out")
    entry = reader.entry(NAME_FORMAT)
    if entry and streams and dated:
        reader.add_fault(entry, "has no effect on data streams", f"keep {STREAMS.name} or {NAME_FORMAT.name}")
    pattern = (name, reader.get(TIMESTAMP_FORMAT)) if dated else None
    prefix, field = reader.get(STREAM_PREFIX), reader.get(STREAM_FIELD)
    return DataStreamSettings(streams, prefix, field, pattern, reader.get(TIMESTAMP_FIELDS))


def check(reader: ConfigReader, settings: DataStreamSettings, *, upsert: bool, partial: bool) -> None:
    """Refuse what only takes added documents where others are replaced and deleted: those would stay in old indexes."""
    option = STREAMS if settings.streams else NAME_FORMAT
    entry = reader.entry(cast("Option[object]", option))
    if entry is None or not (settings.streams or settings.pattern):
        return
    if upsert:
        reader.add_fault(
            entry,
            "is for events that are only added, and here documents follow their keys",
            "set key.ignore=true, or let an alias that is rolled over take the documents",
        )
    if partial:
        reader.add_fault(entry, "is for events that are only added", "leave index.write.method out")
