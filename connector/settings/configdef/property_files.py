"""properties files, overrides -> entries: layered, each knowing where it was written.

Java's properties syntax (java.util.Properties#load) in UTF-8, or the JSON that Kafka Connect takes for a connector; a
later layer wins, within a file the later line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import javaproperties
import orjson

_LONG_RUN = re.compile(r"[^.\-_]{31,}")
AFTER_ALL_LINES = 2**31


@attrs.frozen(order=True)
class ConfigFault:
    """A line of a ConfigError; ordered by layer, line and text, faults without a line last in their layer."""

    layer: int
    line: int
    text: str


def format_fault(where: str, key: str, what: str, todo: str) -> str:
    """The text of a fault; an empty key is left out."""
    return f"{where}: {key}: {what}; {todo}" if key else f"{where}: {what}; {todo}"


@attrs.frozen
class Entry:
    """A key and its text as written; `layer` and `line` order entries, `file` is empty for an override."""

    key: str
    text: str = attrs.field(repr=False)
    file: str
    line: int
    layer: int

    @property
    def where(self) -> str:
        """`FILE:LINE`, or `-X` for an override."""
        return f"{self.file}:{self.line}" if self.file else "-X"

    @property
    def label(self) -> str:
        """The key for a message, unless it looks like the rest of a value: a line of a certificate's key, say."""
        odd = not self.key.isprintable() or _LONG_RUN.search(self.key)
        return f"a key of {len(self.key)} characters, not shown" if odd else self.key


def merge_files(files: Sequence[Path], overrides: Mapping[str, str]) -> tuple[dict[str, Entry], list[ConfigFault]]:
    """The winning entry of each key and the faults of files that cannot be read."""
    entries: dict[str, Entry] = {}
    faults: list[ConfigFault] = []
    for layer, path in enumerate(files):
        try:
            entries.update((entry.key, entry) for entry in read_entries(path, layer))
        except _Unreadable as wrong:
            faults.append(ConfigFault(layer, wrong.line, format_fault(wrong.where(path), "", wrong.what, wrong.todo)))
    for key, text in overrides.items():
        entries[key.strip()] = Entry(key.strip(), text.strip(), "", 0, len(files))
    return entries, faults


def read_properties(files: Sequence[Path], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of files as they are written: references are not looked up, faults are left out."""
    entries, _ = merge_files(files, overrides)
    return {key: entry.text for key, entry in entries.items()}


class _Unreadable(Exception):
    def __init__(self, line: int, what: str, todo: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.todo = todo

    def where(self, path: Path) -> str:
        return f"{path}:{self.line}" if self.line else str(path)


def read_entries(path: Path, layer: int = 0) -> Iterator[Entry]:
    """All entries of a file in order."""
    text = _read_text(path)
    return _read_json(path, text, layer) if text.lstrip().startswith("{") else _read_lines(path, text, layer)


def _read_json(path: Path, text: str, layer: int) -> Iterator[Entry]:
    """Read what `POST /connectors` takes (`name`, `config`), or what `PUT /connectors/NAME/config` does."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        what = f"begins as JSON and is none: {wrong.msg} at column {wrong.colno}"
        raise _Unreadable(wrong.lineno, what, "mend it") from None
    config = document.get("config", document)
    if not isinstance(config, dict):
        raise _Unreadable(
            1, "`config` is no JSON object", "write the connector's properties as Kafka Connect takes them"
        )
    if config is not document and "name" in document:
        config = {"name": document["name"], **config}
    for key, value in config.items():
        line = text.count("\n", 0, max(0, text.rfind(orjson.dumps(key).decode()))) + 1
        if isinstance(value, (dict, list)) or value is None:
            raise _Unreadable(line, f"the value of {key} is no text", "write it as one, in quotes")
        yield Entry(
            key, (value if isinstance(value, str) else orjson.dumps(value).decode()).strip(), str(path), line, layer
        )


def _read_lines(path: Path, text: str, layer: int) -> Iterator[Entry]:
    line = 1
    elements = javaproperties.parse(text)
    while True:
        try:
            element = next(elements, None)
        except javaproperties.InvalidUEscapeError:
            raise _Unreadable(line, "a \\u escape is broken", "write \\u and four hex digits") from None
        if element is None:
            return
        if isinstance(element, javaproperties.KeyValue):
            yield Entry(element.key, element.value.strip(), str(path), line, layer)
        line += _count_lines(element.source)


def _count_lines(source: str) -> int:
    """How many lines an element spans: \\n, \\r and \\r\\n end a line, nothing else does."""
    return source.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").count("\n") + 1


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = path.read_bytes()[: wrong.start].count(b"\n") + 1
        raise _Unreadable(line, "is not UTF-8", "save the file as UTF-8 or write \\uXXXX") from None
    except OSError as wrong:
        raise _Unreadable(0, f"cannot be read ({wrong.strerror})", "check the path and its rights") from None
