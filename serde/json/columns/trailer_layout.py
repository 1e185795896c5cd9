"""one message -> how its last fields are laid out: which of their bytes are the same in all messages laid out so.

What Debezium writes around the images is the same text in event after event, but for the digits of times and positions
and a few names. A layout says for each byte of these fields from which to which other bytes may stand there so that
the text stays JSON, of the same fields, and each value of its kind. No range that varies holds a quote, a backslash or
a control character, so where values begin and end cannot move.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from serde.arrays import Ints
from serde.faults import Unfit
from serde.json.row_reader import parse_message

Form = Literal["text", "number", "true", "false", "null"]
Path = tuple[str, ...]

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^{}\[\],:"\s]+')
_WHOLE = re.compile(rb"-?[0-9]+")
_ESCAPE = re.compile(rb'\\["\\/]')
_WORDS: dict[bytes, Form] = {b"true": "true", b"false": "false", b"null": "null"}
_MAX_DIGITS = {8: 2, 16: 4, 32: 9, 64: 19}
"""By the bits of a type: numbers of so many digits fit it; of 19 digits only those that do not begin with 9."""


def _range_tables(*ranges: bytes) -> tuple[bytes, bytes]:
    """Map each character to the first, and to the last, of the range that it is in; itself where it is in none."""
    first, last = bytearray(range(256)), bytearray(range(256))
    for low, high in ranges:
        first[low : high + 1], last[low : high + 1] = bytes([low]) * (high + 1 - low), bytes([high]) * (high + 1 - low)
    return bytes(first), bytes(last)


_DIGIT_RANGES = _range_tables(b"09")
_TEXT_RANGES = _range_tables(b"#[", b"]~")
"""Ranges without a quote or a backslash, which hold all other characters of ASCII but the blank and !."""


@frozen
class TrailerLeaf:
    """A value that is no object: its path, its form, and where in its message it stands; a text without its quotes."""

    path: Path
    form: Form
    start: int
    end: int

    def shift(self, begin: int) -> TrailerLeaf:
        """Return the leaf in the message from `begin` on."""
        return TrailerLeaf(self.path, self.form, self.start - begin, self.end - begin)


@define(eq=False)
class Member:
    """A top-level field: where it starts, its comma included, the leaves below it and the paths of its objects.

    `usable` is False for what no layout is made of: arrays, empty objects, names with escapes.
    """

    name: str
    start: int
    leaves: list[TrailerLeaf] = field(factory=list)
    objects: list[Path] = field(factory=list)
    usable: bool = True


def read_members(text: bytes) -> list[Member]:
    """Return the fields of a message that is one JSON object, none if it is not, or written with blanks or any name
    twice.
    """
    try:
        document = parse_message(text)
    except Unfit:
        return []
    if not isinstance(document, dict):
        return []
    walk = _Walk(text)
    return walk.members if walk.run() else []


class _Walk:
    """Goes through the tokens of a valid message."""

    def __init__(self, text: bytes) -> None:
        self.members: list[Member] = []
        self._text = text
        self._path: list[str] = []
        self._names: list[set[str]] = []
        self._arrays = 0
        self._name: str | None = None
        self._comma = 0

    def run(self) -> bool:
        """Return whether all of the text was tokens, each name once."""
        behind = 0
        for token in _TOKEN.finditer(self._text):
            if token.start() != behind or not self._take(token[0], token.start()):
                return False
            behind = token.end()
        return behind == len(self._text)

    def _take(self, token: bytes, at: int) -> bool:
        first = token[:1]
        if first in b"[]":
            self._arrays += 1 if first == b"[" else -1
            self.members[-1].usable, self._name = False, None
        elif self._arrays:
            return True
        elif first == b"{":
            self._open()
        elif first == b"}":
            self._names.pop()
            del self._path[-1:]
        elif first == b",":
            self._comma = at
        elif first != b":":
            return self._name_or_value(token, at)
        return True

    def _open(self) -> None:
        if self._names:
            self._path.append(self._name or "")
            self.members[-1].objects.append(tuple(self._path))
        self._names.append(set())
        self._name = None

    def _name_or_value(self, token: bytes, at: int) -> bool:
        if self._name is None:
            name = token[1:-1].decode()
            if name in self._names[-1]:
                return False
            self._names[-1].add(name)
            if not self._path:
                self.members.append(Member(name, self._comma))
            self.members[-1].usable &= "\\" not in name
            self._name = name
            return True
        quoted = token[:1] == b'"'
        form: Form = "text" if quoted else _WORDS.get(token, "number")
        leaf = TrailerLeaf((*self._path, self._name), form, at + quoted, at + len(token) - quoted)
        self.members[-1].leaves.append(leaf)
        self._name = None
        return True


@frozen
class TrailerLayout:
    """The last fields of messages: `low` and `high` say of each byte from which to which it may be.

    names: the top-level fields, and where each begins, with its comma; leaves count from the first byte. Layouts are
    equal if the bytes are: of the same ranges, the fields and their values are the same.
    """

    low: bytes
    high: bytes
    text: bytes = field(eq=False)
    names: tuple[str, ...] = field(eq=False)
    begins: tuple[int, ...] = field(eq=False)
    leaves: tuple[TrailerLeaf, ...] = field(eq=False)
    objects: frozenset[Path] = field(eq=False)

    def __len__(self) -> int:
        """Bytes of the fields."""
        return len(self.low)

    def places(self, leaf: TrailerLeaf) -> Ints:
        """Return where the characters of a text stand, without the backslashes in front of them."""
        escapes = [match.start() for match in _ESCAPE.finditer(self.text, leaf.start, leaf.end)]
        return np.setdiff1d(np.arange(leaf.start, leaf.end), escapes)

    def last(self, count: int) -> TrailerLayout:
        """Return the layout of the last `count` fields."""
        begin, names = self.begins[-count], self.names[-count:]
        leaves = tuple(leaf.shift(begin) for leaf in self.leaves if leaf.start > begin)
        objects = frozenset(path for path in self.objects if path[0] in names)
        begins = tuple(at - begin for at in self.begins[-count:])
        return TrailerLayout(self.low[begin:], self.high[begin:], self.text[begin:], names, begins, leaves, objects)


def type_at(kind: pa.StructType, path: Sequence[str]) -> pa.DataType | None:
    """Return the type of the field at a path, None when there is none."""
    inner: pa.DataType = kind
    for name in path:
        if not pa.types.is_struct(inner) or inner.get_field_index(name) < 0:
            return None
        inner = inner.field(inner.get_field_index(name)).type
    return inner


def fits(member: Member, text: bytes, kind: pa.StructType, *, strict: bool) -> bool:
    """Tell whether a layout can be made of a field: all its values are ones that the type takes as they are written."""
    if not member.usable or not (member.leaves or member.objects):
        return False
    types = [type_at(kind, path) for path in member.objects]
    if any(not (strict is False if type_ is None else pa.types.is_struct(type_)) for type_ in types):
        return False
    return all(_leaf_fits(leaf, text, type_at(kind, leaf.path), strict=strict) for leaf in member.leaves)


def _leaf_fits(leaf: TrailerLeaf, text: bytes, kind: pa.DataType | None, *, strict: bool) -> bool:
    if kind is None and strict:
        return False
    if leaf.form == "null":
        return True
    if leaf.form == "number":
        return _number_fits(text[leaf.start : leaf.end], pa.int64() if kind is None else kind)
    if leaf.form == "text":
        plain = b"\\" not in _ESCAPE.sub(b"", text[leaf.start : leaf.end])
        return plain and (kind is None or bool(pa.types.is_string(kind)))
    return kind is None or bool(pa.types.is_boolean(kind))


def _number_fits(word: bytes, kind: pa.DataType) -> bool:
    if not pa.types.is_signed_integer(kind) or not _WHOLE.fullmatch(word) or word == b"-0":
        return False
    digits, limit = word.lstrip(b"-"), _MAX_DIGITS[kind.bit_width]
    return len(digits) < limit or (len(digits) == limit and not (limit == _MAX_DIGITS[64] and digits[:1] == b"9"))


def build_layout(text: bytes, members: Sequence[Member]) -> TrailerLayout:
    """Return the layout of the last fields of a message, all of which fit (`fits`)."""
    begin = members[0].start
    low, high = bytearray(text[begin:]), bytearray(text[begin:])
    leaves = tuple(leaf.shift(begin) for member in members for leaf in member.leaves)
    for leaf in leaves:
        if leaf.form == "number":
            _widen_number(low, high, leaf)
        elif leaf.form == "text":
            _widen_text(low, high, leaf)
    objects = frozenset(path for member in members for path in member.objects)
    names, begins = zip(*((member.name, member.start - begin) for member in members), strict=True)
    return TrailerLayout(bytes(low), bytes(high), text[begin:], names, begins, leaves, objects)


def _widen_number(low: bytearray, high: bytearray, leaf: TrailerLeaf) -> None:
    start, negative = leaf.start, low[leaf.start] == ord("-")
    start += negative
    count = leaf.end - start
    low[start : leaf.end], high[start : leaf.end] = b"0" * count, b"9" * count
    # Neither 007 nor -0 is a number that stays as it is written.
    low[start] = ord("1") if count > 1 or negative else ord("0")
    high[start] = ord("8") if count == _MAX_DIGITS[64] else ord("9")


def _widen_text(low: bytearray, high: bytearray, leaf: TrailerLeaf) -> None:
    """Let the characters of a text vary; beside escapes only digits."""
    span = slice(leaf.start, leaf.end)
    content = bytes(low[span])
    tables = _TEXT_RANGES if b"\\" not in content else _DIGIT_RANGES
    low[span], high[span] = (content.translate(table) for table in tables)
