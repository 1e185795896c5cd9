"""properties files, overrides -> entries: layered, each knowing where it was written.

Java's properties syntax (java.util.Properties#load) in UTF-8, or the JSON that Kafka Connect takes for a connector; a
later layer wins, within a file the later line, and before it what is said for Debezium Server's profile (`%prod.key`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import javaproperties
import orjson

_LONG_RUN = re.compile(r"[^.\-_]{31,}")
_BROKEN_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u(?![0-9A-Fa-f]{4})")
_LONE = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8."""
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_SHOWN_LINES = 20
"""So many such bytes are told line by line: a file of more is not a text."""
_PROFILED = re.compile(r"%(?:prod|\{(?:[^},]*,)*prod(?:,[^},]*)*\})\.")
"""How a key of Quarkus's profile prod begins, the one that Debezium Server runs with."""
_RESOURCE = re.compile(r"(?:\s*#.*\n|\s*---.*\n|\s*\n)*+apiVersion\s*:")
"""How a resource of Kubernetes begins, such as Strimzi's KafkaConnector."""
_LIST = re.compile(r"\s*\[\s*[{\]\"]")
_BESIDE_CONFIG = frozenset({"name", "config", "initial_state", "tasks", "type"})
"""What Kafka Connect takes, or tells, of a connector beside its properties."""
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


@attrs.frozen
class MergedFiles:
    """The winning entry of each key, what in the files cannot be read, and the keys that a file has twice."""

    entries: dict[str, Entry] = attrs.field(repr=False)
    faults: list[ConfigFault]
    notes: list[str]


def merge_files(files: Sequence[Path], overrides: Mapping[str, str]) -> MergedFiles:
    """Lay files and overrides over one another."""
    merged = MergedFiles({}, [], [])
    for layer, path in enumerate(files):
        own: dict[str, Entry] = {}
        try:
            for item in read_entries(path, layer):
                if isinstance(item, ConfigFault):
                    merged.faults.append(item)
                    continue
                before = own.get(item.key)
                if before is not None and before.text != item.text:
                    merged.notes.append(_note_repeated(before, item))
                own[item.key] = item
        except _Unreadable as wrong:
            merged.faults.append(wrong.fault(path, layer))
        merged.entries.update(_choose_profile(own))
    for key, text in overrides.items():
        merged.entries[key.strip()] = Entry(key.strip(), text.strip(), "", 0, len(files))
    return merged


def _choose_profile(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """What a layer's entries are where Quarkus's profile is prod."""
    chosen = {key: entry for key, entry in entries.items() if not _PROFILED.match(key)}
    for key, entry in entries.items():
        if _PROFILED.match(key):
            plain = _PROFILED.sub("", key)
            chosen[plain] = attrs.evolve(entry, key=plain)
    return chosen


def _note_repeated(before: Entry, after: Entry) -> str:
    return f"{after.where}: {after.label} has another value in line {before.line} too; line {after.line} counts"


def read_properties(files: Sequence[Path], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of files as they are written: references are not looked up, faults are left out."""
    return {key: entry.text for key, entry in merge_files(files, overrides).entries.items()}


class _Unreadable(Exception):
    def __init__(self, line: int, what: str, todo: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what
        self.todo = todo

    def fault(self, path: Path, layer: int) -> ConfigFault:
        where = f"{path}:{self.line}" if self.line else str(path)
        return ConfigFault(layer, self.line, format_fault(where, "", self.what, self.todo))


def read_entries(path: Path, layer: int = 0) -> Iterator[Entry | ConfigFault]:
    """All entries of a file in order, and the faults of lines that hold none that can be read."""
    text = _read_text(path)
    if text.lstrip().startswith("{"):
        return _read_json(path, _check_text(text), layer)
    if _LIST.match(text):
        raise _Unreadable(0, "is a JSON list, and a file has one connector", "write the object of one into a file")
    if _RESOURCE.match(text):
        todo = (
            "write what is below spec.config as key=value, or as JSON, into a file, and spec.class as connector.class"
        )
        raise _Unreadable(0, "is a resource of Kubernetes, which is not read", todo)
    return _read_lines(path, text, layer)


@attrs.frozen
class _Object:
    """What is in braces, in order: a key may come twice."""

    pairs: list[tuple[str, object]]


def _parse_json(text: str) -> _Object:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        what = f"begins as JSON and is none: {wrong.msg} at column {wrong.colno}"
        raise _Unreadable(wrong.lineno, what, "mend it") from None
    # Numbers stay as they are written.
    parsed: _Object = json.loads(text, object_pairs_hook=_Object, parse_int=str, parse_float=str)
    return parsed


def _read_json(path: Path, text: str, layer: int) -> Iterator[Entry | ConfigFault]:
    """Read what `POST /connectors` takes (`name`, `config`), or what `PUT /connectors/NAME/config` does."""
    document = _parse_json(text)
    config = dict(document.pairs).get("config", document)
    if not isinstance(config, _Object):
        raise _Unreadable(
            1, "`config` is no JSON object", "write the connector's properties as Kafka Connect takes them"
        )
    at, line = 0, 1
    if config is not document:
        yield from _read_beside(path, text, document, config, layer)
        at = _find_key(text, "config", 0)
        line = _count_ends(text[:at]) + 1
    for key, value in config.pairs:
        before, at = at, _find_key(text, key, at)
        line += _count_ends(text[before:at])
        yield _read_member(path, key, value, line, layer)


def _read_beside(
    path: Path, text: str, document: _Object, config: _Object, layer: int
) -> Iterator[Entry | ConfigFault]:
    """Read the connector's name, which its properties may have too; the other properties belong to these."""
    for key, value in document.pairs:
        line = _count_ends(text[: _find_key(text, key, 0)]) + 1
        if key == "name" and "name" not in dict(config.pairs):
            yield _read_member(path, key, value, line, layer)
        elif key not in _BESIDE_CONFIG:
            yield _Unreadable(line, f"{key} stands beside `config`", "write it within").fault(path, layer)


def _find_key(text: str, key: str, start: int) -> int:
    """Where a key ends that comes behind `start`; there, if it is written in another way than usual."""
    found = re.compile(re.escape(orjson.dumps(key).decode()) + r"\s*:").search(text, start)
    return found.end() if found else start


def _read_member(path: Path, key: str, value: object, line: int, layer: int) -> Entry | ConfigFault:
    if isinstance(value, (_Object, list)) or value is None:
        return _Unreadable(line, f"the value of {key} is no text", "write it as one, in quotes").fault(path, layer)
    text = value if isinstance(value, str) else str(value).lower()
    return Entry(key, text.strip(), str(path), line, layer)


def _read_lines(path: Path, text: str, layer: int) -> Iterator[Entry | ConfigFault]:
    """A line that cannot be read is a fault; those behind it are read on."""
    line, lines = 1, _LINES.findall(text)
    if len(_LONE.findall(text)) > _SHOWN_LINES or "\0" in text:
        _check_text(text)
    for element in javaproperties.parse(_BROKEN_ESCAPE.sub(r"\1u", text)):
        below = line + _count_lines(element.source)
        if isinstance(element, javaproperties.KeyValue):
            source = "".join(lines[line - 1 : below - 1])
            try:
                _check_text(source, line)
                _check_escapes(source, line)
                yield Entry(element.key, element.value.strip(), str(path), line, layer)
            except _Unreadable as wrong:
                yield wrong.fault(path, layer)
        line = below


def _check_escapes(source: str, line: int) -> None:
    broken = _BROKEN_ESCAPE.search(source)
    if broken is not None:
        line += _count_ends(source[: broken.end()])
        raise _Unreadable(line, "a \\u escape is broken", "write \\u and four hex digits")


def _check_text(text: str, line: int = 1) -> str:
    """Refuse a text with bytes that are not UTF-8, at their line."""
    lone = _LONE.search(text)
    if lone is not None:
        line += _count_ends(text[: lone.start()])
        raise _Unreadable(line, "is not UTF-8", "save the file as UTF-8 or write \\uXXXX")
    return text


def _count_lines(source: str) -> int:
    """How many lines an element spans: \\n, \\r and \\r\\n end a line, nothing else does."""
    return _count_ends(source) + (not source.endswith(("\n", "\r")))


def _count_ends(source: str) -> int:
    return source.replace("\r\n", "\n").replace("\r", "\n").count("\n")


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as wrong:
        raise _Unreadable(0, f"cannot be read ({wrong.strerror})", "check the path and its rights") from None
